//! The expected payoff: over the largest score of the competitors, and over the others given it.

use realfft::RealFftPlanner;

use crate::Result;
use crate::accounting::objective::joint::payoff::{Nodes, Payoff};
use crate::accounting::objective::joint::search::BoundSearch;
use crate::accounting::objective::joint::spread::{CELL_ERROR, Spread};
use crate::accounting::objective::joint::tail::{cdf, chord_excess, log_cdf, upper_tail};
use crate::runtime::interrupt::Interrupt;

/// The largest score is integrated over this range; both ends are added whole.
const LEFT: f64 = -9.0;
const RIGHT: f64 = 13.0;

/// Cells whose whole contribution is below this share of the largest cell use the cap.
const NEGLIGIBLE: f64 = 1e-3;

/// Chords of a cell.
const CHORDS: usize = 2;

/// Covers the rounding of sums, normal tails and exponentials.
const ROUNDING: f64 = 1e-9;

/// How finely the integral is cut; every cut is rounded towards more.
#[derive(Debug, Clone, Copy)]
pub(super) struct Grid {
    /// Grid of the payoff and of `X`.
    pub step: f64,
    /// Steps between two chords in the largest score.
    pub chord: usize,
    /// Chords of a cell, in which the law of `X` is that at the left end.
    pub chords: usize,
}

impl Grid {
    /// `resolution` points for each unit, halved until `X` up to `T = scale` needs `most` or
    /// fewer; cells of about this width.
    pub(super) fn new(resolution: f64, most: f64, cell: f64, scale: f64) -> Self {
        let mut step = 1.0 / resolution;
        while scale > most * step {
            step *= 2.0;
        }
        let chords = CHORDS;
        let chord = (cell / (step * chords as f64)).round().max(1.0) as usize;
        Self {
            step,
            chord,
            chords,
        }
    }

    fn cell(&self) -> usize {
        self.chord * self.chords
    }
}

/// The cells of the largest score that are worth computing, and a bound on the others.
struct Cells {
    /// `n ln Phi` at the cell ends.
    active: std::ops::Range<usize>,
    rest: f64,
    width: f64,
}

/// `exp(high) - exp(low)` without cancellation.
fn mass(low: f64, high: f64) -> f64 {
    libm::exp(high) * -libm::expm1(low - high)
}

impl Cells {
    fn new(payoff: &Payoff, competitors: f64, cap: f64, width: f64) -> Self {
        let count = ((RIGHT - LEFT) / width).ceil() as usize;
        let end = |r: usize| LEFT + r as f64 * width;
        let logs: Vec<f64> = (0..=count).map(|r| competitors * log_cdf(end(r))).collect();
        let masses: Vec<f64> = (0..count).map(|r| mass(logs[r], logs[r + 1])).collect();
        let largest = (0..count)
            .step_by(4)
            .map(|r| masses[r] * payoff.value(end(r)))
            .fold(0.0, f64::max);
        let bound = |r: usize| masses[r] * payoff.crude(end(r + 1) + cap);
        let mut rest =
            libm::exp(logs[0]) * payoff.crude(LEFT + cap) + competitors * upper_tail(end(count));
        let (mut first, mut last) = (0, count);
        let mut skipped = 0.0;
        while first < last {
            skipped += bound(first);
            if skipped > NEGLIGIBLE * largest {
                break;
            }
            rest += bound(first);
            first += 1;
        }
        skipped = 0.0;
        while last > first {
            skipped += bound(last - 1);
            if skipped > NEGLIGIBLE * largest {
                break;
            }
            rest += bound(last - 1);
            last -= 1;
        }
        Self {
            active: first..last,
            rest,
            width,
        }
    }
}

/// Weights of the two ends of `[low, high]` for the chord of a function, under the law with
/// these logarithms of the distribution function: the mean of the place is that of a law
/// whose distribution function is as small as log-concavity allows.
fn chord_weights(low: f64, high: f64) -> (f64, f64) {
    let d = high - low;
    let scale = libm::exp(low);
    if d < 1e-4 {
        // Series of the two expressions below; the next terms are below 1e-12 of them.
        let left = d * (0.5 + d * (1.0 / 6.0 + d / 24.0));
        let right = d * (0.5 + d * (1.0 / 3.0 + d / 8.0));
        return (scale * left, scale * right);
    }
    if d > 600.0 {
        return (0.0, libm::exp(high));
    }
    let growth = libm::expm1(d);
    let mean = growth / d;
    (scale * (mean - 1.0), scale * (growth + 1.0 - mean))
}

/// Weights of the nodes of a cell, from the logarithms of the distribution function there.
fn cell_weights(logs: &[f64]) -> Vec<f64> {
    let mut weights = vec![0.0; logs.len()];
    for k in 0..logs.len() - 1 {
        let (left, right) = chord_weights(logs[k], logs[k + 1]);
        weights[k] += left;
        weights[k + 1] += right;
    }
    weights
}

/// Upper bound on the expected payoff with `n = competitors` and `T = scale`.
pub(super) fn expected_payoff(
    planner: &mut RealFftPlanner<f64>,
    payoff: &Payoff,
    competitors: usize,
    scale: f64,
    grid: Grid,
    interrupt: &dyn Interrupt,
) -> Result<f64> {
    let n = competitors as f64;
    let mut spread = (scale > 0.0).then(|| Spread::new(planner, competitors - 1, scale, grid.step));
    let cap = spread.as_ref().map_or(0, Spread::cap);
    let width = grid.cell() as f64 * grid.step;
    let cells = Cells::new(payoff, n, cap as f64 * grid.step, width);
    let start = LEFT + cells.active.start as f64 * cells.width;
    let steps = cells.active.len() * grid.cell();
    let table = payoff.table(start, steps + cap + 1);
    let logs: Vec<f64> = (0..=cells.active.len() * grid.chords)
        .map(|k| n * log_cdf(start + (k * grid.chord) as f64 * grid.step))
        .collect();
    let factor = 1.0 + chord_excess(grid.chord as f64 * grid.step);
    let mut total = cells.rest;
    for r in 0..cells.active.len() {
        interrupt.check()?;
        let nodes = cell_weights(&logs[r * grid.chords..=(r + 1) * grid.chords]);
        let from = r * grid.cell();
        let law: &[f64] = match &mut spread {
            None => &[1.0],
            Some(spread) => {
                let w = start + from as f64 * grid.step;
                spread.at(
                    w,
                    log_slope(&table[from..=from + grid.cell() + cap], cap, grid.step),
                )
            }
        };
        for (k, weight) in nodes.iter().enumerate() {
            let shifted = &table[from + k * grid.chord..];
            total += factor * weight * dot(law, shifted);
        }
    }
    Ok((total * (1.0 + ROUNDING + 2.0 * n * CELL_ERROR)).min(1.0))
}

/// Upper bounds on the probabilities of `w + X` on a grid, good for every payoff between two.
pub(super) struct SumLaw {
    start: f64,
    step: f64,
    mass: Vec<f64>,
    /// Places that the rest does not exceed, and how much of it.
    outside: Vec<(f64, f64)>,
    beyond: f64,
    factor: f64,
}

/// Cells for which one slope of the payoff serves.
const SLOPES: usize = 4;

impl SumLaw {
    /// `payoffs` are the ends of the range; otherwise as [`expected_payoff`].
    pub(super) fn new(
        search: &mut BoundSearch<'_>,
        payoffs: [&Payoff; 2],
        competitors: usize,
        scale: f64,
        grid: Grid,
    ) -> Result<Self> {
        let n = competitors as f64;
        let step = grid.step;
        let planner = &mut search.planner;
        let mut spread = (scale > 0.0).then(|| Spread::new(planner, competitors - 1, scale, step));
        let cap = spread.as_ref().map_or(0, Spread::cap);
        let width = grid.cell() as f64 * step;
        let ends = payoffs.map(|payoff| Cells::new(payoff, n, cap as f64 * step, width).active);
        let active = ends[0].start.min(ends[1].start)..ends[0].end.max(ends[1].end);
        let count = ((RIGHT - LEFT) / width).ceil() as usize;
        let end = |r: usize| LEFT + r as f64 * width;
        let cdf = |r: usize| n * log_cdf(end(r));
        let outside = (0..count).filter(|r| !active.contains(r));
        let top = |r: usize| end(r) + cap as f64 * step;
        let mut outside: Vec<(f64, f64)> = outside
            .map(|r| (top(r + 1), mass(cdf(r), cdf(r + 1))))
            .collect();
        outside.push((top(0), libm::exp(cdf(0))));
        let start = end(active.start);
        let mut law = Self {
            start,
            step,
            mass: vec![0.0; active.len() * grid.cell() + cap + 1],
            outside,
            beyond: n * upper_tail(end(count)),
            factor: 1.0 + ROUNDING + 2.0 * n * CELL_ERROR,
        };
        let logs: Vec<f64> = (0..=active.len() * grid.chords)
            .map(|k| n * log_cdf(start + (k * grid.chord) as f64 * step))
            .collect();
        let chord = 1.0 + chord_excess(grid.chord as f64 * step);
        let mut rate = 0.0;
        for r in 0..active.len() {
            search.interrupt.check()?;
            let nodes = cell_weights(&logs[r * grid.chords..=(r + 1) * grid.chords]);
            let from = r * grid.cell();
            let one: &[f64] = match &mut spread {
                None => &[1.0],
                Some(spread) => {
                    let w = start + from as f64 * step;
                    if r % SLOPES == 0 {
                        let middle = w + (grid.cell() / 2) as f64 * step;
                        rate = payoffs[1].log_slope(middle, (cap / 2) as f64 * step);
                    }
                    spread.at(w, rate)
                }
            };
            for (k, weight) in nodes.iter().enumerate() {
                let places = &mut law.mass[from + k * grid.chord..];
                for (place, p) in places.iter_mut().zip(one) {
                    *place += chord * weight * p;
                }
            }
        }
        Ok(law)
    }

    /// Mean of the payoff with these values on the grid.
    pub(super) fn mean(&self, values: &[f64]) -> f64 {
        dot(&self.mass, values)
    }

    /// The straight part of a payoff on the grid, which starts `more` steps earlier.
    pub(super) fn table(&self, payoff: &Payoff, more: usize) -> Vec<f64> {
        let start = self.start - payoff.end();
        (0..self.mass.len() + more)
            .map(|i| payoff.straight(start + (i as f64 - more as f64) * self.step))
            .collect()
    }

    /// Means of the straight part of a payoff that has a curved one, and of the functions that its
    /// nodes stand for.
    pub(super) fn means(&self, payoff: &Payoff, nodes: &Nodes) -> Vec<f64> {
        let start = self.start - payoff.end();
        let length = self.mass.len() + (nodes.heights.len() - 1) * nodes.stride;
        let normal: Vec<f64> = (0..length)
            .map(|i| cdf(start + i as f64 * self.step))
            .collect();
        let mut means = vec![self.mean(&self.table(payoff, 0))];
        means.extend((0..nodes.heights.len()).map(|k| self.mean(&normal[k * nodes.stride..])));
        means
    }

    /// Upper bound on the expected payoff whose mean on the grid is known.
    pub(super) fn bound(&self, payoff: &Payoff, mean: f64) -> f64 {
        let outside = self.outside.iter().map(|&(x, p)| p * payoff.crude(x));
        ((mean + outside.sum::<f64>() + self.beyond) * self.factor).min(1.0)
    }
}

/// Slope of the logarithm of the payoff over the values that `X` takes, in the middle of a cell.
fn log_slope(table: &[f64], cap: usize, step: f64) -> f64 {
    let middle = (table.len() - cap) / 2;
    let (low, high) = (table[middle], table[middle + cap / 2]);
    if !(low > 0.0 && high > low) {
        return 0.0;
    }
    libm::log(high / low) / ((cap / 2) as f64 * step)
}

/// Sum of the products, over the shorter of the two; four running sums.
fn dot(a: &[f64], b: &[f64]) -> f64 {
    let mut sums = [0.0; 4];
    let b = &b[..a.len()];
    let (chunks, others) = (a.chunks_exact(4), b.chunks_exact(4));
    let rest: f64 = (chunks.remainder().iter().zip(others.remainder()))
        .map(|(x, y)| x * y)
        .sum();
    for (x, y) in chunks.zip(others) {
        for k in 0..4 {
            sums[k] += x[k] * y[k];
        }
    }
    (sums[0] + sums[1]) + (sums[2] + sums[3]) + rest
}
