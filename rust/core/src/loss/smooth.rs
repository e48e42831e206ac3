//! Smooth losses in score space: gradient, and what a Hessian product needs to remember.
//!
//! With scores `s`, own class `y`, `t_k = +1` for the own class and -1 for the others (one score:
//! class 1 is the own class), temperature `tau` and margin `m`:
//!
//! | loss | value | gradient `a` | Hessian |
//! |---|---|---|---|
//! | softmax | `tau log sum_k exp((m 1[k != y] + s_k - s_y)/tau)` | `p - e_y` | `(diag p - p p^T)/tau` |
//! | softplus | `sum_k tau log(1 + exp((m - t_k s_k)/tau))` | `-t_k u_k` | `diag u(1-u)/tau` |
//! | huber | `sum_k H(t_k s_k)`, quadratic within `tau` of `m` | `-t_k u_k` | `diag 1/(2 tau)` or 0 |
//! | pairwise | `sum_{k != y} (g_k + sqrt(g_k^2 + tau^2))/2`, `g_k = m - s_y + s_k` | `u_k`, `-sum u` at y | see below |
//! | pairwise huber | `sum_{k != y} H(s_y - s_k)`, quadratic within `tau` of `m` | `u_k`, `-sum u` at y | see below |
//! | confidence | none | `m (p_top - 1/2)` in the first entry, `p` the softmax of `s/tau`: how sure a model is of its answers | 0 |
//! | correctness | none | `m (1[top = y] - 1/2)` in the first entry: how often it is right | 0 |
//! | margin distance | `d - tau/2`, within `tau` `d^2/(2 tau)`; `d` the distance of `s` to the scores with `s_y >= s_k + m` for all `k != y` | `q/max(d, tau)` | [`crate::loss::margin_distance`] |
//!
//! The Hessian of both pairwise losses is `sum_{k != y} h_k (e_k - e_y)(e_k - e_y)^T`, with
//! `0 <= h_k <= 1/(2 tau)`.
//!
//! Crammer and Singer, JMLR 2 (2001) and its softmax smoothing; Chapelle, Neural Computation 19
//! (2007) (Huber); Park, Choi and Lee, `NeurIPS` 2025, equation (9) (pairwise, "M3"); Pathak and Raj, PSDML
//! 2010, equations (4) and (6) (pairwise huber).

use crate::error::{Error, Result, in_range, require};
use crate::loss::margin_distance;
use crate::numeric::ROUNDOFF;
use crate::simd::{Real, Simd};

/// Kind of loss.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Softmax with a margin, over K >= 2 scores.
    Softmax,
    /// Smoothed hinge (logistic: tau 1, margin 0), one score or a sum over classes.
    Softplus,
    /// Huber hinge, one score or a sum over classes.
    Huber,
    /// Smoothed Weston-Watkins, over K >= 2 scores.
    Pairwise,
    /// Weston-Watkins with a Huber hinge for each pair, over K >= 2 scores.
    PairwiseHuber,
    /// Huber function of the distance to the scores that keep the margin, over K >= 2 scores.
    MarginDistance,
    /// No loss, but what sums calibrate probabilities by: how sure the largest score is.
    Confidence,
    /// And whether it is that of the own class.
    Correctness,
}

/// A loss with its parameters.
#[derive(Debug, Clone, Copy)]
pub struct SmoothLoss {
    /// Kind of loss.
    pub kind: Kind,
    /// `tau`.
    pub smoothing: f64,
    /// `m`.
    pub margin: f64,
    /// Number of scores.
    pub scores: usize,
}

impl SmoothLoss {
    /// The loss of the given name: `softmax_margin`, `softplus`, `huber`, `m3`, `huber_ww`,
    /// `margin_distance`, `confidence` or `correctness`.
    ///
    /// # Errors
    /// Unknown names, parameters out of range, too few scores.
    pub fn new(name: &str, scores: usize, smoothing: f64, margin: f64) -> Result<Self> {
        let (kind, least) = match name {
            "softmax_margin" => (Kind::Softmax, 2),
            "softplus" => (Kind::Softplus, 1),
            "huber" => (Kind::Huber, 1),
            "m3" => (Kind::Pairwise, 2),
            "huber_ww" => (Kind::PairwiseHuber, 2),
            "margin_distance" => (Kind::MarginDistance, 2),
            "confidence" => (Kind::Confidence, 1),
            "correctness" => (Kind::Correctness, 1),
            _ => {
                let accepted =
                    "expected softmax_margin, softplus, huber, m3, huber_ww or margin_distance";
                return Err(Error::invalid("loss", accepted));
            }
        };
        let message = format_args!("got {scores}, expected at least {least}");
        let right = (least..=u32::MAX as usize).contains(&scores);
        require(right, "n_scores", message)?;
        in_range("smoothing", smoothing, 1e-6..=1e6)?;
        let message = format_args!("got {margin:e}, expected 0 to 1e6");
        require((0.0..=1e6).contains(&margin), "margin", message)?;
        Ok(Self {
            kind,
            smoothing,
            margin,
            scores,
        })
    }

    /// Number of classes that labels may name.
    pub fn classes(&self) -> usize {
        self.scores.max(2)
    }

    /// Whether adding one number to all scores of a row changes nothing.
    pub fn ignores_common_shift(&self) -> bool {
        matches!(self.kind, Kind::Softmax | Kind::MarginDistance) || self.is_pairwise()
    }

    /// Whether the loss is a sum over the other classes of a function of the score difference.
    fn is_pairwise(&self) -> bool {
        matches!(self.kind, Kind::Pairwise | Kind::PairwiseHuber)
    }

    /// Largest eigenvalue of the Hessian in the scores.
    pub fn curvature(&self) -> f64 {
        match self.kind {
            Kind::Softmax | Kind::Huber => 0.5 / self.smoothing,
            Kind::Softplus => 0.25 / self.smoothing,
            Kind::Pairwise | Kind::PairwiseHuber => 0.5 * self.scores as f64 / self.smoothing,
            Kind::MarginDistance => 1.0 / self.smoothing,
            Kind::Confidence | Kind::Correctness => 0.0,
        }
    }

    /// Curvature along one score where all scores are equal, about.
    pub fn curvature_at_zero(&self) -> f64 {
        let others = (self.scores - 1) as f64 / self.scores as f64;
        match self.kind {
            Kind::Softmax => others / (self.scores as f64 * self.smoothing),
            Kind::Pairwise | Kind::PairwiseHuber => others / self.smoothing,
            _ => self.curvature(),
        }
    }

    /// Bound of the norm of a gradient in the scores.
    pub fn lipschitz(&self) -> f64 {
        let scores = self.scores as f64;
        match self.kind {
            Kind::Softmax => std::f64::consts::SQRT_2,
            Kind::Softplus | Kind::Huber => scores.sqrt(),
            Kind::Pairwise | Kind::PairwiseHuber => scores,
            Kind::MarginDistance => 1.0,
            Kind::Confidence | Kind::Correctness => 0.5 * self.margin,
        }
    }

    /// Factor that [`Self::gradient_row`] leaves out of the Hessian's state.
    fn state_scale(&self) -> f64 {
        if self.kind == Kind::Softmax {
            1.0 / self.smoothing
        } else {
            1.0
        }
    }

    /// Bound on the error of a computed gradient in score space whose scores have errors of norm
    /// at most `score_error` and entries of at most `largest_score`.
    ///
    /// The arguments of the exponentials and roots carry at most four roundings of numbers of size
    /// `2 largest_score + margin` (a further error of the scores); evaluation, normalisation and
    /// the sum over the other classes add at most `2 K + 32` roundings of numbers of size `L`. The
    /// projection of the margin distance has roundings of its own.
    pub fn gradient_error(&self, score_error: f64, largest_score: f64) -> f64 {
        let k = self.scores as f64;
        let argument = 4.0 * ROUNDOFF * (2.0 * largest_score + self.margin + self.smoothing);
        let largest = match self.kind {
            Kind::Softmax => 1.5,
            Kind::Confidence | Kind::Correctness => self.margin,
            _ => self.lipschitz(),
        };
        let inside = match self.kind {
            Kind::MarginDistance => {
                margin_distance::rounding(self.scores) * (2.0 * largest_score + self.margin)
            }
            _ => 0.0,
        };
        self.curvature() * (score_error + k.sqrt() * argument + inside)
            + largest * (2.0 * k + 32.0) * ROUNDOFF
    }

    /// Turns the scores of one row into the gradient, in place, and notes the curvature in `state`.
    ///
    /// Both slices may be longer than the number of scores; the rest is set to zero.
    #[inline(always)]
    pub fn gradient_row<T: Real>(&self, label: usize, row: &mut [T], state: &mut [f32]) {
        let (scores, padding) = row.split_at_mut(self.scores);
        let (state, state_padding) = state.split_at_mut(self.scores);
        padding.fill(T::default());
        state_padding.fill(0.0);
        match self.kind {
            Kind::Softmax => self.softmax(label, scores, state),
            Kind::Softplus => self.separable(label, scores, state, |z| {
                // Both forms keep the small one of u and 1 - u accurate.
                let e = (-z.abs()).exp();
                let u = if z >= 0.0 {
                    1.0 / (1.0 + e)
                } else {
                    e / (1.0 + e)
                };
                (u, e / ((1.0 + e) * (1.0 + e) * self.smoothing))
            }),
            Kind::Huber => self.separable(label, scores, state, |z| self.huber(z)),
            Kind::Pairwise => {
                let square = self.smoothing * self.smoothing;
                self.pairwise(label, scores, state, |g| {
                    let length = (g * g + square).sqrt();
                    // 1 + g/length without cancellation for negative g.
                    let u = if g >= 0.0 {
                        0.5 * (1.0 + g / length)
                    } else {
                        0.5 * square / (length * (length - g))
                    };
                    (u, 0.5 * square / (length * length * length))
                });
            }
            Kind::PairwiseHuber => {
                let inverse = 1.0 / self.smoothing;
                self.pairwise(label, scores, state, |g| self.huber(g * inverse));
            }
            Kind::MarginDistance => {
                margin_distance::gradient(label, scores, state, self.margin, self.smoothing);
            }
            Kind::Confidence | Kind::Correctness => self.answer(label, scores, state),
        }
    }

    /// Softmax probability of the first largest score, or whether that is of the own class.
    fn answer<T: Real>(&self, label: usize, scores: &mut [T], state: &mut [f32]) {
        // The one score of two classes is that of the second; the first has 0.
        let first = if self.scores == 1 { 0.0 } else { f64::MIN };
        let (mut top, mut best) = (0, first);
        for (k, s) in scores.iter().enumerate() {
            if s.wide() > best {
                (top, best) = (k + usize::from(self.scores == 1), s.wide());
            }
        }
        let weight = |s: f64| ((s - best) / self.smoothing).exp();
        let total = weight(first) + scores.iter().map(|s| weight(s.wide())).sum::<f64>();
        let share = if self.kind == Kind::Confidence {
            1.0 / total
        } else {
            f64::from(u8::from(top == label))
        };
        scores.fill(T::default());
        state.fill(0.0);
        scores[0] = T::near(self.margin * (share - 0.5));
    }

    /// Slope and curvature of the Huber hinge at a distance of `z` half widths below its margin.
    #[inline(always)]
    fn huber(&self, z: f64) -> (f64, f64) {
        let u = 0.5 * (z + 1.0);
        let inside = u > 0.0 && u < 1.0;
        let curvature = if inside { 0.5 / self.smoothing } else { 0.0 };
        (u.clamp(0.0, 1.0), curvature)
    }

    #[inline(always)]
    fn softmax<T: Real>(&self, label: usize, scores: &mut [T], state: &mut [f32]) {
        let inverse = 1.0 / self.smoothing;
        let own = scores[label].wide();
        // Other classes only: with the own one among them, a margin of a thousand smoothings
        // would leave no weight that does not underflow.
        let others = scores[..label].iter().chain(&scores[label + 1..]);
        let rival = others.fold(f64::MIN, |top, s| top.max(s.wide()));
        let top = (self.margin + (rival - own)).max(0.0);
        let own_weight = (-top * inverse).exp();
        let mut total = own_weight;
        for (k, s) in scores.iter_mut().enumerate() {
            let weight = if k == label {
                own_weight
            } else {
                let weight = ((self.margin + (s.wide() - own) - top) * inverse).exp();
                total += weight;
                weight
            };
            *s = T::near(weight);
        }
        let scale = 1.0 / total;
        let mut others = 0.0;
        for (k, (s, p)) in scores.iter_mut().zip(state).enumerate() {
            let share = s.wide() * scale;
            *p = share as f32;
            if k != label {
                others += share;
            }
            *s = T::near(share);
        }
        scores[label] = T::near(-others);
    }

    /// `part((m - t s)/tau)` gives `(u, curvature)`.
    #[inline(always)]
    fn separable<T: Real>(
        &self,
        label: usize,
        scores: &mut [T],
        state: &mut [f32],
        part: impl Fn(f64) -> (f64, f64),
    ) {
        let inverse = 1.0 / self.smoothing;
        let own = if self.scores == 1 { label == 1 } else { false };
        for (k, (s, h)) in scores.iter_mut().zip(state).enumerate() {
            let sign = if own || (self.scores > 1 && k == label) {
                1.0
            } else {
                -1.0
            };
            let (u, curvature) = part((self.margin - sign * s.wide()) * inverse);
            *s = T::near(-sign * u);
            *h = curvature as f32;
        }
    }

    /// `part(m - s_y + s_k)` gives `(u_k, h_k)`.
    #[inline(always)]
    fn pairwise<T: Real>(
        &self,
        label: usize,
        scores: &mut [T],
        state: &mut [f32],
        part: impl Fn(f64) -> (f64, f64),
    ) {
        let own = scores[label].wide();
        let mut sum = 0.0;
        for (k, (s, h)) in scores.iter_mut().zip(state).enumerate() {
            if k == label {
                *h = 0.0;
                continue;
            }
            let (u, curvature) = part(self.margin + (s.wide() - own));
            *h = curvature as f32;
            sum += u;
            *s = T::near(u);
        }
        scores[label] = T::near(-sum);
    }

    /// Turns the scores `d` of a direction into the Hessian's product with them, in place.
    #[inline(always)]
    pub fn hessian_row<S: Simd>(&self, simd: S, label: usize, row: &mut [f32], state: &[f32]) {
        let shift = match self.kind {
            Kind::Softmax => dot(simd, row, state),
            Kind::Pairwise | Kind::PairwiseHuber => row[label],
            Kind::Softplus | Kind::Huber | Kind::Confidence | Kind::Correctness => 0.0,
            Kind::MarginDistance => {
                return margin_distance::product(row, state, self.smoothing as f32);
            }
        };
        if let ([d], [h]) = (&mut *row, state) {
            *d = (*d - shift) * h * self.state_scale() as f32;
            return;
        }
        let minus = f32::splat(simd, -shift);
        let scale = f32::splat(simd, self.state_scale() as f32);
        let zero = f32::splat(simd, 0.0);
        let (row_whole, row_rest) = f32::vectors_mut::<S>(row);
        let (state_whole, state_rest) = f32::vectors::<S>(state);
        for (d, h) in row_whole.iter_mut().zip(state_whole) {
            let weighted = f32::fma(simd, f32::add(simd, *d, minus), *h, zero);
            *d = f32::fma(simd, weighted, scale, zero);
        }
        if !row_rest.is_empty() {
            let d = f32::load_part(simd, row_rest);
            let h = f32::load_part(simd, state_rest);
            let weighted = f32::fma(simd, f32::add(simd, d, minus), h, zero);
            f32::store_part(simd, row_rest, f32::fma(simd, weighted, scale, zero));
        }
        if self.is_pairwise() {
            row[label] = -row.iter().sum::<f32>();
        }
    }
}

/// Inner product of two rows of the same length.
#[inline(always)]
fn dot<S: Simd>(simd: S, a: &[f32], b: &[f32]) -> f32 {
    let (a, a_rest) = f32::vectors::<S>(a);
    let (b, b_rest) = f32::vectors::<S>(b);
    let mut sum = f32::splat(simd, 0.0);
    for (a, b) in a.iter().zip(b) {
        sum = f32::fma(simd, *a, *b, sum);
    }
    if !a_rest.is_empty() {
        let a = f32::load_part(simd, a_rest);
        sum = f32::fma(simd, a, f32::load_part(simd, b_rest), sum);
    }
    f32::sum(simd, sum)
}
