//! Smooth losses, minimised until the gradient is certified to be small.
//!
//! [`erm`] is the entry, [`newton_cg`] the method over passes through rows in [`blocks`] or [`sparse`] rows and columns; few
//! rows are solved in their own space ([`row_space`]).

pub(crate) mod blocks;
pub(crate) mod coarse;
pub(crate) mod erm;
pub(crate) mod newton_cg;
pub(crate) mod newton_parts;
pub(crate) mod problem;
pub(crate) mod row_space;
pub(crate) mod sample_inverse;
pub(crate) mod sparse;

pub use erm::{solve, solve_batch};
pub use problem::{SmoothSettings, SmoothSolution};
