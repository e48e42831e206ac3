//! Float operations behind the proofs: a trait, so that tests run this very source on every
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
