//! Solvers of the regularised empirical risk problems.
