//! Losses as functions of the scores of one record, with their constants.

pub(crate) mod margin_distance;
pub mod smooth;
