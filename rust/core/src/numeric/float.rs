//! What the arithmetic under the proofs needs of a float, so that tests run its very source on every
//! number of a small format; and sums and products with their rounding errors.

use std::ops::{Add, AddAssign, Div, Mul, Sub};

/// A binary floating-point format that rounds to nearest, ties to even.
pub trait Float:
    Copy
    + PartialOrd
    + Add<Output = Self>
    + Sub<Output = Self>
    + Mul<Output = Self>
    + Div<Output = Self>
    + AddAssign
{
    /// Zero.
    const ZERO: Self;
    /// One.
    const ONE: Self;
    /// Distance from 1 to the next number.
    const EPSILON: Self;
    /// Half of the integers' end: every integer up to twice this is a number of the format.
    const MAX_WHOLE: Self;
    /// Sums of squares in this range met no overflow, and no underflow that matters.
    const SAFE: (Self, Self);
    /// `n`, which is small.
    fn whole(n: usize) -> Self;
    /// The integer part of a number of magnitude at most [`Self::MAX_WHOLE`].
    fn integer(self) -> i64;
    /// Square root.
    fn sqrt(self) -> Self;
    /// Magnitude.
    fn abs(self) -> Self;
    /// Neither NaN nor infinite.
    fn is_finite(self) -> bool;
    /// `self * a + b`, rounded once.
    fn mul_add(self, a: Self, b: Self) -> Self;
    /// A power of two that brings a positive number to about 1, as far as the format allows.
    fn inverse_power(self) -> Self;
}

impl Float for f64 {
    const ZERO: Self = 0.0;
    const ONE: Self = 1.0;
    const EPSILON: Self = Self::EPSILON;
    const MAX_WHOLE: Self = 4_503_599_627_370_496.0;
    const SAFE: (Self, Self) = (1e-240, 1e240);

    #[inline(always)]
    fn whole(n: usize) -> Self {
        n as Self
    }

    #[inline(always)]
    fn integer(self) -> i64 {
        self as i64
    }

    #[inline(always)]
    fn sqrt(self) -> Self {
        Self::sqrt(self)
    }

    #[inline(always)]
    fn abs(self) -> Self {
        Self::abs(self)
    }

    #[inline(always)]
    fn is_finite(self) -> bool {
        Self::is_finite(self)
    }

    #[inline(always)]
    fn mul_add(self, a: Self, b: Self) -> Self {
        Self::mul_add(self, a, b)
    }

    fn inverse_power(self) -> Self {
        // The clamp keeps the power, and what it brings to 1, in range for subnormal numbers.
        libm::ldexp(1.0, -libm::frexp(self).1.clamp(-1000, 1000))
    }
}

/// `a + b` as a rounded sum and its error.
#[inline]
pub(crate) fn two_sum<F: Float>(a: F, b: F) -> (F, F) {
    let sum = a + b;
    let part = sum - a;
    (sum, (a - (sum - part)) + (b - part))
}

/// `a * b` as a rounded product and its error.
#[inline]
pub(crate) fn two_product<F: Float>(a: F, b: F) -> (F, F) {
    let product = a * b;
    (product, a.mul_add(b, F::ZERO - product))
}

/// The sum of some products as an unevaluated sum of two numbers.
#[inline]
pub(crate) fn two_fold_sum<F: Float>(terms: impl Iterator<Item = (F, F)>) -> (F, F) {
    let (mut high, mut low) = (F::ZERO, F::ZERO);
    for (a, b) in terms {
        let (product, rest) = two_product(a, b);
        let (sum, error) = two_sum(high, product);
        high = sum;
        low += rest + error;
    }
    two_sum(high, low)
}

#[cfg(test)]
mod tests {
    use super::{two_fold_sum, two_product, two_sum};
    use crate::public_interface::toy::Toy;

    /// The format is what it says: for every pair of numbers the nearest one, in the middle the even.
    #[test]
    fn toy_numbers_round_to_nearest() {
        let numbers = Toy::<4>::positive(-1, 6);
        for a in Toy::<4>::positive(0, 4) {
            for b in Toy::<4>::positive(-3, 4) {
                for (got, exact) in [((a + b).0, a.0 + b.0), ((a * b).0, a.0 * b.0)] {
                    if (1.0..32.0).contains(&exact) {
                        let off = |n: &Toy<4>| (n.0 - exact).abs();
                        let nearest = numbers.iter().map(off).fold(f64::INFINITY, f64::min);
                        assert_eq!((got - exact).abs(), nearest);
                    }
                }
            }
        }
        assert_eq!((Toy::<4>(8.0) + Toy(0.5)).0, 8.0);
        assert_eq!((Toy::<4>(9.0) + Toy(0.5)).0, 10.0);
    }

    /// `a + b` and `a b` with their errors, for all numbers of five bits over fourteen binades.
    // Proof: output_perturbation, "Inexact minimiser"
    #[test]
    fn sums_and_products_of_all_small_numbers_are_error_free() {
        let positive = Toy::<5>::positive(-7, 7);
        let negative = positive.iter().map(|x| Toy(-x.0));
        let all: Vec<Toy<5>> = positive.iter().copied().chain(negative).collect();
        for a in &all {
            for b in &all {
                let (sum, error) = two_sum(*a, *b);
                assert_eq!(sum.0 + error.0, a.0 + b.0, "{a:?} {b:?}");
                let (product, error) = two_product(*a, *b);
                assert_eq!(product.0 + error.0, a.0 * b.0, "{a:?} {b:?}");
            }
        }
    }

    /// The error of a sum of `m` products is below `(m + 1)^2 u^2` times the sum of their magnitudes:
    /// all pairs of products of three bits, and triples with signs that cancel.
    // Proof: output_perturbation, "Inexact minimiser"
    #[test]
    fn sums_of_two_small_products_have_twice_the_precision() {
        let positive = Toy::<3>::positive(-3, 3);
        let both = |x: &Toy<3>| [*x, Toy(-x.0)];
        let signed: Vec<Toy<3>> = positive.iter().flat_map(both).collect();
        let unit = 0.125_f64;
        let mut rounds_once = false;
        let mut check = |terms: &[(Toy<3>, Toy<3>)]| {
            let exact: f64 = terms.iter().map(|(a, b)| a.0 * b.0).sum();
            let size: f64 = terms.iter().map(|(a, b)| (a.0 * b.0).abs()).sum();
            let plain = terms.iter().fold(Toy(0.0), |sum, (a, b)| sum + *a * *b);
            let (high, low) = two_fold_sum(terms.iter().copied());
            let m = terms.len() as f64 + 1.0;
            let bound = m * m * unit * unit * size;
            assert!((high.0 + low.0 - exact).abs() <= bound, "{terms:?}");
            rounds_once |= (plain.0 - exact).abs() > bound;
        };
        for a in &positive {
            for b in &positive {
                for c in &signed {
                    for d in &positive {
                        check(&[(*a, *b), (*c, *d)]);
                        check(&[(*a, *b), (*c, *d), (Toy(-a.0), *b)]);
                    }
                }
            }
        }
        // Negative control: plain sums do not keep this bound.
        assert!(rounds_once);
    }
}
