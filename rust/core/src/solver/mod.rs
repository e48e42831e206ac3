//! Solvers of the regularised empirical risk problems; [`parties`] runs them for many parties at once.

pub mod crammer_singer;
pub mod ellipsoids;
pub mod parties;
pub mod projected_sgd;
pub mod smooth;

/// Minimisers of many problems.
#[derive(Debug, Clone, PartialEq)]
pub struct Fits {
    /// The weights of all problems, one after the other, in the user's units, score after score; 0
    /// where not certified.
    pub weights: Vec<f64>,
    /// Whether each problem's weights are certified.
    pub certified: Vec<bool>,
}
