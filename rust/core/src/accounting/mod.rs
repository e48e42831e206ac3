//! Privacy accounting: the Gaussian mechanism, sampled steps, noise inside objectives.
//!
//! Everything is normalised to sensitivity 1, and every result is rounded towards more noise, larger
//! epsilon, larger delta.

pub mod gaussian;
pub mod objective;
pub mod subsampled;
