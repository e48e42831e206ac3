//! Laws on a grid that dominate sums of independent privacy losses.
//!
//! A loss `S >= 0` is replaced by one on the grid `0, eta, 2 eta, ...`. The mass of each cell goes to
//! both its ends so that its mass and its `E e^{-S}` are kept: the privacy curve `E (1 - e^{e-S})_+`
//! is the mean of a convex function of `e^{-S}`, also when other independent losses are added, and
//! spreading a mass only raises such a mean (Doroshenko, Ghazi, Kamath, Kumar, Manurangsi, PoPETs
//! 2022). The error is of second order in `eta`; everything is rounded upward.

use super::logs::{LOG_ROOT_TWO_PI, NOTHING, log_add, log_tail};

/// Half-widths of the six Gauss-Legendre nodes on [-1, 1] and their weights.
const RULE: [[f64; 2]; 3] = [
    [0.238_619_186_083_196_9, 0.467_913_934_572_691_04],
    [0.661_209_386_466_264_5, 0.360_761_573_048_138_6],
    [0.932_469_514_203_152_1, 0.171_324_492_379_170_36],
];

/// Largest change of the normal density's logarithm over a cell that [`RULE`] is trusted with; its
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
    /// The part of `log_mass[j]` that comes from the cell above `j * eta`.
    pub log_left: Vec<f64>,
    /// Mass above the last grid point.
    pub log_beyond: f64,
}

/// How the masses of normal cells of loss width `eta` are split.
struct Splitter {
    eta: f64,
    /// Place in the cell, weight for its left end, weight for its right end.
    nodes: [[f64; 3]; 6],
}

impl Splitter {
    fn new(eta: f64) -> Self {
        let mut nodes = [[0.0; 3]; 6];
        for (i, &[x, weight]) in RULE.iter().enumerate() {
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
fn log_mass_between(low: f64, high: f64) -> f64 {
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
        let mut log_left = log_mass.clone();
        log_mass[0] = log_tail(-thresholds[0]) + ALLOWANCE;
        for (j, pair) in thresholds.windows(2).enumerate() {
            let (left, right) = splitter.cell(pair[0], pair[1]);
            put(&mut log_mass[j], left);
            log_left[j] = left;
            log_mass[j + 1] = right;
        }
        let last = thresholds[thresholds.len() - 1];
        Self {
            eta,
            log_mass,
            log_left,
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
        let log_left = log_mass.clone();
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
            log_left,
            log_beyond,
        }
    }
}
