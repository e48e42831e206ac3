//! The least bound over the free parameter of the theorem.
//!
//! Every choice is valid, so the search runs on a coarse grid and only its winner is computed on
//! the fine one.

use realfft::RealFftPlanner;

use crate::Result;
use crate::accounting::objective::joint::integral::{Grid, expected_payoff};
use crate::accounting::objective::joint::model::{Model, Setting, Variant};
use crate::accounting::objective::joint::payoff::Payoff;
use crate::runtime::interrupt::Interrupt;

/// Beyond this `theta / t` a bound is costly and useless.
pub(super) const LARGEST_SCALE: f64 = 12.0;

/// Values of `theta1` to try, as shares of its range.
const SHARES: [f64; 7] = [1.0, 0.94, 0.87, 0.75, 0.55, 0.3, 0.0];

/// A coarse value is at most this factor above the fine one, nearly always; where it is not, a
/// bound is returned that is valid but not the least.
const COARSE_FACTOR: f64 = 1.5;

/// Two bounds with logarithms as close as this need not be balanced: their sum is within 2 percent
/// of the least.
const NEARLY_EQUAL: f64 = 0.4;

/// The question asked.
#[derive(Debug, Clone, Copy)]
pub(super) struct Problem {
    pub epsilon: f64,
    pub setting: Setting,
    /// The second record of a replacement adds a loss of its own.
    pub replace_one: bool,
}

impl Problem {
    pub(super) fn new(epsilon: f64, t: f64, kappa: f64, classes: usize, replace_one: bool) -> Self {
        let quadratic = if replace_one { t * t } else { 0.5 * t * t };
        let setting = Setting {
            t,
            kappa,
            competitors: classes - 1,
            quadratic,
        };
        Self {
            epsilon,
            setting,
            replace_one,
        }
    }
}

/// Resolution of a bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Detail {
    Coarse,
    Fine,
}

impl Detail {
    pub(super) fn grid(self, scale: f64, competitors: usize) -> Grid {
        match self {
            Self::Coarse => Grid::new(200.0, 1600.0, 7.0, scale, competitors),
            Self::Fine => Grid::new(500.0, 6000.0, 14.0, scale, competitors),
        }
    }
}

/// A choice of the free parameter.
#[derive(Debug, Clone, Copy)]
pub(super) struct Choice {
    pub share: f64,
    pub variant: Variant,
}

/// Evaluates and minimises the bounds.
pub(super) struct BoundSearch<'a> {
    pub(super) planner: RealFftPlanner<f64>,
    pub(super) interrupt: &'a dyn Interrupt,
}

impl<'a> BoundSearch<'a> {
    pub(super) fn new(interrupt: &'a dyn Interrupt) -> Self {
        Self {
            planner: RealFftPlanner::new(),
            interrupt,
        }
    }

    /// `E (1 - exp((level - psi(V)) / beta))_+`, an upper bound.
    fn payoff(&mut self, model: &Model, level: f64, beta: f64, detail: Detail) -> Result<f64> {
        let scale = model.theta / model.setting.t;
        if !(level > 0.0 && scale <= LARGEST_SCALE) {
            return Ok(1.0);
        }
        let competitors = model.setting.competitors;
        let grid = detail.grid(scale, competitors);
        let Some(payoff) = Payoff::new(model, level, beta, grid.step) else {
            return Ok(1.0);
        };
        expected_payoff(self, &payoff, competitors, scale, grid)
    }

    /// The bound for one choice.
    pub(super) fn at(&mut self, problem: &Problem, choice: Choice, detail: Detail) -> Result<f64> {
        let model = Model::new(problem.setting, choice.share, choice.variant);
        let level = (problem.epsilon - model.offset).next_down();
        if problem.replace_one {
            self.with_second_record(&model, level, detail)
        } else {
            self.payoff(&model, level, 1.0, detail)
        }
    }

    /// The bound for a replacement. For every split `level = l1 + l2` and every coupling,
    /// `(1 - exp(l1 + l2 - V1 - V2))_+` is at most the sum of `(1 - exp(2 (l_i - V_i)))_+`: one of the
    /// excesses `V_i - l_i` is at least half of their sum.
    fn with_second_record(&mut self, model: &Model, level: f64, detail: Detail) -> Result<f64> {
        let second = model.of_second_record();
        let half = 0.5 * level;
        let a = self.payoff(model, half, 0.5, Detail::Coarse)?;
        let b = self.payoff(&second, half, 0.5, Detail::Coarse)?;
        if a >= 1.0 || b >= 1.0 || !(a > 0.0 && b > 0.0) {
            return Ok(1.0);
        }
        if detail == Detail::Coarse && libm::log(a / b).abs() < NEARLY_EQUAL {
            return Ok((a + b).min(1.0));
        }
        let shift = balance(a, b, half, model.setting.t);
        let sum = self.payoff(model, half + shift, 0.5, detail)?
            + self.payoff(&second, half - shift, 0.5, detail)?;
        Ok(sum.min(1.0))
    }

    /// Split of `level` between the two records of a replacement, from the middle; `None` if both
    /// bounds are vacuous.
    pub(super) fn shift(&mut self, model: &Model, level: f64) -> Result<Option<f64>> {
        let half = 0.5 * level;
        let second = model.of_second_record();
        let a = self.payoff(model, half, 0.5, Detail::Coarse)?;
        let b = self.payoff(&second, half, 0.5, Detail::Coarse)?;
        let known = 0.0 < a && a < 1.0 && 0.0 < b && b < 1.0;
        Ok(known.then(|| balance(a, b, half, model.setting.t)))
    }

    /// The best choice on the coarse grid and its bound.
    pub(super) fn best(&mut self, problem: &Problem) -> Result<(Choice, f64)> {
        let mut tried: Vec<(f64, f64)> = Vec::new();
        let Setting {
            kappa, quadratic, ..
        } = problem.setting;
        // The bound may have two minima where curvature and epsilon are of one size; a replacement
        // has half of epsilon for each record.
        let records = if problem.replace_one { 2.0 } else { 1.0 };
        let one_minimum = kappa * records <= 0.25 * problem.epsilon;
        let variant = Variant::Logarithmic;
        for share in SHARES {
            let value = self.at(problem, Choice { share, variant }, Detail::Coarse)?;
            let worse = tried
                .last()
                .is_some_and(|&(_, last)| last < 1.0 && value >= last);
            tried.push((share, value));
            if kappa <= quadratic || worse && one_minimum {
                break;
            }
        }
        let (share, value) = if one_minimum && tried.len() == 2 {
            // It falls up to the end.
            tried[0]
        } else {
            self.refined(problem, tried, variant)?
        };
        let choice = Choice { share, variant };
        if problem.epsilon < 2.0 * problem.setting.kappa {
            self.with_linear(problem, choice, value)
        } else {
            Ok((choice, value))
        }
    }

    /// The better of a choice and what the linear variant has next to it and at its safe end,
    /// where only the largest determinant must be below `epsilon`.
    fn with_linear(
        &mut self,
        problem: &Problem,
        choice: Choice,
        value: f64,
    ) -> Result<(Choice, f64)> {
        let variant = Variant::Linear;
        let mut tried = Vec::new();
        for share in [choice.share, 0.0] {
            let candidate = Choice { share, variant };
            tried.push((share, self.at(problem, candidate, Detail::Coarse)?));
        }
        if least(&tried).1 >= value {
            return Ok((choice, value));
        }
        let (share, value) = self.refined(problem, tried, variant)?;
        Ok((Choice { share, variant }, value))
    }

    /// Two steps of a parabola through the best point and its neighbours.
    fn refined(
        &mut self,
        problem: &Problem,
        mut tried: Vec<(f64, f64)>,
        variant: Variant,
    ) -> Result<(f64, f64)> {
        for _ in 0..2 {
            tried.sort_by(|a, b| a.0.total_cmp(&b.0));
            let Some(share) = vertex(&tried) else { break };
            let choice = Choice { share, variant };
            tried.push((share, self.at(problem, choice, Detail::Coarse)?));
        }
        Ok(least(&tried))
    }

    /// The least bound: the winner of the coarse grid on the fine one. A bound above `target` by
    /// more than the coarse grid can lose is returned as it is.
    pub(super) fn least(&mut self, problem: &Problem, target: f64) -> Result<f64> {
        let (choice, coarse) = self.best(problem)?;
        if coarse >= 1.0 || coarse > COARSE_FACTOR * target {
            return Ok(coarse);
        }
        Ok(self.at(problem, choice, Detail::Fine)?.min(coarse))
    }
}

/// By how much the levels of two bounds are moved apart. Both fall about as `exp(-rate level)`; the
/// sum is least where they are equal.
fn balance(a: f64, b: f64, half: f64, t: f64) -> f64 {
    let rate = (-2.0 * libm::log(a)).sqrt() / t;
    (0.5 * libm::log(a / b) / rate).clamp(-0.5 * half, 0.5 * half)
}

/// The pair with the least value, the first of them.
fn least(tried: &[(f64, f64)]) -> (f64, f64) {
    let mut best = (1.0, 1.0);
    for &(share, value) in tried {
        if value < best.1 {
            best = (share, value);
        }
    }
    best
}

/// Minimum of the parabola through the logarithms of the least value and its neighbours.
fn vertex(tried: &[(f64, f64)]) -> Option<f64> {
    let (share, value) = least(tried);
    if value >= 1.0 {
        return None;
    }
    let at = tried.iter().position(|&(s, _)| s == share)?;
    let log = |k: usize| libm::log(tried[k].1);
    let next = if at == 0 || at + 1 == tried.len() {
        // At an end: half way to the neighbour.
        let neighbour = if at == 0 {
            tried.get(1)?
        } else {
            tried.get(at - 1)?
        };
        0.5 * (share + neighbour.0)
    } else {
        let (a, b, c) = (tried[at - 1].0, share, tried[at + 1].0);
        let left = (b - a) * (log(at) - log(at + 1));
        let right = (b - c) * (log(at) - log(at - 1));
        let vertex = b - 0.5 * ((b - a) * left - (b - c) * right) / (left - right);
        let margin = 0.02 * (c - a);
        if vertex.is_finite() && (vertex - b).abs() > margin {
            vertex.clamp(a + margin, c - margin)
        } else {
            return None;
        }
    };
    (tried.iter().all(|&(s, _)| (s - next).abs() > 1e-3)).then_some(next)
}
