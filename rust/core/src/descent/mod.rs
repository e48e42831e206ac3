//! Private gradient descent on exact sums of clipped gradients.
//!
//! [`settings`] is the entry; a step goes from a [`batch`] over passes ([`dense`], [`sparse`]) with clipped [`gradients`] to an
//! [`exact_sum`], gets its noise in [`release`] and moves the weights in [`optimizer`]. [`streams`] draws
//! batches and noise.

pub(crate) mod batch;
pub mod bounds;
pub mod clipping;
pub(crate) mod dense;
pub(crate) mod dense_kernels;
pub mod drawn;
pub(crate) mod exact_leaf;
pub(crate) mod exact_sum;
pub(crate) mod gradients;
pub(crate) mod leaves;
pub mod optimizer;
pub(crate) mod passes;
pub(crate) mod release;
pub(crate) mod run;
pub mod settings;
pub(crate) mod sparse;
pub mod streams;
