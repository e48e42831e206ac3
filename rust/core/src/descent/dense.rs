//! One pass over dense rows: scores, gradients, clipping, and the sum of the contributions.

use crate::descent::dense_kernels::{leaf_scores, leaf_sum};
use crate::descent::exact_leaf::exact_sum;
use crate::descent::exact_sum::{ExactSum, ROUNDING};
use crate::descent::leaves::LEAF;
use crate::descent::passes::{Groups, LeafScratch, PersonPart, Precision, Rule, View, truncated};
use crate::error::Result;
use crate::records::lift::fill;
use crate::records::persons::shortening;
use crate::records::store::{RecordRows, Records};
use crate::rows::clip::sum_of_squares;
use crate::runtime::memory::{reserve, resize};
use crate::simd::{Kernel, Simd, prefetch_early};
use std::ops::Range;

/// Leaves of dense rows.
pub struct DensePass<'p, T> {
    /// The records; their rows are dense.
    pub records: &'p Records,
    /// Entries that kernels read of a row: `padded` columns.
    pub length: usize,
    /// The last entries of stored rows and zeros, for rows that kernels read beyond the end of.
    pub ends: &'p [f32],
    /// Records in the order of the leaves.
    pub order: &'p [u32],
    /// The leaves.
    pub leaves: &'p [Range<usize>],
    /// Persons of several rows.
    pub persons: &'p [u32],
    /// Whether nothing is rounded in the sums.
    pub exact: bool,
    /// Public numbers.
    pub rule: Rule,
    /// The weights, one line a score.
    pub view: &'p View<T>,
    /// Sums, one line a score with the intercept last.
    pub sum: &'p mut ExactSum,
    /// Room.
    pub scratch: &'p mut LeafScratch<T>,
}

/// Entries up to which rows stay in the caches. Of more, rows are asked for early: they lie anywhere, so
/// that the hardware cannot foresee them.
const NEAR: usize = 1 << 20;
/// Entries between the row in work and the one asked for; eight rows at least, and a leaf at most.
const EARLY: usize = 1 << 13;

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
        resize(&mut self.scratch.scores, LEAF * k)?;
        if !self.persons.is_empty() {
            let size = k * self.stride();
            resize(&mut self.scratch.person, size)?;
            self.scratch.person.fill(0.0);
        }
        let (order, mut leaves) = (self.order, self.leaves.iter());
        let mut groups = Groups::new(self.records, self.persons);
        let distance = if self.records.n_stored() > NEAR {
            (EARLY / self.records.columns.max(1)).clamp(8, LEAF)
        } else {
            order.len()
        };
        // One call: its kernels are compiled into it.
        loop {
            let (members, ahead, parts) = match leaves.next() {
                Some(leaf) => {
                    let ahead = order.len().min(leaf.start + distance);
                    (&order[leaf.clone()], &order[ahead..], &[][..])
                }
                None if groups.advance() => (&groups.members[..], &[][..], &groups.parts[..]),
                None => break,
            };
            self.group(simd, (members, ahead), (&mut room, &mut lifted), parts)?;
        }
        self.scratch.rows = room;
        self.scratch.lifted = lifted;
        Ok(())
    }
}

impl<'p, T: Precision> DensePass<'p, T> {
    fn stride(&self) -> usize {
        self.rule.columns(self.records.columns)
    }

    /// The contributions of at most [`LEAF`] records: to the sum, or to those of persons.
    #[inline(always)]
    fn group<S: Simd>(
        &mut self,
        simd: S,
        (members, ahead): (&[u32], &[u32]),
        (room, lifted): (&mut Vec<T>, &mut Vec<f32>),
        parts: &[PersonPart],
    ) -> Result<()> {
        let rows = self.rows(simd, members, lifted)?;
        let rows = &rows[..members.len()];
        let length = self.length;
        let mut lines: [&[T]; LEAF] = [&[]; LEAF];
        if T::borrow(&[]).is_none() {
            room.clear();
            reserve(room, LEAF * length)?;
            for row in rows {
                room.extend(row.iter().map(|x| T::near(f64::from(*x))));
            }
        }
        for (at, row) in rows.iter().enumerate() {
            lines[at] = T::borrow(row).unwrap_or_else(|| &room[at * length..][..length]);
        }
        let lines = (&lines[..members.len()], rows);
        self.leaf(simd, (members, ahead), lines, parts)
    }

    /// Adds the sum of a person, of norm at most the bound, and forgets it.
    #[inline(always)]
    fn person(&mut self) -> Result<()> {
        let (person, bound, unit) = (&self.scratch.person, self.rule.clip.bound, self.sum.unit());
        let factor = shortening(sum_of_squares(person, 1.0), person.len(), bound) / unit;
        let total = self.sum.room(bound)?;
        if factor > 0.0 {
            for (total, x) in total.iter_mut().zip(person) {
                *total += (x * factor).trunc() * unit;
            }
        }
        self.scratch.person.fill(0.0);
        Ok(())
    }

    /// The rows of a leaf, of this length: as they are stored, or made in `room`.
    #[inline(always)]
    fn rows<'r, S: Simd>(
        &mut self,
        simd: S,
        members: &[u32],
        room: &'r mut Vec<f32>,
    ) -> Result<[&'r [f32]; LEAF]>
    where
        'p: 'r,
    {
        let (d, length) = (self.records.columns, self.length);
        let mut lines: [&'r [f32]; LEAF] = [&[]; LEAF];
        let members = members.iter().map(|i| *i as usize);
        match &self.records.rows {
            RecordRows::Dense { value } => {
                let ends = value.len().saturating_sub(length);
                for (line, i) in lines.iter_mut().zip(members) {
                    *line = (value.get(i * d..i * d + length))
                        .unwrap_or_else(|| &self.ends[i * d - ends..][..length]);
                }
            }
            RecordRows::Lifted(rows) => {
                resize(room, (LEAF - 1) * d + length)?;
                fill(simd, rows.source()?, members, &mut self.scratch.lift, room)?;
                for (at, line) in lines.iter_mut().enumerate() {
                    *line = &room[at * d..][..length];
                }
            }
            // Not summed in leaves.
            RecordRows::Sparse(_) => {}
        }
        Ok(lines)
    }

    #[inline(always)]
    fn leaf<S: Simd>(
        &mut self,
        simd: S,
        (members, ahead): (&[u32], &[u32]),
        (lines, rows): (&[&[T]], &[&[f32]]),
        parts: &[PersonPart],
    ) -> Result<()> {
        let scratch = &mut *self.scratch;
        let (view, records, d) = (self.view, self.records, self.records.columns);
        let length = self.length;
        let near = |at: usize| {
            if let (RecordRows::Dense { value }, Some(i)) = (&records.rows, ahead.get(at)) {
                let i = *i as usize;
                prefetch_early(&value[i * d..value.len().min(i * d + length)]);
                prefetch_early(&records.label[i..=i]);
                prefetch_early(&records.norm[i..=i]);
            }
        };
        let weights = (&view.w[..], &view.bias[..]);
        leaf_scores(simd, lines, weights, &mut scratch.scores, near);
        let members = members.iter().map(|i| *i as usize);
        scratch.gradients(&self.rule, self.records, members)?;
        let (stride, count, alone) = (self.stride(), lines.len(), parts.is_empty());
        if alone && self.exact {
            return self.exact_leaf(simd, rows);
        }
        let whole = [PersonPart {
            person: 0,
            rows: 0..count,
            last: false,
        }];
        for part in if alone { &whole } else { parts } {
            let LeafScratch { scores, person, .. } = &mut *self.scratch;
            let rows = &lines[part.rows.clone()];
            let scores = &scores[part.rows.start..];
            // The rounding of a person's sum decides nothing.
            let (total, magic) = if alone {
                let size = count as f64 * self.rule.clip.bound * LEAF_SLACK;
                let magic = ROUNDING * self.sum.unit();
                (self.sum.room(size)?, magic)
            } else {
                (&mut person[..], 0.0)
            };
            add_leaf(simd, (rows, d), scores, &self.rule, (total, stride), magic);
            if part.last {
                self.person()?;
            }
        }
        Ok(())
    }

    /// The sum of a leaf without rounding: coefficients are truncated to their grid, so that all
    /// products are multiples of the sum's unit and far below `2^53` of them.
    #[inline(always)]
    fn exact_leaf<S: Simd>(&mut self, simd: S, rows: &[&[f32]]) -> Result<()> {
        let (k, d) = (self.rule.loss.scores, self.records.columns);
        let (clip, stride) = (self.rule.clip, self.stride());
        let step = self.rule.coefficient_grid;
        let grid = (step, 1.0 / step);
        let scratch = &mut *self.scratch;
        let scores = scratch.scores.as_chunks::<LEAF>().0;
        resize(&mut scratch.coefficient, LEAF * k)?;
        let coefficients = scratch.coefficient.as_chunks_mut::<LEAF>().0;
        for (coefficients, scores) in coefficients.iter_mut().zip(scores) {
            for i in 0..LEAF {
                coefficients[i] = truncated(scores[i].wide(), f64::INFINITY, grid);
            }
        }
        let total = self.sum.room(rows.len() as f64 * clip.bound)?;
        let coefficients = &scratch.coefficient;
        let sums = (&mut *total, stride);
        exact_sum(simd, (rows, d), coefficients, k, sums, &mut scratch.tile);
        if clip.intercept > 0.0 {
            for class in 0..k {
                let line = &coefficients[class * LEAF..][..rows.len()];
                total[class * stride + d] += line.iter().sum::<f64>() * clip.intercept;
            }
        }
        Ok(())
    }
}

/// Adds contributions of dense rows to lines of a sum, a score each with the intercept last.
#[inline(always)]
fn add_leaf<S: Simd, T: Precision>(
    simd: S,
    (rows, columns): (&[&[T]], usize),
    scores: &[T],
    rule: &Rule,
    (total, stride): (&mut [f64], usize),
    magic: f64,
) {
    let (k, s) = (rule.loss.scores, rule.clip.intercept);
    leaf_sum(
        simd,
        (rows, columns),
        scores,
        k,
        (&mut *total, stride),
        magic,
    );
    if s > 0.0 {
        for class in 0..k {
            let line = &scores[class * LEAF..][..rows.len()];
            let sum: f64 = line.iter().map(|c| c.wide()).sum();
            total[class * stride + stride - 1] += (sum * s + magic) - magic;
        }
    }
}
