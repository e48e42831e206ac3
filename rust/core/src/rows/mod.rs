//! The rows of the user: a checked view, clipping to the norm bound, labels, moments, a shuffled copy.

pub(crate) mod clip;
pub(crate) mod labels;
pub mod moments;
pub(crate) mod shuffled;
pub mod sparse;
pub mod view;
