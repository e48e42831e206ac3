//! Solvers of the regularised empirical risk problems.
//!
//! [`dual_coordinate::solve`] (Crammer-Singer), [`smooth_erm::solve`] (smooth losses) and
//! [`projected_sgd::solve`] (iterates of known sensitivity) are the entries; the other modules are
//! their parts.

pub mod accurate;
pub mod ball;
pub mod certificate;
mod crossover;
pub mod dense_design;
pub mod descent;
pub mod design;
pub mod dual_coordinate;
pub mod exact_parts;
pub mod face;
pub mod frank_wolfe;
pub mod gaussian_margin;
pub mod gram;
pub mod kernels;
pub mod losses;
pub mod margin_distance;
pub mod measured;
pub mod newton;
pub mod newton_cg;
pub mod newton_parts;
pub mod noisy_descent;
pub mod parties;
pub mod passes;
pub mod problem;
pub mod product;
pub mod projected_sgd;
pub mod records;
mod records_centre;
pub mod records_file;
pub mod records_lift;
pub mod records_map;
pub mod records_sums;
mod records_transform;
mod row_space;
pub mod sample_inverse;
pub mod simplex;
pub mod smooth_erm;
pub mod smooth_problem;
pub mod sparse_design;
pub mod store;
