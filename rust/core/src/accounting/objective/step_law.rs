//! Laws on a grid that dominate sums of independent privacy losses.
//!
//! A loss `S >= 0` is replaced by one on the grid `0, eta, 2 eta, ...`. The mass of each cell goes to
//! both its ends so that its mass and its `E e^{-S}` are kept: the privacy curve `E (1 - e^{e-S})_+`
//! is the mean of a convex function of `e^{-S}`, also when other independent losses are added, and
//! spreading a mass only raises such a mean (Doroshenko, Ghazi, Kamath, Kumar, Manurangsi,
//! 2022). The error is of second order in `eta`; everything is rounded upward.

use crate::accounting::objective::logs::{LOG_ROOT_TWO_PI, NOTHING, log_add, log_tail};

/// Half-widths of the six Gauss-Legendre nodes on [-1, 1] and their weights.
pub(super) const SIX: [[f64; 2]; 3] = [
    [0.238_619_186_083_196_9, 0.467_913_934_572_691_04],
    [0.661_209_386_466_264_5, 0.360_761_573_048_138_6],
    [0.932_469_514_203_152, 0.171_324_492_379_170_36],
];

/// Largest change of the normal density's logarithm over a cell that [`SIX`] is trusted with; its
/// relative error is then below 1e-12.
const SMOOTH: f64 = 2.0;

/// Relative allowance for quadrature and rounding of one cell.
const ALLOWANCE: f64 = 1e-11;

/// Masses on a grid and the mass beyond it, as logarithms, rounded up.
#[derive(Debug, Clone)]
pub(super) struct StepLaw {
    /// Distance of neighbouring grid points.
    pub eta: f64,
    /// `log_mass[j]` at `j * eta`.
    pub log_mass: Vec<f64>,
    /// Mass above the last grid point.
    pub log_beyond: f64,
}

/// Splits the masses of normal cells of loss width `eta`.
struct Splitter {
    eta: f64,
    /// Place in the cell, weight for its left end, weight for its right end.
    nodes: [[f64; 3]; 6],
}

impl Splitter {
    fn new(eta: f64) -> Self {
        let mut nodes = [[0.0; 3]; 6];
        for (i, &[x, weight]) in SIX.iter().enumerate() {
            for (j, place) in [(2 * i, 0.5 - 0.5 * x), (2 * i + 1, 0.5 + 0.5 * x)] {
                // Share of e^{-S} at this place, between its values at the two ends.
                let right = libm::expm1(-eta * place) / libm::expm1(-eta);
                let left = (libm::exp(-eta * place) - libm::exp(-eta)) / -libm::expm1(-eta);
                nodes[j] = [place, 0.5 * weight * left.max(0.0), 0.5 * weight * right];
            }
        }
        Self { eta, nodes }
    }

    /// Logarithms of the masses for the left and the right end of the cell of `z` in `[low, high]`, on
    /// which the loss is at most linear, from the left to the right grid value.
    fn cell(&self, low: f64, high: f64) -> (f64, f64) {
        let width = high - low;
        if width <= 0.0 {
            return (NOTHING, NOTHING);
        }
        if width * (low.abs() + width) > SMOOTH || self.eta > 1.0 {
            return (NOTHING, log_mass_between(low, high) + ALLOWANCE);
        }
        let (mut left, mut right) = (0.0, 0.0);
        for [place, to_left, to_right] in self.nodes {
            let step = width * place;
            let density = libm::exp(-step * (low + 0.5 * step));
            left += to_left * density;
            right += to_right * density;
        }
        let scale = libm::log(width) - 0.5 * low * low - LOG_ROOT_TWO_PI + ALLOWANCE;
        (scale + libm::log(left), scale + libm::log(right))
    }
}

/// `ln P(low < z < high)`.
pub(super) fn log_mass_between(low: f64, high: f64) -> f64 {
    if high <= 0.0 {
        return log_mass_between(-high, -low);
    }
    if low < 0.0 {
        let outside = libm::exp(log_tail(-low)) + libm::exp(log_tail(high));
        return libm::log1p(-outside);
    }
    let (near, far) = (log_tail(low), log_tail(high));
    near + libm::log1p(-libm::exp(far - near))
}

/// Adds a mass to a grid point.
fn put(log_mass: &mut f64, log: f64) {
    *log_mass = log_add(*log_mass, log);
}

impl StepLaw {
    /// Law of a loss that is increasing and convex in a standard normal `z`, and at least 0.
    ///
    /// # Arguments
    /// * `thresholds` - `thresholds[j]`: a `z` at which the loss is at most `j * eta`; increasing.
    pub(super) fn of_convex(thresholds: &[f64], eta: f64) -> Self {
        let splitter = Splitter::new(eta);
        let mut log_mass = vec![NOTHING; thresholds.len()];
        log_mass[0] = log_tail(-thresholds[0]) + ALLOWANCE;
        for (j, pair) in thresholds.windows(2).enumerate() {
            let (left, right) = splitter.cell(pair[0], pair[1]);
            put(&mut log_mass[j], left);
            log_mass[j + 1] = right;
        }
        let last = thresholds[thresholds.len() - 1];
        Self {
            eta,
            log_mass,
            log_beyond: log_tail(last) + ALLOWANCE,
        }
    }

    /// Law of a loss with `P(S > v) = min(1, sum weight Phi(-(v - centre) / scale))`, `v >= 0`, whose
    /// sum is at least 1 at `v = 0`.
    ///
    /// # Arguments
    /// * `parts` - `[weight, centre, scale]` each.
    pub(super) fn of_tails(parts: &[[f64; 3]], eta: f64, len: usize) -> Self {
        let splitter = Splitter::new(eta);
        let tail = |j: usize| {
            let at = |&[weight, centre, scale]: &[f64; 3]| {
                weight * libm::exp(log_tail((j as f64 * eta - centre) / scale))
            };
            parts.iter().map(at).sum::<f64>() * (1.0 + ALLOWANCE)
        };
        // The last cell that begins with a sum of at least 1; its mass is what 1 is above the rest.
        let first = (0..len - 1)
            .take_while(|&j| tail(j) >= 1.0)
            .last()
            .unwrap_or(0);
        let mut log_mass = vec![NOTHING; len];
        log_mass[first + 1] = libm::log1p(-tail(first + 1).min(1.0)) + ALLOWANCE;
        let mut log_beyond = NOTHING;
        for &[weight, centre, scale] in parts {
            let log_weight = libm::log(weight);
            let z = |j: usize| (j as f64 * eta - centre) / scale;
            for j in first + 1..len - 1 {
                let (left, right) = splitter.cell(z(j), z(j + 1));
                put(&mut log_mass[j], log_weight + left);
                put(&mut log_mass[j + 1], log_weight + right);
            }
            put(
                &mut log_beyond,
                log_weight + log_tail(z(len - 1)) + ALLOWANCE,
            );
        }
        Self {
            eta,
            log_mass,
            log_beyond,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mean(law: &StepLaw, weight: impl Fn(f64) -> f64) -> f64 {
        let terms = law.log_mass.iter().enumerate();
        terms
            .map(|(j, &log)| libm::exp(log) * weight(j as f64 * law.eta))
            .sum()
    }

    #[test]
    fn mass_and_exponential_mean_are_kept() {
        // max(0, t z + t^2 / 2): E e^{-S} = Phi(-t/2) + Phi(-t/2).
        let (t, eta) = (0.4, 0.02);
        let thresholds: Vec<f64> = (0..300).map(|j| f64::from(j) * eta / t - 0.5 * t).collect();
        let law = StepLaw::of_convex(&thresholds, eta);
        assert!((mean(&law, |_| 1.0) - 1.0).abs() < 1e-10);
        let wanted = 2.0 * libm::exp(log_tail(0.5 * t));
        assert!((mean(&law, |v| libm::exp(-v)) - wanted).abs() < 1e-10);
        // Second order: the mean itself is off by much less than a cell.
        let phi = libm::exp(-0.125 * t * t - LOG_ROOT_TWO_PI);
        let plain = t * phi + 0.5 * t * t * (1.0 - libm::exp(log_tail(0.5 * t)));
        let found = mean(&law, |v| v);
        assert!(
            found > plain && found < plain + 0.01 * eta,
            "{found} {plain}"
        );
    }

    #[test]
    fn tails_with_a_cap_have_mass_one() {
        let (t, eta) = (0.3, 0.01);
        let parts = [[1.0, 2.0 * t * t, 2.0 * t], [2.0, 0.5 * t * t, t]];
        let law = StepLaw::of_tails(&parts, eta, 900);
        assert!((mean(&law, |_| 1.0) - 1.0).abs() < 1e-9);
        for v in [0.5, 1.0, 2.0] {
            let above = mean(&law, |at| f64::from(at > v - 0.5 * eta));
            let tail: f64 = parts
                .iter()
                .map(|[weight, centre, scale]| weight * libm::exp(log_tail((v - centre) / scale)))
                .sum();
            assert!((above / tail - 1.0).abs() < 0.05, "{above} {tail}");
        }
    }

    #[test]
    fn wide_cells_are_rounded_up() {
        let thresholds = [-3.0, -1.0, 2.0, 9.0];
        let law = StepLaw::of_convex(&thresholds, 5.0);
        let below = |x: f64| 1.0 - libm::exp(log_tail(x));
        for j in 1..4 {
            let wanted = below(thresholds[j]) - below(thresholds[j - 1]);
            assert!((libm::exp(law.log_mass[j]) / wanted - 1.0).abs() < 1e-9);
        }
    }
}
