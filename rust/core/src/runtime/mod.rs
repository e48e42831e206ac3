//! Runtime of long computations: threads, tasks, teams, memory, an interrupt, a rounding mode.
//!
//! Work is cut into blocks whose boundaries are constants of the problem and whose results are combined
//! in block order: no result depends on the number of threads.

pub mod float_mode;
pub mod interrupt;
pub(crate) mod memory;
pub mod tasks;
pub(crate) mod team;
pub mod threads;

pub use memory::copied;
