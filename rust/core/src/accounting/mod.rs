//! Calibration and accounting of the Gaussian mechanism.
//!
//! `normal` evaluates the normal tail, `gaussian` the privacy curve of the Gaussian mechanism with
//! a bound on its own rounding error, `calibration` inverts that curve. Everything is normalised to
//! sensitivity 1, and every result is rounded towards more noise, larger epsilon, larger delta.

pub mod calibration;
pub mod gaussian;
pub mod normal;
mod normal_tables;
pub mod objective;
pub mod pld;
