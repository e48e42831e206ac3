//! Convolution powers of a probability vector, truncated, as upper bounds.

use crate::numeric::transform_size::transform_size;
use std::sync::Arc;

use realfft::num_complex::Complex;
use realfft::{ComplexToReal, RealFftPlanner, RealToComplex};

/// Error of one product by the fast Fourier transform, in roundoffs for each halving of the
/// length: three transforms at no more than 8, and the pointwise product. (Sums of squares of
/// the factors are at most 1, and no entry errs by more than the whole vector does.)
const PRODUCT_ERROR: f64 = 32.0 * f64::EPSILON / 2.0;

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
        let error = self.error();
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

    #[test]
    fn sizes_are_even_and_large_enough() {
        for least in 1..3000 {
            let size = transform_size(least, &[3, 9]);
            assert!(size >= least && size.is_multiple_of(2) && (least < 8 || size < 2 * least));
        }
    }
}
