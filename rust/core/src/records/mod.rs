//! Private records: rows of norm at most 1 on a grid, whose sums are exact.
//!
//! [`map`] makes them of the user's rows, [`store`] keeps them, [`centre`], [`transform`] and [`lift`] change them,
//! [`sums`] adds them up for [`persons`] too, [`parts`] and [`files`] carry sums and rows elsewhere.

pub(crate) mod centre;
pub mod files;
pub(crate) mod lift;
pub mod map;
pub mod parts;
pub mod persons;
pub mod store;
pub mod sums;
pub(crate) mod transform;
