//! Inverses: the least epsilon of a curve, the least noise of subsampled steps.

use crate::Result;
use crate::accounting::gaussian;
use crate::accounting::subsampled::{
    LEAST_NOISE, Subsampled, check_delta, check_epsilon, check_rate, check_steps,
};
use crate::accounting::subsampled::{composition, delta_on, epsilon_on, joined};
use crate::runtime::interrupt::Interrupt;

/// Relative width at which an epsilon is found.
const WIDTH: f64 = 1e-13;

/// Relative width at which a noise multiplier is found, and where the grid is as large as it may be.
const NOISE_WIDTH: f64 = 4e-6;
const WIDE: f64 = 3e-4;

/// Most points at which the grid of an answer is asked.
const MOST_FINE: usize = 3;

/// Relative distance of the root from where a search goes on with the grid of an answer.
const NEAR: f64 = 5e-2;

/// Largest noise multiplier of the search.
const MOST_NOISE: f64 = 1e150;

/// Steps of the search, and after how many it is content with an ever larger width; a secant takes
/// three or four.
const MOST_STEPS: usize = 30;
const USUAL_STEPS: usize = 6;

/// Where a noise that should be enough is not: least and largest first step to a larger one, and
/// most steps.
const LEAST_STRIDE: f64 = 1e-15;
const MOST_STRIDE: f64 = 1e-2;
const MOST_STRIDES: usize = 8;

/// The least epsilon >= 0, to within rounding, at which the decreasing `curve` is at most
/// `target`; infinity when there is none.
pub(super) fn least(curve: impl Fn(f64) -> Result<f64>, target: f64) -> Result<f64> {
    if curve(0.0)? <= target {
        return Ok(0.0);
    }
    let (mut low, mut high) = (0.0, 1.0);
    while curve(high)? > target {
        low = high;
        high *= 2.0;
        if high > 1e300 {
            return Ok(f64::INFINITY);
        }
    }
    while low == 0.0 && high > f64::MIN_POSITIVE {
        let half = 0.5 * high;
        if curve(half)? <= target {
            high = half;
        } else {
            low = half;
        }
    }
    while high - low > WIDTH * high {
        let middle = 0.5 * (low + high);
        if curve(middle)? <= target {
            high = middle;
        } else {
            low = middle;
        }
    }
    Ok(high)
}

/// What a search over noise multipliers asks for.
struct Wanted<'a> {
    epsilon: f64,
    delta: f64,
    rate: f64,
    n_steps: u64,
    replace_one: bool,
    interrupt: &'a dyn Interrupt,
}

impl Wanted<'_> {
    fn steps(&self, noise: f64) -> Subsampled {
        Subsampled {
            noise_multiplier: noise,
            sampling_rate: self.rate,
            n_steps: self.n_steps,
        }
    }

    /// Log of the estimated delta over the target, at the log of the noise.
    fn estimate(&self, log_noise: f64) -> Result<f64> {
        let steps = self.steps(libm::exp(log_noise));
        let found = composition(steps, self.replace_one)
            .log_delta_estimate(self.epsilon, self.interrupt)?;
        Ok(found - libm::log(self.delta))
    }

    /// Log of the proven delta over the target, and whether a finer grid may prove a smaller one.
    fn excess(&self, log_noise: f64, coarse: bool) -> Result<(f64, bool)> {
        let steps = self.steps(libm::exp(log_noise));
        let found = delta_on(
            coarse,
            steps,
            self.epsilon,
            self.replace_one,
            self.interrupt,
        )?;
        let excess = libm::log(found.value.max(f64::MIN_POSITIVE)) - libm::log(self.delta);
        Ok((excess, found.limited))
    }

    /// The largest factor by which `noise` breaks a promise as computed, less 1.
    fn missing(&self, noise: f64) -> Result<f64> {
        let steps = self.steps(noise);
        let (replace_one, interrupt) = (self.replace_one, self.interrupt);
        let (mut by_delta, mut by_epsilon) = (0.0, 0.0);
        // What the grid of a search shows, the finer one of an answer shows as well.
        for coarse in [true, false] {
            if coarse || by_delta > 0.0 {
                let found = delta_on(coarse, steps, self.epsilon, replace_one, interrupt)?;
                by_delta = found.value / self.delta - 1.0;
            }
            if coarse || by_epsilon > 0.0 {
                let found = epsilon_on(coarse, steps, self.delta, replace_one, interrupt)?;
                by_epsilon = found.value / self.epsilon - 1.0;
            }
        }
        Ok(by_delta.max(by_epsilon))
    }

    /// Log of a noise that is enough as rare joins are counted; infinite where joins are not rare.
    fn by_joins(&self) -> Result<f64> {
        let enough = |log_noise: f64| -> Result<bool> {
            let steps = self.steps(libm::exp(log_noise));
            Ok(joined::delta(steps, self.epsilon, self.replace_one)? <= self.delta)
        };
        let (mut low, mut high) = (libm::log(LEAST_NOISE), libm::log(MOST_NOISE));
        if !enough(high)? {
            return Ok(f64::INFINITY);
        }
        if enough(low)? {
            return Ok(low);
        }
        while high - low > 0.1 * NOISE_WIDTH {
            self.interrupt.check()?;
            let middle = 0.5 * (low + high);
            if enough(middle)? {
                high = middle;
            } else {
                low = middle;
            }
        }
        Ok(high)
    }

    /// Root of the estimate, and its slope there.
    fn guess(&self) -> Result<(f64, f64)> {
        let (mut low, mut high) = (libm::log(LEAST_NOISE), libm::log(LEAST_NOISE) + 7.0);
        while self.estimate(high)? > 0.0 && high < libm::log(MOST_NOISE) {
            low = high;
            high += 3.0;
        }
        while high - low > 1e-3 {
            let middle = 0.5 * (low + high);
            if self.estimate(middle)? > 0.0 {
                low = middle;
            } else {
                high = middle;
            }
        }
        let (left, right) = (self.estimate(low - 0.01)?, self.estimate(high + 0.01)?);
        let slope = (right - left) / (high - low + 0.02);
        Ok((0.5 * (low + high), slope.min(-1e-3)))
    }

    /// A noise multiplier that is enough, and hardly more.
    fn search(&self) -> Result<f64> {
        let (mut at, mut slope) = self.guess()?;
        let least = libm::log(LEAST_NOISE);
        let (mut low, mut high) = (f64::NEG_INFINITY, self.by_joins()?);
        // Next to what is known to be enough: rare joins leave a grid nothing to find.
        at = at.max(least).min(high - 0.9 * NOISE_WIDTH);
        let mut last: Option<(f64, f64)> = None;
        let (mut coarse, mut fine) = (true, 0);
        for number in 0..MOST_STEPS {
            if high <= least {
                break;
            }
            let (excess, limited) = self.excess(at, coarse)?;
            if excess > 0.0 {
                low = low.max(at);
            } else {
                high = high.min(at);
            }
            if let Some((before, value)) = last
                && (at - before).abs() > 1e-9
            {
                let secant = (excess - value) / (at - before);
                if secant.is_finite() && secant < 0.0 {
                    slope = secant;
                }
            }
            last = Some((at, excess));
            let step = (-excess / slope).clamp(-2.0, 2.0);
            let usual = if limited { WIDE } else { NOISE_WIDTH };
            let width = usual * libm::exp2(number.saturating_sub(USUAL_STEPS) as f64);
            let found = high - low <= width || (limited && (-width..=0.0).contains(&step));
            if limited && coarse && (found || step.abs() < NEAR) {
                // The grid of an answer shows more.
                coarse = false;
                low = f64::NEG_INFINITY;
                last = None;
                at = if found { high } else { (at + step).min(high) }.max(least);
                continue;
            }
            fine += usize::from(!coarse);
            if found || (fine >= MOST_FINE && high < f64::INFINITY) {
                break;
            }
            // Half of the width beyond the root: the next point is likely to be safe.
            let side = if excess > 0.0 { 0.4 } else { -0.6 };
            let close = step.abs() < 0.5 * width;
            let mut next = at + step + if close { side } else { 0.3 } * width;
            if next <= low || next >= high || !next.is_finite() {
                next = 0.5 * (low.max(at - 1.0) + high.min(at + 1.0));
            }
            at = next.max(least);
        }
        Ok(libm::exp(high))
    }
}

/// Smallest noise multiplier of Poisson-subsampled Gaussian steps, rounded up.
///
/// # Arguments
/// * `epsilon`, `delta` - the guarantee of all steps together; `epsilon` in `[0, 1e4]`, `delta` in
///   `[f64::MIN_POSITIVE, 1)`.
/// * `sampling_rate`, `n_steps`, `replace_one`, `interrupt` - as for [`crate::accounting::subsampled::delta`].
///
/// # Returns
/// A noise multiplier whose [`crate::accounting::subsampled::delta`] is at most `delta` and whose [`crate::accounting::subsampled::epsilon`] is
/// at most `epsilon`; at least 0.03 unless `sampling_rate` is 1.
///
/// # Errors
/// [`crate::Error::InvalidArgument`] naming the argument outside its range.
pub fn noise_multiplier(
    epsilon: f64,
    delta: f64,
    sampling_rate: f64,
    n_steps: u64,
    replace_one: bool,
    interrupt: &dyn Interrupt,
) -> Result<f64> {
    check_epsilon(epsilon)?;
    check_delta(delta)?;
    check_rate(sampling_rate)?;
    check_steps(n_steps)?;
    let wanted = Wanted {
        epsilon,
        delta,
        rate: sampling_rate,
        n_steps,
        replace_one,
        interrupt,
    };
    let mut noise = if sampling_rate == 1.0 {
        let relation = if replace_one { 2.0 } else { 1.0 };
        let root = relation * (n_steps as f64).sqrt();
        gaussian::sigma(epsilon, delta)? * root * (1.0 + 4.0 * f64::EPSILON)
    } else {
        wanted.search()?
    };
    let mut stride = LEAST_STRIDE;
    for number in 0.. {
        let missing = wanted.missing(noise)?;
        if missing <= 0.0 || noise >= MOST_NOISE {
            break;
        }
        // As much more noise as epsilon or delta is too large is usually enough, and often too much.
        let larger = (8.0 * stride).min(2.0 * stride.max(MOST_STRIDE));
        stride = missing.min(MOST_STRIDE).max(larger);
        if number == MOST_STRIDES {
            stride = 1.0;
        }
        noise *= 1.0 + stride;
    }
    Ok(noise)
}
