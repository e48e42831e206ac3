//! The law of `X = min(cap, sum over the other competitors)`, given the largest score.
//!
//! Given the largest `w` of the competitors' scores, the gaps `g` of the others are independent
//! with `P(g > x) = Phi(w - x) / Phi(w)`. For every `c <= 1`, `sup_q` of the bound is at most
//! `T c^2 + sum (2 T (1 - c) - g)_+^2 / (4 T)`, and at most `sum (2 T - g)_+^2 / (8 T)`: a constant
//! plus independent terms with an atom at 0 ([`Form`]). Terms are rounded up to a grid; their sum
//! is convolved after exponential tilting, so that what matters for the tail keeps its digits.

use realfft::RealFftPlanner;

use crate::accounting::objective::joint::convolve::Convolver;
use crate::accounting::objective::joint::tail::{cdf, density, upper_tail};

/// Sixteen nodes and weights of Gauss and Legendre on [-1, 1], the positive half.
const GAUSS: [[f64; 2]; 8] = [
    [0.095_012_509_837_637_44, 0.189_450_610_455_068_5],
    [0.281_603_550_779_258_9, 0.182_603_415_044_923_6],
    [0.458_016_777_657_227_4, 0.169_156_519_395_002_54],
    [0.617_876_244_402_643_7, 0.149_595_988_816_576_73],
    [0.755_404_408_355_003, 0.124_628_971_255_533_87],
    [0.865_631_202_387_831_7, 0.095_158_511_682_492_78],
    [0.944_575_023_073_232_6, 0.062_253_523_938_647_89],
    [0.989_400_934_991_649_9, 0.027_152_459_411_754_095],
];

/// Shifts `c` that are tried: multiples of this.
const SHIFT_STEP: f64 = 0.04;
const SHIFTS: usize = 25;

/// Largest logarithm of a weight; larger ones make the cap the better bound.
const LARGEST_LOG: f64 = 600.0;

/// Bound on the relative error of the probability of one grid cell.
pub(super) const CELL_ERROR: f64 = 1e-11;

/// One way to bound `X` by a constant and a sum of independent terms `(reach - g)_+^2 / divisor`.
#[derive(Debug, Clone, Copy)]
struct Form {
    constant: f64,
    reach: f64,
    divisor: f64,
}

impl Form {
    fn shifted(scale: f64, index: usize) -> Self {
        let c = SHIFT_STEP * index as f64;
        Self {
            constant: scale * c * c,
            reach: 2.0 * scale * (1.0 - c),
            divisor: 4.0 * scale,
        }
    }

    fn plain(scale: f64) -> Self {
        Self {
            constant: 0.0,
            reach: 2.0 * scale,
            divisor: 8.0 * scale,
        }
    }

    /// About `ln E exp(rate X)`; it only guides the choice.
    fn log_moment(&self, w: f64, rate: f64, others: f64) -> f64 {
        let end = self.reach.min((w + 6.0).max(0.0));
        let half = 0.5 * end;
        let excess: f64 = (GAUSS.iter())
            .flat_map(|&[node, weight]| {
                [(half * (1.0 - node), weight), (half * (1.0 + node), weight)]
            })
            .map(|(g, weight)| {
                let rest = self.reach - g;
                let gain = libm::expm1((rate * rest * rest / self.divisor).min(LARGEST_LOG));
                weight * gain * density(w - g)
            })
            .sum();
        rate * self.constant + others * libm::log1p(excess * half / cdf(w))
    }
}

/// Computes the law for one `T` and one grid.
pub(super) struct Spread {
    /// Competitors other than the largest.
    others: usize,
    scale: f64,
    step: f64,
    /// `cap` in grid steps, rounded up.
    cap: usize,
    convolver: Convolver,
    /// Index of the shift chosen last.
    shift: usize,
    /// Probabilities of one term, tilted in place.
    term: Vec<f64>,
    /// The result: upper bounds on `P(X = j step)`, `j = 0..=cap`.
    law: Vec<f64>,
}

impl Spread {
    /// `scale` is `T > 0`, `step` the grid.
    pub(super) fn new(
        planner: &mut RealFftPlanner<f64>,
        others: usize,
        scale: f64,
        step: f64,
    ) -> Self {
        let n = others as f64 + 1.0;
        let cap = (scale * (1.0 - 1.0 / n) / step).ceil().max(1.0) as usize;
        Self {
            others,
            scale,
            step,
            cap,
            convolver: Convolver::new(planner, cap),
            shift: 8,
            term: Vec::new(),
            law: vec![0.0; cap + 1],
        }
    }

    pub(super) fn cap(&self) -> usize {
        self.cap
    }

    /// The form with the least moment, by descent from the shift of the last call.
    fn best_form(&mut self, w: f64, rate: f64) -> Form {
        let others = self.others as f64;
        let moment = |index: usize| Form::shifted(self.scale, index).log_moment(w, rate, others);
        let mut best = (moment(self.shift), self.shift);
        for up in [true, false] {
            let from = best.1;
            loop {
                let next = if up {
                    best.1 + 1
                } else {
                    best.1.wrapping_sub(1)
                };
                if next >= SHIFTS {
                    break;
                }
                let value = moment(next);
                if value >= best.0 {
                    break;
                }
                best = (value, next);
            }
            if best.1 != from {
                break;
            }
        }
        self.shift = best.1;
        let plain = Form::plain(self.scale);
        if plain.log_moment(w, rate, others) <= best.0 {
            plain
        } else {
            Form::shifted(self.scale, best.1)
        }
    }

    /// Probabilities of one term rounded up to the grid, into `term`.
    fn fill_term(&mut self, form: &Form, w: f64) {
        let top = form.reach * form.reach / form.divisor;
        let last = (top / self.step).ceil().max(0.0) as usize;
        let whole = cdf(w);
        let place = |j: usize| {
            let reach = (form.divisor * j as f64 * self.step).sqrt();
            w - form.reach + reach.min(form.reach)
        };
        // The smaller of the two tails, so that differences keep their digits.
        let tail = |x: f64| if x <= 0.0 { cdf(x) } else { upper_tail(x) };
        self.term.clear();
        let mut x = place(0);
        let mut value = tail(x);
        self.term.push(cdf(x) / whole);
        for j in 1..=last {
            let next = if j == last { w } else { place(j) };
            let next_value = tail(next);
            let mass = match (x <= 0.0, next <= 0.0) {
                (true, true) => next_value - value,
                (true, false) => 1.0 - next_value - value,
                _ => value - next_value,
            };
            self.term.push(mass.max(0.0) / whole);
            (x, value) = (next, next_value);
        }
    }

    /// All mass at the cap: what is known without computing.
    fn capped(&mut self) -> &[f64] {
        self.law.fill(0.0);
        self.law[self.cap] = 1.0;
        &self.law
    }

    /// Upper bounds on `P(X = j step)` given the largest score `w`, for `j = 0..=cap`; they are
    /// meant to be summed against something that grows about as `exp(rate X)`.
    pub(super) fn at(&mut self, w: f64, rate: f64) -> &[f64] {
        let form = self.best_form(w, rate);
        self.by_form(&form, w, rate)
    }

    /// The last result of [`Spread::at`]; it also bounds the mean of every growing function for any
    /// larger `w`.
    pub(super) fn last(&self) -> &[f64] {
        &self.law
    }

    /// The law by one form. The sum of the tilted probabilities below the cap is known; what is
    /// missing lies at the cap or above, where the tilt can be undone by its least factor.
    fn by_form(&mut self, form: &Form, w: f64, rate: f64) -> &[f64] {
        let first = (form.constant / self.step).ceil() as usize;
        if first >= self.cap {
            return self.capped();
        }
        self.fill_term(form, w);
        tilt(&mut self.term, 0.0, rate * self.step);
        let total: f64 = self.term.iter().sum();
        let log_total = self.others as f64 * libm::log(total);
        if log_total.is_nan() || log_total > LARGEST_LOG {
            return self.capped();
        }
        let kept = self.cap - first;
        self.law.fill(0.0);
        let body = &mut self.law[first..self.cap];
        for (value, mass) in body.iter_mut().zip(&self.term) {
            *value = mass / total;
        }
        let added = self.convolver.power(body, self.others);
        let sum: f64 = body.iter().sum();
        let errors = added + 3.0 * CELL_ERROR * self.others as f64 + 1e-12;
        let missing = (1.0 - sum).max(0.0) + errors;
        tilt(body, log_total, -rate * self.step);
        let log_weight = log_total - rate * kept as f64 * self.step;
        self.law[self.cap] = (missing * libm::exp(log_weight)).min(1.0);
        &self.law
    }
}

/// Multiplies entry `j` by `exp(log_first + j slope)`.
fn tilt(values: &mut [f64], log_first: f64, slope: f64) {
    let ratio = libm::exp(slope);
    for (block, part) in values.chunks_mut(64).enumerate() {
        let mut factor = libm::exp(log_first + slope * (block * 64) as f64);
        for value in part {
            *value *= factor;
            factor *= ratio;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::accounting::objective::joint::model::tests::competitors_supremum;

    // Proof: joint_bound
    #[test]
    fn every_form_bounds_the_supremum() {
        for scale in [0.3, 1.0, 4.0] {
            for seed in 0..200_u32 {
                let gaps: Vec<f64> = (0..4)
                    .map(|k| 3.0 * f64::from((seed * 7919 + k * 104_729) % 1000) / 1000.0)
                    .collect();
                // One gap is 0.
                let scores: Vec<f64> = gaps.iter().map(|g| -g).chain([0.0]).collect();
                let truth = competitors_supremum(&scores, scale);
                assert!(truth <= scale * 0.8 + 1e-9);
                let sum = |form: &Form| {
                    let terms = gaps.iter().map(|g| (form.reach - g).max(0.0).powi(2));
                    form.constant + terms.sum::<f64>() / form.divisor
                };
                assert!(sum(&Form::plain(scale)) >= truth - 1e-9);
                for index in 0..SHIFTS {
                    assert!(sum(&Form::shifted(scale, index)) >= truth - 1e-9);
                }
            }
        }
    }

    /// The law of one form by plain sums, rounded up to the grid in the same way.
    fn plainly(form: &Form, w: f64, others: usize, step: f64, cap: usize) -> Vec<f64> {
        let below = |y: f64| {
            let place = (form.divisor * y).sqrt().min(form.reach);
            cdf(w - form.reach + place) / cdf(w)
        };
        let term: Vec<f64> = (0..=cap)
            .map(|j| {
                let y = step * j as f64;
                if j == 0 {
                    below(0.0)
                } else {
                    below(y) - below(y - step)
                }
            })
            .collect();
        let mut sum = vec![0.0; cap + 1];
        sum[0] = 1.0;
        for _ in 0..others {
            sum = (0..=cap)
                .map(|k| (0..=k).map(|i| sum[i] * term[k - i]).sum())
                .collect();
        }
        let first = (form.constant / step).ceil() as usize;
        let mut law = vec![0.0; cap + 1];
        law[first..cap].copy_from_slice(&sum[..cap - first]);
        law[cap] = 1.0 - law.iter().sum::<f64>();
        law
    }

    // Proof: joint_bound
    #[test]
    fn the_law_is_that_of_the_plain_sums_whatever_the_tilt() {
        let mut planner = RealFftPlanner::new();
        for (scale, others, w) in [(1.0, 4, 1.5), (0.3, 2, -1.0), (2.0, 8, 3.0)] {
            let step = scale / 250.0;
            for form in [Form::plain(scale), Form::shifted(scale, 5)] {
                for rate in [0.0, 1.0, 3.0] {
                    let mut spread = Spread::new(&mut planner, others, scale, step);
                    let cap = spread.cap();
                    let truth = plainly(&form, w, others, step, cap);
                    let law = spread.by_form(&form, w, rate);
                    let grown = |p: &[f64]| -> f64 {
                        let terms = p[..cap].iter().enumerate();
                        terms
                            .map(|(j, p)| p * libm::exp(rate * step * j as f64))
                            .sum()
                    };
                    assert!((0..cap).all(|j| law[j] >= truth[j] * (1.0 - 1e-9)));
                    let at_cap = law[cap] * libm::exp(rate * step * cap as f64);
                    let more = grown(law) - grown(&truth);
                    assert!(more.abs() < 1e-7 * (grown(law) + at_cap));
                    assert!(law[cap] >= truth[cap]);
                    assert!(rate > 0.0 || law[cap] <= truth[cap] + 1e-9);
                }
            }
        }
    }
}
