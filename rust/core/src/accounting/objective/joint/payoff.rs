//! The expected payoff `E (1 - exp((e - psi(V)) / beta))_+` over the record's own score.
//!
//! Given the rest, `V` is normal with deviation `t` and mean `2 quadratic + t x`: the payoff is a
//! function of `x`. It is written as a positive mixture of shifted normal distribution functions,
//! so that [`chord_excess`] applies to it.

use crate::accounting::objective::joint::model::Model;
use crate::accounting::objective::joint::tail::{cdf, chord_excess, density, upper_tail};
use crate::numeric::normal::{LEAST, mills};

/// Nodes that the curved part of `psi` is cut into, about.
const NODES: f64 = 256.0;

/// Largest distance of two nodes.
const LARGEST_SPACING: f64 = 0.25;

/// Longest curved part: beyond, bounds are vacuous.
const LONGEST_CURVE: f64 = 200.0;

/// Roundoffs added to both terms of a difference.
const DIFFERENCE_ERROR: f64 = 8.0 * f64::EPSILON;

/// The payoff as a function of `x`, an upper bound.
#[derive(Debug, Clone)]
pub(super) struct Payoff {
    /// `t / beta`.
    shift: f64,
    /// `x` from which on `psi` is the identity.
    end: f64,
    /// Weight of the part from `end` on.
    factor: f64,
    /// Weights of `Phi(x - end + k spacing)`, `k = 0, 1, ...`; empty where `psi` is the identity.
    weights: Vec<f64>,
    /// Grid steps between two nodes.
    stride: usize,
    step: f64,
}

/// Places where the curved part of `psi` is cut, and `psi` there, from its end downwards.
pub(super) struct Nodes {
    /// Grid steps between two of them.
    pub(super) stride: usize,
    pub(super) heights: Vec<f64>,
}

impl Nodes {
    /// About `number` of them over a range of `x`.
    pub(super) fn new(model: &Model, range: f64, number: f64, step: f64) -> Self {
        let spacing = (range / number).min(LARGEST_SPACING);
        let stride = (spacing / step).ceil().max(1.0) as usize;
        let spacing = stride as f64 * step;
        let count = (range / spacing).ceil().max(1.0) as usize;
        let end = model.identity_from();
        let height = |k: usize| model.psi(end - k as f64 * spacing * model.setting.t);
        Self {
            stride,
            heights: (0..=count).map(height).collect(),
        }
    }
}

/// `E (1 - exp(-shift Y))_+` for `Y ~ N(a, 1)`, rounded up.
fn linear_payoff(a: f64, shift: f64) -> f64 {
    if a <= -LEAST {
        let (near, far) = (mills(-a), mills(shift - a));
        return density(a) * (near - far + DIFFERENCE_ERROR * (near + far));
    }
    let near = cdf(a);
    let far = if shift - a >= LEAST {
        density(a) * mills(shift - a)
    } else {
        libm::exp(shift * (0.5 * shift - a)) * upper_tail(shift - a)
    };
    near - far + DIFFERENCE_ERROR * (near + far)
}

impl Payoff {
    /// `level` is `e > 0`; `step` is the grid of `x`. `None` where the curved part is too long.
    pub(super) fn new(model: &Model, level: f64, beta: f64, step: f64) -> Option<Self> {
        let t = model.setting.t;
        let place = |value: f64| (value - 2.0 * model.setting.quadratic) / t;
        let end = model.identity_from();
        let mut payoff = Self {
            shift: t / beta,
            end: place(level.max(end)),
            factor: 1.0,
            weights: Vec::new(),
            stride: 1,
            step,
        };
        if level < end {
            let range = (end - model.inverse(level)) / t;
            if range > LONGEST_CURVE {
                return None;
            }
            payoff.factor = libm::exp((level - end) / beta);
            payoff.curve(model, level, beta, range);
        }
        Some(payoff)
    }

    /// Like [`Self::new`] for a `level` below the end of the curved part, on given nodes.
    pub(super) fn on_nodes(model: &Model, level: f64, beta: f64, step: f64, nodes: &Nodes) -> Self {
        let (t, end) = (model.setting.t, model.identity_from());
        let mut payoff = Self {
            shift: t / beta,
            end: (end - 2.0 * model.setting.quadratic) / t,
            factor: libm::exp((level - end) / beta),
            weights: Vec::new(),
            stride: nodes.stride,
            step,
        };
        let reached = nodes.heights.iter().position(|&height| height <= level);
        let count = reached.unwrap_or(nodes.heights.len() - 1).max(1);
        payoff.weigh(|k| nodes.heights[k], count, level, end, beta);
        payoff
    }

    /// Mean of the payoff from the means of its parts: the straight one, then the nodes.
    pub(super) fn over_nodes(&self, means: &[f64]) -> f64 {
        let curved = self.weights.iter().zip(&means[1..]);
        self.factor * means[0] + curved.map(|(weight, mean)| weight * mean).sum::<f64>()
    }

    /// The same payoff for a level that is larger by that many steps of `x`, where `psi` is the
    /// identity.
    pub(super) fn moved(&self, steps: usize) -> Self {
        Self {
            end: self.end + steps as f64 * self.step,
            weights: Vec::new(),
            ..*self
        }
    }

    /// `x` from which on `psi` is the identity.
    pub(super) fn end(&self) -> f64 {
        self.end
    }

    /// The part from there on, at a distance `a`, without its weight.
    pub(super) fn straight(&self, a: f64) -> f64 {
        linear_payoff(a, self.shift)
    }

    /// Fills the nodes. Between two of them `psi` is at most its chord, for which the mean of the
    /// payoff is known; the normal distribution function is replaced by its chord as well.
    fn curve(&mut self, model: &Model, level: f64, beta: f64, range: f64) {
        let t = model.setting.t;
        let end = model.identity_from();
        let spacing = (range / NODES).min(LARGEST_SPACING);
        self.stride = (spacing / self.step).ceil().max(1.0) as usize;
        let spacing = self.stride as f64 * self.step;
        let count = (range / spacing).ceil() as usize;
        let height = |k: usize| model.psi(end - k as f64 * spacing * t);
        self.weigh(height, count, level, end, beta);
    }

    /// Weights of the nodes, node `k` lying `k` spacings below the end, where `psi` is `height(k)`; at
    /// the last one it is at most `level`.
    fn weigh(
        &mut self,
        height: impl Fn(usize) -> f64,
        count: usize,
        level: f64,
        end: f64,
        beta: f64,
    ) {
        let excess = 1.0 + chord_excess(self.stride as f64 * self.step);
        self.weights = vec![0.0; count + 1];
        let mut right = end;
        let mut mean_right = 1.0 - self.factor;
        for k in 1..=count {
            let left = if k == count {
                level
            } else {
                height(k).clamp(level, right)
            };
            let mean = mean_payoff(left - level, right - level, beta);
            self.weights[k - 1] = (mean_right - mean).max(0.0) * excess;
            mean_right = mean;
            right = left;
        }
        self.weights[count] = mean_right.max(0.0) * excess;
    }

    /// An upper bound that is cheap to evaluate.
    pub(super) fn crude(&self, x: f64) -> f64 {
        if self.weights.is_empty() {
            return linear_payoff(x - self.end, self.shift);
        }
        let reach = (self.weights.len() - 1) as f64 * self.stride as f64 * self.step;
        cdf(x - self.end + reach) * 1.1
    }

    /// The payoff at `x`.
    pub(super) fn value(&self, x: f64) -> f64 {
        let spacing = self.stride as f64 * self.step;
        let curved: f64 = (self.weights.iter().enumerate())
            .map(|(k, weight)| weight * cdf(x - self.end + k as f64 * spacing))
            .sum();
        self.factor * linear_payoff(x - self.end, self.shift) + curved
    }

    /// Slope of its logarithm from `x` on over a distance; 0 where it has none.
    pub(super) fn log_slope(&self, x: f64, distance: f64) -> f64 {
        let (low, high) = (self.value(x), self.value(x + distance));
        if low > 0.0 && high > low {
            libm::log(high / low) / distance
        } else {
            0.0
        }
    }

    /// The payoff at `start + i step` for `i < count`.
    pub(super) fn table(&self, start: f64, count: usize) -> Vec<f64> {
        let at = |i: usize| start + i as f64 * self.step - self.end;
        let mut table: Vec<f64> = (0..count)
            .map(|i| self.factor * linear_payoff(at(i), self.shift))
            .collect();
        if self.weights.is_empty() {
            return table;
        }
        let length = count + (self.weights.len() - 1) * self.stride;
        let normal: Vec<f64> = (0..length).map(|i| cdf(at(i))).collect();
        for (k, weight) in self.weights.iter().enumerate() {
            let shifted = &normal[k * self.stride..];
            for (value, phi) in table.iter_mut().zip(shifted) {
                *value += weight * phi;
            }
        }
        table
    }
}

/// Mean of `1 - exp(-v / beta)` over `v` from `low` to `high`.
fn mean_payoff(low: f64, high: f64, beta: f64) -> f64 {
    let width = (high - low) / beta;
    let decay = if width < 1e-8 {
        1.0 - 0.5 * width
    } else {
        -libm::expm1(-width) / width
    };
    // 1 - exp(-low) decay = (1 - exp(-low)) + exp(-low) (1 - decay).
    let lost = if width < 1e-4 {
        0.5 * width
    } else {
        1.0 - decay
    };
    -libm::expm1(-low / beta) + libm::exp(-low / beta) * lost
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::accounting::objective::joint::model::{Setting, Variant};

    fn by_quadrature(model: &Model, level: f64, beta: f64, x: f64) -> f64 {
        let t = model.setting.t;
        let step = 2.5e-4;
        (-36_000..36_000)
            .map(|k| {
                let z = (f64::from(k) + 0.5) * step;
                let value = 2.0 * model.setting.quadratic + t * (x + z);
                let gain = -libm::expm1((level - model.psi(value)) / beta);
                density(z) * step * gain.max(0.0)
            })
            .sum()
    }

    // Proof: joint_bound
    #[test]
    fn the_payoff_is_a_close_upper_bound() {
        for (t, kappa, level, beta) in [
            (0.2, 0.1, 1.0, 1.0),
            (0.5, 3.0, 1.0, 1.0),
            (1.0, 6.0, 2.0, 0.5),
            (0.1, 0.3, 0.05, 1.0),
        ] {
            for variant in [Variant::Logarithmic, Variant::Linear] {
                let setting = Setting {
                    t,
                    kappa,
                    competitors: 5,
                    quadratic: 0.5 * t * t,
                };
                let model = Model::new(setting, 0.9, variant);
                let payoff = Payoff::new(&model, level, beta, 0.004).unwrap();
                let table = payoff.table(-3.0, 2000);
                for i in (0..2000).step_by(250) {
                    let x = -3.0 + 0.004 * i as f64;
                    let truth = by_quadrature(&model, level, beta, x);
                    let found = payoff.value(x);
                    assert!(found >= truth * (1.0 - 1e-6), "{x}: {found} {truth}");
                    assert!(found <= truth * 1.008 + 1e-15, "{x}: {found} {truth}");
                    assert!((table[i] / found - 1.0).abs() < 1e-10);
                    assert!(payoff.crude(x) >= found);
                }
            }
        }
    }
}
