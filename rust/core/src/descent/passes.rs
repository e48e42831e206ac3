//! One pass over some records: scores, gradients, clipping, and the sum of the contributions.

use crate::descent::clipping::Clip;
use crate::descent::dense_kernels::{leaf_scores, leaf_sum};
use crate::descent::exact_leaf::{Tile, exact_sum};
use crate::descent::exact_sum::{ExactSum, ROUNDING};
use crate::descent::gradients::{Lanes, Members, one_by_one, single};
use crate::descent::leaves::LEAF;
use crate::error::Result;
use crate::layout::weights::{WeightLayout, typed};
use crate::linalg::gemm::Product;
use crate::loss::smooth::SmoothLoss;
use crate::records::lift::LiftRoom;
use crate::records::store::{ROW_GRID, RecordRows, Records};
use crate::rows::view::Row;
use crate::simd::{Kernel, Simd};
use std::ops::Range;

/// Single or double precision of the scores and of sums within a leaf.
pub trait Precision: Product {
    /// Turns the scores of a leaf into the coefficients of its contributions.
    fn gradients(
        rule: &Rule,
        members: Members<'_>,
        scores: &mut [[Self; LEAF]],
        room: (&mut Vec<Self>, &mut Vec<f32>),
    );
}

impl Precision for f32 {
    #[inline(always)]
    fn gradients(
        rule: &Rule,
        members: Members<'_>,
        scores: &mut [[Self; LEAF]],
        _room: (&mut Vec<Self>, &mut Vec<f32>),
    ) {
        single(rule, members, scores);
    }
}

impl Precision for f64 {
    #[inline(always)]
    fn gradients(
        rule: &Rule,
        members: Members<'_>,
        scores: &mut [[Self; LEAF]],
        room: (&mut Vec<Self>, &mut Vec<f32>),
    ) {
        one_by_one(rule, members, scores, room);
    }
}

/// Public numbers of a pass.
#[derive(Debug, Clone, Copy)]
pub struct Rule {
    /// The loss.
    pub loss: SmoothLoss,
    /// How contributions are bounded.
    pub clip: Clip,
    /// Coefficients of sparse rows are multiples of this.
    pub coefficient_grid: f64,
}

/// The weights as a pass reads them.
#[derive(Debug, Clone, Default)]
pub struct View<T> {
    /// `rho W` in the layout of the rows, without intercepts.
    pub w: Vec<T>,
    /// `rho s W` of the intercept, one a score.
    pub bias: Vec<T>,
    /// `rho W m` for the centre `m`, one a score.
    pub shift: Vec<T>,
}

/// Room for one leaf.
#[derive(Debug, Clone, Default)]
pub struct LeafScratch<T> {
    /// [`LEAF`] scores a class.
    scores: Vec<T>,
    label: Vec<u32>,
    norm: Vec<f32>,
    row: Vec<T>,
    state: Vec<f32>,
    rows: Vec<T>,
    lifted: Vec<f32>,
    lift: LiftRoom,
    wide: Vec<f64>,
    coefficient: Vec<f64>,
    tile: Tile,
}

impl<T: Precision> LeafScratch<T> {
    /// Turns the scores of `members` into coefficients.
    #[inline(always)]
    fn gradients(&mut self, rule: &Rule, records: &Records, members: impl Iterator<Item = usize>) {
        self.label.clear();
        self.norm.clear();
        self.label.reserve(LEAF);
        self.norm.reserve(LEAF);
        for i in members {
            self.label.push(records.label[i]);
            self.norm.push(records.norm[i]);
        }
        self.norm.resize(LEAF, 1.0);
        let norm: &Lanes = self.norm.first_chunk().unwrap_or(&[1.0; LEAF]);
        let members = Members {
            label: &self.label,
            norm,
        };
        let scores = self.scores.as_chunks_mut().0;
        T::gradients(rule, members, scores, (&mut self.row, &mut self.state));
    }
}

/// Leaves of dense rows.
pub struct DensePass<'p, T> {
    /// The records; their rows are dense.
    pub records: &'p Records,
    /// Records in the order of the leaves.
    pub order: &'p [u32],
    /// The leaves.
    pub leaves: &'p [Range<usize>],
    /// Whether nothing is rounded in the sums.
    pub exact: bool,
    /// Public numbers.
    pub rule: Rule,
    /// The weights, one line a score.
    pub view: &'p View<T>,
    /// Where the sums go, one line a score with the intercept last.
    pub sum: &'p mut ExactSum,
    /// Room.
    pub scratch: &'p mut LeafScratch<T>,
}

/// More than what rounding adds to the sum of a leaf.
const LEAF_SLACK: f64 = 1.001;

impl<T: Precision> Kernel for DensePass<'_, T> {
    type Output = Result<()>;

    #[inline(always)]
    fn run<S: Simd>(mut self, simd: S) -> Result<()> {
        let k = self.rule.loss.scores;
        let mut room = std::mem::take(&mut self.scratch.rows);
        let mut lifted = std::mem::take(&mut self.scratch.lifted);
        self.scratch.scores.clear();
        self.scratch.scores.resize(LEAF * k, T::default());
        for leaf in self.leaves {
            let members = &self.order[leaf.clone()];
            let rows = self.rows(simd, members, &mut lifted);
            let rows = &rows[..members.len()];
            let mut lines: [&[T]; LEAF] = [&[]; LEAF];
            if T::borrow(&[]).is_none() {
                room.clear();
                for row in rows {
                    room.extend(row.iter().map(|x| T::near(f64::from(*x))));
                }
            }
            let d = self.records.columns;
            for (at, row) in rows.iter().enumerate() {
                lines[at] = T::borrow(row).unwrap_or_else(|| &room[at * d..][..d]);
            }
            self.leaf(simd, members, (&lines[..members.len()], rows))?;
        }
        self.scratch.rows = room;
        self.scratch.lifted = lifted;
        Ok(())
    }
}

impl<'p, T: Precision> DensePass<'p, T> {
    /// The rows of a leaf: as they are stored, or made in `room`.
    #[inline(always)]
    fn rows<'r, S: Simd>(
        &mut self,
        simd: S,
        members: &[u32],
        room: &'r mut Vec<f32>,
    ) -> [&'r [f32]; LEAF]
    where
        'p: 'r,
    {
        let d = self.records.columns;
        let mut lines: [&'r [f32]; LEAF] = [&[]; LEAF];
        let members = members.iter().map(|i| *i as usize);
        match &self.records.rows {
            RecordRows::Dense { value } => {
                for (line, i) in lines.iter_mut().zip(members) {
                    *line = &value[i * d..][..d];
                }
            }
            RecordRows::Lifted(rows) => {
                room.resize(LEAF * d, 0.0);
                rows.fill(simd, members, &mut self.scratch.lift, room);
                for (line, row) in lines.iter_mut().zip(room.chunks_exact(d)) {
                    *line = row;
                }
            }
            // Not summed in leaves.
            RecordRows::Sparse { .. } => {}
        }
        lines
    }

    #[inline(always)]
    fn leaf<S: Simd>(
        &mut self,
        simd: S,
        members: &[u32],
        (lines, rows): (&[&[T]], &[&[f32]]),
    ) -> Result<()> {
        let (k, d) = (self.rule.loss.scores, self.records.columns);
        let clip = self.rule.clip;
        let scratch = &mut *self.scratch;
        leaf_scores(
            simd,
            lines,
            &self.view.w,
            &self.view.bias,
            &mut scratch.scores,
        );
        let members = members.iter().map(|i| *i as usize);
        scratch.gradients(&self.rule, self.records, members);
        if self.exact {
            return self.exact_leaf(simd, rows);
        }
        let scores = &scratch.scores;
        let magic = ROUNDING * self.sum.unit();
        let size = lines.len() as f64 * clip.bound * LEAF_SLACK;
        let stride = d + usize::from(clip.intercept > 0.0);
        let total = self.sum.room(size)?;
        leaf_sum(simd, lines, scores, k, (total, stride), magic);
        if clip.intercept > 0.0 {
            for class in 0..k {
                let line = &scores[class * LEAF..][..lines.len()];
                let sum: f64 = line.iter().map(|c| c.wide()).sum();
                total[class * stride + d] += (sum * clip.intercept + magic) - magic;
            }
        }
        Ok(())
    }

    /// The sum of a leaf without rounding: coefficients are truncated to their grid, so that all
    /// products are multiples of the sum's unit and far below `2^53` of them.
    #[inline(always)]
    fn exact_leaf<S: Simd>(&mut self, simd: S, rows: &[&[f32]]) -> Result<()> {
        let (k, d) = (self.rule.loss.scores, self.records.columns);
        let (clip, grid) = (self.rule.clip, self.rule.coefficient_grid);
        let inverse = 1.0 / grid;
        let scratch = &mut *self.scratch;
        let scores = scratch.scores.as_chunks::<LEAF>().0;
        scratch.coefficient.resize(LEAF * k, 0.0);
        let coefficients = scratch.coefficient.as_chunks_mut::<LEAF>().0;
        for (coefficients, scores) in coefficients.iter_mut().zip(scores) {
            for i in 0..LEAF {
                coefficients[i] = (scores[i].wide() * inverse).trunc() * grid;
            }
        }
        let stride = d + usize::from(clip.intercept > 0.0);
        let total = self.sum.room(rows.len() as f64 * clip.bound)?;
        let coefficients = &scratch.coefficient;
        let sums = (&mut *total, stride);
        exact_sum(simd, rows, coefficients, k, sums, &mut scratch.tile);
        if clip.intercept > 0.0 {
            for class in 0..k {
                let line = &coefficients[class * LEAF..][..rows.len()];
                total[class * stride + d] += line.iter().sum::<f64>() * clip.intercept;
            }
        }
        Ok(())
    }
}

/// Some sparse rows.
pub struct SparsePass<'p, T, L> {
    /// The records; their rows are sparse.
    pub records: &'p Records,
    /// The columns of their entries as the layout numbers them.
    pub index: &'p [u32],
    /// Places of the records in `order`, or the records themselves without one.
    pub places: Range<usize>,
    /// The records of the batch; `None` for all.
    pub order: Option<&'p [u32]>,
    /// Public numbers.
    pub rule: Rule,
    /// Layout of the weights and of the sum.
    pub layout: L,
    /// The weights.
    pub view: &'p View<T>,
    /// The sums of `q x` in the layout, then those of `q` times [`ROW_GRID`], then those of `p s`: see
    /// [`crate::descent::release`].
    pub sum: &'p mut ExactSum,
    /// Room.
    pub scratch: &'p mut LeafScratch<T>,
}

impl<T: Precision, L: WeightLayout> Kernel for SparsePass<'_, T, L> {
    type Output = Result<()>;

    #[inline(always)]
    fn run<S: Simd>(mut self, simd: S) -> Result<()> {
        let RecordRows::Sparse { value, start, .. } = &self.records.rows else {
            return Ok(());
        };
        let index = self.index;
        let (order, end) = (self.order, self.places.end);
        let padded = self.layout.padded_classes();
        self.scratch.scores.clear();
        let room = LEAF * self.rule.loss.scores;
        self.scratch.scores.resize(room, T::default());
        self.scratch.coefficient.clear();
        self.scratch.coefficient.resize(2 * padded, 0.0);
        let record = |place: usize| order.map_or(place, |order| order[place] as usize);
        let row = |i: usize| Row {
            index: &index[start[i]..start[i + 1]],
            value: &value[start[i]..start[i + 1]],
        };
        for first in self.places.clone().step_by(LEAF) {
            let places = first..end.min(first + LEAF);
            self.scratch.row.resize(padded, T::default());
            for (at, i) in places.clone().map(record).enumerate() {
                self.scores(simd, at, i, row(i));
            }
            let members = places.clone().map(record);
            self.scratch.gradients(&self.rule, self.records, members);
            for (at, i) in places.map(record).enumerate() {
                self.contribute(simd, at, i, row(i))?;
            }
        }
        Ok(())
    }
}

impl<T: Precision, L: WeightLayout> SparsePass<'_, T, L> {
    /// Factor of the effective row.
    #[inline(always)]
    fn stretch(&self, i: usize) -> Option<f64> {
        let centre = self.records.centre.as_ref()?;
        Some(f64::from(centre.factor[i]))
    }

    #[inline(always)]
    fn scores<S: Simd>(&mut self, simd: S, at: usize, i: usize, row: Row<'_>) {
        let stretch = self.stretch(i).unwrap_or(1.0);
        let scratch = &mut *self.scratch;
        let narrow = typed(row, &mut scratch.rows);
        self.layout
            .scores(simd, narrow, &self.view.w, &mut scratch.row);
        for class in 0..self.rule.loss.scores {
            let plain = scratch.row[class].wide() - self.view.shift[class].wide();
            let score = stretch * plain + self.view.bias[class].wide();
            scratch.scores[class * LEAF + at] = T::near(score);
        }
    }

    #[inline(always)]
    fn contribute<S: Simd>(&mut self, simd: S, at: usize, i: usize, row: Row<'_>) -> Result<()> {
        let (k, rule) = (self.rule.loss.scores, self.rule);
        let stretch = self.stretch(i);
        let scratch = &mut *self.scratch;
        let (grid, inverse) = (rule.coefficient_grid, 1.0 / rule.coefficient_grid);
        let tallest = rule.clip.intercept.max(1.0);
        // Beside a centre `q x` may be far longer than the contribution `q (x - m)`.
        let most = match stretch {
            Some(_) => self.sum.largest() / tallest,
            None => f64::INFINITY,
        };
        let whole = |c: f64| {
            let short = if c > most { most } else { c };
            let short = if short < -most { -most } else { short };
            (short * inverse).trunc() * grid
        };
        let padded = self.layout.padded_classes();
        let (q, p) = scratch.coefficient.split_at_mut(padded);
        let mut largest: f64 = 0.0;
        for class in 0..k {
            p[class] = whole(scratch.scores[class * LEAF + at].wide());
            q[class] = match stretch {
                Some(stretch) => whole(p[class] * stretch),
                None => p[class],
            };
            largest = largest.max(q[class].abs()).max(p[class].abs());
        }
        if largest == 0.0 {
            return Ok(());
        }
        // Without a centre no entry of `q x` is larger than the norm of the contribution; beside one
        // the sum of `q` takes as much room as the finest entry of a row would.
        let longest = |row: Row<'_>| {
            row.value
                .iter()
                .fold(ROW_GRID as f32, |m, x| m.max(x.abs()))
        };
        let size = match stretch {
            Some(_) => largest * f64::from(longest(row)).max(rule.clip.intercept),
            None => rule.clip.bound.min(largest * tallest),
        };
        let total = self.sum.room(size)?;
        let (main, rest) = total.split_at_mut(self.layout.stored());
        let wide = typed(row, &mut scratch.wide);
        self.layout.update(simd, wide, main, q);
        let (shifted, constant) = rest.split_at_mut(k);
        for class in 0..k {
            if stretch.is_some() {
                shifted[class] += q[class] * ROW_GRID;
            }
            constant[class] += p[class] * rule.clip.intercept;
        }
        Ok(())
    }
}
