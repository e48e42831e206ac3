//! Convolution powers of a probability vector, truncated, as upper bounds.

use std::sync::Arc;

use realfft::num_complex::Complex;
use realfft::{ComplexToReal, RealFftPlanner, RealToComplex};

use crate::accounting::objective::power::integer_powers;
use crate::numeric::ROUNDOFF;
use crate::numeric::transform_size::transform_size;

/// Error of one product by the fast Fourier transform, in roundoffs for each halving of the
/// length: three transforms at no more than 8, and the pointwise product. (Sums of squares of
/// the factors are at most 1, and no entry errs by more than the whole vector does.)
const PRODUCT_ERROR: f64 = 32.0 * ROUNDOFF;

/// Error of a power in the frequencies, in roundoffs for each halving of the length, each factor,
/// and the Euclidean norm: one transform at no more than 8 for each factor, and another one back.
const POWER_ERROR: f64 = 8.0 * f64::EPSILON;

/// Largest mass of a power beyond the transform for which it is computed at once.
const WRAPPED: f64 = 1e-10;

/// Exponents at that end for which its mass is bounded.
const EXPONENTS: [f64; 3] = [40.0, 80.0, 160.0];

/// Multiplies vectors of one length, keeping the first entries only.
pub(super) struct Convolver {
    forward: Arc<dyn RealToComplex<f64>>,
    backward: Arc<dyn ComplexToReal<f64>>,
    size: usize,
    time: Vec<f64>,
    left: Vec<Complex<f64>>,
    right: Vec<Complex<f64>>,
    scratch: Vec<Complex<f64>>,
}

impl Convolver {
    /// For vectors of up to `length` entries.
    pub(super) fn new(planner: &mut RealFftPlanner<f64>, length: usize) -> Self {
        let size = transform_size(2 * length.max(1), &[3, 9]);
        let forward = planner.plan_fft_forward(size);
        let backward = planner.plan_fft_inverse(size);
        let scratch = forward.get_scratch_len().max(backward.get_scratch_len());
        Self {
            time: vec![0.0; size],
            left: forward.make_output_vec(),
            right: forward.make_output_vec(),
            scratch: vec![Complex::default(); scratch],
            forward,
            backward,
            size,
        }
    }

    /// Spectrum of `law`, padded with zeros, into `left` or `right`.
    fn transform(&mut self, law: &[f64], left: bool) {
        self.time[..law.len()].copy_from_slice(law);
        self.time[law.len()..].fill(0.0);
        let spectrum = if left {
            &mut self.left
        } else {
            &mut self.right
        };
        let scratch = &mut self.scratch[..self.forward.get_scratch_len()];
        let done = self
            .forward
            .process_with_scratch(&mut self.time, spectrum, scratch);
        debug_assert!(done.is_ok());
    }

    /// Writes the product of `left` with itself or with `right` into `law`, raised by the error.
    fn multiply(&mut self, law: &mut [f64], squared: bool) {
        if squared {
            for value in &mut self.left {
                *value *= *value;
            }
        } else {
            for (value, other) in self.left.iter_mut().zip(&self.right) {
                *value *= *other;
            }
        }
        let error = self.error();
        self.back(law, error);
    }

    /// The first entries of what has the spectrum in `left`, raised by the error.
    fn back(&mut self, law: &mut [f64], error: f64) {
        // Both ends of the spectrum of a real vector are real.
        if let Some(first) = self.left.first_mut() {
            first.im = 0.0;
        }
        if let Some(last) = self.left.last_mut() {
            last.im = 0.0;
        }
        let scratch = &mut self.scratch[..self.backward.get_scratch_len()];
        let done = self
            .backward
            .process_with_scratch(&mut self.left, &mut self.time, scratch);
        debug_assert!(done.is_ok());
        let scale = 1.0 / self.size as f64;
        for (value, raw) in law.iter_mut().zip(&self.time) {
            *value = (raw * scale).max(0.0) + error;
        }
    }

    /// Bound on the error of one entry of a product.
    fn error(&self) -> f64 {
        PRODUCT_ERROR * (self.size as f64).log2()
    }

    /// Replaces `law` (entries non-negative, sum at most 1) by the first entries of its `times`-th
    /// convolution power, every entry an upper bound.
    ///
    /// # Returns
    /// An upper bound on the sum of what was added to the entries.
    pub(super) fn power(&mut self, law: &mut [f64], times: usize) -> f64 {
        if times < 2 {
            return 0.0;
        }
        let wrapped = wrapped(law, times, self.size);
        if wrapped <= WRAPPED {
            return wrapped + self.power_at_once(law, times);
        }
        let base = law.to_vec();
        self.transform(&base, false);
        let mut added = 0.0;
        // Twice the bound: once for raising, once for the error that was feared.
        let raised = 2.0 * self.error() * law.len() as f64;
        for bit in (0..times.ilog2()).rev() {
            self.transform(law, true);
            self.multiply(law, true);
            added = added * (2.0 + added) + raised;
            if times >> bit & 1 == 1 {
                self.transform(law, true);
                self.multiply(law, false);
                added += raised;
            }
        }
        added
    }

    /// The power by one transform and one back. What the cyclic convolution wraps around only adds
    /// mass to what is kept.
    fn power_at_once(&mut self, law: &mut [f64], times: usize) -> f64 {
        let norm = law.iter().map(|p| p * p).sum::<f64>().sqrt();
        self.transform(law, true);
        integer_powers(&mut self.left, times);
        let error = POWER_ERROR * ((self.size as f64).log2() + 1.0) * (times as f64 + 2.0) * norm;
        self.back(law, error);
        2.0 * error * law.len() as f64
    }
}

/// Chernoff's bound on the mass of the power of a law from `size` on.
fn wrapped(law: &[f64], times: usize, size: usize) -> f64 {
    let (n, end) = (times as f64, size as f64);
    let log_bound = |exponent: f64| {
        n * (libm::log(moment(law, exponent / end)) + 1e-12) - exponent * (1.0 - 1e-12)
    };
    let log = EXPONENTS.map(log_bound).into_iter().fold(0.0, f64::min);
    libm::exp(log)
}

/// `sum_j p_j exp(j tilt)`.
fn moment(law: &[f64], tilt: f64) -> f64 {
    let ratio = libm::exp(tilt);
    let sum = |(block, part): (usize, &[f64])| {
        let own = part.iter().rev().fold(0.0, |sum, p| sum * ratio + p);
        own * libm::exp(tilt * (block * 64) as f64)
    };
    law.chunks(64).enumerate().map(sum).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn direct(a: &[f64], b: &[f64]) -> Vec<f64> {
        (0..a.len())
            .map(|k| (0..=k).map(|i| a[i] * b[k - i]).sum())
            .collect()
    }

    // Proof: joint_bound
    #[test]
    fn powers_are_upper_bounds_and_close() {
        let mut law: Vec<f64> = (0..150).map(|k| libm::exp(-0.05 * f64::from(k))).collect();
        law[0] = 20.0;
        let sum: f64 = law.iter().sum();
        for p in &mut law {
            *p /= sum * 1.01;
        }
        for times in [1, 2, 3, 5, 8, 24, 99] {
            let mut truth = law.clone();
            for _ in 1..times {
                truth = direct(&truth, &law);
            }
            let mut found = law.clone();
            let mut planner = RealFftPlanner::new();
            let added = Convolver::new(&mut planner, law.len()).power(&mut found, times);
            let more: f64 = found.iter().zip(&truth).map(|(f, t)| f - t).sum();
            assert!(found.iter().zip(&truth).all(|(f, t)| f >= t));
            assert!(more <= added + 1e-15, "{times}: {more} {added}");
            assert!(added < 1e-9, "{times}: {added}");
        }
    }

    // Proof: joint_bound
    #[test]
    fn powers_at_once_are_upper_bounds_where_nothing_else_is_kept() {
        for (rate, length) in [(0.5, 400), (2.0, 200), (4.0, 60)] {
            let law: Vec<f64> = (0..length)
                .map(|k| -libm::expm1(-rate) * libm::exp(-rate * f64::from(k)))
                .collect();
            let mut convolver = Convolver::new(&mut RealFftPlanner::new(), law.len());
            for times in [2, 8, 24, 99] {
                let beyond = wrapped(&law, times, convolver.size);
                let mut longer = law.clone();
                longer.resize(convolver.size, 0.0);
                let mut whole = longer.clone();
                for _ in 1..times {
                    whole = direct(&whole, &longer);
                }
                let left = 1.0 - whole.iter().sum::<f64>();
                assert!(beyond >= left - 1e-12, "{rate} {times}: {beyond} {left}");
                let mut found = law.clone();
                let added = convolver.power_at_once(&mut found, times);
                assert!(found.iter().zip(&whole).all(|(f, t)| f >= t));
                let more: f64 = found.iter().zip(&whole).map(|(f, t)| f - t).sum();
                let allowed = added + beyond.min(1.0) + 1e-13;
                assert!(more <= allowed, "{rate} {times}: {more} {added} {beyond}");
                assert!(added < 1e-8, "{added}");
            }
        }
        // A light law is found to be light: that this branch is taken is what makes it quick.
        let light: Vec<f64> = (0..400)
            .map(|k| if k == 0 { 0.9 } else { 2.5e-4 })
            .collect();
        assert!(wrapped(&light, 8, 800) > WRAPPED && wrapped(&light[..40], 8, 800) <= WRAPPED);
    }
}
