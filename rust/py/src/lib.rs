//! The compiled module `dpsvm_fast._core`: registration only.

// Arguments are Python's: matrices are called X, views are handed over, and there may be many.
#![allow(
    non_snake_case,
    clippy::needless_pass_by_value,
    clippy::too_many_arguments
)]

mod accounting;
mod arrays;
mod crammer_singer;
mod descent;
mod ellipsoids;
mod errors;
mod fourier;
mod gate;
mod images;
mod linalg;
mod moments;
mod noise;
mod options;
mod parties;
mod projected_sgd;
mod records;
mod shards;
mod smooth;
mod subsampled;
mod tables;
mod uncopyable;

use dpsvm_core::runtime::threads::default_threads;
use dpsvm_core::simd::level_name;
use pyo3::exceptions::{PyAttributeError, PyOSError};
use pyo3::prelude::*;
use pyo3::types::PyDict;

/// Build options of this module, and its defaults.
///
/// `profile` is "release" or "debug": benchmarks refuse a debug build.
#[pyfunction]
fn build_info(py: Python<'_>) -> PyResult<Bound<'_, PyDict>> {
    let info = PyDict::new(py);
    info.set_item("version", env!("CARGO_PKG_VERSION"))?;
    let debug = cfg!(debug_assertions);
    info.set_item("profile", if debug { "debug" } else { "release" })?;
    info.set_item("simd", level_name())?;
    info.set_item("default_threads", default_threads())?;
    Ok(info)
}

/// Says where a panic was and not what its message is: that may hold an index, which may be data.
fn keep_messages_to_ourselves() {
    std::panic::set_hook(Box::new(|panic| {
        if let Some(place) = panic.location() {
            eprintln!("dpsvm_fast: internal error at {place}");
        }
    }));
}

/// Whether there are random numbers: PyO3 keeps classes in tables that are hashed with some, and the
/// standard library panics where the system gives none.
#[allow(clippy::disallowed_types)]
fn found_entropy() -> bool {
    std::panic::set_hook(Box::new(|_| {}));
    let found = std::panic::catch_unwind(std::hash::RandomState::new);
    keep_messages_to_ourselves();
    found.is_ok()
}

/// Looks again for random numbers when something of a module is used that found none at its import.
#[pyfunction(pass_module)]
fn __getattr__<'py>(m: &Bound<'py, PyModule>, name: &str) -> PyResult<Bound<'py, PyAny>> {
    if name.starts_with("__") {
        return Err(PyAttributeError::new_err(name.to_owned()));
    }
    if !found_entropy() {
        let message = "the operating system gives no random numbers, which noise is made of";
        return Err(PyOSError::new_err(message));
    }
    m.delattr("__getattr__")?;
    register(m)?;
    m.getattr(name)
}

/// Compiled core of `dpsvm_fast`. Private: use the Python package.
#[pymodule(gil_used = false)]
fn _core(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_function(wrap_pyfunction!(build_info, m)?)?;
    if found_entropy() {
        return register(m);
    }
    m.add_function(wrap_pyfunction!(__getattr__, m)?)
}

/// Adds all that may need random numbers.
fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    macro_rules! classes {
        ($($module:ident: $($class:ident),*;)*) => {
            $($(m.add_class::<$module::$class>()?;)*)*
        };
    }
    macro_rules! functions {
        ($($module:ident: $($function:ident),*;)*) => {
            $($(m.add_function(wrap_pyfunction!($module::$function, m)?)?;)*)*
        };
    }
    classes! {
        descent: Descent;
        fourier: FourierMap;
        gate: UsualArithmetic;
        noise: NoiseSource;
        records: Records;
        shards: ShardedRun;
        subsampled: LossDistribution;
        tables: TextCells, PyRecordEnds;
    }
    functions! {
        accounting: gaussian_sigma, gaussian_delta, gaussian_epsilon;
        accounting: objective_delta, objective_log_determinant, objective_profile, objective_sigma;
        crammer_singer: solve_crammer_singer;
        descent: clipped_sum_distance, descent_rounding;
        ellipsoids: solve_gaussian_margin_batch, solve_gaussian_margin;
        images: oriented_gradients;
        linalg: symmetric_eigen, row_products;
        moments: column_moments;
        parties: solve_smooth_parties, solve_crammer_singer_parties, projected_sgd_parties;
        projected_sgd: projected_sgd, projected_sgd_orders, projected_sgd_rounding;
        smooth: solve_smooth, solve_smooth_batch;
        subsampled: subsampled_gaussian_delta, subsampled_gaussian_epsilon;
        subsampled: subsampled_gaussian_noise_multiplier;
    }
    Ok(())
}
