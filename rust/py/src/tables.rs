//! Bindings of `dpsvm_core::tables`.

use crate::arrays::filled;
use crate::gate;
use dpsvm_core::tables::{Block, CellReader, Fault, RecordEnds, Slot, TextFormat};
use numpy::{PyArray1, PyArrayMethods};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyList, PyString};

/// Reads cells of whole records of text: numbers as features, words as places among those of a block.
#[pyclass(frozen, module = "dpsvm_fast._core")]
pub struct TextCells {
    reader: CellReader,
}

#[pymethods]
impl TextCells {
    /// `columns`: of each its kind, "ignored", "feature", "number" or "word", and its place.
    #[new]
    #[pyo3(signature = (columns, *, n_features, delimiter, quote, decimal, missing))]
    fn new(
        columns: Vec<(String, usize)>,
        n_features: usize,
        delimiter: &str,
        quote: &str,
        decimal: &str,
        missing: Vec<String>,
    ) -> PyResult<Self> {
        let slot = |(kind, place): (String, usize)| match kind.as_str() {
            "ignored" => Ok(Slot::Ignored),
            "feature" => Ok(Slot::Feature(place)),
            "number" => Ok(Slot::Number(place)),
            "word" => Ok(Slot::Word(place)),
            _ => Err(PyValueError::new_err("columns: unknown kind")),
        };
        let format = TextFormat {
            delimiter: mark(delimiter, "delimiter")?,
            quote: optional(quote)?,
            decimal: mark(decimal, "decimal")?,
            missing: missing.into_iter().map(String::into_bytes).collect(),
        };
        let columns = columns.into_iter().map(slot).collect::<PyResult<_>>()?;
        let reader = gate::brief(|| CellReader::new(format, columns, n_features))?;
        Ok(Self { reader })
    }

    /// At most `max_rows` rows of the text from `start` on: features and codes with some rows too
    /// many, the number of rows, the words of each code, the end, and what is wrong there: a column,
    /// "cells", "text" or "number", and the number of cells; or None.
    #[allow(clippy::type_complexity)]
    fn read<'py>(
        &self,
        py: Python<'py>,
        text: &[u8],
        start: usize,
        max_rows: usize,
    ) -> PyResult<(
        Bound<'py, PyAny>,
        Bound<'py, PyAny>,
        usize,
        Vec<Bound<'py, PyList>>,
        usize,
        Option<(usize, &'static str, usize)>,
    )> {
        let rest = text.get(start..).unwrap_or_default();
        let n_rows = CellReader::most_rows(rest).min(max_rows);
        let [n_features, n_codes] = self.reader.shape();
        let mut block = Block::default();
        let features = filled(py, [n_rows, n_features], |out: &mut [f32], interrupt| {
            block = self.reader.read(rest, out, interrupt)?;
            Ok(())
        })?;
        let words = block.words.iter().map(|words| {
            let words = words.iter().map(|word| PyString::from_bytes(py, word));
            PyList::new(py, words.collect::<PyResult<Vec<_>>>()?)
        });
        let fault = block.fault.map(|(column, fault)| match fault {
            Fault::Cells(n_cells) => (column, "cells", n_cells),
            Fault::Text => (column, "text", 0),
            Fault::Number => (column, "number", 0),
        });
        let codes = PyArray1::from_vec(py, block.codes).reshape([n_rows, n_codes])?;
        Ok((
            features,
            codes.into_any(),
            block.n_rows,
            words.collect::<PyResult<_>>()?,
            start + block.end,
            fault,
        ))
    }
}

/// Tells where records end in a text that comes in pieces.
#[pyclass(module = "dpsvm_fast._core", name = "RecordEnds")]
pub struct PyRecordEnds {
    ends: RecordEnds,
}

#[pymethods]
impl PyRecordEnds {
    #[new]
    fn new(quote: &str, delimiter: &str) -> PyResult<Self> {
        let ends = RecordEnds::new(optional(quote)?, mark(delimiter, "delimiter")?);
        Ok(Self { ends })
    }

    /// Where the first and the last record in this piece end; 0 if none ends.
    fn ends(&mut self, text: &[u8]) -> (usize, usize) {
        self.ends.next(text)
    }

    /// Whether the text ends inside a quoted cell.
    fn end_inside(&self) -> bool {
        self.ends.end_inside()
    }
}

/// One ASCII character.
fn mark(text: &str, name: &str) -> PyResult<u8> {
    <[u8; 1]>::try_from(text.as_bytes())
        .map(|[byte]| byte)
        .map_err(|_| PyValueError::new_err(format!("{name}: expected one ASCII character")))
}

/// A quote, or none.
fn optional(quote: &str) -> PyResult<Option<u8>> {
    (!quote.is_empty())
        .then(|| mark(quote, "quote"))
        .transpose()
}
