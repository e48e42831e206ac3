"""One module a subject. Each offers ``run(plan)``: raw rows, and ``analyse(rows)``: a summary."""
