//! Privacy laws of objective perturbation.

pub mod joint;
