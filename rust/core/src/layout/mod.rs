//! Layouts of weights in memory, and their products with rows.
//!
//! [`weights`] says what a layout can do with one row: [`lines`] are for sparse rows, [`class_major`]
//! for dense ones. [`tiles`] and [`lines`] meet many rows at a time.

pub(crate) mod class_major;
pub(crate) mod lines;
pub(crate) mod tiles;
pub(crate) mod weights;
