//! Inverses: the least epsilon of a curve, the least noise of subsampled steps.

use std::cell::Cell;

use crate::Result;
use crate::accounting::subsampled::mixed::Answer;
use crate::accounting::subsampled::plan::Question;
use crate::accounting::subsampled::{Effort, MIN_NOISE, Subsampled, check_rate, check_steps};
use crate::accounting::subsampled::{answer, composition, joined};
use crate::accounting::{check_delta, check_not_negative, gaussian};
use crate::runtime::interrupt::Interrupt;

/// Relative width at which an epsilon is found.
const WIDTH: f64 = 1e-13;

/// Relative width at which a noise multiplier is found, where the grid is as large as it may be,
/// and where there was much work.
const NOISE_WIDTH: f64 = 4e-6;
const WIDE: f64 = 3e-4;
const WIDEST: f64 = 2e-2;

/// Most points at which the grid of an answer is asked.
const MAX_FINE_STEPS: usize = 3;

/// Relative distance of the root from where a search goes on with the grid of an answer.
const NEAR: f64 = 5e-2;

/// Largest noise multiplier of the search.
const MAX_NOISE: f64 = 1e150;

/// Steps of the search, and after how many it is content with an ever larger width; a secant takes
/// three or four.
const MAX_STEPS: usize = 30;
const USUAL_STEPS: usize = 6;

/// Grids, in those of a search, after which no closer noise is looked for; twice as many where
/// nothing near is known. After `MUCH_WORK` the search is content with `WIDEST`, after `MORE_WORK`
/// with the last stride; after the last number every question gets one grid.
const MAX_WORK: u32 = 16;
const MUCH_WORK: u32 = 24;
const MORE_WORK: u32 = 36;
const MAX_WORK_OF_ALL: u32 = 40;

/// Work of a fine question: two grids of a search or more, then one of the largest.
const ONE_LARGEST: u32 = 6;

/// Largest step to a smaller noise, in logs, where the last two show next to no slope.
const MAX_STEP_DOWN: f64 = 0.7;

/// A larger grid shows at most that much more, relative; and the log of how far epsilon is missed
/// where no closer noise is looked for that keeps delta alone.
const FINER: f64 = 5e-2;
const MUCH: f64 = 0.3;

/// If noise that should be enough is not: least and largest first step to more noise, least power
/// of the noise with which epsilon falls there, and most steps.
const MIN_STRIDE: f64 = 1e-15;
const MAX_STRIDE: f64 = 1e-2;
const FALL: f64 = 8.0;
const MAX_STRIDES: u32 = 8;

/// Halves an interval around the threshold of `enough` while it `is_wide`.
fn halved(
    (mut low, mut high): (f64, f64),
    is_wide: impl Fn(f64, f64) -> bool,
    enough: impl Fn(f64) -> Result<bool>,
) -> Result<(f64, f64)> {
    while is_wide(low, high) {
        let middle = 0.5 * (low + high);
        if enough(middle)? {
            high = middle;
        } else {
            low = middle;
        }
    }
    Ok((low, high))
}

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
    let is_wide = |low, high| high - low > WIDTH * high && high > f64::MIN_POSITIVE;
    let enough = |epsilon| Ok(curve(epsilon)? <= target);
    Ok(halved((low, high), is_wide, enough)?.1)
}

/// Log of the result over the target, positive exactly if it is larger.
fn above(found: f64, wanted: f64) -> f64 {
    let log = libm::log(found.max(f64::MIN_POSITIVE)) - libm::log(wanted);
    if found > wanted {
        log.max(f64::MIN_POSITIVE)
    } else {
        log.min(0.0)
    }
}

/// Request of a search over noise multipliers.
struct Wanted<'a> {
    epsilon: f64,
    delta: f64,
    rate: f64,
    n_steps: u64,
    replace_one: bool,
    interrupt: &'a dyn Interrupt,
    work: Cell<u32>,
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
        let composed = composition(steps, self.replace_one);
        let (found, _) = composed.estimate(self.epsilon, self.interrupt)?;
        Ok(found - libm::log(self.delta))
    }

    /// Whether there was little work so far, for a bracket of this width.
    fn is_worth_more(&self, width: f64) -> bool {
        self.work.get() < MAX_WORK * if width > NEAR { 2 } else { 1 }
    }

    /// Excess of the proven delta over the target, and whether a finer grid may prove less.
    fn excess(&self, noise: f64, coarse: bool) -> Result<(f64, bool)> {
        let steps = self.steps(noise);
        let found = self.ask(coarse, steps, Question::Epsilon(self.epsilon))?;
        Ok((above(found.value, self.delta), found.limited))
    }

    fn ask(&self, coarse: bool, steps: Subsampled, question: Question) -> Result<Answer> {
        let left = MAX_WORK_OF_ALL.saturating_sub(self.work.get()).max(1);
        let left = if coarse { left } else { left.min(ONE_LARGEST) };
        let effort = Effort {
            coarse,
            most_work: Some(left),
            tables: None,
        };
        let found = answer(effort, steps, question, self.replace_one, self.interrupt)?;
        self.work.set(self.work.get() + found.work);
        Ok(found)
    }

    /// Excess of the proven epsilon over the target.
    fn missing(&self, noise: f64) -> Result<f64> {
        let steps = self.steps(noise);
        let mut most = 0.0;
        // A bound on the grid of a search holds on the finer one of an answer.
        for coarse in [true, false] {
            let found = self.ask(coarse, steps, Question::Delta(self.delta))?;
            most = above(found.value, self.epsilon);
            if !(found.limited && 0.0 < most && most < FINER && self.is_worth_more(0.0)) {
                break;
            }
        }
        Ok(most)
    }

    /// Log of a noise that is enough as rare joins are counted; infinite where joins are not rare.
    fn by_joins(&self) -> Result<f64> {
        let enough = |log_noise: f64| -> Result<bool> {
            self.interrupt.check()?;
            let steps = self.steps(libm::exp(log_noise));
            Ok(joined::delta(steps, self.epsilon, self.replace_one)? <= self.delta)
        };
        let (low, high) = (libm::log(MIN_NOISE), libm::log(MAX_NOISE));
        if !enough(high)? {
            return Ok(f64::INFINITY);
        }
        if enough(low)? {
            return Ok(low);
        }
        let is_wide = |low, high| high - low > 0.1 * NOISE_WIDTH;
        Ok(halved((low, high), is_wide, enough)?.1)
    }

    /// Root of the estimate, and its slope there.
    fn guess(&self) -> Result<(f64, f64)> {
        let (mut low, mut high) = (libm::log(MIN_NOISE), libm::log(MIN_NOISE) + 7.0);
        while self.estimate(high)? > 0.0 && high < libm::log(MAX_NOISE) {
            low = high;
            high += 3.0;
        }
        let enough = |log_noise| Ok(self.estimate(log_noise)? <= 0.0);
        (low, high) = halved((low, high), |low, high| high - low > 1e-3, enough)?;
        let (left, right) = (self.estimate(low - 0.01)?, self.estimate(high + 0.01)?);
        let slope = (right - left) / (high - low + 0.02);
        Ok((0.5 * (low + high), slope.min(-1e-3)))
    }

    /// A noise that is enough for delta, and hardly more, or one that is far from enough for epsilon;
    /// and how far the proven epsilon is above the target.
    fn search(&self) -> Result<(f64, f64)> {
        let (mut at, mut slope) = self.guess()?;
        let least = libm::log(MIN_NOISE);
        let (mut low, mut high) = (f64::NEG_INFINITY, self.by_joins()?);
        // Next to noise known to be enough: with rare joins a grid finds nothing.
        at = at.max(least).min(high - 0.9 * NOISE_WIDTH);
        let mut last: Option<(f64, f64)> = None;
        let (mut coarse, mut fine) = (true, 0);
        for number in 0..MAX_STEPS {
            if high <= least {
                break;
            }
            let (excess, limited) = self.excess(libm::exp(at), coarse)?;
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
            let step = (-excess / slope).clamp(-MAX_STEP_DOWN, 2.0);
            let usual = if !limited {
                NOISE_WIDTH
            } else if self.work.get() < MUCH_WORK {
                WIDE
            } else {
                WIDEST
            };
            let width = usual * libm::exp2(number.saturating_sub(USUAL_STEPS) as f64);
            let found = high - low <= width || (limited && (-width..=0.0).contains(&step));
            let is_worth_more = high.is_infinite() || self.is_worth_more(high - low);
            if limited && coarse && is_worth_more && (found || step.abs() < NEAR) {
                at = if found { high } else { (at + step).min(high) }.max(least);
                let (noise, work) = (libm::exp(at), self.work.get());
                let epsilon = self.ask(true, self.steps(noise), Question::Delta(self.delta))?;
                let missing = above(epsilon.value, self.epsilon);
                if missing > MUCH {
                    return Ok((noise, missing));
                }
                self.work.set(work);
                // The grid of an answer shows more.
                (coarse, low, last) = (false, f64::NEG_INFINITY, None);
                continue;
            }
            fine += usize::from(!coarse);
            if found || !is_worth_more || (fine >= MAX_FINE_STEPS && high < f64::INFINITY) {
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
        let noise = libm::exp(high).max(MIN_NOISE);
        Ok((noise, self.missing(noise)?))
    }

    /// Excess of the proven epsilon over the target or, if none, that of delta.
    fn lacking(&self, noise: f64) -> Result<f64> {
        let missing = self.missing(noise)?;
        if missing > 0.0 {
            return Ok(missing);
        }
        Ok(self.excess(noise, true)?.0)
    }

    /// The first of ever larger noises that keeps both promises as they are computed, from one and
    /// what it misses.
    fn enlarged(&self, (mut noise, mut missing): (f64, f64)) -> Result<f64> {
        let (mut stride, mut last) = (0.0, None);
        for number in 0.. {
            if missing <= 0.0 || noise >= MAX_NOISE {
                break;
            }
            // That much more noise is usually enough, and often too much.
            let asked = missing.min((missing / FALL).max(MAX_STRIDE));
            // A straight line through the last two, and a little more.
            let by_line = match last {
                Some(more) if more > missing => 1.2 * missing * stride / (more - missing),
                _ => 0.0,
            };
            let larger = (8.0 * stride).min(1.5 * stride.max(MAX_STRIDE));
            stride = asked.max(by_line).max(larger).clamp(MIN_STRIDE, 1.0);
            if number == MAX_STRIDES || missing.is_infinite() {
                stride = 1.0;
            }
            last = Some(missing);
            noise *= 1.0 + stride;
            missing = self.lacking(noise)?;
        }
        let bracket = (noise / (1.0 + stride), noise);
        let is_wide =
            |low: f64, high: f64| high - low > WIDEST * low && self.work.get() < MORE_WORK;
        let enough = |noise| Ok(self.lacking(noise)? <= 0.0);
        Ok(halved(bracket, is_wide, enough)?.1)
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
    check_not_negative("epsilon", epsilon)?;
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
        work: Cell::new(0),
    };
    let found = if sampling_rate == 1.0 {
        let relation = if replace_one { 2.0 } else { 1.0 };
        let root = relation * (n_steps as f64).sqrt();
        let noise = gaussian::sigma(epsilon, delta)? * root * (1.0 + 4.0 * f64::EPSILON);
        (noise, wanted.lacking(noise)?)
    } else {
        wanted.search()?
    };
    wanted.enlarged(found)
}
