//! The last part of the solver: a small working set, whose optimum is found exactly.

pub(crate) mod crossover;
pub(crate) mod face;
pub(crate) mod newton;
pub(crate) mod proximal;
pub(crate) mod system;
pub(crate) mod zero;
