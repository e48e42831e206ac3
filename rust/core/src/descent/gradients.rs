//! Clipped gradients in score space, for up to [`LEAF`] records at a time.
//!
//! Scores come class by class, [`LEAF`] numbers a class, and are replaced by the coefficients of the
//! records' contributions. In single precision every loop runs along the records and compiles to
//! vectors; what happens to one record never depends on its neighbours.

use crate::descent::clipping::Clip;
use crate::descent::leaves::LEAF;
use crate::descent::passes::{Precision, Rule};
use crate::loss::smooth::{Kind, SmoothLoss};
use crate::rows::clip::towards_zero;

/// One number for each record of a leaf.
pub type Lanes = [f32; LEAF];

/// Facts about the records of a leaf besides their scores.
#[derive(Debug, Clone, Copy)]
pub struct Members<'m> {
    /// Classes.
    pub label: &'m [u32],
    /// Bounds of the norms of `u`.
    pub norm: &'m Lanes,
}

/// `exp(x)` for `x <= 0`, to a few units in the last place; 0 below about -87.
///
/// `2^n` times a polynomial on half a binade either side of 0; branch-free, for vectors.
#[inline(always)]
pub(crate) fn exp_down(x: f32) -> f32 {
    /// Adding it leaves the nearest integer in the low bits.
    const MAGIC: f32 = 12_582_912.0;
    let y = x.max(-87.3);
    let shifted = y * std::f32::consts::LOG2_E + MAGIC;
    let n = shifted - MAGIC;
    // ln 2 in two parts, the first exact in a product with n.
    let r = (y - n * 0.693_359_4) - n * -2.121_944_4e-4;
    let p = 1.987_569_1e-4;
    let p = p * r + 1.398_199_9e-3;
    let p = p * r + 8.333_452e-3;
    let p = p * r + 4.166_579_6e-2;
    let p = p * r + 1.666_666_5e-1;
    let p = p * r + 0.5;
    let value = p * r * r + r + 1.0;
    // The integer from the low bits: a conversion that saturates has no vector form.
    let exponent = shifted.to_bits().wrapping_sub(MAGIC.to_bits());
    let power = f32::from_bits(exponent.wrapping_add(127) << 23);
    if x < -87.3 { 0.0 } else { value * power }
}

/// Rewrites the scores in single precision. `scores` has one array a class.
#[inline(always)]
pub fn single(
    rule: &Rule,
    members: Members<'_>,
    scores: &mut [Lanes],
    room: (&mut [f32], &mut [f32]),
) {
    let loss = &rule.loss;
    match loss.kind {
        Kind::Softmax => softmax(loss, members.label, scores),
        Kind::Softplus | Kind::Huber => each_score(loss, members.label, scores),
        Kind::Pairwise | Kind::PairwiseHuber => pairwise(loss, members.label, scores),
        Kind::MarginDistance | Kind::Confidence | Kind::Correctness => {
            each_record(loss, members.label, scores, room, |_, _| ());
        }
    }
    clip(rule.clip, members, scores);
}

/// `1/(1 + exp(-z))`.
#[inline(always)]
fn logistic(z: f32) -> f32 {
    let e = exp_down(-z.abs());
    if z >= 0.0 {
        1.0 / (1.0 + e)
    } else {
        e / (1.0 + e)
    }
}

/// Slope of the smoothed hinge at a distance of `g` below its margin.
#[inline(always)]
fn smooth_hinge(g: f32, square: f32) -> f32 {
    let length = (g * g + square).sqrt();
    let near = 0.5 * (1.0 + g / length);
    let far = 0.5 * square / (length * (length - g));
    if g >= 0.0 { near } else { far }
}

/// Slope of the Huber hinge at a distance of `z` half widths below its margin.
#[inline(always)]
fn huber(z: f32) -> f32 {
    (0.5 * (z + 1.0)).clamp(0.0, 1.0)
}

#[inline(always)]
fn softmax(loss: &SmoothLoss, label: &[u32], scores: &mut [Lanes]) {
    let (margin, inverse) = (loss.margin as f32, 1.0 / loss.smoothing as f32);
    let mut own: Lanes = [0.0; LEAF];
    for (i, y) in label.iter().enumerate() {
        let s = &mut scores[*y as usize][i];
        // The own class has no margin: less for it is more for the others.
        *s -= margin;
        own[i] = *s;
    }
    let mut top = [f32::MIN; LEAF];
    for line in scores.iter() {
        for i in 0..LEAF {
            top[i] = if line[i] > top[i] { line[i] } else { top[i] };
        }
    }
    for line in scores.iter_mut() {
        for i in 0..LEAF {
            line[i] = exp_down((line[i] - top[i]) * inverse);
        }
    }
    for i in 0..LEAF {
        own[i] = exp_down((own[i] - top[i]) * inverse);
    }
    for (i, y) in label.iter().enumerate() {
        scores[*y as usize][i] = 0.0;
    }
    let mut others: Lanes = [0.0; LEAF];
    for line in scores.iter() {
        for i in 0..LEAF {
            others[i] += line[i];
        }
    }
    let mut scale: Lanes = [0.0; LEAF];
    for i in 0..LEAF {
        scale[i] = 1.0 / (others[i] + own[i]);
    }
    for line in scores.iter_mut() {
        for i in 0..LEAF {
            line[i] *= scale[i];
        }
    }
    for (i, y) in label.iter().enumerate() {
        scores[*y as usize][i] = -others[i] * scale[i];
    }
}

/// Slopes of the parts of a loss at these distances below their margins.
#[inline(always)]
fn slopes(loss: &SmoothLoss, line: &mut Lanes) {
    let inverse = 1.0 / loss.smoothing as f32;
    let square = (loss.smoothing * loss.smoothing) as f32;
    // No function as an argument: it would not be compiled into the loop.
    match loss.kind {
        Kind::Huber | Kind::PairwiseHuber => {
            for i in 0..LEAF {
                line[i] = huber(line[i] * inverse);
            }
        }
        Kind::Softplus => {
            for i in 0..LEAF {
                line[i] = logistic(line[i] * inverse);
            }
        }
        _ => {
            for i in 0..LEAF {
                line[i] = smooth_hinge(line[i], square);
            }
        }
    }
}

/// Losses that are sums over scores: `a_k = -t_k part((m - t_k s_k)/tau)`.
#[inline(always)]
fn each_score(loss: &SmoothLoss, label: &[u32], scores: &mut [Lanes]) {
    let (margin, single) = (loss.margin as f32, scores.len() == 1);
    for (k, line) in scores.iter_mut().enumerate() {
        let own = if single { 1 } else { k as u32 };
        let mut sign: Lanes = [-1.0; LEAF];
        for (sign, y) in sign.iter_mut().zip(label) {
            *sign = if *y == own { 1.0 } else { -1.0 };
        }
        for i in 0..LEAF {
            line[i] = margin - sign[i] * line[i];
        }
        slopes(loss, line);
        for i in 0..LEAF {
            line[i] *= -sign[i];
        }
    }
}

/// Losses that are sums over the other classes: `a_k = part(m - s_y + s_k)`.
#[inline(always)]
fn pairwise(loss: &SmoothLoss, label: &[u32], scores: &mut [Lanes]) {
    let margin = loss.margin as f32;
    let mut own: Lanes = [0.0; LEAF];
    for (i, y) in label.iter().enumerate() {
        own[i] = scores[*y as usize][i];
    }
    for line in scores.iter_mut() {
        for i in 0..LEAF {
            line[i] = margin + (line[i] - own[i]);
        }
        slopes(loss, line);
    }
    for (i, y) in label.iter().enumerate() {
        scores[*y as usize][i] = 0.0;
    }
    let mut sum: Lanes = [0.0; LEAF];
    for line in scores.iter() {
        for i in 0..LEAF {
            sum[i] += line[i];
        }
    }
    for (i, y) in label.iter().enumerate() {
        scores[*y as usize][i] = -sum[i];
    }
}

/// Unit roundoff of single precision.
const ROUNDOFF: f32 = f32::EPSILON / 2.0;

/// `a` becomes `min(1, bound/(||a|| ||r||)) rho a`, a little less where it clips.
///
/// Norms are sums of non-negative terms, so their relative error is at most that of
/// `classes + 16` roundings, which the margin covers twice; a norm that is not finite clips to 0.
#[inline(always)]
fn clip(clip: Clip, members: Members<'_>, scores: &mut [Lanes]) {
    let margin = 2.0 * (scores.len() as f32 + 16.0) * ROUNDOFF;
    let (rho, s) = (clip.row_scale as f32, clip.intercept as f32);
    let bound = towards_zero(clip.bound) * (1.0 - margin);
    let mut square: Lanes = [0.0; LEAF];
    for line in scores.iter() {
        for i in 0..LEAF {
            square[i] += line[i] * line[i];
        }
    }
    let mut factor: Lanes = [0.0; LEAF];
    for i in 0..LEAF {
        let norm = members.norm[i];
        let length = (square[i] * (norm * norm + s * s)).sqrt() * rho;
        let clipped = bound / length * rho;
        factor[i] = if length <= bound {
            rho * (1.0 - ROUNDOFF)
        } else {
            clipped
        };
    }
    for line in scores.iter_mut() {
        for i in 0..LEAF {
            line[i] *= factor[i];
        }
    }
}

/// Rewrites the scores record by record, in any precision.
#[inline(always)]
pub fn one_by_one<T: Precision>(
    rule: &Rule,
    members: Members<'_>,
    scores: &mut [[T; LEAF]],
    room: (&mut [T], &mut [f32]),
) {
    each_record(&rule.loss, members.label, scores, room, |i, row| {
        let square = row.iter().map(|a| a.wide() * a.wide()).sum();
        let factor = rule.clip.factor(square, members.norm[i]);
        for a in row {
            *a = T::near(a.wide() * factor);
        }
    });
}

/// The gradients of the loss record by record, each ended by `end(record, gradient)`.
#[inline(always)]
fn each_record<T: Precision>(
    loss: &SmoothLoss,
    label: &[u32],
    scores: &mut [[T; LEAF]],
    (row, state): (&mut [T], &mut [f32]),
    end: impl Fn(usize, &mut [T]),
) {
    for (i, y) in label.iter().enumerate() {
        for (a, line) in row.iter_mut().zip(scores.iter()) {
            *a = line[i];
        }
        loss.gradient_row(*y as usize, row, state);
        end(i, row);
        for (a, line) in row.iter().zip(scores.iter_mut()) {
            line[i] = *a;
        }
    }
}
