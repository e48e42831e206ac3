//! Bindings of `dpsvm_core::tables`.

use crate::arrays::{Array, filled};
use crate::gate;
use crate::options::{Keywords, Options};
use dpsvm_core::tables::{Block, CellReader, Fault, RecordEnds, Slot, TextFormat};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyString;

/// Features, codes, number of rows, words of each code, where the last row ends, what is wrong there.
type Cells<'py> = (
    Py<PyAny>,
    Array<i32>,
    usize,
    Vec<Vec<Bound<'py, PyString>>>,
    usize,
    Option<(usize, &'static str, usize)>,
);

/// Reads cells of whole records of text: numbers as features, words as places among those of a block.
#[pyclass(frozen, module = "dpsvm_fast._core")]
pub struct TextCells {
    reader: CellReader,
}

#[pymethods]
impl TextCells {
    /// `columns`: of each its kind, "ignored", "feature", "number" or "word", and its place.
    #[new]
    #[pyo3(signature = (columns, **options))]
    fn new(columns: Vec<(String, usize)>, options: Option<Keywords>) -> PyResult<Self> {
        let slot = |(kind, place): (String, usize)| match kind.as_str() {
            "ignored" => Ok(Slot::Ignored),
            "feature" => Ok(Slot::Feature(place)),
            "number" => Ok(Slot::Number(place)),
            "word" => Ok(Slot::Word(place)),
            _ => Err(PyValueError::new_err("columns: unknown kind")),
        };
        let (format, n_features) = Options::read(options, |o| {
            let missing: Vec<String> = o.take("missing")?;
            let format = TextFormat {
                delimiter: mark(&o.take::<String>("delimiter")?, "delimiter")?,
                quote: optional(&o.take::<String>("quote")?)?,
                decimal: mark(&o.take::<String>("decimal")?, "decimal")?,
                missing: missing.into_iter().map(String::into_bytes).collect(),
            };
            Ok((format, o.take("n_features")?))
        })?;
        let columns = columns.into_iter().map(slot).collect::<PyResult<_>>()?;
        let reader = gate::brief(|| CellReader::new(format, columns, n_features))?;
        Ok(Self { reader })
    }

    /// At most `max_rows` rows of the text from `start` on: features and codes with some rows too
    /// many, the number of rows, the words of each code, the end, and what is wrong there: a column,
    /// "cells", "text" or "number", and the number of cells; or None.
    fn read<'py>(
        &self,
        py: Python<'py>,
        text: &[u8],
        start: usize,
        max_rows: usize,
    ) -> PyResult<Cells<'py>> {
        let rest = text.get(start..).unwrap_or_default();
        let n_rows = CellReader::max_rows(rest).min(max_rows);
        let [n_features, n_codes] = self.reader.shape();
        let mut block = Block::default();
        let features = filled([n_rows, n_features], |out: &mut [f32], interrupt| {
            block = self.reader.read(rest, out, interrupt)?;
            Ok(())
        })?;
        let words = block.words.iter().map(|words| {
            let words = words.iter().map(|word| PyString::from_bytes(py, word));
            words.collect()
        });
        let fault = block.fault.map(|(column, fault)| match fault {
            Fault::Cells(n_cells) => (column, "cells", n_cells),
            Fault::Text => (column, "text", 0),
            Fault::Number => (column, "number", 0),
        });
        Ok((
            features,
            Array::shaped(block.codes, [n_rows, n_codes]),
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

    /// Ends of the first and the last record in this piece; 0 if none ends.
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
