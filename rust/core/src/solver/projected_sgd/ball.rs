//! The iterate of projected gradient descent, kept so that an update costs what its row costs.
//!
//! `W_k = scale_k V_k`: the regulariser shrinks a number, not the weights, and so does the
//! projection onto a ball. The squared norms of the `V_k` are carried along in twice the working
//! precision with a bound of their error. Where that bound could matter to a projection they are
//! summed anew. Whenever a scale has fallen below [`MIN_SCALE`] its class is rescaled by a power
//! of two, exactly.
//!
//! An average `sum_m o_m W_m` is kept as `settled + share_k V_k - lag`, where `share_k` is the sum
//! of the `o_m scale_k` since the last rescaling and `lag` takes `share_k` times every change of
//! `V_k`: each class's sum stays what it was while `V_k` moves.
//!
//! The distance of all of this from real arithmetic is bounded in `docs/proofs/projected_sgd.md`.

use crate::error::Result;
use crate::layout::weights::WeightLayout;
use crate::numeric::ROUNDOFF;
use crate::numeric::float::two_sum;
use crate::rows::view::Row;
use crate::runtime::memory::{filled, with_capacity, zeros};
use crate::simd::Simd;

/// Scales below this are brought back to [1/2, 1).
const MIN_SCALE: f64 = 0.125;
/// Covers the roundings of a sum of up to 2^32 lengths.
const LENGTH_SLACK: f64 = 1e-6;

/// Set that the iterates are projected onto.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Projection {
    /// One ball for all weights, `||W||_F <= R`.
    Joint,
    /// A ball for each class, `||w_k|| <= R`.
    PerClass,
}

/// Squared norm of one class: its value as a sum of two numbers, and a bound of its error.
#[derive(Debug, Clone, Copy, Default)]
struct Square {
    high: f64,
    low: f64,
    error: f64,
}

impl Square {
    fn value(self) -> f64 {
        (self.high + self.low).max(0.0)
    }

    /// Adds `change`; the rounding of the sum goes to `low` (two-sum), that of `low` to `error`.
    #[inline(always)]
    fn add(&mut self, change: f64) {
        let (sum, rest) = two_sum(self.high, change);
        self.low += rest;
        self.high = sum;
        self.error += 2.0 * ROUNDOFF * self.low.abs();
    }

    /// Adds another sum with its error.
    #[inline(always)]
    fn merge(&mut self, other: Self) {
        self.add(other.high);
        self.low += other.low;
        self.error += other.error;
    }

    /// Adds `w^2`, its rounding included (Veltkamp's split, so that no fused operation is needed).
    #[inline(always)]
    fn add_square(&mut self, w: f64) {
        const SPLIT: f64 = 134_217_729.0;
        let product = w * w;
        let shifted = SPLIT * w;
        let head = shifted - (shifted - w);
        let tail = w - head;
        self.add(product);
        self.low += ((head * head - product) + 2.0 * (head * tail)) + tail * tail;
    }
}

/// The iterate, and its running average where one is asked for.
pub struct Iterate<L> {
    layout: L,
    classes: usize,
    columns: usize,
    projection: Projection,
    radius: f64,
    /// A projection uses a squared norm only if it is known to this relative error.
    norm_error: f64,
    weights: Vec<f64>,
    /// Padded like the scores, so that coefficients can be formed in whole vectors.
    pub scale: Vec<f64>,
    square: Vec<Square>,
    /// Bound of the norm of each `V_k` within the current batch.
    length: Vec<f64>,
    change: Vec<f64>,
    average: Option<Average>,
    /// Times a norm was summed anew: for tests and benchmarks.
    pub refreshes: u64,
    /// Times the ball was left: for tests and benchmarks.
    pub projections: u64,
}

struct Average {
    settled: Vec<f64>,
    lag: Vec<f64>,
    share: Vec<f64>,
    total: f64,
    coefficient: Vec<f64>,
}

impl<L: WeightLayout> Iterate<L> {
    /// The zero matrix of `classes` x `columns`; `norm_error` is at least 16 units roundoff.
    ///
    /// # Errors
    /// No memory.
    pub fn new(
        layout: L,
        (classes, columns): (usize, usize),
        projection: Projection,
        (radius, norm_error): (f64, f64),
        averaged: bool,
    ) -> Result<Self> {
        let padded = layout.padded_classes();
        let average = || -> Result<Average> {
            Ok(Average {
                settled: zeros(layout.stored())?,
                lag: zeros(layout.stored())?,
                share: zeros(padded)?,
                total: 0.0,
                coefficient: zeros(padded)?,
            })
        };
        Ok(Self {
            layout,
            classes,
            columns,
            projection,
            radius,
            norm_error,
            weights: zeros(layout.stored())?,
            scale: filled(padded, 1.0)?,
            square: zeros(classes)?,
            length: zeros(padded)?,
            change: zeros(padded)?,
            average: averaged.then(average).transpose()?,
            refreshes: 0,
            projections: 0,
        })
    }

    /// `scores[k] = <W_k, row>`.
    #[inline(always)]
    pub fn scores<S: Simd>(&self, simd: S, row: Row<'_, f64>, scores: &mut [f64]) {
        self.layout.scores(simd, row, &self.weights, scores);
        for (score, scale) in scores.iter_mut().zip(&self.scale) {
            *score *= scale;
        }
    }

    /// Multiplies the iterate by `shrink` (0 only at the zero matrix, where nothing is to be done).
    #[inline(always)]
    pub fn shrink(&mut self, shrink: f64) {
        if self.square.iter().all(|square| square.high == 0.0) {
            return;
        }
        for scale in &mut self.scale {
            *scale *= shrink;
        }
        for (length, square) in self.length.iter_mut().zip(&self.square) {
            *length = (square.value() + square.error).sqrt() * (1.0 + LENGTH_SLACK);
        }
    }

    /// `W_k += step * gradient[k] * row`; the padding of `gradient` is zero. Overwrites `gradient`.
    #[inline(always)]
    pub fn update<S: Simd>(&mut self, simd: S, row: Row<'_, f64>, step: f64, gradient: &mut [f64]) {
        for (g, scale) in gradient.iter_mut().zip(&self.scale) {
            *g = step * *g / scale;
        }
        if let Some(average) = &mut self.average {
            let pairs = gradient.iter().zip(&average.share);
            for (c, (g, share)) in average.coefficient.iter_mut().zip(pairs) {
                *c = g * share;
            }
            self.layout
                .update(simd, row, &mut average.lag, &average.coefficient);
        }
        self.layout
            .measured_update(simd, row, &mut self.weights, gradient, &mut self.change);
        let depth = (row.value.len() + 12) as f64 * ROUNDOFF;
        for k in 0..self.classes {
            // Rows have norm at most 1; what rounding moves the weights belongs to the change too.
            let moved =
                gradient[k].abs() * (1.0 + 4.0 * ROUNDOFF) + 2.0 * ROUNDOFF * self.length[k];
            let square = &mut self.square[k];
            square.add(self.change[k]);
            square.error += depth * moved * (2.0 * self.length[k] + moved);
            self.length[k] += moved * (1.0 + LENGTH_SLACK);
        }
    }

    /// Back onto the ball; then the iterate enters the average with weight `occasion`.
    #[inline(always)]
    pub fn finish_update(&mut self, occasion: f64) {
        match self.projection {
            Projection::Joint => self.project(0, self.classes),
            Projection::PerClass => (0..self.classes).for_each(|k| self.project(k, k + 1)),
        }
        if self.scale[..self.classes].iter().any(|s| *s < MIN_SCALE) {
            self.rescale();
        }
        if let Some(average) = &mut self.average {
            for (share, scale) in average.share.iter_mut().zip(&self.scale) {
                *share += occasion * scale;
            }
            average.total += occasion;
        }
    }

    /// Projects the classes `from..to`, which share one scale.
    #[inline(always)]
    fn project(&mut self, from: usize, to: usize) {
        let scale = self.scale[from];
        let (mut square, mut error) = self.sum(from, to);
        let limit = self.radius * self.radius;
        if scale * scale * (square + error) <= limit {
            return;
        }
        if error > self.norm_error * square {
            self.refresh(from, to);
            (square, error) = self.sum(from, to);
            if scale * scale * (square + error) <= limit {
                return;
            }
        }
        let length = scale * square.sqrt();
        if length > self.radius {
            self.projections += 1;
            let factor = self.radius / length;
            // The padding after the last class follows it, which keeps it finite.
            let end = if to == self.classes {
                self.scale.len()
            } else {
                to
            };
            for scale in &mut self.scale[from..end] {
                *scale *= factor;
            }
        }
    }

    /// Squared norm of `V` over some classes, and its error.
    #[inline(always)]
    fn sum(&self, from: usize, to: usize) -> (f64, f64) {
        let mut total = Square::default();
        for square in &self.square[from..to] {
            total.merge(*square);
        }
        (total.value(), total.error)
    }

    /// Sums squared norms anew, in twice the working precision.
    #[cold]
    #[inline(never)]
    fn refresh(&mut self, from: usize, to: usize) {
        self.refreshes += 1;
        for k in from..to {
            // Four sums at a time hide the latency of each.
            let mut parts = [Square::default(); 4];
            for j in 0..self.columns {
                parts[j % 4].add_square(self.weights[self.layout.position(k, j)]);
            }
            let mut square = Square::default();
            for part in parts {
                square.merge(part);
            }
            square.error += 4.0 * ROUNDOFF * square.value();
            self.square[k] = square;
        }
    }

    /// Brings small scales back to [1/2, 1), exactly, after settling their average.
    #[cold]
    #[inline(never)]
    fn rescale(&mut self) {
        self.settle();
        for k in 0..self.classes {
            let (_, exponent) = libm::frexp(self.scale[k]);
            let power = libm::ldexp(1.0, exponent);
            self.scale[k] /= power;
            for j in 0..self.columns {
                self.weights[self.layout.position(k, j)] *= power;
            }
            let square = &mut self.square[k];
            square.high *= power * power;
            square.low *= power * power;
            square.error *= power * power;
        }
        let last = self.scale[self.classes - 1];
        self.scale[self.classes..].fill(last);
    }

    /// Moves everything that the average holds into `settled`.
    fn settle(&mut self) {
        let Some(average) = &mut self.average else {
            return;
        };
        for k in 0..self.classes {
            let share = average.share[k];
            for j in 0..self.columns {
                let at = self.layout.position(k, j);
                average.settled[at] += share * self.weights[at] - average.lag[at];
            }
        }
        average.lag.fill(0.0);
        average.share.fill(0.0);
    }

    /// The last iterate, or the average, times `unit`: class after class.
    ///
    /// # Errors
    /// No memory.
    pub fn into_weights(mut self, unit: f64) -> Result<Vec<f64>> {
        self.settle();
        let mut out = with_capacity(self.classes * self.columns)?;
        for k in 0..self.classes {
            for j in 0..self.columns {
                let at = self.layout.position(k, j);
                let value = match &self.average {
                    Some(average) => average.settled[at] / average.total,
                    None => self.scale[k] * self.weights[at],
                };
                out.push(value * unit);
            }
        }
        Ok(out)
    }
}
