//! One pass over sparse rows: scores, gradients, clipping, and the sum of the contributions.

use crate::descent::exact_sum::ExactSum;
use crate::descent::leaves::LEAF;
use crate::descent::passes::{Groups, LeafScratch, PersonPart, Precision, Rule, View, truncated};
use crate::error::Result;
use crate::layout::lines::{Lines, SPARE, weighted_sum};
use crate::layout::weights::WeightLayout;
use crate::records::persons::{Products, shortening};
use crate::records::store::{MIN_DISTANCE, ROW_GRID, RecordRows, Records};
use crate::rows::clip::sum_of_squares;
use crate::rows::sparse::{Blocks, SparseRows};
use crate::rows::view::Row;
use crate::runtime::memory::resize;
use crate::simd::{Kernel, Simd, dot, prefetch};
use std::ops::Range;

/// More than what rounding takes from a sum of [`LEAF`] products.
const SUM_SLACK: f64 = 1.0 + 1e-12;

/// One number for each record of a leaf; room for them has been made.
#[inline(always)]
fn lanes(numbers: &[f64]) -> &[f64; LEAF] {
    numbers.first_chunk().unwrap_or(&[1.0; LEAF])
}

/// Adds the coefficients of some records of a leaf to the sums behind those of columns.
#[inline(always)]
fn add_ends(
    (coefficient, constant): (&[f64], &[f64]),
    at: Range<usize>,
    (records, rule): (&Records, &Rule),
    ends: &mut [f64],
) {
    let lines = (coefficient.as_chunks::<LEAF>().0.iter()).zip(constant.as_chunks::<LEAF>().0);
    for (class, (q, p)) in lines.enumerate() {
        if records.centre.is_some() {
            ends[class] += dot(&q[at.clone()], &[ROW_GRID; LEAF][at.clone()]);
        }
        if rule.clip.intercept > 0.0 {
            let intercepts = &[rule.clip.intercept; LEAF][at.clone()];
            ends[rule.loss.scores + class] += dot(&p[at.clone()], intercepts);
        }
    }
}

/// Numbers that are multiplied at a time.
const WIDTH: usize = 8;

/// Rows of a leaf that are asked for before they are met.
const ROWS_AHEAD: usize = 3;

/// Share of the bound that truncated coefficients of a person may lose.
const MAX_LOST: f64 = 0.01;

/// No row is stretched by more.
const STRETCH: f64 = 1.0 / MIN_DISTANCE;

/// Some sparse rows.
pub struct SparsePass<'p, T> {
    /// The records; their rows are sparse.
    pub records: &'p Records,
    /// Places of the records in `order`, or the records themselves without one.
    pub places: Range<usize>,
    /// The records of the batch; `None` for all.
    pub order: Option<&'p [u32]>,
    /// Persons of several rows.
    pub persons: &'p [u32],
    /// Inner products of their rows, where there are any.
    pub products: Option<&'p Products>,
    /// Blocks of the records, where places are whole ones of these.
    pub blocks: Option<&'p Blocks>,
    /// Public numbers.
    pub rule: Rule,
    /// Layout of the weights and of the sum.
    pub layout: Lines,
    /// The weights.
    pub view: &'p View<T>,
    /// The sums of `q x` in the layout, then those of `q` times [`ROW_GRID`], then those of `p s`: see
    /// [`crate::descent::release`].
    pub sum: &'p mut ExactSum,
    /// Room.
    pub scratch: &'p mut LeafScratch<T>,
}

impl<T: Precision> Kernel for SparsePass<'_, T> {
    type Output = Result<()>;

    #[inline(always)]
    fn run<S: Simd>(mut self, simd: S) -> Result<()> {
        let RecordRows::Sparse(rows) = &self.records.rows else {
            return Ok(());
        };
        let (order, end) = (self.order, self.places.end);
        let padded = self.layout.padded_classes();
        let size = LEAF * self.rule.loss.scores;
        resize(&mut self.scratch.scores, size)?;
        resize(&mut self.scratch.own_row, padded)?;
        resize(&mut self.scratch.row, padded)?;
        resize(&mut self.scratch.coefficient, size)?;
        resize(&mut self.scratch.constant, size)?;
        resize(&mut self.scratch.factor, LEAF)?;
        resize(&mut self.scratch.stretch, LEAF)?;
        self.scratch.stretch.fill(1.0);
        if !self.persons.is_empty() {
            resize(&mut self.scratch.person, self.layout.stored() + 2 * padded)?;
            self.scratch.person.fill(0.0);
            resize(&mut self.scratch.place, self.records.columns)?;
            self.scratch.forget();
            resize(&mut self.scratch.touched, self.records.columns + 1)?;
            resize(&mut self.scratch.slot, self.records.columns)?;
        }
        if let Some(blocks) = self.blocks {
            let k = self.rule.loss.scores;
            resize(&mut self.scratch.block, blocks.rows * k + SPARE)?;
            resize(&mut self.scratch.ends, 2 * k)?;
        }
        let (mut leaf, mut open) = (Vec::with_capacity(LEAF), None);
        let mut firsts = self.places.clone().step_by(LEAF);
        let mut groups = Groups::new(self.records, self.persons);
        let longest = rows.longest()?;
        // One call: its kernels are compiled into it.
        loop {
            let first = firsts.next();
            let block = first.zip(self.blocks).map(|(i, blocks)| i / blocks.rows);
            if block != open {
                self.close(simd, open)?;
                open = block;
            }
            let (members, parts) = match first {
                Some(first) => {
                    let places = first..end.min(first + LEAF);
                    leaf.clear();
                    leaf.extend(places.map(|at| order.map_or(at as u32, |order| order[at])));
                    (&leaf[..], &[][..])
                }
                None if groups.advance() => (&groups.members[..], &groups.parts[..]),
                None => break,
            };
            self.group(simd, members, parts, (rows, longest))?;
        }
        Ok(())
    }
}

impl<T: Precision> SparsePass<'_, T> {
    /// The contributions of at most [`LEAF`] records, those of persons in `parts`.
    #[inline(always)]
    fn group<S: Simd>(
        &mut self,
        simd: S,
        members: &[u32],
        parts: &[PersonPart],
        (rows, longest): (&SparseRows, &[f32]),
    ) -> Result<()> {
        let records = members.iter().map(|i| *i as usize);
        let scattered = self.order.is_some() || !parts.is_empty();
        for (at, i) in records.clone().enumerate() {
            // The processor foresees rows that lie one after the other.
            if scattered && let Some(later) = members.get(at + ROWS_AHEAD) {
                let Row { index, value } = rows.row(*later as usize);
                prefetch(index);
                prefetch(value);
            }
            self.scores(simd, at, rows.row(i));
        }
        self.stretch(records.clone());
        self.scratch
            .gradients(&self.rule, self.records, records.clone())?;
        // Clear the scores of records that a leaf no longer has.
        for line in self.scratch.scores.as_chunks_mut::<LEAF>().0 {
            line[members.len()..].fill(T::default());
        }
        self.scratch.factor.fill(1.0);
        let mut by_rows = parts.is_empty();
        for part in parts {
            let products = self.products.and_then(|products| products.of(part.person));
            let known = match products {
                Some(products) => self.factor(part.rows.clone(), products)?,
                None => None,
            };
            self.scratch.factor[part.rows.clone()].fill(known.unwrap_or(0.0));
            by_rows |= known.is_some();
            if known.is_none() {
                for at in part.rows.clone() {
                    let i = members[at] as usize;
                    self.collect(simd, at, rows.row(i));
                }
                if part.last {
                    self.person()?;
                }
            }
        }
        if !by_rows {
            return Ok(());
        }
        let size = self.size(records.clone(), longest);
        let (most, count) = (self.sum.largest(), members.len());
        self.coefficients();
        let scratch = &mut *self.scratch;
        let lines = (&*scratch.coefficient, &*scratch.constant);
        if parts.is_empty()
            && let (Some(blocks), Some(first)) = (self.blocks, members.first())
            && scratch.booked + size <= most
        {
            // Kept for the sums of the block.
            scratch.booked += size;
            let k = self.rule.loss.scores;
            let block = &mut scratch.block[*first as usize % blocks.rows * k..];
            for (class, line) in lines.0.as_chunks::<LEAF>().0.iter().enumerate() {
                for (own, q) in block.chunks_exact_mut(k).zip(&line[..count]) {
                    own[class] = *q;
                }
            }
            let ends = &mut scratch.ends;
            add_ends(lines, 0..count, (self.records, &self.rule), ends);
            return Ok(());
        }
        let stored = self.layout.stored();
        if size <= most {
            let ends = &mut self.sum.room(size)?[stored..];
            add_ends(lines, 0..count, (self.records, &self.rule), ends);
        }
        for (at, i) in records.enumerate() {
            let largest = self.row_coefficients(at);
            if largest == 0.0 {
                continue;
            }
            if size > most {
                // Each by itself. Without a centre no entry of `q x` is larger than the norm of the
                // contribution.
                let bound = match self.records.centre {
                    Some(_) => f64::INFINITY,
                    None => self.rule.clip.bound,
                };
                let own = largest * self.rule.clip.intercept.max(1.0);
                let ends = &mut self.sum.room(own.min(bound))?[stored..];
                let lines = (&*self.scratch.coefficient, &*self.scratch.constant);
                add_ends(lines, at..at + 1, (self.records, &self.rule), ends);
            }
            let sums = &mut self.sum.reserved()[..stored];
            let own = &self.scratch.own_row;
            self.layout.add(simd, rows.row(i), sums, own);
        }
        Ok(())
    }

    /// Adds what the rows of a block contribute, column after column: each sum is met once.
    #[inline(always)]
    fn close<S: Simd>(&mut self, simd: S, block: Option<usize>) -> Result<()> {
        let (Some(blocks), Some(block)) = (self.blocks, block) else {
            return Ok(());
        };
        let (k, by_column) = (self.rule.loss.scores, &blocks.by_column[block]);
        let scratch = &mut *self.scratch;
        let total = self.sum.room(std::mem::take(&mut scratch.booked))?;
        let (main, rest) = total.split_at_mut(self.layout.stored());
        let (block, line) = (&mut scratch.block, &mut scratch.own_row[..k]);
        // Space after the last line of a sum is spare.
        let lines = by_column.lengths().len();
        for (column, sums) in main.chunks_exact_mut(k).take(lines).enumerate() {
            let entries = by_column.row(column);
            if !entries.index.is_empty() {
                weighted_sum(simd, entries, block, line);
                sums.iter_mut().zip(&*line).for_each(|(sum, x)| *sum += x);
            }
        }
        let ends = &mut scratch.ends;
        rest.iter_mut().zip(&*ends).for_each(|(sum, x)| *sum += x);
        block.fill(0.0);
        ends.fill(0.0);
        Ok(())
    }

    /// Factor that brings the sum of the contributions of a person's rows to the bound, from the inner
    /// `products` of the rows; none where truncated coefficients would lose more than that allows.
    ///
    /// Truncation moves the contribution of a row by less than a step of the grid times the norms of
    /// its parts, for each score. What rounding adds to the square is no more than `error`.
    #[inline(always)]
    fn factor(&mut self, rows: Range<usize>, products: &[f64]) -> Result<Option<f64>> {
        let (k, m, Rule { clip, .. }) = (self.rule.loss.scores, rows.len(), self.rule);
        let (grid, width) = (self.rule.coefficient_grid, m.next_multiple_of(WIDTH));
        let distance = 2.0 + self.length().sqrt() + clip.intercept;
        let lost = grid * (k as f64).sqrt() * m as f64 * distance * (1.0 + 1e-6);
        if lost > clip.bound * MAX_LOST {
            return Ok(None);
        }
        let LeafScratch { scores, own, .. } = &mut *self.scratch;
        own.clear();
        resize(own, k * width)?;
        let (mut largest, mut square): (f64, f64) = (0.0, 0.0);
        for (line, scores) in own
            .chunks_exact_mut(width)
            .zip(scores.as_chunks::<LEAF>().0)
        {
            for (c, score) in line.iter_mut().zip(&scores[rows.clone()]) {
                *c = score.wide();
                largest = largest.max(c.abs());
            }
            square += (line.iter().sum::<f64>() * clip.intercept).powi(2);
        }
        let mut products = products;
        for i in 0..m {
            let mut lanes = [0.0; WIDTH];
            let (row, others) = products.split_at(i + 1);
            products = others;
            for (at, row) in (0..=i).step_by(WIDTH).zip(row.chunks(WIDTH)) {
                let mut inner = [0.0; WIDTH];
                for line in own.chunks_exact(width) {
                    let (x, line) = (line[i], &line[at..at + WIDTH]);
                    for lane in 0..WIDTH {
                        inner[lane] += x * line[lane];
                    }
                }
                for ((lane, inner), product) in lanes.iter_mut().zip(inner).zip(row) {
                    *lane += inner * product;
                }
            }
            square += lanes.iter().sum::<f64>();
        }
        let error = (k + 2 * m + 16) as f64 * f64::EPSILON * (m as f64 * clip.bound).powi(2);
        let factor = shortening(square.max(0.0) + error, 0, clip.bound - lost);
        // No coefficient is cut off by itself.
        let most = self.sum.largest() / (clip.intercept.max(1.0) * largest * STRETCH);
        Ok(Some(factor.min(most)))
    }

    /// Squared norm of the centre.
    #[inline(always)]
    fn length(&self) -> f64 {
        self.products.map_or(0.0, |products| products.length)
    }

    /// The inner products of a row with the weights.
    #[inline(always)]
    fn scores<S: Simd>(&mut self, simd: S, at: usize, row: Row<'_>) {
        let scratch = &mut *self.scratch;
        let one = self.rule.loss.scores == 1;
        let room = if one {
            &mut scratch.scores[at..]
        } else {
            &mut scratch.row[..]
        };
        let padded = self.layout.padded_classes();
        self.layout
            .row_scores(simd, row, &self.view.w, &mut room[..padded]);
        if !one {
            let lines = scratch.scores.as_chunks_mut::<LEAF>().0.iter_mut();
            lines
                .zip(&scratch.row)
                .for_each(|(line, own)| line[at] = *own);
        }
    }

    /// Makes scores of the inner products, and keeps the factors of the effective rows.
    #[inline(always)]
    fn stretch(&mut self, records: impl Iterator<Item = usize>) {
        if let Some(centre) = &self.records.centre {
            for (stretch, i) in self.scratch.stretch.iter_mut().zip(records) {
                *stretch = f64::from(centre.factor[i]);
            }
        }
        let scratch = &mut *self.scratch;
        let stretch = lanes(&scratch.stretch);
        let lines = scratch.scores.as_chunks_mut::<LEAF>().0.iter_mut();
        let ends = self.view.bias.iter().zip(&self.view.shift);
        for (line, (bias, shift)) in lines.zip(ends) {
            let (bias, shift) = (bias.wide(), shift.wide());
            for at in 0..LEAF {
                line[at] = T::near(stretch[at] * (line[at].wide() - shift) + bias);
            }
        }
    }

    /// Bound on what a leaf adds to one sum: one class adds to one column far less than the longest
    /// contributions together.
    ///
    /// Beside a centre the sum of `q` takes as much room as the finest entry of a row would.
    #[inline(always)]
    fn size(&self, records: impl Iterator<Item = usize>, longest: &[f32]) -> f64 {
        let centred = self.records.centre.is_some();
        let least = if centred { ROW_GRID } else { 0.0 };
        let scratch = &*self.scratch;
        let (factor, stretch) = (lanes(&scratch.factor), lanes(&scratch.stretch));
        // Loops, as closures that are folded are compiled for the baseline.
        let mut reach = [0.0; LEAF];
        for (reach, i) in reach.iter_mut().zip(records) {
            *reach = f64::from(longest[i]);
        }
        for at in 0..LEAF {
            let entry = stretch[at] * reach[at].max(least);
            reach[at] = factor[at] * entry.max(self.rule.clip.intercept);
        }
        let mut size = 0.0_f64;
        for line in scratch.scores.as_chunks::<LEAF>().0 {
            let mut terms = [0.0; WIDTH];
            for (line, reach) in
                (line.as_chunks::<WIDTH>().0.iter()).zip(reach.as_chunks::<WIDTH>().0)
            {
                for lane in 0..WIDTH {
                    terms[lane] += line[lane].wide().abs() * reach[lane];
                }
            }
            size = size.max(terms.iter().sum::<f64>() * SUM_SLACK);
        }
        size
    }

    /// Truncates the coefficients of the records of a leaf: of intercepts and, stretched, of entries.
    #[inline(always)]
    fn coefficients(&mut self) {
        // Beside a centre `q x` may be far longer than the contribution `q (x - m)`.
        let most = match self.records.centre {
            Some(_) => self.sum.largest() / self.rule.clip.intercept.max(1.0),
            None => f64::INFINITY,
        };
        let step = self.rule.coefficient_grid;
        let grid = (step, 1.0 / step);
        let scratch = &mut *self.scratch;
        let (factor, stretch) = (lanes(&scratch.factor), lanes(&scratch.stretch));
        let lines = (scratch.coefficient.as_chunks_mut::<LEAF>().0.iter_mut())
            .zip(scratch.constant.as_chunks_mut::<LEAF>().0);
        for ((q, p), scores) in lines.zip(scratch.scores.as_chunks::<LEAF>().0) {
            for at in 0..LEAF {
                p[at] = truncated(scores[at].wide() * factor[at], most, grid);
                q[at] = truncated(p[at] * stretch[at], most, grid);
            }
        }
    }

    /// Brings the coefficients of a row together; returns the largest magnitude of one.
    #[inline(always)]
    fn row_coefficients(&mut self, at: usize) -> f64 {
        let scratch = &mut *self.scratch;
        let lines = (scratch.coefficient.as_chunks::<LEAF>().0.iter())
            .zip(scratch.constant.as_chunks::<LEAF>().0);
        let mut largest: f64 = 0.0;
        for (own, (q, p)) in scratch.own_row.iter_mut().zip(lines) {
            *own = q[at];
            largest = largest.max(q[at].abs()).max(p[at].abs());
        }
        largest
    }

    /// Adds the contribution of a record to that of its person.
    #[inline(always)]
    fn collect<S: Simd>(&mut self, simd: S, at: usize, row: Row<'_>) {
        let (k, clip) = (self.rule.loss.scores, self.rule.clip);
        let scratch = &mut *self.scratch;
        let stretch = scratch.stretch[at];
        let padded = self.layout.padded_classes();
        let (main, rest) = scratch.person.split_at_mut(self.layout.stored());
        let (shifted, constant) = rest.split_at_mut(padded);
        let q = &mut scratch.own_row[..padded];
        for class in 0..k {
            let c = scratch.scores[class * LEAF + at].wide();
            q[class] = c * stretch;
            shifted[class] += q[class];
            constant[class] += c * clip.intercept;
        }
        // No branch: it would be mispredicted.
        for (slot, j) in scratch.slot.iter_mut().zip(row.index) {
            let place = &mut scratch.place[*j as usize];
            let (new, next) = (*place < scratch.base, scratch.distinct);
            *place = if new {
                scratch.base + next as u32
            } else {
                *place
            };
            *slot = *place - scratch.base;
            scratch.touched[next] = *j;
            scratch.distinct = next + usize::from(new);
        }
        let slots = Row {
            index: &scratch.slot[..row.index.len()],
            ..row
        };
        self.layout.add(simd, slots, main, q);
    }

    /// Adds the sum of a person, of norm at most the bound, and forgets it.
    ///
    /// Beside a centre three sums are kept, each truncated by itself, and the contribution is what
    /// they amount to: its norm is bounded by that before, rounded outwards, and all that is truncated.
    #[inline(always)]
    fn person(&mut self) -> Result<()> {
        let (k, stored, layout) = (self.rule.loss.scores, self.layout.stored(), self.layout);
        let (bound, unit) = (self.rule.clip.bound, self.sum.unit());
        let length = self.length();
        let LeafScratch {
            person,
            touched,
            distinct,
            base,
            ..
        } = &mut *self.scratch;
        let (main, rest) = person.split_at_mut(stored);
        let (main, touched) = (&mut main[..k * *distinct], &touched[..*distinct]);
        let (shifted, constant) = rest.split_at_mut(layout.padded_classes());
        let q_square = sum_of_squares(shifted, 1.0);
        let (mut square, mut terms, mut lost) = (sum_of_squares(constant, 1.0), 0.0, 0.0);
        let centre = self.records.centre.as_ref().map(|centre| &*centre.point);
        if let Some(point) = centre {
            // Several sums, as each addition to one would wait for the last.
            let (mut moved, mut near) = ([0.0; WIDTH], [0.0; WIDTH]);
            for (lines, columns) in main.chunks(WIDTH * k).zip(touched.chunks(WIDTH)) {
                for (lane, j) in columns.iter().enumerate() {
                    let m = point[*j as usize];
                    near[lane] += m * m;
                    for (x, q) in lines[lane * k..][..k].iter().zip(&*shifted) {
                        moved[lane] += (x - q * m) * (x - q * m);
                    }
                }
            }
            square += moved.iter().sum::<f64>();
            // A difference of whole multiples.
            square += q_square * (length - near.iter().sum::<f64>());
            let roots =
                ((k * (touched.len() + 1)) as f64).sqrt() + (length * k as f64).sqrt() / ROW_GRID;
            // Truncated terms, and differences of rounded terms.
            lost = roots * unit * (1.0 + 1e-9);
            terms = sum_of_squares(main, 1.0).sqrt() + (q_square * length).sqrt();
            terms *= 8.0 * f64::EPSILON;
        } else {
            square += sum_of_squares(main, 1.0);
        }
        let len = k * (touched.len() + 2);
        let square = square * (1.0 + 1e-12) + terms * terms + 2.0 * terms * square.sqrt();
        let factor = shortening(square, len, (bound - lost).max(0.0));
        // No added entry is larger.
        let largest = bound + factor * q_square.sqrt() * length.sqrt().max(ROW_GRID) * (1.0 + 1e-9);
        // A function of the person and the weights alone, and shorter.
        let kept = factor > 0.0 && largest <= self.sum.largest();
        let total = self.sum.room(if kept { largest } else { 0.0 })?;
        let factor = factor / unit;
        let add = |total: &mut f64, x: &mut f64, factor: f64| {
            *total += if kept {
                (*x * factor).trunc() * unit
            } else {
                0.0
            };
            *x = 0.0;
        };
        for (line, j) in main.chunks_exact_mut(k).zip(touched) {
            let at = layout.position(0, *j as usize);
            for (total, x) in total[at..at + k].iter_mut().zip(line) {
                add(total, x, factor);
            }
        }
        // Coefficients are kept as multiples of the unit over the grid of rows, times that.
        let fine = if centre.is_some() {
            factor * ROW_GRID
        } else {
            0.0
        };
        let (coefficients, ends) = total[stored..].split_at_mut(k);
        for (sums, values, factor) in [(coefficients, shifted, fine), (ends, constant, factor)] {
            let entries = sums.iter_mut().zip(&mut *values);
            entries.for_each(|(total, x)| add(total, x, factor));
            values.fill(0.0);
        }
        *base += *distinct as u32;
        *distinct = 0;
        if *base > u32::MAX / 2 {
            self.scratch.forget();
        }
        Ok(())
    }
}
