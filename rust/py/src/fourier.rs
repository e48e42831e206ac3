//! Bindings of `dpsvm_core::fourier`.

use crate::arrays::{Array, Matrix, filled};
use crate::gate;
use crate::options::named;
use dpsvm_core::fourier::transform::transform;
use dpsvm_core::fourier::{Centre, Family, FourierMap as Map, FourierSettings, Structure};
use dpsvm_core::rows::view::{RowBounds, Rows};
use pyo3::prelude::*;
use std::sync::Arc;

/// Random Fourier features: public, drawn from a public seed, immutable.
#[pyclass(frozen, module = "dpsvm_fast._core")]
pub struct FourierMap {
    pub(crate) map: Arc<Map>,
}

impl FourierMap {
    fn features<'py>(
        &self,
        py: Python<'py>,
        rows: &Rows<'_>,
        single: bool,
        n_threads: usize,
    ) -> PyResult<Bound<'py, PyAny>> {
        let shape = [rows.n_rows(), self.map.outputs()];
        let map = &*self.map;
        if single {
            let prepared = gate::run(py, |_| map.single())?;
            return filled(py, shape, |out, interrupt| {
                transform(map, prepared, rows, out, n_threads, interrupt)
            });
        }
        let prepared = gate::run(py, |_| map.double())?;
        filled(py, shape, |out, interrupt| {
            transform(map, prepared, rows, out, n_threads, interrupt)
        })
    }
}

#[pymethods]
impl FourierMap {
    #[new]
    #[pyo3(signature = (*, n_features, n_components, gamma, kernel, structure, centre, seed))]
    fn new(
        py: Python<'_>,
        n_features: usize,
        n_components: usize,
        gamma: f64,
        kernel: &str,
        structure: &str,
        centre: &str,
        seed: u64,
    ) -> PyResult<Self> {
        let settings = || {
            let families = [("rbf", Family::Gaussian), ("laplacian", Family::Laplacian)];
            let structures = [
                ("independent", Structure::Independent),
                ("orthogonal", Structure::Orthogonal),
                ("fast", Structure::Fast),
            ];
            let centres = [
                ("none", Centre::Zero),
                ("sphere", Centre::Sphere),
                ("ball", Centre::Ball),
            ];
            Ok(FourierSettings {
                features: n_features,
                components: n_components,
                gamma,
                family: named("kernel", kernel, &families)?,
                structure: named("structure", structure, &structures)?,
                centre: named("centre", centre, &centres)?,
                seed,
            })
        };
        let map = gate::run(py, |_| Map::new(settings()?))?;
        Ok(Self { map: Arc::new(map) })
    }

    /// Columns of a row.
    #[getter]
    fn n_features(&self) -> usize {
        self.map.settings().features
    }

    /// Number of frequencies; a row of features has twice as many entries.
    #[getter]
    fn n_components(&self) -> usize {
        self.map.settings().components
    }

    /// The frequencies, one a row.
    fn weights(&self, py: Python<'_>) -> PyResult<Array<f64>> {
        let weights = gate::run(py, |_| self.map.weights())?;
        let shape = [self.n_components(), self.n_features()];
        Ok(Array::shaped(weights, shape))
    }

    /// What is subtracted from the cosines.
    fn constants(&self) -> Array<f64> {
        Array::line(self.map.constants().to_vec())
    }

    /// Features of the rows, in their precision.
    #[pyo3(signature = (X, n_threads))]
    fn transform<'py>(
        &self,
        py: Python<'py>,
        X: Matrix<'py>,
        n_threads: usize,
    ) -> PyResult<Bound<'py, PyAny>> {
        let rows = X.rows(py, RowBounds::FREE)?;
        self.features(py, &rows, X.is_single(), n_threads)
    }
}
