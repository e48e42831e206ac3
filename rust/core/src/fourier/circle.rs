//! Cosines and sines of angles in turns, a vector at a time.
//!
//! With r the turns less the nearest integer (exact), and s, c the sine and cosine of `pi r`, an angle
//! of at most a right one, `cos = 1 - 2 s^2` and `sin = 2 s c`. Angles too large for the precision to
//! tell their fraction count as whole turns.

use crate::simd::{Real, Simd};

/// Precision of the angles.
pub trait Phase: Real {
    /// Coefficients of `sin(pi r)/r` and of `cos(pi r)` in `r^2`, highest first.
    const SERIES: (&'static [f64], &'static [f64]);
    /// Replaces turns by their distance to the nearest integer, with sign; what is no number or too
    /// large by 0.
    fn reduce(turns: &mut [Self]);
}

/// `(-1)^k pi^(2k)/(2k)!` and `(-1)^k pi^(2k+1)/(2k+1)!`, highest k first.
const fn series<const N: usize>(odd: bool) -> [f64; N] {
    let pi = std::f64::consts::PI;
    let mut terms = [0.0; N];
    let mut term = if odd { pi } else { 1.0 };
    let mut k = 0;
    while k < N {
        terms[N - 1 - k] = term;
        let at = 2.0 * k as f64 + if odd { 2.0 } else { 1.0 };
        term *= -pi * pi / (at * (at + 1.0));
        k += 1;
    }
    terms
}

macro_rules! phase {
    ($t:ident, $sin:expr, $cos:expr) => {
        impl Phase for $t {
            const SERIES: (&'static [f64], &'static [f64]) =
                (&series::<$sin>(true), &series::<$cos>(false));

            #[inline(always)]
            fn reduce(turns: &mut [Self]) {
                // Adding it leaves the nearest integer in the low bits.
                const MAGIC: $t = 1.5 / $t::EPSILON;
                const LARGEST: $t = 0.25 / $t::EPSILON;
                for t in turns {
                    let fraction = *t - ((*t + MAGIC) - MAGIC);
                    *t = if t.abs() < LARGEST { fraction } else { 0.0 };
                }
            }
        }
    };
}

// The remainder is below 1e-9 and 1e-17.
phase!(f32, 7, 7);
phase!(f64, 11, 11);

/// Overwrites `cos` and `sin` with those of `turns`, which are reduced in place. All three have the
/// same length, whole vectors.
#[inline(always)]
pub(super) fn circle<S: Simd, T: Phase>(simd: S, turns: &mut [T], cos: &mut [T], sin: &mut [T]) {
    T::reduce(turns);
    let (r, _) = T::vectors::<S>(turns);
    let (cos, _) = T::vectors_mut::<S>(cos);
    let (sin, _) = T::vectors_mut::<S>(sin);
    let constant = |x: f64| T::splat(simd, T::near(x));
    let (one, minus_two) = (constant(1.0), constant(-2.0));
    let (odd, even) = T::SERIES;
    for ((r, cos), sin) in r.iter().zip(cos).zip(sin) {
        let square = T::mul(simd, *r, *r);
        let mut s = constant(odd[0]);
        for term in &odd[1..] {
            s = T::fma(simd, s, square, constant(*term));
        }
        let mut c = constant(even[0]);
        for term in &even[1..] {
            c = T::fma(simd, c, square, constant(*term));
        }
        let s = T::mul(simd, s, *r);
        let twice = T::mul(simd, minus_two, s);
        *cos = T::fma(simd, twice, s, one);
        *sin = T::sub(simd, T::splat(simd, T::default()), T::mul(simd, twice, c));
    }
}

#[cfg(test)]
mod tests {
    use super::{Phase, circle};
    use crate::simd::{Kernel, Simd, dispatch};

    struct Circle<'x, T>(&'x mut [T], &'x mut [T], &'x mut [T]);

    impl<T: Phase> Kernel for Circle<'_, T> {
        type Output = ();
        fn run<S: Simd>(self, simd: S) {
            circle(simd, self.0, self.1, self.2);
        }
    }

    fn check<T: Phase>(error: f64, largest: f64) {
        let exact: Vec<f64> = (0..4096)
            .map(|i| T::near(largest * (f64::from(i) / 2048.0 - 1.0)).wide())
            .collect();
        let mut turns: Vec<T> = exact.iter().map(|t| T::near(*t)).collect();
        let (mut cos, mut sin) = (vec![T::default(); 4096], vec![T::default(); 4096]);
        dispatch(Circle(&mut turns, &mut cos, &mut sin));
        for (t, (cos, sin)) in exact.iter().zip(cos.iter().zip(&sin)) {
            let angle = 2.0 * std::f64::consts::PI * (t - t.round());
            assert!((cos.wide() - angle.cos()).abs() < error);
            assert!((sin.wide() - angle.sin()).abs() < error);
        }
    }

    #[test]
    fn accurate_in_both_precisions() {
        for largest in [0.3, 1.0, 77.7, 1e4] {
            check::<f32>(1e-6, largest);
            check::<f64>(4e-15, largest);
        }
    }

    #[test]
    fn huge_angles_give_numbers() {
        let mut turns = vec![f32::NAN; 64];
        turns[0] = f32::INFINITY;
        turns[1] = f32::MAX;
        turns[2] = -1e30;
        let (mut cos, mut sin) = (vec![0.0_f32; 64], vec![0.0_f32; 64]);
        dispatch(Circle(&mut turns, &mut cos, &mut sin));
        assert!(cos.iter().all(|c| *c == 1.0) && sin.iter().all(|s| *s == 0.0));
    }
}
