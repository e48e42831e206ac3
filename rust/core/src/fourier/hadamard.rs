//! The Hadamard transform, for lengths that are powers of two.
//!
//! Dropped: butterflies within 16 neighbours written out for the compiler, which made scalar code of
//! them (three transforms of 1,024 numbers took 9 microseconds in place of 2).

use crate::simd::{Real, Simd};

/// Side of the squares in which neighbours are exchanged.
const SIDE: usize = 16;
const SQUARE: usize = SIDE * SIDE;

/// `x <- P H x` with the Hadamard matrix H of entries 1 and -1 (Sylvester's order) and a permutation P
/// that depends on the length alone: within each 256 neighbours the two halves of the place's eight
/// bits are exchanged.
///
/// Butterflies of neighbours do not fit vectors. Seen as a square of 16 by 16, they become
/// butterflies of lines once the square is transposed; transposing it back would only undo P.
/// Every sum is taken in an order that depends on the length alone.
#[inline(always)]
pub(super) fn hadamard<S: Simd, T: Real>(simd: S, x: &mut [T]) {
    let p = x.len();
    if p < SQUARE {
        let mut half = 1;
        while half < p {
            for pair in x.chunks_exact_mut(2 * half) {
                let (a, b) = pair.split_at_mut(half);
                butterflies(simd, a, b);
            }
            half *= 2;
        }
        return;
    }
    let (squares, _) = x.as_chunks_mut::<SQUARE>();
    for square in squares {
        lines(simd, square);
        transpose(square);
        lines(simd, square);
    }
    let mut half = SQUARE;
    if (p / SQUARE).trailing_zeros() % 2 == 1 {
        for pair in x.chunks_exact_mut(2 * half) {
            let (a, b) = pair.split_at_mut(half);
            butterflies(simd, a, b);
        }
        half *= 2;
    }
    while half < p {
        for quad in x.chunks_exact_mut(4 * half) {
            double(simd, quad, half);
        }
        half *= 4;
    }
}

/// The place to which `hadamard` of length `p` moves entry `i` of `H x`.
pub(super) fn place(p: usize, i: usize) -> usize {
    if p < SQUARE {
        return i;
    }
    let within = i % SQUARE;
    i - within + within % SIDE * SIDE + within / SIDE
}

/// Butterflies between the lines of a square.
#[inline(always)]
fn lines<S: Simd, T: Real>(simd: S, square: &mut [T; SQUARE]) {
    for quad in square.chunks_exact_mut(4 * SIDE) {
        double(simd, quad, SIDE);
    }
    double(simd, square, 4 * SIDE);
}

#[inline(always)]
fn transpose<T: Real>(square: &mut [T; SQUARE]) {
    let old = *square;
    for i in 0..SIDE {
        for j in 0..SIDE {
            square[j * SIDE + i] = old[i * SIDE + j];
        }
    }
}

/// `(a, b) <- (a + b, a - b)`.
#[inline(always)]
fn butterflies<S: Simd, T: Real>(simd: S, a: &mut [T], b: &mut [T]) {
    let (a, a_rest) = T::vectors_mut::<S>(a);
    let (b, b_rest) = T::vectors_mut::<S>(b);
    for (a, b) in a.iter_mut().zip(b) {
        (*a, *b) = (T::add(simd, *a, *b), T::sub(simd, *a, *b));
    }
    for (a, b) in a_rest.iter_mut().zip(b_rest) {
        (*a, *b) = (T::plus(*a, *b), T::minus(*a, *b));
    }
}

/// Two stages at once: half the loads and stores. `half` is a multiple of 16.
#[inline(always)]
fn double<S: Simd, T: Real>(simd: S, quad: &mut [T], half: usize) {
    let (low, high) = quad.split_at_mut(2 * half);
    let ((a, b), (c, d)) = (low.split_at_mut(half), high.split_at_mut(half));
    let ((a, _), (b, _)) = (T::vectors_mut::<S>(a), T::vectors_mut::<S>(b));
    let ((c, _), (d, _)) = (T::vectors_mut::<S>(c), T::vectors_mut::<S>(d));
    for ((a, b), (c, d)) in a.iter_mut().zip(b).zip(c.iter_mut().zip(d)) {
        let (p, q) = (T::add(simd, *a, *b), T::sub(simd, *a, *b));
        let (r, s) = (T::add(simd, *c, *d), T::sub(simd, *c, *d));
        (*a, *c) = (T::add(simd, p, r), T::sub(simd, p, r));
        (*b, *d) = (T::add(simd, q, s), T::sub(simd, q, s));
    }
}

#[cfg(test)]
mod tests {
    use super::{hadamard, place};
    use crate::simd::{Kernel, Simd, dispatch};

    struct Transform<'x>(&'x mut [f64]);

    impl Kernel for Transform<'_> {
        type Output = ();
        fn run<S: Simd>(self, simd: S) {
            hadamard(simd, self.0);
        }
    }

    #[test]
    fn agrees_with_the_matrix() {
        for bits in 0..13 {
            let p = 1_usize << bits;
            let x: Vec<f64> = (0..p).map(|i| (i * i % 17) as f64 - 8.0).collect();
            let mut fast = x.clone();
            dispatch(Transform(&mut fast));
            for i in (0..p).step_by(1 + p / 64) {
                let sign = |j: usize| 1.0 - 2.0 * f64::from((i & j).count_ones() % 2);
                let exact: f64 = x.iter().enumerate().map(|(j, x)| sign(j) * x).sum();
                assert_eq!(fast[place(p, i)], exact);
            }
        }
    }
}
