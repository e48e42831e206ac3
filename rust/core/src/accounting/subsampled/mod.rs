//! Privacy loss distributions: Poisson-subsampled Gaussian steps and mixed compositions.
//!
//! Every number returned is an upper bound. `pair` holds the dominating pair of a subsampled
//! step, `law` puts it on a grid, `plan` chooses tilt, window and step, `compose` raises to
//! powers by fast Fourier transforms with a bound on their rounding, `single` is one step in
//! closed form, `joined` conditions on rare joins, `profile` takes events known by a curve, `mixed`
//! puts them together.

mod calibrate;
mod compose;
mod joined;
mod law;
mod mixed;
mod pair;
mod plan;
mod profile;
mod single;

use crate::accounting::subsampled::law::Atoms;
use crate::accounting::subsampled::mixed::{Answer, Composition, Tables};
use crate::accounting::subsampled::pair::{Pair, ULP};
use crate::accounting::subsampled::plan::{OF_LOOK, OF_SEARCH, Question};
use crate::accounting::{check_not_negative, check_positive};
use crate::error::{Result, require};
use crate::runtime::interrupt::Interrupt;

pub use calibrate::noise_multiplier;

/// Below this noise a sampled record counts as revealed.
const MIN_NOISE: f64 = 0.03;

/// Least sigma of a Gaussian release among other events: its loss is 5000 and more.
const MIN_SIGMA: f64 = 0.01;

/// Most steps of one event.
const MAX_STEPS: u64 = 1 << 52;

/// Poisson-subsampled Gaussian steps.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Subsampled {
    /// Standard deviation of the noise over the bound on one record's contribution, positive.
    pub noise_multiplier: f64,
    /// Probability with which each record joins a step, in (0, 1].
    pub sampling_rate: f64,
    /// Number of steps, at least 1.
    pub n_steps: u64,
}

fn check_rate(rate: f64) -> Result<()> {
    let message = format_args!("must lie in (0, 1], got {rate}");
    require(rate > 0.0 && rate <= 1.0, "sampling_rate", message)
}

fn check_steps(n_steps: u64) -> Result<()> {
    let message = format_args!("must be a number from 1 to 2**52, got {n_steps}");
    require((1..=MAX_STEPS).contains(&n_steps), "n_steps", message)
}

impl Subsampled {
    fn check(&self) -> Result<()> {
        check_positive("noise_multiplier", self.noise_multiplier)?;
        check_rate(self.sampling_rate)?;
        check_steps(self.n_steps)
    }

    /// Noise over sensitivity of one Gaussian release equal to all steps; `sampling_rate` is 1.
    fn whole_batch_sigma(&self, replace_one: bool) -> f64 {
        let relation = if replace_one { 2.0 } else { 1.0 };
        let root = (self.n_steps as f64).sqrt() * (1.0 + ULP);
        (self.noise_multiplier / (relation * root)).next_down()
    }

    /// Upper bound on the probability that the record joins any step: `delta` without noise.
    fn joined(&self) -> f64 {
        let none = self.n_steps as f64 * libm::log1p(-self.sampling_rate);
        (-libm::expm1(none) * (1.0 + 8.0 * ULP)).min(1.0)
    }
}

/// `delta` at `epsilon` of Poisson-subsampled Gaussian steps, rounded up.
///
/// # Arguments
/// * `steps` - noise, sampling rate and number of steps.
/// * `epsilon` - finite, at least 0.
/// * `replace_one` - whether neighbours differ by one replaced record, or by one more or fewer;
///   the noise multiplier is relative to one record's contribution in both cases.
/// * `interrupt` - asked whether to give up.
///
/// # Returns
/// An upper bound in [0, 1] on the larger direction's hockey-stick divergence. One step
/// (`n_steps == 1`) and the whole batch (`sampling_rate == 1`) come from closed forms.
///
/// # Errors
/// [`crate::Error::InvalidArgument`] naming the argument outside its range; [`crate::Error::Interrupted`].
pub fn delta(
    steps: Subsampled,
    epsilon: f64,
    replace_one: bool,
    interrupt: &dyn Interrupt,
) -> Result<f64> {
    let question = Question::Epsilon(epsilon);
    Ok(answer(Effort::default(), steps, question, replace_one, interrupt)?.value)
}

/// Least epsilon at `delta` of Poisson-subsampled Gaussian steps, rounded up.
///
/// # Arguments
/// * `steps`, `replace_one`, `interrupt` - as for [`delta`].
/// * `target` - delta, in `[f64::MIN_POSITIVE, 1)`.
///
/// # Returns
/// An upper bound on the least epsilon >= 0; infinity when no guarantee was found.
///
/// # Errors
/// [`crate::Error::InvalidArgument`] naming the argument outside its range.
pub fn epsilon(
    steps: Subsampled,
    target: f64,
    replace_one: bool,
    interrupt: &dyn Interrupt,
) -> Result<f64> {
    let question = Question::Delta(target);
    Ok(answer(Effort::default(), steps, question, replace_one, interrupt)?.value)
}

/// Effort for an answer; with grids alone, less effort never gives a smaller answer.
#[derive(Debug, Clone, Copy, Default)]
struct Effort<'a> {
    /// Whether the grid of a search will do.
    coarse: bool,
    /// Most grids, in those of a search.
    most_work: Option<u32>,
    /// Tables that may hold the answer: one of them or one grid, instead of the above.
    tables: Option<&'a Tables>,
}

/// [`delta`] or [`epsilon`] with an effort.
fn answer(
    effort: Effort<'_>,
    steps: Subsampled,
    question: Question,
    replace_one: bool,
    interrupt: &dyn Interrupt,
) -> Result<Answer> {
    steps.check()?;
    question.check()?;
    let (noise, rate) = (steps.noise_multiplier, steps.sampling_rate);
    let whole = || question.gaussian(steps.whole_batch_sigma(replace_one));
    if rate == 1.0 {
        return Ok(whole()?.into());
    }
    // Without its sampling a step is Gaussian and tells more; a record that never joins is safe.
    let most = match question {
        Question::Delta(target) if steps.joined() <= target => return Ok(0.0.into()),
        Question::Delta(_) => whole()?,
        Question::Epsilon(_) => whole()?.min(steps.joined()),
    };
    if noise < MIN_NOISE {
        return Ok(most.into());
    }
    if steps.n_steps == 1 {
        let bound = question.of(|e| single::delta(noise, rate, replace_one, e))?;
        return Ok(bound.min(most).into());
    }
    let by_joins = match question {
        Question::Epsilon(epsilon) => joined::delta(steps, epsilon, replace_one)?,
        Question::Delta(target) => joined::epsilon(steps, target, replace_one)?,
    };
    let mut composed = composition(steps, replace_one);
    (composed.coarse, composed.most_work) = (effort.coarse, effort.most_work);
    let found = match effort.tables {
        Some(tables) => {
            Answer::from(composed.quick_answer(question, tables, OF_SEARCH, interrupt)?)
        }
        None => composed.answer(question, interrupt)?,
    };
    Ok(found.or(by_joins.min(most)))
}

fn composition(steps: Subsampled, replace_one: bool) -> Composition {
    let pair = Pair::new(steps.noise_multiplier, steps.sampling_rate, replace_one);
    Composition {
        pairs: vec![(pair, steps.n_steps as f64)],
        ..Composition::default()
    }
}

/// Everything that a [`LossDistribution`] is made of.
#[derive(Debug, Clone, Default)]
pub struct Events {
    /// Subsampled Gaussian steps.
    pub subsampled: Vec<Subsampled>,
    /// Sensitivity over noise deviation of all Gaussian releases together, at least 0.
    pub gaussian_mu: f64,
    /// Pure epsilons and how many times each.
    pub pure: Vec<(f64, u64)>,
    /// Sum of the zero-concentrated parameters, at least 0.
    pub zcdp_rho: f64,
    /// Points of privacy curves, increasing epsilons with upper bounds of delta, and how many times
    /// each: valid in both directions, or in one alone where the epsilons begin below 0.
    pub profiles: Vec<(Vec<(f64, f64)>, u64)>,
}

/// The composition of several events: a privacy loss distribution in both directions.
///
/// # Guarantees
/// [`Self::delta`] and [`Self::epsilon`] are upper bounds, and so hold for events chosen one
/// after the other as long as their parameters are fixed beforehand.
#[derive(Debug)]
pub struct LossDistribution {
    kind: Kind,
    tables: Tables,
}

#[derive(Debug)]
enum Kind {
    /// Noise over sensitivity of one Gaussian release; `None` if there is no release.
    Gaussian(Option<f64>),
    Step(Subsampled, bool),
    Concentrated(f64),
    /// One event known by its atoms.
    Exact(Atoms),
    Mixed(Composition),
}

fn check_profile(points: &[(f64, f64)], times: u64) -> Result<()> {
    check_steps(times)?;
    let message = "must hold at least one point each";
    require(!points.is_empty(), "profiles", message)?;
    let increasing = points.windows(2).all(|pair| pair[0].0 < pair[1].0);
    require(increasing, "profiles", "epsilons must increase")?;
    let right = points.iter().all(|(e, _)| e.is_finite());
    require(right, "profiles", "epsilons must be finite")?;
    let message = "deltas must lie in [0, 1]";
    let right = points.iter().all(|(_, d)| (0.0..=1.0).contains(d));
    require(right, "profiles", message)
}

impl Events {
    fn check(&self) -> Result<()> {
        for steps in &self.subsampled {
            steps.check()?;
        }
        check_not_negative("gaussian_mu", self.gaussian_mu)?;
        check_not_negative("zcdp_rho", self.zcdp_rho)?;
        for &(epsilon, times) in &self.pure {
            check_not_negative("pure", epsilon)?;
            check_steps(times)?;
        }
        for (points, times) in &self.profiles {
            check_profile(points, *times)?;
        }
        Ok(())
    }

    /// All Gaussian releases as one: noise over sensitivity, rounded down.
    fn gaussian_sigma(&self, replace_one: bool) -> Option<f64> {
        let mut square = self.gaussian_mu * self.gaussian_mu;
        for steps in self.subsampled.iter().filter(|s| s.sampling_rate == 1.0) {
            let mu = 1.0 / steps.whole_batch_sigma(replace_one);
            square += mu * mu;
        }
        if square == 0.0 && self.gaussian_mu == 0.0 {
            return None;
        }
        let count = self.subsampled.len() as f64 + 4.0;
        let mu = square.sqrt().max(self.gaussian_mu) * (1.0 + count * ULP);
        Some((1.0 / mu).next_down().max(f64::MIN_POSITIVE))
    }

    /// Laws known by atoms, equal ones together.
    fn atoms(&self) -> Vec<(Atoms, f64)> {
        let mut pure: Vec<(f64, f64)> = Vec::new();
        for &(epsilon, times) in self.pure.iter().filter(|(epsilon, _)| *epsilon > 0.0) {
            match pure.iter_mut().find(|(known, _)| *known == epsilon) {
                Some((_, total)) => *total += times as f64,
                None => pure.push((epsilon, times as f64)),
            }
        }
        let mut atoms: Vec<(Atoms, f64)> = pure
            .into_iter()
            .map(|(epsilon, times)| (profile::pure_atoms(epsilon), times))
            .collect();
        for (points, times) in &self.profiles {
            let law = profile::profile_atoms(points.clone());
            atoms.push((law, *times as f64));
        }
        atoms
    }
}

impl LossDistribution {
    /// Composes `events`.
    ///
    /// # Errors
    /// [`crate::Error::InvalidArgument`] naming the argument outside its range.
    pub fn new(events: &Events, replace_one: bool) -> Result<Self> {
        events.check()?;
        let sigma = events.gaussian_sigma(replace_one);
        let sampled: Vec<Subsampled> = events
            .subsampled
            .iter()
            .filter(|steps| steps.sampling_rate < 1.0)
            .copied()
            .collect();
        let atoms = events.atoms();
        let rho = events.zcdp_rho;
        let others = usize::from(sigma.is_some()) + usize::from(rho > 0.0);
        let kind = match (&sampled[..], &atoms[..], others) {
            ([], [], 1) if rho > 0.0 => Kind::Concentrated(rho),
            ([], [], 0 | 1) => Kind::Gaussian(sigma),
            ([steps], [], 0) => Kind::Step(*steps, replace_one),
            ([], [(law, times)], 0) if *times == 1.0 => Kind::Exact(law.clone()),
            _ => Kind::Mixed(mixture(&sampled, atoms, sigma, rho, replace_one)),
        };
        let tables = Tables::default();
        Ok(Self { kind, tables })
    }

    /// Upper bound on `delta` at `epsilon`.
    ///
    /// # Errors
    /// [`crate::Error::InvalidArgument`] when `epsilon` is negative or not finite.
    pub fn delta(&self, epsilon: f64, interrupt: &dyn Interrupt) -> Result<f64> {
        self.answer(Question::Epsilon(epsilon), None, interrupt)
    }

    /// Upper bound on the least epsilon >= 0 at `delta`; infinity when there is none.
    ///
    /// # Errors
    /// [`crate::Error::InvalidArgument`] when `target` is outside `[f64::MIN_POSITIVE, 1)`.
    pub fn epsilon(&self, target: f64, interrupt: &dyn Interrupt) -> Result<f64> {
        self.answer(Question::Delta(target), None, interrupt)
    }

    /// An upper bound on `delta` by small grids, mostly larger than [`Self::delta`], in a fraction of
    /// the time where many epsilons are asked.
    ///
    /// # Errors
    /// As of [`Self::delta`].
    pub fn quick_delta(&self, epsilon: f64, interrupt: &dyn Interrupt) -> Result<f64> {
        self.answer(Question::Epsilon(epsilon), Some(&self.tables), interrupt)
    }

    /// An upper bound on [`Self::epsilon`] by a small grid, in a fraction of the time.
    ///
    /// # Errors
    /// As of [`Self::epsilon`].
    pub fn quick_epsilon(&self, target: f64, interrupt: &dyn Interrupt) -> Result<f64> {
        self.answer(Question::Delta(target), Some(&self.tables), interrupt)
    }

    /// A quick answer where `tables` are given.
    fn answer(
        &self,
        question: Question,
        tables: Option<&Tables>,
        interrupt: &dyn Interrupt,
    ) -> Result<f64> {
        question.check()?;
        match &self.kind {
            Kind::Gaussian(None) => Ok(0.0),
            Kind::Gaussian(Some(sigma)) => question.gaussian(*sigma),
            Kind::Step(steps, replace_one) => {
                let effort = Effort {
                    tables,
                    ..Effort::default()
                };
                Ok(answer(effort, *steps, question, *replace_one, interrupt)?.value)
            }
            Kind::Concentrated(rho) => question.of(|e| Ok(profile::zcdp_delta(*rho, e).min(1.0))),
            Kind::Exact(law) => question.of(|e| Ok(law.delta(e))),
            Kind::Mixed(law) => match tables {
                Some(tables) => law.quick_answer(question, tables, OF_LOOK, interrupt),
                None => Ok(law.answer(question, interrupt)?.value),
            },
        }
    }
}

/// The composition that needs a grid.
fn mixture(
    sampled: &[Subsampled],
    mut atoms: Vec<(Atoms, f64)>,
    sigma: Option<f64>,
    rho: f64,
    replace_one: bool,
) -> Composition {
    let mut pairs: Vec<(Pair, f64)> = Vec::new();
    for steps in sampled {
        if steps.noise_multiplier < MIN_NOISE {
            atoms.push((Atoms::revealing(steps.joined()), 1.0));
            continue;
        }
        let pair = Pair::new(steps.noise_multiplier, steps.sampling_rate, replace_one);
        pairs.push((pair, steps.n_steps as f64));
    }
    if let Some(sigma) = sigma {
        if sigma < MIN_SIGMA {
            atoms.push((Atoms::revealing(1.0), 1.0));
        } else {
            pairs.push((Pair::new(sigma, 1.0, false), 1.0));
        }
    }
    Composition {
        pairs,
        atoms,
        rho,
        ..Composition::default()
    }
}
