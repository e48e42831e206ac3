//! The only file that reaches numpy memory: arrays cross without copies, checked for dtype and order.

use crate::gate;
use dpsvm_core::Result;
use dpsvm_core::rows::view::{CsrIndex, Layout, RowBounds, Rows, Values};
use dpsvm_core::runtime::interrupt::Interrupt;
use numpy::{
    PyArray1, PyArrayDyn, PyArrayMethods, PyReadonlyArray1, PyUntypedArray, PyUntypedArrayMethods,
};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyTuple;

/// A held view of an array of values in either precision.
pub enum ValueArray<'py, D: numpy::ndarray::Dimension> {
    /// Double precision.
    F64(numpy::PyReadonlyArray<'py, f64, D>),
    /// Single precision.
    F32(numpy::PyReadonlyArray<'py, f32, D>),
}

impl<D: numpy::ndarray::Dimension> ValueArray<'_, D> {
    /// Length along each axis.
    pub fn shape(&self) -> &[usize] {
        match self {
            Self::F64(array) => array.shape(),
            Self::F32(array) => array.shape(),
        }
    }
}

impl<'py, D: numpy::ndarray::Dimension> FromPyObject<'_, 'py> for ValueArray<'py, D> {
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

impl<D: numpy::ndarray::Dimension> ValueArray<'_, D> {
    /// The memory, which must be C-contiguous.
    pub fn values(&self, name: &str) -> PyResult<Values<'_>> {
        match self {
            Self::F64(array) => contiguous(array, name).map(Values::F64),
            Self::F32(array) => contiguous(array, name).map(Values::F32),
        }
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
        let order = |_| PyTypeError::new_err("indices, indptr: expected contiguous arrays");
        Ok(match self {
            Self::I32(i, p) => {
                CsrIndex::I32(i.as_slice().map_err(order)?, p.as_slice().map_err(order)?)
            }
            Self::I64(i, p) => {
                CsrIndex::I64(i.as_slice().map_err(order)?, p.as_slice().map_err(order)?)
            }
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
    pub fn rows(&self, py: Python<'_>, bounds: RowBounds) -> PyResult<Rows<'_>> {
        match self {
            Self::Dense(values) => {
                let shape = (values.shape()[0], values.shape()[1]);
                let values = values.values("X")?;
                gate::brief(|| Rows::new(values, Layout::Dense, shape, bounds))
            }
            Self::Csr(data, index, n_features) => {
                let (values, index) = (data.values("data")?, index.index()?);
                let shape = (index.n_rows(), *n_features);
                gate::run(py, |interrupt| {
                    Rows::watched(values, Layout::Csr(index), shape, bounds, interrupt)
                })
            }
        }
    }
}

/// One number for each record, or nothing.
pub fn each<'a, T: numpy::Element>(
    numbers: Option<&'a PyReadonlyArray1<'_, T>>,
) -> PyResult<&'a [T]> {
    numbers.map_or(Ok(&[]), |numbers| {
        contiguous(numbers, "numbers of the records")
    })
}

/// The memory of an array, which must be C-contiguous.
pub fn contiguous<'a, T: numpy::Element, D: numpy::ndarray::Dimension>(
    array: &'a numpy::PyReadonlyArray<'_, T, D>,
    name: &str,
) -> PyResult<&'a [T]> {
    let order = || PyTypeError::new_err(format!("{name}: expected C order (row-major)"));
    // A slice would be had of Fortran order too, with the entries in other places.
    if !array.is_c_contiguous() {
        return Err(order());
    }
    array.as_slice().map_err(|_| order())
}

/// Numbers that become an array of this shape.
pub struct Array<T> {
    numbers: Vec<T>,
    shape: Vec<usize>,
}

impl<T> Array<T> {
    /// Of one dimension.
    pub fn line(numbers: Vec<T>) -> Self {
        let shape = [numbers.len()];
        Self::shaped(numbers, shape)
    }

    /// Of any.
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

impl<'py, T: numpy::Element> IntoPyObject<'py> for Array<T> {
    type Target = PyArrayDyn<T>;
    type Output = Bound<'py, PyArrayDyn<T>>;
    type Error = PyErr;

    fn into_pyobject(self, py: Python<'py>) -> PyResult<Self::Output> {
        PyArray1::from_vec(py, self.numbers).reshape(self.shape)
    }
}

/// Takes `object` as a float64 matrix of this shape.
pub fn matrix_of<'py>(
    object: &Bound<'py, PyAny>,
    shape: [usize; 2],
    name: &str,
) -> PyResult<numpy::PyReadonlyArray2<'py, f64>> {
    let values: numpy::PyReadonlyArray2<'py, f64> = object
        .extract()
        .map_err(|_| wrong(object, name, "a two-dimensional float64 array"))?;
    if values.shape() != shape {
        let got = values.shape();
        let message = format!("{name}: got shape {got:?}, expected {shape:?}");
        return Err(PyValueError::new_err(message));
    }
    Ok(values)
}

/// Takes `object` as whole numbers in halves: a matrix of `shape`, or of any square one.
pub fn read_parts<'py>(
    object: &Bound<'py, PyAny>,
    shape: Option<[usize; 2]>,
    name: &str,
) -> PyResult<numpy::PyReadonlyArray3<'py, i64>> {
    let parts: numpy::PyReadonlyArray3<'py, i64> = object
        .extract()
        .map_err(|_| wrong(object, name, "a three-dimensional int64 array"))?;
    let got = parts.shape();
    let [rows, columns] = shape.unwrap_or([got[1], got[1]]);
    if got != [2, rows, columns] {
        let message = format!(
            "{name}: got shape {got:?}, expected {:?}",
            [2, rows, columns]
        );
        return Err(PyValueError::new_err(message));
    }
    Ok(parts)
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
pub fn filled<T: numpy::Element + Send>(
    py: Python<'_>,
    shape: [usize; 2],
    work: impl FnOnce(&mut [T], &dyn Interrupt) -> Result<()> + Send,
) -> PyResult<Bound<'_, PyAny>> {
    let made = py.import("numpy")?;
    let made = made.call_method1("zeros", ((shape[0], shape[1]), T::get_dtype(py)))?;
    let array = made.cast_into::<numpy::PyArray2<T>>()?;
    {
        let mut view = array.try_readwrite()?;
        let out = view.as_slice_mut()?;
        gate::run(py, |interrupt| work(out, interrupt))?;
    }
    Ok(array.into_any())
}
