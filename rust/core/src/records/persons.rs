//! Owners of the rows, and weights.
//!
//! A person of several rows adds one vector to a sum, and that vector is bounded as a whole: the
//! rows of a person are summed in their order, what came out is shortened to the bound, rounded
//! towards zero and added exactly. How the first sum was rounded decides nothing. Persons of one row
//! go the way of rows. Proved in `docs/proofs/persons.md`.

use crate::error::{Result, require};
use crate::records::store::{ROW_GRID, RecordRows, Records};
use crate::rows::labels::check_weights;
use crate::runtime::interrupt::Interrupt;
use crate::runtime::memory::{append, collected, mapped, reserve, with_capacity, zeros};
use crate::runtime::threads::{map_blocks, pool_above};
use std::ops::Range;
use std::sync::OnceLock;

/// Owners and weights of rows; persons of one row come before those of several.
#[derive(Debug, Default)]
pub struct Owners {
    /// First row of each person of several rows, and the end; empty where there is none.
    several: Vec<usize>,
    /// Weights from 0 to 1; empty where all are 1.
    weight: Vec<f32>,
    /// Made when they are first asked for.
    pub(crate) products: OnceLock<Products>,
}

/// Rows of a person whose inner products are kept, at most: as many as a descent takes at a time.
const MAX_ROWS: usize = 64;
/// Kept if they are no more numbers than this many per entry of the rows, and some.
const PRODUCTS_PER_ENTRY: usize = 2;
/// Persons whose products are computed at a time.
const TOGETHER: usize = 64;

/// Inner products of the effective sparse rows of each person of few: of row i with those up to
/// itself, those with others twice.
///
/// Those of differences `x - m` are exact: multiples of the squared grid, and so are all terms,
/// `(64 + 1)^2` at most in all.
#[derive(Debug)]
pub(crate) struct Products {
    /// Squared norm of the centre, exact too.
    pub length: f64,
    /// Those of so many persons one after the other.
    value: Vec<Vec<f64>>,
    /// Range of each person among them.
    range: Vec<Range<u32>>,
}

impl Products {
    /// Those of a person, if they are kept.
    pub fn of(&self, person: usize) -> Option<&[f64]> {
        let range = &self.range[person];
        let kept = &self.value[person / TOGETHER][range.start as usize..range.end as usize];
        (!kept.is_empty()).then_some(kept)
    }
}

impl Owners {
    /// Owners of `rows` rows: first row of each person of several, in order, then `rows`;
    /// and all weights, none for 1 each.
    ///
    /// # Errors
    /// Starts that do not increase to the number of rows; weights of another number, or outside
    /// `[0, 1]`; no memory.
    pub fn new(rows: usize, several: &[i64], weight: &[f64]) -> Result<Self> {
        let starts = mapped(several, |start| {
            usize::try_from(*start).unwrap_or(usize::MAX)
        })?;
        let rising = starts.windows(2).all(|pair| pair[0] < pair[1]);
        let message = "expected increasing numbers of rows, the last one that of all";
        let right = rising && starts.last().is_none_or(|end| *end == rows) && starts.len() != 1;
        require(right, "persons", message)?;
        check_weights(weight, rows)?;
        Ok(Self {
            several: starts,
            weight: mapped(weight, |w| *w as f32)?,
            products: OnceLock::new(),
        })
    }
}

/// Norm 1 in units of the grid.
const LONGEST: f64 = 1.0 / ROW_GRID;

impl Records {
    /// Number of persons of one row; their rows come first.
    pub fn singles(&self) -> usize {
        self.owners
            .several
            .first()
            .map_or(self.len(), |first| *first)
    }

    /// Number of persons of several rows.
    pub fn several(&self) -> usize {
        self.owners.several.len().saturating_sub(1)
    }

    /// The rows of person `p` of several.
    pub(crate) fn person(&self, p: usize) -> Range<usize> {
        self.owners.several[p]..self.owners.several[p + 1]
    }

    /// Whether rows have weights.
    pub(crate) fn weighted(&self) -> bool {
        !self.owners.weight.is_empty()
    }

    /// Weight of a row.
    #[inline(always)]
    pub(crate) fn weight(&self, i: usize) -> f32 {
        self.owners.weight.get(i).copied().unwrap_or(1.0)
    }

    /// Names owners and weights.
    ///
    /// # Errors
    /// Owners of another number of rows.
    pub fn own(&mut self, several: &[i64], weight: &[f64]) -> Result<()> {
        self.owners = Owners::new(self.len(), several, weight)?;
        Ok(())
    }

    /// Multiplies the weight of every row by the factor of its class.
    ///
    /// # Errors
    /// Factors of another number, or outside `[0, 1]`; no memory.
    pub fn weigh(&mut self, factor: &[f64]) -> Result<()> {
        let inside = factor.iter().all(|f| (0.0..=1.0).contains(f));
        let message = "expected a number from 0 to 1 for each class";
        let right = factor.len() == self.n_classes && inside;
        require(right, "class_weight", message)?;
        let labels = self.label.iter().enumerate();
        let weights = labels.map(|(i, y)| self.weight(i) * factor[*y as usize] as f32);
        self.owners.weight = collected(weights)?;
        Ok(())
    }

    /// Inner products of the rows of persons of several; none where there are no such or rows are dense.
    ///
    /// # Errors
    /// No memory; an interrupt.
    pub(crate) fn products(
        &self,
        threads: usize,
        interrupt: &dyn Interrupt,
    ) -> Result<Option<&Products>> {
        let RecordRows::Sparse(stored) = &self.rows else {
            return Ok(None);
        };
        if self.several() == 0 || self.owners.products.get().is_some() {
            return Ok(self.owners.products.get());
        }
        let mut range = with_capacity(self.several())?;
        for p in 0..self.several() {
            let rows = self.person(p);
            let entries = stored.start[rows.end] - stored.start[rows.start];
            let m = rows.len();
            let numbers = m * (m + 1) / 2;
            let few = m <= MAX_ROWS && numbers <= PRODUCTS_PER_ENTRY * entries + MAX_ROWS;
            let before = match range.last() {
                Some(Range { end, .. }) if p % TOGETHER > 0 => *end,
                _ => 0,
            };
            range.push(before..before + if few { numbers as u32 } else { 0 });
        }
        let entries = |i: usize| {
            let row = stored.row(i);
            row.index.iter().zip(row.value)
        };
        let point = self.centre.as_ref().map(|centre| &*centre.point);
        let length = point.map_or(0.0, |point| point.iter().map(|m| m * m).sum());
        let blocks = self.several().div_ceil(TOGETHER);
        let pool = pool_above(threads, blocks, 2)?;
        let value = map_blocks(pool.as_deref(), blocks, interrupt, |block| {
            let persons = block * TOGETHER..self.several().min((block + 1) * TOGETHER);
            let size = range[persons.clone()].last().map_or(0, |range| range.end);
            let (mut found, mut room) = (with_capacity(size as usize)?, zeros(self.columns)?);
            for p in persons.filter(|p| !range[*p].is_empty()) {
                let rows = self.person(p);
                let inner = |room: &[f64], i: usize| -> f64 {
                    let terms = entries(i).map(|(j, x)| f64::from(*x) * room[*j as usize]);
                    terms.sum()
                };
                let mut near = [0.0; MAX_ROWS];
                for (near, i) in near.iter_mut().zip(rows.clone()) {
                    *near = point.map_or(0.0, |point| inner(point, i));
                }
                let factor = |i: usize| -> f64 {
                    let centre = self.centre.as_ref();
                    centre.map_or(1.0, |centre| f64::from(centre.factor[i]))
                };
                for (at, i) in rows.clone().enumerate() {
                    entries(i).for_each(|(j, x)| room[*j as usize] = f64::from(*x));
                    for (other, j) in rows.clone().take(at + 1).enumerate() {
                        let product = inner(&room, j) - near[at] - near[other] + length;
                        let times = if i == j { 1.0 } else { 2.0 };
                        found.push(times * product * (factor(i) * factor(j)));
                    }
                    entries(i).for_each(|(j, _)| room[*j as usize] = 0.0);
                }
            }
            Ok(found)
        })?;
        let made = Products {
            length,
            value,
            range,
        };
        Ok(Some(self.owners.products.get_or_init(|| made)))
    }

    /// Adds the mean of some rows of one person to `sum`, times their weight together where that is
    /// below 1; `room` holds a zero for every column and `touched` is overwritten.
    ///
    /// A multiple of the grid of norm at most 1, as exact squares of integers show.
    pub(crate) fn add_mean(
        &self,
        rows: Range<usize>,
        sum: &mut [f64],
        (room, touched): (&mut [f64], &mut Vec<u32>),
    ) -> Result<()> {
        let mut total = 0.0;
        touched.clear();
        for i in rows {
            let weight = f64::from(self.weight(i));
            total += weight;
            match &self.rows {
                RecordRows::Dense { value } => {
                    let row = &value[i * self.columns..][..self.columns];
                    let entries = room.iter_mut().zip(row);
                    entries.for_each(|(room, x)| *room += weight * f64::from(*x));
                }
                RecordRows::Sparse(rows) => {
                    let row = rows.row(i);
                    append(touched, row.index)?;
                    for (j, x) in row.entries() {
                        room[j] += weight * f64::from(x);
                    }
                }
                // Refused before.
                RecordRows::Lifted(_) => {}
            }
        }
        if let RecordRows::Dense { .. } = &self.rows {
            reserve(touched, self.columns)?;
            touched.extend(0..self.columns as u32);
        } else {
            touched.sort_unstable();
            touched.dedup();
        }
        let scale = 1.0 / ROW_GRID / f64::max(total, 1.0);
        let mut square = 0.0;
        for j in &*touched {
            let x = &mut room[*j as usize];
            *x = (*x * scale).trunc();
            square += *x * *x;
        }
        let shorter = if square > LONGEST * LONGEST {
            LONGEST / square.sqrt() * (1.0 - 4.0 * f64::EPSILON)
        } else {
            1.0
        };
        for j in &*touched {
            let x = &mut room[*j as usize];
            sum[*j as usize] += (*x * shorter).trunc() * ROW_GRID;
            *x = 0.0;
        }
        Ok(())
    }
}

/// Factor of at most 1 that brings a vector of computed squared norm `square`, the sum of `len`
/// squares, to a norm of at most `bound`, whatever was rounded; 0 where the norm is not finite.
#[inline(always)]
pub(crate) fn shortening(square: f64, len: usize, bound: f64) -> f64 {
    let norm = square.sqrt() * (1.0 + (len as f64 + 16.0) * f64::EPSILON);
    if norm <= bound {
        1.0
    } else if norm.is_finite() {
        bound / norm * (1.0 - 4.0 * f64::EPSILON)
    } else {
        0.0
    }
}

#[cfg(test)]
mod tests {
    use super::shortening;

    // Proof: persons, "Sums of gradients"
    #[test]
    fn what_was_shortened_is_short() {
        for norm in [1e-30_f64, 0.1, 0.25, 0.250_000_000_000_000_1, 3.0, 1e100] {
            let factor = shortening(norm * norm, 1, 0.25);
            assert!(factor <= 1.0 && norm * factor <= 0.25);
            assert!(norm < 0.25 - 1e-12 || norm * factor > 0.25 * (1.0 - 1e-12) || norm < 0.25);
        }
        assert_eq!(shortening(f64::INFINITY, 3, 1.0), 0.0);
        assert_eq!(shortening(f64::NAN, 3, 1.0), 0.0);
    }
}
