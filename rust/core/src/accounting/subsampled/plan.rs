//! Tilt, window and step of a composition, from its cumulants.
//!
//! Nothing here needs to be exact. A poor choice costs tightness, never validity.

use crate::Result;
use crate::accounting::gaussian::{self, DENSITY_AT_ZERO};
use crate::accounting::subsampled::calibrate::least;
use crate::accounting::subsampled::law::Atoms;
use crate::accounting::subsampled::pair::Pair;
use crate::accounting::{check_delta, check_not_negative};
use crate::numeric::normal::mills;
use crate::runtime::interrupt::Interrupt;

/// Distance of positions at which the cumulants of a pair are summed, and for how many pairs;
/// with more of them it grows, to four times that.
const SPACING: f64 = 0.15;
const FEW: f64 = 6.0;

/// Share of the way from the mean to the largest loss that a tilt may move the mean.
const NEAR_LARGEST: f64 = 0.98;

/// Steps of the bisection for the tilt.
const BISECTIONS: usize = 44;

/// Log of the mass that may fall out of the window, relative to the target.
const LEFT_OUT: f64 = -16.0;

/// Least deviation that is reckoned with, relative to the mean.
const MIN_SPREAD: f64 = 1e-4;

/// Share of epsilon that the grid may add.
const ACCURACY: f64 = 1e-4;

/// Largest factor of the step by which a large window may be made cheaper.
const CHEAPER: f64 = 2.0;

/// Largest step over the root mean square deviation of one composed step.
const SMOOTH: f64 = 0.1;

/// Largest increase of a direction's cumulant by a grid coarser than its own.
const COARSE: f64 = 0.1;

/// Losses further apart than this have ratios that leave the range of the numbers when squared.
const LARGEST_STEP: f64 = 100.0;

/// Length of a transform that is aimed at.
const USUAL_LENGTH: f64 = 262_144.0;

/// Most cells of the laws of one step on a grid, all parts together: of a grid for a first look, of one
/// for a search, and of the largest one.
pub(super) const OF_LOOK: f64 = 16_384.0;
pub(super) const OF_SEARCH: f64 = 65_536.0;
pub(super) const LARGEST: f64 = 262_144.0;

/// Length of all transforms over [`OF_LOOK`] and its like.
const LENGTH_PER_CELL: f64 = 4.0;

/// Question of the caller.
#[derive(Debug, Clone, Copy)]
pub(super) enum Question {
    /// `delta` at this epsilon.
    Epsilon(f64),
    /// `epsilon` at this delta.
    Delta(f64),
}

impl Question {
    pub(super) fn check(self) -> Result<()> {
        match self {
            Self::Epsilon(epsilon) => check_not_negative("epsilon", epsilon),
            Self::Delta(delta) => check_delta(delta),
        }
    }

    /// The answer of the Gaussian mechanism.
    pub(super) fn gaussian(self, sigma: f64) -> Result<f64> {
        match self {
            Self::Epsilon(epsilon) => gaussian::delta(epsilon, sigma),
            Self::Delta(delta) => gaussian::epsilon(delta, sigma),
        }
    }

    /// The answer of a curve in closed form.
    pub(super) fn of(self, curve: impl Fn(f64) -> Result<f64>) -> Result<f64> {
        match self {
            Self::Epsilon(epsilon) => curve(epsilon),
            Self::Delta(delta) => least(curve, delta),
        }
    }
}

/// Losses with their log masses and how often they are composed.
pub(super) struct Cumulants {
    pub(super) parts: Vec<(Atoms, f64)>,
}

/// Cumulants at one tilt.
#[derive(Debug, Clone, Copy)]
pub(super) struct At {
    pub(super) tilt: f64,
    pub(super) value: f64,
    pub(super) mean: f64,
    pub(super) deviation: f64,
}

/// Plan of one direction.
#[derive(Debug, Clone, Copy)]
pub(super) struct DirectionPlan {
    pub(super) tilt: f64,
    /// The tilted mean, next to the target epsilon.
    pub(super) centre: f64,
    pub(super) bottom: f64,
    pub(super) top: f64,
    /// Tilt of the bound on the mass above `top`.
    pub(super) tilt_above: f64,
    pub(super) log_delta: f64,
    pub(super) step: f64,
}

/// One step of a pair, as atoms: what the first law (or, `reversed`, the second) loses.
pub(super) fn pair_atoms(pair: &Pair, tail: f64, reversed: bool, pairs: usize) -> Atoms {
    let (low, top) = pair.ends(tail);
    let spacing = SPACING * (pairs as f64 / FEW).clamp(1.0, 4.0);
    let n = ((top - low) / spacing).ceil().max(8.0);
    let spacing = (top - low) / n;
    let log_spacing = libm::log(spacing * DENSITY_AT_ZERO);
    let mut atoms = Atoms::default();
    for index in 0..=n as usize {
        let u = low + index as f64 * spacing;
        let (first, second) = pair.log_ratios(u);
        let base = log_spacing - 0.5 * u * u;
        let (own, loss) = if reversed {
            (second, second - first)
        } else {
            (first, first - second)
        };
        atoms.log_mass.push(base + own);
        atoms.loss.push(loss);
    }
    atoms
}

impl Cumulants {
    /// Number of composed steps.
    fn steps(&self) -> f64 {
        self.parts.iter().map(|(_, times)| times).sum()
    }

    /// Ranges of the losses of one step of each part, added up.
    fn spans(&self) -> f64 {
        let spans = self.parts.iter().map(|(atoms, _)| atoms.span());
        spans.map(|(low, high)| high - low).sum()
    }

    pub(super) fn at(&self, tilt: f64) -> At {
        let (mut value, mut mean, mut variance) = (0.0, 0.0, 0.0);
        let mut weights = Vec::new();
        for (atoms, times) in &self.parts {
            let (largest, total) = atoms.tilted(tilt, &mut weights);
            let pairs = || weights.iter().zip(&atoms.loss);
            let centre = pairs().map(|(p, l)| p * l).sum::<f64>() / total;
            let second = |(p, l): (&f64, &f64)| p * (l - centre) * (l - centre);
            value += times * (largest + libm::log(total));
            mean += times * centre;
            variance += times * pairs().map(second).sum::<f64>() / total;
        }
        At {
            tilt,
            value,
            mean,
            deviation: variance.sqrt().max(MIN_SPREAD * mean.abs()).max(1e-150),
        }
    }

    /// [`At::value`] at one tilt.
    fn value(&self, tilt: f64) -> f64 {
        let mut weights = Vec::new();
        let parts = self.parts.iter().map(|(atoms, times)| {
            let (largest, total) = atoms.tilted(tilt, &mut weights);
            times * (largest + libm::log(total))
        });
        parts.sum()
    }

    /// The largest composed loss.
    fn largest(&self) -> f64 {
        let parts = self.parts.iter();
        parts.map(|(atoms, times)| times * atoms.span().1).sum()
    }

    /// Smallest tilt, at least 0, at which `enough` holds or the mean is near the largest loss.
    ///
    /// Beyond, only rounding would answer: tilts grow without end where losses are bounded.
    fn tilt_where(&self, enough: impl Fn(&At) -> bool, interrupt: &dyn Interrupt) -> Result<At> {
        let start = self.at(0.0);
        let near = start.mean + NEAR_LARGEST * (self.largest() - start.mean);
        let enough = |at: &At| at.mean >= near || enough(at);
        if enough(&start) {
            return Ok(start);
        }
        let mut high = 1.0 / start.deviation.clamp(1e-150, 1e150);
        let mut low = 0.0;
        for _ in 0..200 {
            interrupt.check()?;
            if enough(&self.at(high)) {
                break;
            }
            low = high;
            high *= 4.0;
        }
        for _ in 0..BISECTIONS {
            interrupt.check()?;
            let middle = if low > 0.0 && high > 4.0 * low {
                (low * high).sqrt()
            } else {
                0.5 * (low + high)
            };
            if high - low <= 1e-6 * high {
                break;
            }
            if enough(&self.at(middle)) {
                high = middle;
            } else {
                low = middle;
            }
        }
        Ok(self.at(high))
    }

    /// The tilt that moves the mean to the target.
    pub(super) fn saddle(&self, goal: Question, interrupt: &dyn Interrupt) -> Result<At> {
        match goal {
            Question::Epsilon(epsilon) => self.tilt_where(|at| at.mean >= epsilon, interrupt),
            Question::Delta(delta) => {
                let wanted = libm::log(delta);
                self.tilt_where(|at| at.log_delta() <= wanted, interrupt)
            }
        }
    }

    /// Ends of the window around the tilted law, and the tilt of the bound above it.
    ///
    /// The tilted law above its end wraps around to below `asked`.
    fn window(&self, at: &At, asked: f64) -> (f64, f64, f64) {
        let log_delta = at.log_delta().min(0.0);
        let mut best = (f64::NEG_INFINITY, f64::INFINITY, 1.0);
        let mut end = f64::INFINITY;
        for index in -8..14 {
            let theta = libm::exp2(0.5 * f64::from(index)) / at.deviation;
            let tilt = at.tilt + theta;
            let up = self.value(tilt);
            let top = (up - log_delta - LEFT_OUT) / tilt;
            if top < best.1 {
                best.1 = top;
                best.2 = tilt;
            }
            end = end.min((up - at.value - LEFT_OUT) / theta);
            let down = self.value(at.tilt - theta);
            best.0 = best.0.max((LEFT_OUT - down + at.value) / theta);
        }
        // A window of a few deviations at least, whatever the bounds say.
        let low = best.0.min(at.mean - 4.0 * at.deviation);
        let high = best.1.max(at.mean + 4.0 * at.deviation);
        (low, high.max(low + end - asked), best.2)
    }

    /// Tilt, window and step for `goal`.
    pub(super) fn plan(&self, goal: Question, interrupt: &dyn Interrupt) -> Result<DirectionPlan> {
        let at = self.saddle(goal, interrupt)?;
        Ok(self.with_usual_step(&at, goal))
    }

    /// The plan for all epsilons from `low` to `high`, with the tilt for the middle.
    pub(super) fn plan_between(
        &self,
        low: f64,
        high: f64,
        interrupt: &dyn Interrupt,
    ) -> Result<DirectionPlan> {
        let at = self.saddle(Question::Epsilon(0.5 * (low + high)), interrupt)?;
        Ok(self.with_usual_step(&at, Question::Epsilon(low)))
    }

    /// The window at a given tilt, and a step that is fine enough.
    fn with_usual_step(&self, at: &At, goal: Question) -> DirectionPlan {
        let mut plan = self.plan_at(at, goal);
        let epsilon = match goal {
            Question::Epsilon(epsilon) => epsilon,
            Question::Delta(_) => at.mean,
        };
        let scale = epsilon.max(0.05 * at.deviation);
        let fine = (8.0 * ACCURACY * scale / (self.steps() * (at.tilt + 1.0))).sqrt();
        let fine = fine.min(SMOOTH * at.deviation / self.steps().sqrt());
        let window = plan.top - plan.bottom;
        let step = fine
            .max((window / USUAL_LENGTH).min(CHEAPER * fine))
            .min(window / 64.0)
            .min(LARGEST_STEP);
        plan.step = short(step);
        plan
    }

    /// `plan` for a step, which may be too coarse for its tilt, or a larger one of at most
    /// `most_cells`.
    pub(super) fn with_step(
        &self,
        plan: &DirectionPlan,
        goal: Question,
        step: f64,
        most_cells: f64,
    ) -> DirectionPlan {
        // The tilt at which the grid adds COARSE to the cumulant: larger ones are no use.
        let largest = (8.0 * COARSE / self.steps()).sqrt() / step;
        let mut changed = *plan;
        if plan.tilt > largest {
            changed = self.plan_at(&self.at(largest), goal);
        }
        changed.step = short(step.max(self.least_step(&changed, most_cells)));
        changed
    }

    /// The least step at which neither the transforms nor the laws together are too long.
    fn least_step(&self, plan: &DirectionPlan, most_cells: f64) -> f64 {
        let windows = self.parts.len() as f64 * (plan.top - plan.bottom);
        let length = LENGTH_PER_CELL * most_cells;
        (windows / length).max(self.spans() / most_cells) * (1.0 + 1e-6)
    }

    /// The window at a given tilt.
    fn plan_at(&self, at: &At, goal: Question) -> DirectionPlan {
        let asked = match goal {
            Question::Epsilon(epsilon) => epsilon.min(at.mean),
            Question::Delta(_) => 0.5 * at.mean,
        };
        let (mut bottom, mut top, tilt_above) = self.window(at, asked);
        if let Question::Epsilon(wanted) = goal {
            bottom = bottom.min(wanted.max(at.mean - 40.0 * at.deviation));
            top = top.max(wanted.min(at.mean + 40.0 * at.deviation));
        }
        DirectionPlan {
            tilt: at.tilt,
            centre: at.mean,
            bottom,
            top,
            tilt_above,
            log_delta: at.log_delta(),
            step: 0.0,
        }
    }
}

/// `step` with its last 28 bits cleared, so that products with indices are exact.
fn short(step: f64) -> f64 {
    f64::from_bits(step.to_bits() & !((1 << 28) - 1))
}

impl At {
    /// Log of `delta` at the tilted mean, with a normal law in place of the tilted one.
    pub(super) fn log_delta(&self) -> f64 {
        let s = self.deviation;
        let width = mills(self.tilt * s) - mills((self.tilt + 1.0) * s);
        let width = (width * DENSITY_AT_ZERO).max(1e-300);
        self.value - self.tilt * self.mean + libm::log(width)
    }
}
