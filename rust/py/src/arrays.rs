//! The only file that reaches numpy memory: arrays cross without copies, checked for dtype and order.

use crate::errors::invalid;
use crate::gate;
use dpsvm_core::Result;
use dpsvm_core::rows::view::{CsrIndex, Layout, RowBounds, Rows, Values};
use dpsvm_core::runtime::interrupt::Interrupt;
use numpy::ndarray::Dimension;
use numpy::{
    Element, PyArray1, PyArrayDyn, PyArrayMethods, PyReadonlyArray, PyReadonlyArray1,
    PyUntypedArray, PyUntypedArrayMethods,
};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyTuple;

/// A held view of an array of values in either precision.
pub enum ValueArray<'py, D: Dimension> {
    /// Double precision.
    F64(PyReadonlyArray<'py, f64, D>),
    /// Single precision.
    F32(PyReadonlyArray<'py, f32, D>),
}

impl<D: Dimension> ValueArray<'_, D> {
    /// Length along each axis.
    pub fn shape(&self) -> &[usize] {
        match self {
            Self::F64(array) => array.shape(),
            Self::F32(array) => array.shape(),
        }
    }

    /// The memory, which must be C-contiguous.
    pub fn values(&self, name: &str) -> PyResult<Values<'_>> {
        match self {
            Self::F64(array) => contiguous(array, name).map(Values::F64),
            Self::F32(array) => contiguous(array, name).map(Values::F32),
        }
    }
}

impl<'py, D: Dimension> FromPyObject<'_, 'py> for ValueArray<'py, D> {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        if let Ok(array) = object.extract() {
            return Ok(Self::F64(array));
        }
        if let Ok(array) = object.extract() {
            return Ok(Self::F32(array));
        }
        Err(wrong(&object, "values", "a float64 or float32 array"))
    }
}

/// Held views of a CSR matrix's index arrays.
pub enum IndexArrays<'py> {
    /// 32-bit.
    I32(PyReadonlyArray1<'py, i32>, PyReadonlyArray1<'py, i32>),
    /// 64-bit.
    I64(PyReadonlyArray1<'py, i64>, PyReadonlyArray1<'py, i64>),
}

impl<'py> IndexArrays<'py> {
    /// Takes `indices` and `indptr`, both int32 or both int64.
    pub fn extract(indices: &Bound<'py, PyAny>, indptr: &Bound<'py, PyAny>) -> PyResult<Self> {
        if let (Ok(i), Ok(p)) = (indices.extract(), indptr.extract()) {
            return Ok(Self::I32(i, p));
        }
        if let (Ok(i), Ok(p)) = (indices.extract(), indptr.extract()) {
            return Ok(Self::I64(i, p));
        }
        let what = "int32 or int64 arrays, one dtype for indices and indptr";
        Err(wrong(indices, "indices, indptr", what))
    }

    /// The memory.
    pub fn index(&self) -> PyResult<CsrIndex<'_>> {
        Ok(match self {
            Self::I32(i, p) => CsrIndex::I32(contiguous(i, "indices")?, contiguous(p, "indptr")?),
            Self::I64(i, p) => CsrIndex::I64(contiguous(i, "indices")?, contiguous(p, "indptr")?),
        })
    }
}

/// The rows of a call: an array, or `(data, indices, indptr, n_features)` of a CSR matrix.
pub enum Matrix<'py> {
    /// An array of two dimensions.
    Dense(ValueArray<'py, numpy::Ix2>),
    /// A CSR matrix of this many columns.
    Csr(ValueArray<'py, numpy::Ix1>, IndexArrays<'py>, usize),
}

impl<'py> FromPyObject<'_, 'py> for Matrix<'py> {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        let Ok(parts) = object.cast::<PyTuple>() else {
            return object.extract().map(Self::Dense);
        };
        let (data, indices, indptr, n_features): (_, Bound<'_, _>, Bound<'_, _>, _) =
            parts.extract()?;
        let index = IndexArrays::extract(&indices, &indptr)?;
        Ok(Self::Csr(data, index, n_features))
    }
}

impl Matrix<'_> {
    /// Whether the values are in single precision.
    pub fn is_single(&self) -> bool {
        matches!(
            self,
            Self::Dense(ValueArray::F32(_)) | Self::Csr(ValueArray::F32(_), ..)
        )
    }

    /// The rows; all indices of a CSR matrix are looked at.
    pub fn rows(&self, bounds: RowBounds) -> PyResult<Rows<'_>> {
        match self {
            Self::Dense(values) => {
                let shape = (values.shape()[0], values.shape()[1]);
                let values = values.values("X")?;
                gate::brief(|| Rows::new(values, Layout::Dense, shape, bounds))
            }
            Self::Csr(data, index, n_features) => {
                let (values, index) = (data.values("data")?, index.index()?);
                let shape = (index.n_rows(), *n_features);
                gate::run(|interrupt| {
                    Rows::watched(values, Layout::Csr(index), shape, bounds, interrupt)
                })
            }
        }
    }
}

/// One number for each record, or nothing.
pub fn each<'a, T: Element>(numbers: Option<&'a PyReadonlyArray1<'_, T>>) -> PyResult<&'a [T]> {
    numbers.map_or(Ok(&[]), |numbers| {
        contiguous(numbers, "numbers of the records")
    })
}

/// The memory of an array, which must be C-contiguous.
pub fn contiguous<'a, T: Element, D: Dimension>(
    array: &'a PyReadonlyArray<'_, T, D>,
    name: &str,
) -> PyResult<&'a [T]> {
    let order = || PyTypeError::new_err(format!("{name}: expected C order (row-major)"));
    // A slice would be had of Fortran order too, with the entries in other places.
    if !array.is_c_contiguous() {
        return Err(order());
    }
    array.as_slice().map_err(|_| order())
}

/// The memory of an array, which must be C-contiguous and of this shape.
pub fn shaped<'a, T: Element, D: Dimension>(
    array: &'a PyReadonlyArray<'_, T, D>,
    shape: &[usize],
    name: &'static str,
) -> PyResult<&'a [T]> {
    if array.shape() != shape {
        let message = format!("got shape {:?}, expected {shape:?}", array.shape());
        return Err(invalid(name, message));
    }
    contiguous(array, name)
}

/// Numbers that become an array of this shape.
pub struct Array<T> {
    numbers: Vec<T>,
    shape: Vec<usize>,
}

impl<T> Array<T> {
    /// Array of one dimension.
    pub fn line(numbers: Vec<T>) -> Self {
        let shape = [numbers.len()];
        Self::shaped(numbers, shape)
    }

    /// Array of any shape.
    pub fn shaped(numbers: Vec<T>, shape: impl Into<Vec<usize>>) -> Self {
        let shape = shape.into();
        Self { numbers, shape }
    }
}

impl Array<i64> {
    /// Whole numbers in halves, the high ones first.
    pub fn halves(numbers: Vec<i64>, [rows, columns]: [usize; 2]) -> Self {
        Self::shaped(numbers, [2, rows, columns])
    }
}

impl<'py, T: Element> IntoPyObject<'py> for Array<T> {
    type Target = PyArrayDyn<T>;
    type Output = Bound<'py, PyArrayDyn<T>>;
    type Error = PyErr;

    fn into_pyobject(self, py: Python<'py>) -> PyResult<Self::Output> {
        PyArray1::from_vec(py, self.numbers).reshape(self.shape)
    }
}

/// "name: got X, expected Y" as a `TypeError`; says dtype and rank, never values.
fn wrong(object: &Bound<'_, PyAny>, name: &str, expected: &str) -> PyErr {
    let got = match object.cast::<PyUntypedArray>() {
        Ok(array) => format!(
            "an array of dtype {} and rank {}",
            array.dtype(),
            array.ndim()
        ),
        Err(_) => object
            .get_type()
            .name()
            .map_or_else(|_| "another object".to_owned(), |n| n.to_string()),
    };
    PyTypeError::new_err(format!("{name}: got {got}, expected {expected}"))
}

/// An array that `work` fills. numpy's memory comes in large pages, which are faster to touch; asked
/// for through Python, a lack of it is an error and no panic.
pub fn filled<T: Element + Send>(
    shape: [usize; 2],
    work: impl FnOnce(&mut [T], &dyn Interrupt) -> Result<()> + Send,
) -> PyResult<Py<PyAny>> {
    Python::attach(|py| {
        let made = py.import("numpy")?;
        let made = made.call_method1("zeros", ((shape[0], shape[1]), T::get_dtype(py)))?;
        let array = made.cast_into::<numpy::PyArray2<T>>()?;
        {
            let mut view = array.try_readwrite()?;
            let out = view.as_slice_mut()?;
            gate::run(|interrupt| work(out, interrupt))?;
        }
        Ok(array.into_any().unbind())
    })
}
