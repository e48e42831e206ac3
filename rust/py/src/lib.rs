//! The compiled module `dpsvm_fast._core`: registration only.

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

use pyo3::exceptions::{PyAttributeError, PyOSError};
use pyo3::prelude::*;
use pyo3::types::PyDict;

/// How this module was built and what it uses by default.
///
/// `profile` is "release" or "debug": benchmarks refuse a debug build.
#[pyfunction]
fn build_info(py: Python<'_>) -> PyResult<Bound<'_, PyDict>> {
    let info = PyDict::new(py);
    info.set_item("version", env!("CARGO_PKG_VERSION"))?;
    info.set_item(
        "profile",
        if cfg!(debug_assertions) {
            "debug"
        } else {
            "release"
        },
    )?;
    info.set_item("simd", dpsvm_core::simd::level_name())?;
    info.set_item(
        "default_threads",
        dpsvm_core::runtime::threads::default_threads(),
    )?;
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
    if name.starts_with("__") || !found_entropy() {
        return Err(if name.starts_with("__") {
            PyAttributeError::new_err(name.to_owned())
        } else {
            PyOSError::new_err(
                "the operating system gives no random numbers, which noise is made of",
            )
        });
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
    gate::register(m)?;
    accounting::register(m)?;
    moments::register(m)?;
    descent::register(m)?;
    fourier::register(m)?;
    images::register(m)?;
    ellipsoids::register(m)?;
    linalg::register(m)?;
    noise::register(m)?;
    parties::register(m)?;
    subsampled::register(m)?;
    projected_sgd::register(m)?;
    records::register(m)?;
    shards::register(m)?;
    smooth::register(m)?;
    tables::register(m)?;
    crammer_singer::register(m)?;
    Ok(())
}
