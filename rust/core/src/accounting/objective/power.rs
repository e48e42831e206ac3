//! The privacy curve of a sum of independent, identical losses on a grid.
//!
//! The masses are tilted by `e^{lambda S}`, which moves the sum's mass to where the curve is decided,
//! and convolved by a power of their Fourier transform; the errors are relative to what is computed,
//! however small that is. Every error is bounded and added: the transform's rounding by its norm, the
//! sum beyond the grid by Chernoff's bound. What the cyclic convolution wraps around only adds mass.

use crate::accounting::objective::logs::{NOTHING, log_add, log_count};
use crate::accounting::objective::step_law::StepLaw;
use crate::numeric::transform_size::transform_size;
use realfft::RealFftPlanner;
use realfft::num_complex::Complex;

/// Points at most in one transform.
pub(super) const LARGEST_GRID: usize = 1 << 20;

/// Natural logarithm by which Chernoff's bound beyond the grid is below that at `e`.
const CUT: f64 = 42.0;

/// Masses that the tilt's search looks at.
const SAMPLE: usize = 400;

/// Powers that are computed together.
const SIDE_BY_SIDE: usize = 16;

/// Rounding of a transform in the Euclidean norm: this many roundoffs for each halving.
const TRANSFORM_ERROR: f64 = 8.0;

/// Plans of transforms, kept between calls, and the last tilt, from which the next search starts.
pub(super) struct Powers {
    planner: RealFftPlanner<f64>,
    tilt: f64,
}

/// A law reduced to few points, for the choice of the tilt.
struct Sample {
    points: Vec<(f64, f64)>,
}

impl Sample {
    fn of(law: &StepLaw) -> Self {
        let log_mass = &law.log_mass;
        let stride = log_mass.len().div_ceil(SAMPLE);
        let thinned = log_mass[1..].iter().enumerate().skip(stride / 2);
        let mut points = vec![(0.0, log_mass[0])];
        let gain = libm::log(stride as f64);
        points.extend(
            thinned
                .step_by(stride)
                .map(|(j, &log)| ((j + 1) as f64 * law.eta, log + gain)),
        );
        points.retain(|&(_, log)| log > NOTHING);
        Self { points }
    }

    /// Logarithm of the moment generating function, its slope and its second derivative.
    fn cumulant(&self, tilt: f64) -> (f64, f64, f64) {
        let top = self
            .points
            .iter()
            .fold(NOTHING, |top, &(v, log)| top.max(log + tilt * v));
        let (mut sum, mut first, mut second) = (0.0, 0.0, 0.0);
        for &(v, log) in &self.points {
            let mass = libm::exp(log + tilt * v - top);
            sum += mass;
            first += mass * v;
            second += mass * v * v;
        }
        let mean = first / sum;
        (
            top + libm::log(sum),
            mean,
            (second / sum - mean * mean).max(0.0),
        )
    }

    /// About the tilt under which the mean is `mean`; 0 when the mean is larger without a tilt.
    fn tilt(&self, mean: f64, guess: f64) -> f64 {
        let (mut low, mut high) = (0.0, f64::INFINITY);
        let mut tilt = guess;
        for step in 0..60 {
            let (_, at, spread) = self.cumulant(tilt);
            if at > mean {
                if tilt == 0.0 {
                    return 0.0;
                }
                high = tilt;
            } else {
                low = tilt;
            }
            let mut next = tilt + (mean - at) / spread;
            if !(next > low && next < high) || step > 20 {
                next = match (low, high) {
                    (low, f64::INFINITY) => 2.0 * low.max(1e-3 / mean),
                    (0.0, high) if high * mean < 1e-6 => 0.0,
                    (low, high) => 0.5 * (low + high),
                };
            }
            if (next - tilt).abs() <= 1e-4 * tilt {
                return next;
            }
            tilt = next;
        }
        tilt
    }
}

impl Powers {
    pub(super) fn new() -> Self {
        Self {
            planner: RealFftPlanner::new(),
            tilt: 0.0,
        }
    }

    /// Tilt at `e`, tilt of the Chernoff bound beyond the grid, and the grid's length.
    fn plan(&mut self, law: &StepLaw, n: f64, e: f64) -> (f64, f64, usize) {
        let sample = Sample::of(law);
        let tilt = sample.tilt((e / n).max(f64::MIN_POSITIVE), self.tilt);
        self.tilt = tilt;
        let here = if tilt > 0.0 {
            tilt * e - n * sample.cumulant(tilt).0
        } else {
            0.0
        };
        let least = (e / law.eta).ceil() as usize + 2;
        let end = law.eta * (law.log_mass.len() - 1) as f64;
        let mut beyond = tilt.max(1e-3 / (end + e));
        let mut len = least;
        for _ in 0..400 {
            let (cumulant, mean, _) = sample.cumulant(beyond);
            let reach = n * mean;
            len = ((reach / law.eta).ceil() as usize).clamp(least, LARGEST_GRID.max(least));
            let rate = beyond * reach - n * cumulant;
            if rate > here + CUT || len >= LARGEST_GRID || mean > 0.995 * end {
                break;
            }
            beyond *= 1.2;
        }
        (tilt, beyond, len)
    }

    /// Upper bound on `ln E(1 - e^{e - S_1 - ... - S_n})_+`, `e >= 0`, for `n` copies of the law.
    pub(super) fn log_delta(&mut self, law: &StepLaw, n: usize, e: f64) -> f64 {
        let count = n as f64;
        let log_mass = &law.log_mass;
        let (tilt, tilt_beyond, len) = self.plan(law, count, e);
        let (kept, dropped) = log_mass.split_at(log_mass.len().min(len));
        let eta = law.eta;
        let one_beyond = dropped
            .iter()
            .fold(law.log_beyond, |sum, &log| log_add(sum, log));
        let reach = eta * len as f64;
        let rounding = |log: f64, tilt: f64| {
            1e-11 + 16.0 * f64::EPSILON * count * (2.0 + log.abs() + tilt * reach)
        };
        let chernoff = log_moment(kept, eta, tilt_beyond);
        let sum_beyond = count * chernoff - tilt_beyond * reach + rounding(chernoff, tilt_beyond);
        let beyond = log_add(log_count(count) + one_beyond, sum_beyond);
        let moment = log_moment(kept, eta, tilt);
        let tilted: Vec<f64> = kept
            .iter()
            .enumerate()
            .map(|(j, &log)| libm::exp(log + tilt * (j as f64 * eta) - moment))
            .collect();
        let (power, error) = self.power(&tilted, n, len);
        let start = (e / eta).floor() as usize;
        let (mut sum, mut square) = (0.0, 0.0);
        for (j, mass) in power.iter().enumerate().take(len).skip(start) {
            let above = (j as f64 * eta - e).max(0.0);
            let weight = -libm::expm1(-above) * libm::exp(-tilt * above);
            sum += weight * mass;
            square += weight * weight;
        }
        let bound = sum.max(0.0) + error * square.sqrt();
        let inside = count * moment - tilt * e + libm::log(bound) + rounding(moment, tilt);
        log_add(inside, beyond).min(0.0)
    }

    /// The `n`-fold cyclic convolution on at least `len` points, and its error in the Euclidean norm.
    fn power(&mut self, masses: &[f64], n: usize, len: usize) -> (Vec<f64>, f64) {
        let size = transform_size(len, &[3, 9]);
        let forward = self.planner.plan_fft_forward(size);
        let inverse = self.planner.plan_fft_inverse(size);
        let mut values = forward.make_input_vec();
        values[..masses.len()].copy_from_slice(masses);
        let norm = masses.iter().map(|m| m * m).sum::<f64>().sqrt();
        let mut spectrum = forward.make_output_vec();
        // The lengths come from the plans themselves, the only thing that these calls check.
        let transformed = forward.process(&mut values, &mut spectrum).is_ok();
        integer_powers(&mut spectrum, n);
        // A power of a real sequence's transform is real at both ends; rounding must not say otherwise.
        let last = spectrum.len() - 1;
        spectrum[0].im = 0.0;
        if size.is_multiple_of(2) {
            spectrum[last].im = 0.0;
        }
        let inverted = inverse.process(&mut spectrum, &mut values).is_ok();
        let scale = 1.0 / size as f64;
        for value in &mut values {
            *value *= scale;
        }
        let halvings = libm::log2(size as f64) + 1.0;
        let error = TRANSFORM_ERROR * f64::EPSILON * halvings * (n as f64 + 2.0) * norm;
        let error = if transformed && inverted {
            error
        } else {
            f64::INFINITY
        };
        (values, error)
    }
}

/// Replaces each `z` by `z^n`, by squaring, some side by side: one alone waits for each product.
pub(super) fn integer_powers(values: &mut [Complex<f64>], n: usize) {
    for chunk in values.chunks_mut(SIDE_BY_SIDE) {
        let mut square = [Complex::default(); SIDE_BY_SIDE];
        square[..chunk.len()].copy_from_slice(chunk);
        let mut result = [Complex::new(1.0, 0.0); SIDE_BY_SIDE];
        let mut rest = n;
        while rest > 0 {
            if rest & 1 == 1 {
                for (r, z) in result.iter_mut().zip(&square) {
                    *r *= *z;
                }
            }
            for z in &mut square {
                *z *= *z;
            }
            rest >>= 1;
        }
        chunk.copy_from_slice(&result[..chunk.len()]);
    }
}

/// `ln sum_j e^{log_mass[j] + tilt j eta}`.
fn log_moment(log_mass: &[f64], eta: f64, tilt: f64) -> f64 {
    let exponent = |(j, &log): (usize, &f64)| log + tilt * (j as f64 * eta);
    let top = log_mass
        .iter()
        .enumerate()
        .map(exponent)
        .fold(NOTHING, f64::max);
    let sum: f64 = log_mass
        .iter()
        .enumerate()
        .map(|pair| libm::exp(exponent(pair) - top))
        .sum();
    top + libm::log(sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn law(masses: &[f64], eta: f64) -> StepLaw {
        let log_mass: Vec<f64> = masses.iter().map(|&m| libm::log(m)).collect();
        StepLaw {
            eta,
            log_mass,
            log_beyond: NOTHING,
        }
    }

    /// The curve by repeated summation over all points.
    fn direct(masses: &[f64], eta: f64, n: usize, e: f64) -> f64 {
        let mut sum = vec![1.0];
        for _ in 0..n {
            let mut next = vec![0.0; sum.len() + masses.len() - 1];
            for (i, a) in sum.iter().enumerate() {
                for (j, b) in masses.iter().enumerate() {
                    next[i + j] += a * b;
                }
            }
            sum = next;
        }
        sum.iter()
            .enumerate()
            .map(|(j, mass)| -libm::expm1(-(j as f64 * eta - e).max(0.0)) * mass)
            .sum()
    }

    #[test]
    fn power_agrees_with_repeated_summation() {
        // Masses e^{-j^2 / 200}: sums far out are as rare as 1e-120.
        let raw: Vec<f64> = (0..200)
            .map(|j| libm::exp(-0.005 * f64::from(j * j)))
            .collect();
        let total: f64 = raw.iter().sum();
        let masses: Vec<f64> = raw.iter().map(|m| m / total).collect();
        let law = law(&masses, 0.05);
        for n in [1, 2, 5, 12] {
            for e in [0.0, 0.31, 2.0, 6.0, 8.0] {
                let found = Powers::new().log_delta(&law, n, e);
                let wanted = libm::log(direct(&masses, law.eta, n, e));
                assert!(found >= wanted - 1e-12, "{n} {e}: {found} {wanted}");
                assert!(found <= wanted + 1e-7, "{n} {e}: {found} {wanted}");
            }
        }
    }
}
