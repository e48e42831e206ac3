//! Tests of parts that the binding does not see: a part of the crate's own test program (src/lib.rs).

mod accounting_objective;
mod descent_batch;
mod descent_exact_leaf;
mod descent_gradients;
mod descent_leaves;
mod fourier;
mod layout_lines;
mod losses;
mod noise_discrete_gaussian;
mod noise_grid_gaussian;
mod noise_half_normal;
mod noise_karney;
mod noise_poisson_batch;
mod noise_selection;
mod noise_small_staircases;
mod noise_threads;
mod numeric_float;
mod numeric_normal;
mod rows_clip;
mod runtime_team;
mod solver_crammer_singer;
mod solver_parties;
mod solver_smooth_coarse;
pub(crate) mod toy;
