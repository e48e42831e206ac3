//! The view of the user's rows that everything in the core reads data through.
//!
//! A record enters the mathematics as the row `u = quantise(clip(x, data_norm) / 2^e)` followed by
//! the intercept feature, where
//! - `clip` scales `x` down to Euclidean norm at most `data_norm`,
//! - `2^e` is the power of two with `2^(e-1) < row_norm <= 2^e`, so the division is exact,
//! - `quantise` rounds every entry to single precision towards zero.
//!
//! This is a deterministic function of one record, and its norm after all rounding is at most
//! `row_norm / 2^e <= 1`, which is all that the sensitivity proofs use. X itself is never copied;
//! a solver may keep the rows in a compact form of its own.

use crate::error::{Result, in_range, require};
use crate::rows::clip::{Scale, towards_zero};
use crate::runtime::interrupt::{Interrupt, Never, poll};
use crate::runtime::memory::grow;
use crate::simd::prefetch;

/// The same work on numbers of either of two types.
macro_rules! either {
    ($value:expr, $one:path | $other:path, ($($field:pat),+) => $work:expr) => {
        match $value {
            $one($($field),+) => $work,
            $other($($field),+) => $work,
        }
    };
}
pub(crate) use either;

/// Stored values of X: single or double precision.
#[derive(Debug, Clone, Copy)]
pub enum Values<'a> {
    /// Double precision.
    F64(&'a [f64]),
    /// Single precision.
    F32(&'a [f32]),
}

/// Column indices and row pointers of a CSR matrix.
#[derive(Debug, Clone, Copy)]
pub enum CsrIndex<'a> {
    /// 32-bit indices and row pointers.
    I32(&'a [i32], &'a [i32]),
    /// 64-bit indices and row pointers.
    I64(&'a [i64], &'a [i64]),
}

impl CsrIndex<'_> {
    /// Number of rows that the row pointers name; what else is in them is checked with the values.
    pub fn n_rows(&self) -> usize {
        either!(self, Self::I32 | Self::I64, (_, starts) => starts.len()).saturating_sub(1)
    }
}

/// Memory layout of the values.
#[derive(Debug, Clone, Copy)]
pub enum Layout<'a> {
    /// C order, every entry stored.
    Dense,
    /// Compressed sparse rows, columns strictly increasing within a row.
    Csr(CsrIndex<'a>),
}

/// Columns of the stored entries of one row.
#[derive(Debug, Clone, Copy)]
pub enum Columns<'a> {
    /// Every column, in order.
    All,
    /// 32-bit indices.
    I32(&'a [i32]),
    /// 64-bit indices.
    I64(&'a [i64]),
}

impl Columns<'_> {
    /// `visit(column, value)` for the stored values of the row.
    #[inline(always)]
    pub(crate) fn each<T: Copy>(self, values: &[T], mut visit: impl FnMut(usize, T)) {
        match self {
            Self::All => (0..).zip(values).for_each(|(j, x)| visit(j, *x)),
            Self::I32(c) => c
                .iter()
                .zip(values)
                .for_each(|(j, x)| visit(*j as usize, *x)),
            Self::I64(c) => c
                .iter()
                .zip(values)
                .for_each(|(j, x)| visit(*j as usize, *x)),
        }
    }
}

/// Public bounds that turn a record into a row.
#[derive(Debug, Clone, Copy)]
pub struct RowBounds {
    /// Rows longer than this are scaled down to it.
    pub data_norm: f64,
    /// Value of the constant feature; 0 for none.
    pub intercept: f64,
}

impl RowBounds {
    /// For rows that are taken as they are: nothing is clipped by norm.
    pub const FREE: Self = Self {
        data_norm: 1.0,
        intercept: 0.0,
    };

    /// Upper bound of the norm of a row with its intercept, rounded up.
    pub fn row_norm(&self) -> f64 {
        if self.intercept == 0.0 {
            return self.data_norm;
        }
        libm::hypot(self.data_norm, self.intercept) * (1.0 + 4.0 * f64::EPSILON)
    }

    /// The exponent `e` of the scaling `2^e` with `2^(e-1) < row_norm <= 2^e`.
    pub fn exponent(&self) -> i32 {
        let (mantissa, exponent) = libm::frexp(self.row_norm());
        exponent - i32::from(mantissa == 0.5)
    }

    fn check(&self) -> Result<()> {
        let accepted = 1e-100..=1e100;
        in_range("data_norm", self.data_norm, accepted.clone())?;
        let message = format_args!("got {:e}, expected 0 or 1e-100 to 1e100", self.intercept);
        let right = self.intercept == 0.0 || accepted.contains(&self.intercept);
        require(right, "intercept_scaling", message)
    }
}

/// One row ready for arithmetic: its values, in single precision unless that of the arithmetic is
/// another, and their columns unless dense.
#[derive(Debug, Clone, Copy)]
pub struct Row<'a, T = f32> {
    /// Columns of the values, strictly increasing; empty for a dense row.
    pub index: &'a [u32],
    /// The quantised entries, intercept last.
    pub value: &'a [T],
}

impl<'a> Row<'a> {
    /// Columns with their entries.
    #[inline(always)]
    pub fn entries(self) -> impl Iterator<Item = (usize, f32)> + 'a {
        let column = move |at: usize| self.index.get(at).map_or(at, |j| *j as usize);
        let values = self.value.iter().enumerate();
        values.map(move |(at, x)| (column(at), *x))
    }

    /// Writes the entries to their columns in `out`.
    pub(crate) fn spread(self, out: &mut [f64]) {
        self.entries().for_each(|(j, x)| out[j] = f64::from(x));
    }
}

/// Room for one row made on the fly.
#[derive(Debug, Default, Clone)]
pub(crate) struct RowBuffer {
    /// Columns (left empty for dense rows).
    pub index: Vec<u32>,
    /// Values.
    pub value: Vec<f32>,
}

/// Checked view over a user's matrix.
#[derive(Debug, Clone, Copy)]
pub struct Rows<'a> {
    values: Values<'a>,
    layout: Layout<'a>,
    n_rows: usize,
    n_features: usize,
    bounds: RowBounds,
    /// `2^-e`, exact.
    shrink: f64,
    /// The intercept entry after scaling and quantisation.
    intercept: f32,
}

impl<'a> Rows<'a> {
    /// A view over `n_rows` rows of `n_features` features.
    ///
    /// # Errors
    /// Shapes that do not agree, CSR indices out of range or out of order, bounds out of range.
    /// Values are not read here: a value that is not finite is refused when its row is.
    pub fn new(
        values: Values<'a>,
        layout: Layout<'a>,
        shape: (usize, usize),
        bounds: RowBounds,
    ) -> Result<Self> {
        Self::watched(values, layout, shape, bounds, &Never)
    }

    /// [`Rows::new`], which the interrupt can end while it looks at indices.
    ///
    /// # Errors
    /// As for [`Rows::new`]; [`crate::Error::Interrupted`].
    pub fn watched(
        values: Values<'a>,
        layout: Layout<'a>,
        shape: (usize, usize),
        bounds: RowBounds,
        interrupt: &dyn Interrupt,
    ) -> Result<Self> {
        bounds.check()?;
        let (n_rows, n_features) = shape;
        let stored = either!(values, Values::F64 | Values::F32, (v) => v.len());
        let message = "more than 2^32 - 2 features";
        require(n_features < u32::MAX as usize, "X", message)?;
        match layout {
            Layout::Dense => {
                let agree = n_rows.checked_mul(n_features) == Some(stored);
                require(agree, "X", "data and shape do not agree")?;
            }
            Layout::Csr(index) => {
                either!(index, CsrIndex::I32 | CsrIndex::I64, (columns, starts) => {
                    check_csr(columns, starts, stored, shape, interrupt)?;
                });
            }
        }
        let shrink = libm::ldexp(1.0, -bounds.exponent());
        let intercept = towards_zero(bounds.intercept * shrink);
        let message = "too small beside data_norm for single precision";
        let right = bounds.intercept == 0.0 || intercept != 0.0;
        require(right, "intercept_scaling", message)?;
        Ok(Self {
            values,
            layout,
            n_rows,
            n_features,
            bounds,
            shrink,
            intercept,
        })
    }

    /// Some neighbouring rows of a dense matrix; nothing for a sparse one, or out of range.
    #[must_use]
    pub fn dense_part(&self, rows: std::ops::Range<usize>) -> Option<Self> {
        let part = rows.start * self.n_features..rows.end.checked_mul(self.n_features)?;
        let values = match self.values {
            _ if !self.is_dense() => return None,
            Values::F64(v) => Values::F64(v.get(part)?),
            Values::F32(v) => Values::F32(v.get(part)?),
        };
        Some(Self {
            values,
            n_rows: rows.len(),
            ..*self
        })
    }

    /// Number of rows.
    pub fn n_rows(&self) -> usize {
        self.n_rows
    }

    /// Number of columns of a row, the intercept included.
    pub fn n_columns(&self) -> usize {
        self.n_features + usize::from(self.intercept != 0.0)
    }

    /// Refuses a map from other numbers of columns, or into room for other numbers of rows.
    pub(crate) fn check_map(&self, columns: usize, outputs: usize, room: usize) -> Result<()> {
        let message = format_args!("got rows of {}, expected {columns}", self.n_columns());
        require(self.n_columns() == columns, "X", message)?;
        let message = "has room for another number of rows";
        let right = self.n_rows().checked_mul(outputs) == Some(room);
        require(right, "out", message)
    }

    /// The public bounds.
    pub fn bounds(&self) -> RowBounds {
        self.bounds
    }

    /// Whether every entry is stored.
    pub fn is_dense(&self) -> bool {
        matches!(self.layout, Layout::Dense)
    }

    /// Number of entries in the user's matrix, the stored ones alone.
    pub fn n_stored(&self) -> usize {
        either!(self.values, Values::F64 | Values::F32, (v) => v.len())
    }

    /// Row `i` as the user stored it: values and their columns.
    #[inline(always)]
    pub fn stored(&self, i: usize) -> (Values<'a>, Columns<'a>) {
        let range = self.range(i);
        let columns = match self.layout {
            Layout::Dense => Columns::All,
            Layout::Csr(CsrIndex::I32(c, _)) => Columns::I32(&c[range.clone()]),
            Layout::Csr(CsrIndex::I64(c, _)) => Columns::I64(&c[range.clone()]),
        };
        let values = match self.values {
            Values::F64(v) => Values::F64(&v[range]),
            Values::F32(v) => Values::F32(&v[range]),
        };
        (values, columns)
    }

    /// Non-zero entries of row `i` in the user's matrix (stored zeros not counted).
    pub fn count_non_zero(&self, i: usize) -> usize {
        let range = self.range(i);
        let count = either!(self.values, Values::F64 | Values::F32, (v) => {
            v[range].iter().filter(|x| **x != 0.0).count()
        });
        count + usize::from(self.intercept != 0.0)
    }

    /// Appends row `i` to `out`: every entry if `dense`, else the non-zero ones with columns.
    ///
    /// # Errors
    /// A value that is not finite; no memory.
    #[inline(always)]
    pub(crate) fn append(&self, i: usize, dense: bool, out: &mut RowBuffer) -> Result<()> {
        let range = self.range(i);
        let entries = if dense { self.n_features } else { range.len() };
        let room = entries
            + match (self.layout, dense) {
                (Layout::Dense, false) => RUN,
                _ => usize::from(self.intercept != 0.0),
            };
        grow(&mut out.value, room)?;
        if !dense {
            grow(&mut out.index, room)?;
        }
        either!(self.values, Values::F64 | Values::F32, (v) => {
            self.append_values(i, &v[range], dense, out)?;
        });
        if self.intercept != 0.0 {
            out.value.push(self.intercept);
            if !dense {
                out.index.push(self.n_features as u32);
            }
        }
        Ok(())
    }

    /// Asks for row `i` to be brought near.
    #[inline(always)]
    pub(crate) fn prefetch(&self, i: usize) {
        let (values, columns) = self.stored(i);
        either!(values, Values::F64 | Values::F32, (v) => prefetch(v));
        match columns {
            Columns::I32(c) => prefetch(c),
            Columns::I64(c) => prefetch(c),
            Columns::All => {}
        }
    }

    /// Indices of the stored entries of row `i`.
    pub(crate) fn range(&self, i: usize) -> std::ops::Range<usize> {
        match self.layout {
            Layout::Dense => i * self.n_features..(i + 1) * self.n_features,
            Layout::Csr(index) => either!(index, CsrIndex::I32 | CsrIndex::I64, (_, starts) => {
                starts[i] as usize..starts[i + 1] as usize
            }),
        }
    }

    #[inline(always)]
    fn append_values<T: Copy + Into<f64>>(
        &self,
        i: usize,
        x: &[T],
        dense: bool,
        out: &mut RowBuffer,
    ) -> Result<()> {
        let scale = Scale::of(x, self.bounds.data_norm, self.shrink)?;
        let first = out.value.len();
        let quantised = x.iter().map(|x| towards_zero(scale.apply((*x).into())));
        match (self.layout, dense) {
            (Layout::Dense, true) => out.value.extend(quantised),
            (Layout::Dense, false) => {
                for (run, x) in x.chunks(RUN).enumerate() {
                    if x.iter().fold(0, |bits, x| bits | (*x).into().to_bits()) << 1 != 0 {
                        let mut entries = [0.0; RUN];
                        for (entry, x) in entries.iter_mut().zip(x) {
                            *entry = towards_zero(scale.apply((*x).into()));
                        }
                        append_non_zero(run * RUN, &entries, out);
                    }
                }
            }
            (Layout::Csr(index), false) => {
                out.value.extend(quantised);
                let range = self.range(i);
                either!(index, CsrIndex::I32 | CsrIndex::I64, (c, _) => {
                    out.index.extend(c[range].iter().map(|c| *c as u32));
                });
            }
            (Layout::Csr(index), true) => {
                out.value.resize(first + self.n_features, 0.0);
                for (at, value) in (self.range(i).start..).zip(quantised) {
                    let column =
                        either!(index, CsrIndex::I32 | CsrIndex::I64, (c, _) => c[at] as usize);
                    out.value[first + column] = value;
                }
            }
        }
        Ok(())
    }
}

/// Entries of a dense row that are looked at together: most of a sparse one's are all zeros. They need
/// room for as many more than are kept, which then holds the intercept.
pub(crate) const RUN: usize = 16;

/// Appends those of `entries` that are not 0, with their columns, from `column` on. Every entry is
/// written and the place moves on only past the non-zero ones, so there is no branch to mispredict.
#[inline(always)]
fn append_non_zero(column: usize, entries: &[f32; RUN], out: &mut RowBuffer) {
    let first = (out.value.len(), out.index.len());
    out.value.extend_from_slice(entries);
    out.index.extend_from_slice(&[0; RUN]);
    let (value, index) = (&mut out.value[first.0..], &mut out.index[first.1..]);
    let mut kept = 0;
    for (at, entry) in entries.iter().enumerate() {
        (value[kept], index[kept]) = (*entry, (column + at) as u32);
        kept += usize::from(*entry != 0.0);
    }
    out.value.truncate(first.0 + kept);
    out.index.truncate(first.1 + kept);
}

fn check_csr<I: Copy + PartialOrd + TryInto<usize>>(
    columns: &[I],
    starts: &[I],
    stored: usize,
    (n_rows, n_features): (usize, usize),
    interrupt: &dyn Interrupt,
) -> Result<()> {
    let whole =
        |right: bool, what: &str| require(right, "X", format_args!("malformed CSR matrix: {what}"));
    let value = |i: I| i.try_into().unwrap_or(usize::MAX);
    let lengths = columns.len() == stored && starts.len() == n_rows + 1;
    whole(lengths, "lengths of data, indices and indptr do not agree")?;
    let spanned = value(starts[0]) == 0 && value(starts[n_rows]) == stored;
    whole(spanned, "indptr does not span the stored entries")?;
    for (i, pair) in starts.windows(2).enumerate() {
        poll(i, interrupt)?;
        let (from, to) = (value(pair[0]), value(pair[1]));
        whole(from <= to && to <= stored, "indptr decreases")?;
        let row = &columns[from..to];
        // To the end of the row, so that it runs in vectors.
        let turns: usize = (row.windows(2)).map(|c| usize::from(c[0] >= c[1])).sum();
        whole(turns == 0, "indices unsorted or repeated within a row")?;
        let inside = |column: Option<&I>| column.is_none_or(|c| value(*c) < n_features);
        whole(
            inside(row.first()) && inside(row.last()),
            "column index out of range",
        )?;
    }
    Ok(())
}
