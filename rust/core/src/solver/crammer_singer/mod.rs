//! The Crammer-Singer machine, minimised to a certified distance.
//!
//! [`dual_coordinate`] is the entry: rough passes over the rows ([`epoch`]), a [`certificate`], and the
//! [`end_game`] in the space of a small working set ([`gram`]); [`frank_wolfe`] where that is not enough.

pub(crate) mod accurate;
pub(crate) mod certificate;
pub(crate) mod dual_coordinate;
pub(crate) mod end_game;
pub(crate) mod epoch;
pub(crate) mod frank_wolfe;
pub(crate) mod gram;
pub(crate) mod leap;
pub(crate) mod problem;
pub(crate) mod simplex;

pub use dual_coordinate::{CrammerSingerSolution, solve};
pub use problem::CrammerSingerSettings;
