//! The two ways to sum contributions: leaves of dense rows, and sparse rows one by one.

use crate::descent::dense::DensePass;
use crate::descent::dense_kernels::padded;
use crate::descent::exact_sum::ExactSum;
use crate::descent::leaves::{LEAF, plant};
use crate::descent::passes::{LeafScratch, Precision, Rule, View};
use crate::descent::release::{COLUMNS_TOGETHER, Places};
use crate::descent::sparse::SparsePass;
use crate::error::{Error, Result};
use crate::layout::lines::{Lines, suited};
use crate::layout::weights::WeightLayout;
use crate::records::persons::Products;
use crate::records::store::{ROW_GRID, RecordRows, Records};
use crate::rows::sparse::Blocks;
use crate::runtime::memory::{reserve, resize};
use crate::simd::dispatch;
use std::ops::Range;

/// The records of one step.
#[derive(Debug, Default)]
pub struct Batch {
    /// Every record in its own order, unless [`Self::order`] is another.
    all: bool,
    order: Vec<u32>,
    /// Persons of several rows.
    persons: Vec<u32>,
    leaves: Vec<Range<usize>>,
    keys: Vec<u64>,
    before: Vec<u32>,
    tags: Vec<u32>,
}

impl Batch {
    /// All records.
    ///
    /// # Errors
    /// No memory.
    pub fn take_all(&mut self, records: &Records) -> Result<()> {
        self.all = true;
        for (list, n) in [
            (&mut self.order, records.singles()),
            (&mut self.persons, records.several()),
        ] {
            list.clear();
            reserve(list, n)?;
            list.extend(0..n as u32);
        }
        Ok(())
    }

    /// The persons that `fill` lists, those of several rows numbered behind all others.
    ///
    /// # Errors
    /// No memory.
    pub fn choose(
        &mut self,
        records: &Records,
        fill: impl FnOnce(usize, &mut Vec<u32>),
    ) -> Result<()> {
        self.all = false;
        let singles = records.singles();
        let n = singles + records.several();
        // Room for all takes no memory until it is written to.
        self.order.clear();
        reserve(&mut self.order, n)?;
        fill(n, &mut self.order);
        let first = self.order.partition_point(|p| (*p as usize) < singles);
        self.persons.clear();
        reserve(&mut self.persons, self.order.len() - first)?;
        let several = self.order.drain(first..);
        self.persons.extend(several.map(|p| p - singles as u32));
        Ok(())
    }

    /// Whether there are persons of several rows.
    pub fn has_persons(&self) -> bool {
        !self.persons.is_empty()
    }

    /// Number of records.
    pub fn records(&self, records: &Records) -> usize {
        let persons = self.persons.iter();
        let several = persons.map(|p| records.person(*p as usize).len());
        self.order.len() + several.sum::<usize>()
    }

    /// Cuts the batch into groups in its own order: for sums that do not depend on them.
    ///
    /// # Errors
    /// No memory.
    pub fn cut(&mut self) -> Result<()> {
        let n = self.order.len();
        self.leaves.clear();
        reserve(&mut self.leaves, n.div_ceil(LEAF))?;
        let groups = (0..n).step_by(LEAF);
        self.leaves
            .extend(groups.map(|first| first..n.min(first + LEAF)));
        Ok(())
    }

    /// Cuts the batch into leaves.
    ///
    /// # Errors
    /// No memory.
    pub fn plant(&mut self, tags: impl FnOnce(&mut [u32])) -> Result<()> {
        let n = self.order.len();
        resize(&mut self.tags, n)?;
        resize(&mut self.keys, n)?;
        resize(&mut self.before, n)?;
        self.leaves.clear();
        // Every record one at the worst, half full usually.
        reserve(&mut self.leaves, 4 * n.div_ceil(LEAF))?;
        tags(&mut self.tags);
        plant(
            &mut self.order,
            &self.tags,
            (&mut self.keys, &mut self.before),
            &mut self.leaves,
        );
        Ok(())
    }
}

/// The items below `split`, and the others counted from it.
fn parted(items: Range<usize>, split: usize) -> (Range<usize>, Range<usize>) {
    let (first, end) = (items.start, items.end);
    let others = first.max(split) - split..end.max(split) - split;
    (first.min(split)..end.min(split), others)
}

/// One thread's share of a step.
pub struct Worker<T> {
    /// Pieces to be added next.
    pub part: Range<usize>,
    /// The sum of those added.
    pub sum: ExactSum,
    /// Whether the sum is that of an earlier step.
    pub idle: bool,
    /// The first contribution that could not be added.
    pub error: Option<Error>,
    scratch: LeafScratch<T>,
}

/// A way to sum contributions.
pub trait Summation<T: Precision>: Sync {
    /// Whether batches need leaves.
    fn wants_leaves(&self) -> bool;
    /// Multiplications for one record, about.
    fn touched(&self) -> usize;
    /// An empty sum.
    ///
    /// # Errors
    /// No memory.
    fn sum(&self) -> Result<ExactSum>;
    /// A thread that has an empty sum and nothing to do.
    ///
    /// # Errors
    /// No memory.
    fn worker(&self) -> Result<Worker<T>> {
        Ok(Worker {
            part: 0..0,
            sum: self.sum()?,
            idle: true,
            error: None,
            scratch: LeafScratch::default(),
        })
    }
    /// The weights as the passes read them.
    ///
    /// # Errors
    /// No memory.
    fn view(&self, weights: &[f64], view: &mut View<T>) -> Result<()>;
    /// Pieces of work in a batch.
    fn items(&self, batch: &Batch) -> usize;
    /// Adds the contributions of the worker's part.
    ///
    /// # Errors
    /// A contribution that the sum cannot keep.
    fn pass(&self, batch: &Batch, view: &View<T>, worker: &mut Worker<T>) -> Result<()>;
    /// Place of each weight in the sum.
    fn places(&self) -> Places<'_>;
}

/// Leaves of dense rows.
pub struct DenseSummation<'r> {
    records: &'r Records,
    /// Entries that kernels read of a row.
    length: usize,
    ends: Vec<f32>,
    rule: Rule,
    unit: f64,
    exact: bool,
}

impl<'r> DenseSummation<'r> {
    /// Sums are multiples of `unit`; with `exact`, nothing else is rounded in them.
    ///
    /// # Errors
    /// No memory.
    pub fn new(records: &'r Records, rule: Rule, (unit, exact): (f64, bool)) -> Result<Self> {
        let (length, mut ends) = (padded(records.columns), Vec::new());
        if let RecordRows::Dense { value } = &records.rows {
            let kept = &value[value.len().saturating_sub(length)..];
            reserve(&mut ends, kept.len() + length)?;
            ends.extend_from_slice(kept);
            ends.resize(kept.len() + length, 0.0);
        }
        Ok(Self {
            records,
            length,
            ends,
            rule,
            unit,
            exact,
        })
    }
}

/// Weights count as no larger than this: no score or square leaves the single-precision numbers.
const LARGEST: f64 = 1e15;

/// `x`, no larger than that; weights that overflowed count as the bound too.
fn bounded(x: f64) -> f64 {
    // Unlike `clamp`, these return a number if x is NaN.
    #[allow(clippy::manual_clamp)]
    x.max(-LARGEST).min(LARGEST)
}

/// `rho W` without intercepts, scores and columns these distances apart, and `rho s W` of the
/// intercepts.
fn split_weights<T: Precision>(
    (rule, d): (&Rule, usize),
    weights: &[f64],
    view: &mut View<T>,
    strides: (usize, usize),
) -> Result<()> {
    let (rho, s) = (rule.clip.row_scale, rule.clip.intercept);
    let columns = rule.columns(d);
    view.bias.clear();
    reserve(&mut view.bias, rule.loss.scores)?;
    for first in (0..d).step_by(COLUMNS_TOGETHER) {
        let end = d.min(first + COLUMNS_TOGETHER);
        for (k, line) in weights.chunks_exact(columns).enumerate() {
            let out = view.w[k * strides.0 + first * strides.1..].iter_mut();
            let line = line[first..end].iter();
            // Neighbours are met in vectors.
            if strides.1 == 1 {
                out.zip(line)
                    .for_each(|(v, w)| *v = T::near(bounded(rho * w)));
            } else {
                let out = out.step_by(strides.1);
                out.zip(line)
                    .for_each(|(v, w)| *v = T::near(bounded(rho * w)));
            }
        }
    }
    for line in weights.chunks_exact(columns) {
        let bias = line.get(d).map_or(0.0, |w| rho * s * w);
        view.bias.push(T::near(bounded(bias)));
    }
    Ok(())
}

impl<T: Precision> Summation<T> for DenseSummation<'_> {
    fn places(&self) -> Places<'_> {
        let columns = self.rule.columns(self.records.columns);
        Places {
            shape: (self.rule.loss.scores, columns),
            strides: (columns, 1),
            intercepts: None,
            centre: None,
        }
    }

    fn wants_leaves(&self) -> bool {
        true
    }

    fn touched(&self) -> usize {
        let made = match &self.records.rows {
            RecordRows::Lifted(rows) => rows.work(),
            RecordRows::Dense { .. } | RecordRows::Sparse(_) => 0,
        };
        2 * self.rule.loss.scores * self.records.columns + made
    }

    fn sum(&self) -> Result<ExactSum> {
        let columns = self.rule.columns(self.records.columns);
        ExactSum::new(self.rule.loss.scores * columns, self.unit)
    }

    fn view(&self, weights: &[f64], view: &mut View<T>) -> Result<()> {
        resize(&mut view.w, self.rule.loss.scores * self.length)?;
        let places = (self.length, 1);
        split_weights((&self.rule, self.records.columns), weights, view, places)
    }

    fn items(&self, batch: &Batch) -> usize {
        batch.leaves.len() + batch.persons.len()
    }

    fn pass(&self, batch: &Batch, view: &View<T>, worker: &mut Worker<T>) -> Result<()> {
        let (leaves, persons) = parted(worker.part.clone(), batch.leaves.len());
        dispatch(DensePass {
            records: self.records,
            length: self.length,
            ends: &self.ends,
            order: &batch.order,
            leaves: &batch.leaves[leaves],
            persons: &batch.persons[persons],
            exact: self.exact,
            rule: self.rule,
            view,
            sum: &mut worker.sum,
            scratch: &mut worker.scratch,
        })
    }
}

/// Sparse rows one by one.
pub struct SparseSummation<'r> {
    /// The records.
    pub records: &'r Records,
    /// Inner products of the rows of persons.
    pub products: Option<&'r Products>,
    /// Blocks of the records, for full batches.
    pub blocks: Option<&'r Blocks>,
    /// Public numbers.
    pub rule: Rule,
}

impl SparseSummation<'_> {
    fn layout(&self) -> Lines {
        Lines::new(self.rule.loss.scores, self.records.columns)
    }

    /// Rows of a piece of work, and the number of pieces.
    fn pieces(&self, batch: &Batch) -> (usize, usize) {
        let blocks = self.blocks.filter(|_| batch.all);
        let each = blocks.map_or(1, |blocks| blocks.rows);
        (each, batch.order.len().div_ceil(each))
    }
}

impl<T: Precision> Summation<T> for SparseSummation<'_> {
    fn places(&self) -> Places<'_> {
        let (k, d) = (self.rule.loss.scores, self.records.columns);
        let stored = self.layout().stored();
        let centre = self.records.centre.as_ref();
        let columns = self.rule.columns(d);
        Places {
            shape: (k, columns),
            strides: (1, k),
            intercepts: (columns > d).then_some(stored + k),
            centre: centre.map(|centre| (&*centre.point, stored)),
        }
    }

    fn wants_leaves(&self) -> bool {
        false
    }

    fn touched(&self) -> usize {
        let each = self.records.n_stored() / self.records.len().max(1) + 1;
        // The sum is in double precision.
        3 * each * self.layout().padded_classes().max(4)
    }

    fn sum(&self) -> Result<ExactSum> {
        let len = self.layout().stored() + 2 * self.rule.loss.scores;
        ExactSum::new(len, self.rule.coefficient_grid * ROW_GRID)
    }

    fn view(&self, weights: &[f64], view: &mut View<T>) -> Result<()> {
        let d = self.records.columns;
        resize(&mut view.w, self.layout().stored())?;
        let strides = (1, self.rule.loss.scores);
        split_weights((&self.rule, d), weights, view, strides)?;
        let columns = self.rule.columns(d);
        let rho = self.rule.clip.row_scale;
        let shift = |line: &[f64]| {
            let Some(centre) = &self.records.centre else {
                return T::default();
            };
            let products = line.iter().zip(&centre.point).map(|(w, m)| w * m);
            T::near(bounded(rho * products.sum::<f64>()))
        };
        view.shift.clear();
        reserve(&mut view.shift, self.rule.loss.scores)?;
        view.shift.extend(weights.chunks_exact(columns).map(shift));
        Ok(())
    }

    fn items(&self, batch: &Batch) -> usize {
        self.pieces(batch).1 + batch.persons.len()
    }

    fn pass(&self, batch: &Batch, view: &View<T>, worker: &mut Worker<T>) -> Result<()> {
        let (each, pieces) = self.pieces(batch);
        let (pieces, persons) = parted(worker.part.clone(), pieces);
        let end = batch.order.len().min(pieces.end * each);
        let pass = SparsePass {
            records: self.records,
            places: end.min(pieces.start * each)..end,
            persons: &batch.persons[persons],
            order: (!batch.all).then_some(&batch.order),
            products: self.products,
            blocks: self.blocks.filter(|_| batch.all),
            rule: self.rule,
            layout: self.layout(),
            view,
            sum: &mut worker.sum,
            scratch: &mut worker.scratch,
        };
        suited(self.rule.loss.scores, pass)
    }
}
