//! Composition of grid laws by tilted Fourier transforms, as upper bounds.
//!
//! Every law is multiplied by `exp(tilt loss)`, so that the part of the composition that decides
//! about `delta` is its bulk, and rounding errors are small against it. What wraps around the
//! window only adds to it; what lies above it is bounded and added. Proof and error bounds:
//! `docs/proofs/accountant.md`, "Composition by tilted transforms".

use std::cell::RefCell;
use std::sync::Arc;

use crate::numeric::ROUNDOFF;
use crate::numeric::transform_size::transform_size;
use realfft::num_complex::Complex;
use realfft::{ComplexToReal, RealFftPlanner, RealToComplex};

use crate::Result;
use crate::accounting::subsampled::law::GridLaw;
use crate::accounting::subsampled::pair::ULP;
use crate::accounting::subsampled::plan::DirectionPlan;
use crate::runtime::interrupt::Interrupt;
use crate::runtime::memory;

/// Error of a transform in the Euclidean norm, in roundoffs for each halving of its length.
const TRANSFORM_ERROR: f64 = 8.0 * ROUNDOFF;

/// Terms of the spectrum below `exp` of this are left out, and bounded.
const NEGLIGIBLE: f64 = -80.0;

/// Longest transform that is kept for the next composition: about 8 MB a thread.
const MAX_KEPT: usize = 327_680;

/// The upper end of a composed law: `delta` as a function of epsilon.
pub(super) struct Curve {
    step: f64,
    /// The loss of `mass[i]` is `(first + i) step`.
    first: i64,
    /// Masses over `exp(log_scale)`.
    mass: Vec<f64>,
    log_scale: f64,
    /// Mass at infinity, and that with the mass above the window; not scaled.
    pub(super) infinite: f64,
    above: f64,
    /// Largest excess of true losses over nominal ones.
    drift: f64,
    /// Logarithm of the largest rounding error downwards.
    error: f64,
    /// Upper bound on `ln E exp(tilt loss)` of the finite masses, at the plan's tilt.
    pub(super) log_moment: f64,
}

/// A law and how many times it is composed.
pub(super) type RepeatedLaw<'a> = (&'a GridLaw, f64);

/// One law tilted and wrapped around the window, and what was taken out.
struct Tilted {
    wrapped: Vec<f64>,
    /// Logarithm of the sum before tilting, and an upper bound on that of the true one.
    log_sum: f64,
    log_moment: f64,
    /// Index of the mean.
    offset: i64,
    /// Bound on the relative error of an entry.
    error: f64,
}

/// Logarithms of the tilted masses, that of their sum, and the mean of the tilted law.
struct Logs {
    logs: Vec<f64>,
    sum: f64,
    mean: f64,
}

impl Logs {
    fn new(law: &GridLaw, tilt: f64) -> Result<Self> {
        let mut logs = memory::with_capacity(law.mass.len())?;
        let mut largest = f64::NEG_INFINITY;
        for (i, p) in law.mass.iter().enumerate() {
            let log = libm::log(*p) + tilt * law.loss(i);
            largest = largest.max(log);
            logs.push(log);
        }
        let (mut total, mut first) = (0.0, 0.0);
        for (i, log) in logs.iter().enumerate() {
            let p = libm::exp(log - largest);
            total += p;
            first += p * law.loss(i);
        }
        Ok(Self {
            logs,
            sum: largest + libm::log(total),
            mean: first / total,
        })
    }

    /// Bound on the error of the sum and of every tilted mass, relative.
    fn error(&self, law: &GridLaw, tilt: f64) -> f64 {
        let far = law.loss(0).abs().max(law.loss(law.mass.len()).abs());
        4.0 * ULP * (tilt.abs() * far + self.sum.abs() + 16.0)
    }

    /// Upper bound on `ln E exp(tilt loss)` of the finite masses.
    fn moment(&self, law: &GridLaw, tilt: f64) -> f64 {
        self.sum + self.error(law, tilt) + ULP * (law.mass.len() as f64 + 800.0)
    }
}

fn tilted(law: &GridLaw, tilt: f64, size: usize) -> Result<Tilted> {
    let logs = Logs::new(law, tilt)?;
    let offset = (logs.mean / law.step).round() as i64;
    let mut wrapped = memory::zeros::<f64>(size)?;
    let mut at = (law.first - offset).rem_euclid(size as i64) as usize;
    for (i, p) in law.mass.iter().enumerate() {
        let exponent = tilt * law.loss(i) - logs.sum;
        wrapped[at] += if exponent < 600.0 {
            p * libm::exp(exponent)
        } else {
            // A tiny mass times a huge factor; the logarithm of the mass is below 750.
            libm::exp(logs.logs[i] - logs.sum) * (1.0 + 800.0 * ULP)
        };
        at += 1;
        if at == size {
            at = 0;
        }
    }
    let folds = (law.mass.len() / size + 2) as f64;
    Ok(Tilted {
        wrapped,
        log_sum: logs.sum,
        log_moment: logs.moment(law, tilt),
        offset,
        error: logs.error(law, tilt) + folds * ULP,
    })
}

/// One entry of the product of the powers of several spectra, in polar form, with a bound on its error.
#[derive(Clone, Copy, Default)]
struct Polar {
    /// Sum of `times ln |.|`, of `times arg`.
    log_size: f64,
    angle: f64,
    /// `log_size` with the error added to each size, and the sum of relative errors.
    log_bound: f64,
    relative: f64,
}

/// Multiplies by `spectrum` to the power `times`; `error` bounds that of each entry.
fn multiply(product: &mut [Polar], spectrum: &[Complex<f64>], times: f64, error: f64) {
    for (entry, value) in product.iter_mut().zip(spectrum) {
        let squared = value.norm_sqr();
        let bound = squared.sqrt() * (1.0 + 2.0 * ULP) + error;
        entry.log_bound += times * libm::log(bound);
        if entry.log_bound < NEGLIGIBLE {
            // Left out: the error is the whole.
            entry.log_size = f64::NEG_INFINITY;
            entry.relative += 1.0;
            continue;
        }
        let log_size = 0.5 * libm::log(squared.max(f64::MIN_POSITIVE));
        let angle = libm::atan2(value.im, value.re);
        entry.log_size += times * log_size;
        entry.angle += times * angle;
        let rounding = 8.0 * ULP * (log_size.abs() + angle.abs()) + 8.0 * ULP / times;
        entry.relative += times * (error / bound + rounding);
    }
}

/// Values of the product into `spectrum`; returns the sums over the whole circle of the errors and of
/// the squared sizes.
fn finish(product: &[Polar], spectrum: &mut [Complex<f64>], even: bool) -> (f64, f64) {
    let last = spectrum.len() - 1;
    let (mut errors, mut squares) = (0.0, 0.0);
    for (k, (value, entry)) in spectrum.iter_mut().zip(product).enumerate() {
        let copies = if k == 0 || (even && k == last) {
            1.0
        } else {
            2.0
        };
        let bound = libm::exp(entry.log_bound.min(700.0));
        if entry.log_bound < NEGLIGIBLE {
            *value = Complex::default();
            errors += copies * bound;
            continue;
        }
        let size = libm::exp(entry.log_size);
        let (sine, cosine) = libm::sincos(entry.angle);
        *value = Complex::new(size * cosine, size * sine);
        errors += copies * bound * (entry.relative + 16.0 * ULP);
        squares += copies * bound * bound;
    }
    spectrum[0].im = 0.0;
    if even {
        spectrum[last].im = 0.0;
    }
    (errors, squares)
}

type Transforms = (Arc<dyn RealToComplex<f64>>, Arc<dyn ComplexToReal<f64>>);

/// The transforms of a length. The last ones are kept: they take longer to make than to use.
fn transforms(size: usize) -> Transforms {
    thread_local!(static LAST: RefCell<Option<Transforms>> = const { RefCell::new(None) });
    LAST.with_borrow_mut(|last| match last {
        Some(made) if made.0.len() == size => made.clone(),
        _ => {
            let mut planner = RealFftPlanner::new();
            let made = (
                planner.plan_fft_forward(size),
                planner.plan_fft_inverse(size),
            );
            *last = (size <= MAX_KEPT).then(|| made.clone());
            made
        }
    })
}

/// The composition near the plan's epsilon.
pub(super) fn compose(
    parts: &[RepeatedLaw<'_>],
    plan: &DirectionPlan,
    interrupt: &dyn Interrupt,
) -> Result<Curve> {
    let step = plan.step;
    let length = ((plan.top - plan.bottom) / step).ceil() as usize + 4;
    let size = transform_size(length, &[3, 5, 9]);
    let halvings = (size as f64).log2() + 2.0;
    let (forward, backward) = transforms(size);
    let scratch = forward.get_scratch_len().max(backward.get_scratch_len());
    let mut scratch = memory::zeros(scratch)?;
    let mut spectrum = memory::zeros(forward.complex_len())?;
    let mut product = memory::zeros::<Polar>(spectrum.len())?;
    let (mut log_scale, mut log_moment, mut error, mut drift) = (0.0, 0.0, 0.0, 0.0);
    let mut offset = 0_i64;
    for &(law, times) in parts {
        interrupt.check()?;
        let mut tilted = tilted(law, plan.tilt, size)?;
        let norm = tilted.wrapped.iter().map(|p| p * p).sum::<f64>().sqrt();
        let done = forward.process_with_scratch(&mut tilted.wrapped, &mut spectrum, &mut scratch);
        debug_assert!(done.is_ok());
        let bound = TRANSFORM_ERROR * halvings * norm * (size as f64).sqrt();
        interrupt.check()?;
        multiply(&mut product, &spectrum, times, bound);
        log_scale += times * tilted.log_sum;
        log_moment += times * tilted.log_moment;
        error += times * tilted.error;
        drift += times * law.drift;
        offset = (offset
            + (i128::from(tilted.offset) * times as i128).rem_euclid(size as i128) as i64)
            .rem_euclid(size as i64);
    }
    interrupt.check()?;
    let (errors, squares) = finish(&product, &mut spectrum, size.is_multiple_of(2));
    let mut raw: Vec<f64> = memory::zeros(size)?;
    let done = backward.process_with_scratch(&mut spectrum, &mut raw, &mut scratch);
    debug_assert!(done.is_ok());
    let scale = 1.0 / size as f64;
    let raise = scale * errors + TRANSFORM_ERROR * halvings * (squares * scale).sqrt();
    let first = (plan.bottom / step).floor() as i64;
    let start = (first - offset).rem_euclid(size as i64) as usize;
    raw.rotate_left(start);
    let weight = |i: usize| {
        let loss = (first + i as i64) as f64 * step;
        libm::exp((-plan.tilt * (loss - plan.centre)).max(-745.0))
    };
    for (i, value) in raw.iter_mut().enumerate() {
        *value = ((*value * scale).max(0.0) + raise) * weight(i);
    }
    let end = (first + size as i64) as f64 * step;
    let far = plan.tilt * (end - first as f64 * step) + plan.tilt * plan.centre.abs();
    error += 4.0 * ULP * (log_scale.abs() + far + size as f64 + 800.0);
    let infinite = infinite_mass(parts);
    let above = infinite + mass_above(parts, plan.tilt_above, end)?;
    Ok(Curve {
        step,
        first,
        mass: raw,
        log_scale: log_scale - plan.tilt * plan.centre,
        infinite,
        above,
        drift,
        error,
        log_moment,
    })
}

/// Upper bound on `ln E exp(tilt loss)` of the composition of the finite masses.
pub(super) fn log_moment(parts: &[RepeatedLaw<'_>], tilt: f64) -> Result<f64> {
    parts.iter().try_fold(0.0, |sum, (law, times)| {
        Ok(sum + times * Logs::new(law, tilt)?.moment(law, tilt))
    })
}

/// Upper bound on the mass at infinity of the composition.
pub(super) fn infinite_mass(parts: &[RepeatedLaw<'_>]) -> f64 {
    // The sum is a bound by itself; what the rounded masses are more than 1 goes on top.
    let (mut sum, mut log_total) = (0.0, 0.0);
    for (law, times) in parts {
        sum += times * law.infinite;
        let log = libm::log(law.mass.iter().sum::<f64>().max(f64::MIN_POSITIVE));
        log_total += times * (log + ULP * (4.0 * log.abs() + law.mass.len() as f64 + 800.0));
    }
    sum * libm::exp(log_total.clamp(0.0, 600.0)) * (1.0 + 1e-12)
}

/// Upper bound on the finite mass whose loss is at least `end`.
fn mass_above(parts: &[RepeatedLaw<'_>], tilt: f64, end: f64) -> Result<f64> {
    let log = log_moment(parts, tilt)? - tilt * end;
    Ok(libm::exp(
        (log + 8.0 * ULP * (1.0 + log.abs() + tilt * end.abs())).min(0.0),
    ))
}

/// `ln sup_y exp(-tilt y) (1 - exp(-y))`.
pub(super) fn log_factor(tilt: f64) -> f64 {
    if tilt == 0.0 {
        return 0.0;
    }
    -tilt * libm::log1p(1.0 / tilt) - libm::log1p(tilt)
}

/// `ln delta` at `epsilon` from one [`log_moment`]; valid for every tilt >= 0.
pub(super) fn moment_bound(
    parts: &[RepeatedLaw<'_>],
    tilt: f64,
    log_moment: f64,
) -> impl Fn(f64) -> f64 + use<> {
    let drift: f64 = parts.iter().map(|(law, times)| times * law.drift).sum();
    let log = log_moment + log_factor(tilt) + 1e-12;
    move |epsilon: f64| {
        let at = epsilon - drift;
        log - tilt * at + 8.0 * ULP * (log.abs() + tilt * at.abs())
    }
}

impl Curve {
    /// Visits grid points from the top: index, `delta` there, slope mass just above, all scaled.
    fn sweep(&self, mut visit: impl FnMut(i64, f64, f64, f64) -> bool) {
        let shrink = libm::exp(-self.step);
        let gain = libm::expm1(self.step);
        let (mut value, mut slope) = (0.0, 0.0);
        for (i, mass) in self.mass.iter().enumerate().rev() {
            let index = self.first + i as i64 - 1;
            let before = value;
            slope = shrink * (slope + mass);
            value += gain * slope;
            if !visit(index, value, before, slope) {
                return;
            }
        }
    }

    /// Upper bounds on `delta` at `epsilons`, the largest one first.
    pub(super) fn deltas(&self, epsilons: &[f64]) -> Vec<f64> {
        let mut scaled = Vec::with_capacity(epsilons.len());
        self.sweep(|index, _, before, slope| {
            let low = index as f64 * self.step;
            while let Some(epsilon) = epsilons.get(scaled.len()) {
                let at = epsilon - self.drift;
                if low > at {
                    break;
                }
                // Linear in exp(epsilon) between the grid points, from `before` at the upper one.
                let rest = (low + self.step - at).clamp(0.0, self.step);
                scaled.push(before + slope * libm::exp(at - low) * libm::expm1(rest));
            }
            scaled.len() < epsilons.len()
        });
        let found = epsilons.iter().enumerate().map(|(i, epsilon)| {
            let is_above = epsilon - self.drift >= self.first as f64 * self.step;
            scaled
                .get(i)
                .filter(|_| is_above)
                .map_or(1.0, |&scaled| self.unscaled(scaled))
        });
        found.collect()
    }

    /// A sum of scaled masses with all that goes on top.
    fn unscaled(&self, sum: f64) -> f64 {
        let scaled = sum * (1.0 + 1e-13);
        if scaled == 0.0 {
            return self.above.min(1.0);
        }
        let log = libm::log(scaled) + self.log_scale;
        let finite = libm::exp((log + self.error + 2.0 * ULP * log.abs()).min(1.0));
        (finite + self.above).min(1.0)
    }

    /// Upper bound on the least epsilon at `delta`; `None` when there is none.
    pub(super) fn epsilon(&self, delta: f64) -> Option<f64> {
        let left = (delta - self.above) * (1.0 - 2.0 * ULP);
        if left <= 0.0 {
            return None;
        }
        let log = libm::log(left) - self.error;
        let target = libm::exp(log - 4.0 * ULP * (1.0 + log.abs()) - self.log_scale);
        let mut found = self.first as f64 * self.step;
        self.sweep(|index, value, before, slope| {
            if value <= target {
                return true;
            }
            let high = (index + 1) as f64 * self.step;
            let share = (target - before) / slope * libm::exp(-self.step);
            found = high + libm::log1p(-share.clamp(0.0, 1.0)).max(-self.step);
            false
        });
        let found = found + self.drift + 1e-14 * (found.abs() + self.step);
        Some(found.max(0.0))
    }
}
