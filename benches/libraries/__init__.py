"""One adapter a library: what is called, with which settings, and how its optimum maps to ours."""
