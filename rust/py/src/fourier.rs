//! Bindings of `dpsvm_core::fourier`.

use crate::arrays::{Array, Matrix, filled};
use crate::gate;
use crate::options::{Keywords, Options};
use dpsvm_core::fourier::transform::transform;
use dpsvm_core::fourier::{Centre, Family, FourierMap as Map, FourierSettings, Structure};
use dpsvm_core::rows::view::RowBounds;
use dpsvm_core::runtime::copied;
use pyo3::prelude::*;
use std::sync::Arc;

/// Random Fourier features: public, drawn from a public seed, immutable.
#[pyclass(frozen, module = "dpsvm_fast._core")]
pub struct FourierMap {
    pub(crate) map: Arc<Map>,
}

#[pymethods]
impl FourierMap {
    #[new]
    #[pyo3(signature = (**options))]
    fn new(options: Option<Keywords>) -> PyResult<Self> {
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
        let settings = Options::read(options, |o| {
            Ok(FourierSettings {
                features: o.take("n_features")?,
                components: o.take("n_components")?,
                gamma: o.take("gamma")?,
                family: o.named("kernel", &families)?,
                structure: o.named("structure", &structures)?,
                centre: o.named("centre", &centres)?,
                seed: o.take("seed")?,
            })
        })?;
        let map = gate::run(|_| Map::new(settings))?;
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
    fn weights(&self) -> PyResult<Array<f64>> {
        let weights = gate::run(|_| self.map.weights())?;
        let shape = [self.n_components(), self.n_features()];
        Ok(Array::shaped(weights, shape))
    }

    /// Constants subtracted from the cosines.
    fn constants(&self) -> PyResult<Array<f64>> {
        let constants = gate::brief(|| copied(self.map.constants()))?;
        Ok(Array::line(constants))
    }

    /// Features of the rows, in their precision.
    fn transform(&self, X: Matrix<'_>, n_threads: usize) -> PyResult<Py<PyAny>> {
        let (map, rows) = (&*self.map, X.rows(RowBounds::FREE)?);
        let shape = [rows.n_rows(), map.outputs()];
        if X.is_single() {
            let prepared = gate::run(|_| map.single())?;
            return filled(shape, |out, interrupt| {
                transform(map, prepared, &rows, out, n_threads, interrupt)
            });
        }
        let prepared = gate::run(|_| map.double())?;
        filled(shape, |out, interrupt| {
            transform(map, prepared, &rows, out, n_threads, interrupt)
        })
    }
}
