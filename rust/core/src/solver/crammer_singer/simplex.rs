//! Euclidean projection onto the scaled simplex, the exact sub-problem of one row.

use crate::error::Result;
use crate::runtime::memory::filled;
use crate::simd::Real;

/// Entries looked at together, without branches.
pub const LANES: usize = 8;

/// Classes from which they are: with fewer, numbers just written one by one are not yet there to be
/// read together.
const MANY: usize = LANES + 1;

/// Room for a number of each class: whole chunks where they are many. The numbers that belong to no
/// class are below all.
///
/// # Errors
/// No memory.
pub fn room(classes: usize) -> Result<Vec<f64>> {
    filled(roomy(classes), f64::MIN)
}

/// The length of a [`room`].
pub fn roomy(classes: usize) -> usize {
    if classes < MANY {
        classes
    } else {
        classes.next_multiple_of(LANES)
    }
}

fn higher(a: f64, b: f64) -> f64 {
    if b > a { b } else { a }
}

/// The largest entry of each lane, then of all.
#[inline(always)]
fn top(chunks: &[[f64; LANES]]) -> f64 {
    let mut tops = [f64::NEG_INFINITY; LANES];
    for chunk in chunks {
        for lane in 0..LANES {
            tops[lane] = higher(tops[lane], chunk[lane]);
        }
    }
    for half in [4, 2, 1] {
        for lane in 0..half {
            tops[lane] = higher(tops[lane], tops[lane + half]);
        }
    }
    tops[0]
}

/// The first place of the largest entry; 0 where no class has a number, as scores of tiny rows can
/// overflow in single precision.
#[inline(always)]
fn place(chunks: &[[f64; LANES]], entry: f64) -> usize {
    if entry <= f64::MIN {
        return 0;
    }
    for (first, chunk) in (0..).step_by(LANES).zip(chunks) {
        let mut found = 0_u32;
        for lane in 0..LANES {
            found |= u32::from(chunk[lane] == entry) << lane;
        }
        if found != 0 {
            return first + found.trailing_zeros() as usize;
        }
    }
    0
}

/// Class of the largest `G_k`, its value, and the second largest value, from the scores; `gradient`,
/// a [`room`], takes `G`.
#[inline(always)]
pub fn leading<T: Real>(scores: &[T], own: usize, gradient: &mut [f64]) -> (usize, f64, f64) {
    for (gradient, score) in gradient.iter_mut().zip(scores) {
        *gradient = score.wide();
    }
    gradient[own] -= 1.0;
    if gradient.len() < MANY {
        let (mut best, mut top, mut second) = (0, f64::NEG_INFINITY, f64::NEG_INFINITY);
        for (k, g) in gradient.iter().enumerate() {
            if *g > top {
                (best, top, second) = (k, *g, top);
            } else if *g > second {
                second = *g;
            }
        }
        return (best, top, second);
    }
    let (chunks, _) = gradient.as_chunks::<LANES>();
    let (mut tops, mut seconds) = ([f64::MIN; LANES], [f64::MIN; LANES]);
    let below = |a: f64, b: f64| if b > a { a } else { b };
    for chunk in chunks {
        for lane in 0..LANES {
            seconds[lane] = higher(seconds[lane], below(tops[lane], chunk[lane]));
            tops[lane] = higher(tops[lane], chunk[lane]);
        }
    }
    for half in [4, 2, 1] {
        for lane in 0..half {
            let other = lane + half;
            let second = higher(seconds[lane], seconds[other]);
            seconds[lane] = higher(second, below(tops[lane], tops[other]));
            tops[lane] = higher(tops[lane], tops[other]);
        }
    }
    (place(chunks, tops[0]), tops[0], seconds[0])
}

/// Projects `z`, a [`room`], in place onto `{c >= 0, sum c = total}`.
///
/// Returns the class `m` when the projection is the vertex `total * e_m`, which is then written
/// bit for bit: shrinking recognises vertices by equality.
#[inline(always)]
pub fn project(z: &mut [f64], total: f64) -> Option<usize> {
    if z.len() >= MANY {
        return project_many(z, total);
    }
    let mut best = 0;
    for k in 1..z.len() {
        if z[k] > z[best] {
            best = k;
        }
    }
    let top = z[best];
    // Relative to the largest entry everything that matters lies in [-total, 0]: the rounding of
    // what follows is relative to `total`, however large the scores are.
    let mut sum = 0.0;
    let mut count = 0.0;
    for entry in z.iter_mut() {
        *entry -= top;
        let inside = *entry > -total;
        sum += if inside { *entry } else { 0.0 };
        count += if inside { 1.0 } else { 0.0 };
    }
    if count == 1.0 {
        z.fill(0.0);
        z[best] = total;
        return Some(best);
    }
    // The threshold only grows: each round drops entries below it, at most K rounds.
    let mut threshold = (sum - total) / count;
    loop {
        let (mut kept, mut kept_sum) = (0.0, 0.0);
        for entry in z.iter() {
            let inside = *entry > threshold;
            kept_sum += if inside { *entry } else { 0.0 };
            kept += if inside { 1.0 } else { 0.0 };
        }
        // Rounding can bring a dropped entry back: only a smaller set goes on, else two thresholds
        // could alternate for ever.
        if kept >= count || kept == 0.0 {
            break;
        }
        count = kept;
        threshold = (kept_sum - total) / kept;
    }
    let mut positive = 0;
    let mut rest = 0.0;
    for (k, entry) in z.iter_mut().enumerate() {
        *entry = (*entry - threshold).max(0.0);
        positive += usize::from(*entry > 0.0);
        rest += if k == best { 0.0 } else { *entry };
    }
    if positive <= 1 {
        z.fill(0.0);
        z[best] = total;
        return Some(best);
    }
    z[best] = (total - rest).max(0.0);
    None
}

/// [`project`] for many classes.
#[inline(always)]
fn project_many(z: &mut [f64], total: f64) -> Option<usize> {
    let (chunks, _) = z.as_chunks_mut::<LANES>();
    let top = top(chunks);
    let best = place(chunks, top);
    // Relative to the largest entry everything that matters lies in [-total, 0]: the rounding of
    // what follows is relative to `total`, however large the scores are.
    for chunk in chunks.iter_mut() {
        for entry in chunk {
            *entry -= top;
        }
    }
    let (mut count, sum) = above(chunks, -total);
    if count > 1.0 {
        // The threshold only grows: each round drops entries below it, at most K rounds.
        let mut threshold = (sum - total) / count;
        loop {
            let (kept, kept_sum) = above(chunks, threshold);
            // Rounding can bring a dropped entry back: only a smaller set goes on, else two
            // thresholds could alternate for ever.
            if kept >= count || kept == 0.0 {
                break;
            }
            count = kept;
            threshold = (kept_sum - total) / kept;
        }
        // The largest gets what the others leave.
        chunks[best / LANES][best % LANES] = threshold;
        for chunk in chunks.iter_mut() {
            for entry in chunk {
                *entry = higher(*entry - threshold, 0.0);
            }
        }
        let (others, rest) = above(chunks, 0.0);
        if others > 0.0 {
            z[best] = higher(total - rest, 0.0);
            return None;
        }
    }
    z.fill(0.0);
    z[best] = total;
    Some(best)
}

/// Number and sum of the entries above `least`.
#[inline(always)]
fn above(chunks: &[[f64; LANES]], least: f64) -> (f64, f64) {
    let (mut counts, mut sums) = ([0.0; LANES], [0.0; LANES]);
    for chunk in chunks {
        for lane in 0..LANES {
            let inside = chunk[lane] > least;
            counts[lane] += if inside { 1.0 } else { 0.0 };
            sums[lane] += if inside { chunk[lane] } else { 0.0 };
        }
    }
    for half in [4, 2, 1] {
        for lane in 0..half {
            counts[lane] += counts[lane + half];
            sums[lane] += sums[lane + half];
        }
    }
    (counts[0], sums[0])
}

/// Calls `visit` with every place whose entry is above `least`, in order.
#[inline(always)]
pub fn each_above(z: &[f64], least: f64, mut visit: impl FnMut(usize)) {
    for (first, chunk) in (0..).step_by(LANES).zip(z.chunks(LANES)) {
        if chunk.iter().filter(|x| **x > least).count() > 0 {
            for (lane, x) in chunk.iter().enumerate() {
                if *x > least {
                    visit(first + lane);
                }
            }
        }
    }
}

/// The largest entry and its first index.
#[inline(always)]
pub fn largest(z: &[f64]) -> (f64, usize) {
    let mut tops = [f64::NEG_INFINITY; LANES];
    let (chunks, rest) = z.as_chunks::<LANES>();
    for chunk in chunks {
        for (top, x) in tops.iter_mut().zip(chunk) {
            *top = if *x > *top { *x } else { *top };
        }
    }
    let larger = |a: f64, b: &f64| if *b > a { *b } else { a };
    let top = tops.iter().chain(rest).fold(f64::NEG_INFINITY, larger);
    (top, z.iter().position(|x| *x == top).unwrap_or(0))
}

/// Puts a row that sums to `cost` up to rounding back on the simplex, zeros kept; a lone positive
/// entry becomes the exact vertex.
pub fn settle(c: &mut [f64], cost: f64) {
    let (_, best) = largest(c);
    let rest: f64 = (0..c.len()).filter(|k| *k != best).map(|k| c[k]).sum();
    c[best] = (cost - rest).max(0.0);
}
