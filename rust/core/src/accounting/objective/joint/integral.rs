//! The expected payoff: over the largest score of the competitors, and over the others given it.

use std::f64::consts::PI;
use std::ops::Range;

use crate::Result;
use crate::accounting::objective::joint::payoff::{Nodes, Payoff};
use crate::accounting::objective::joint::search::BoundSearch;
use crate::accounting::objective::joint::spread::{CELL_ERROR, Spread};
use crate::accounting::objective::joint::tail::{cdf, density, log_cdf, upper_tail};

/// Ends of the nodes in the largest score; what lies beyond is added whole.
const LEFT: f64 = -9.0;
const RIGHT: f64 = 13.0;

/// Nodes whose whole contribution is below this share of the largest one use the cap.
const NEGLIGIBLE: f64 = 2e-4;

/// Nodes this near to each other share the place of what is outside, and these or a few times as
/// many a slope of the payoff.
const NEAR: f64 = 0.2;

/// Nodes this near to each other share the law of `X` at the lowest of them.
const TOGETHER: f64 = 0.05;

/// Covers the rounding of sums, normal tails and exponentials.
const ROUNDING: f64 = 1e-9;

/// Resolution of the integral; every cut is rounded towards more.
#[derive(Debug, Clone, Copy)]
pub(super) struct Grid {
    /// Grid of the payoff and of `X`.
    pub step: f64,
    /// Steps between two nodes of the trapezoidal rule in the largest score.
    pub stride: usize,
    /// Nodes that share a law of `X`.
    shared: usize,
    /// Largest relative error of the rule.
    missed: f64,
}

impl Grid {
    /// `resolution` points for each unit, halved until `X` up to `T = scale` needs `most` or
    /// fewer, and nodes so close that the rule misses a relative `4 exp(-decay)` at most.
    pub(super) fn new(
        resolution: f64,
        most: f64,
        decay: f64,
        scale: f64,
        competitors: usize,
    ) -> Self {
        let inverse_variance = competitors as f64 + 1.0;
        let spacing = PI * (2.0 / (decay * inverse_variance)).sqrt();
        let mut step = 1.0 / resolution;
        while scale > most * step {
            step *= 2.0;
        }
        while step > spacing {
            step *= 0.5;
        }
        let stride = (spacing / step) as usize;
        let spacing = stride as f64 * step;
        let exponent = 2.0 * PI * PI / (spacing * spacing * inverse_variance);
        Self {
            step,
            stride,
            shared: (TOGETHER / spacing).max(1.0) as usize,
            missed: 4.0 * libm::exp(-exponent),
        }
    }
}

/// Nodes, pairs of place and weight, that are worth computing for a payoff; the others
/// hardly count even `reach` higher.
fn active(payoff: &Payoff, nodes: &[(f64, f64)], near: usize, reach: f64) -> Range<usize> {
    let values = nodes.iter().step_by(near);
    let largest = values
        .map(|&(w, p)| p * payoff.value(w))
        .fold(0.0, f64::max);
    let skipped = |nodes: &mut dyn Iterator<Item = &(f64, f64)>| {
        let mut sum = 0.0;
        let negligible = |&&(w, p): &&(f64, f64)| {
            sum += p * payoff.crude(w + reach);
            sum <= NEGLIGIBLE * largest
        };
        nodes.take_while(negligible).count()
    };
    let first = skipped(&mut nodes.iter());
    first..nodes.len() - skipped(&mut nodes[first..].iter().rev())
}

/// Upper bound on the expected payoff with `n = competitors` and `T = scale`.
pub(super) fn expected_payoff(
    search: &mut BoundSearch<'_>,
    payoff: &Payoff,
    competitors: usize,
    scale: f64,
    grid: Grid,
) -> Result<f64> {
    let law = SumLaw::new(search, [payoff; 2], competitors, scale, grid)?;
    let table = payoff.table(law.start, law.mass.len());
    Ok(law.bound(payoff, law.mean(&table)))
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

impl SumLaw {
    /// `payoffs` are the ends of the range; otherwise as [`expected_payoff`].
    pub(super) fn new(
        search: &mut BoundSearch<'_>,
        payoffs: [&Payoff; 2],
        competitors: usize,
        scale: f64,
        grid: Grid,
    ) -> Result<Self> {
        let (n, step, stride) = (competitors as f64, grid.step, grid.stride);
        let planner = &mut search.planner;
        let mut spread = (scale > 0.0).then(|| Spread::new(planner, competitors - 1, scale, step));
        let cap = spread.as_ref().map_or(0, Spread::cap);
        let reach = cap as f64 * step;
        let spacing = stride as f64 * step;
        let node = |r: usize| {
            let w = LEFT + r as f64 * spacing;
            let density = n * density(w) * libm::exp((n - 1.0) * log_cdf(w));
            (w, spacing * density)
        };
        let last = ((RIGHT - LEFT) / spacing).ceil() as usize;
        let nodes: Vec<(f64, f64)> = (0..=last).map(node).collect();
        let near = (NEAR / spacing).ceil() as usize;
        let ends = payoffs.map(|payoff| active(payoff, &nodes, near, reach));
        let active = ends[0].start.min(ends[1].start)..ends[0].end.max(ends[1].end);
        let mut outside = vec![(LEFT + reach, libm::exp(n * log_cdf(LEFT)))];
        for (r, &(w, p)) in nodes.iter().enumerate() {
            let alone = r % near == 0 || r == active.end;
            match outside.last_mut() {
                _ if active.contains(&r) => {}
                Some(place) if !alone => *place = (w + reach, place.1 + p),
                _ => outside.push((w + reach, p)),
            }
        }
        let mut law = Self {
            start: LEFT + active.start as f64 * spacing,
            step,
            mass: vec![0.0; active.len() * stride + cap + 1],
            outside,
            beyond: n * upper_tail(nodes[last].0),
            factor: (1.0 + ROUNDING + 2.0 * n * CELL_ERROR) / (1.0 - grid.missed),
        };
        let mut rate = 0.0;
        for (k, &(w, p)) in nodes[active].iter().enumerate() {
            search.interrupt.check()?;
            let one: &[f64] = match &mut spread {
                None => &[1.0],
                // A larger `w` has larger gaps, and `X` falls with them.
                Some(spread) if k % grid.shared > 0 => spread.last(),
                Some(spread) => {
                    if k % near == 0 {
                        rate = payoffs[1].log_slope(w, (cap / 2) as f64 * step);
                    }
                    spread.at(w, rate)
                }
            };
            for (place, q) in law.mass[k * stride..].iter_mut().zip(one) {
                *place += p * q;
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::accounting::objective::joint::model::{Model, Variant};
    use crate::accounting::objective::joint::search::{Detail, Problem};
    use crate::runtime::interrupt::Never;

    // Proof: joint_bound
    #[test]
    fn shared_laws_are_upper_bounds_and_close() {
        for (competitors, level) in [(9_000, 1.0), (9_000, 3.0), (99_999, 1.0), (99_999, 3.0)] {
            let setting = Problem::new(level, 0.2, 1.5, competitors + 1, false).setting;
            let model = Model::new(setting, 0.8, Variant::Logarithmic);
            let scale = model.theta / model.setting.t;
            let shared = Detail::Coarse.grid(scale, competitors);
            assert!(scale > 1.0 && shared.shared > 1);
            let mut search = BoundSearch::new(&Never);
            let payoff = Payoff::new(&model, level, 1.0, shared.step).unwrap();
            let mut mean =
                |grid| expected_payoff(&mut search, &payoff, competitors, scale, grid).unwrap();
            let (bound, least) = (
                mean(shared),
                mean(Grid {
                    shared: 1,
                    ..shared
                }),
            );
            assert!(
                0.0 < least && least < bound && bound < 1.1 * least,
                "{least} {bound}"
            );
        }
    }

    // Proof: joint_bound
    #[test]
    fn the_rule_misses_no_more_of_the_narrowest_density_than_stated() {
        for competitors in [2, 9, 99, 99_999] {
            for (detail, scale) in [
                (Detail::Coarse, 1.0),
                (Detail::Coarse, 9.0),
                (Detail::Fine, 1.0),
            ] {
                let grid = detail.grid(scale, competitors);
                let spacing = grid.stride as f64 * grid.step;
                let deviation = 1.0 / (competitors as f64 + 1.0).sqrt();
                let lost = |part: u32| {
                    let from = f64::from(part) / 16.0;
                    let places = (-200..200).map(|k| (f64::from(k) + from) * spacing);
                    let found: f64 = places.map(|x| density(x / deviation)).sum();
                    1.0 - found * spacing / deviation
                };
                let most = (0..16).map(lost).fold(0.0, f64::max);
                assert!(most <= grid.missed + 1e-13, "{most} {grid:?}");
                assert!(most >= 0.49 * grid.missed - 1e-13, "{most} {grid:?}");
            }
        }
    }
}
