//! A format of few bits, exactly: results of doubles, which are exact or right to 53 bits,
//! rounded to `BITS` bits and to multiples of the least number.

use crate::numeric::float::Float;
use std::ops::{Add, AddAssign, Div, Mul, Sub};

/// The least positive number is `2^-LOWEST`; overflow is at `2^LOWEST`.
const LOWEST: i32 = 40;

/// A number of `BITS` bits. `MARGIN` false: the code under test is told that nothing rounds, and
/// its bounds must then fail.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd)]
pub struct Toy<const BITS: u32, const MARGIN: bool = true>(pub f64);

const fn power(exponent: i32) -> f64 {
    f64::from_bits(((exponent + 1023) as u64) << 52)
}

fn rounded(x: f64, bits: u32) -> f64 {
    if x.abs() < power(bits as i32 - LOWEST) {
        return (x * power(LOWEST)).round_ties_even() * power(-LOWEST);
    }
    let cut = 53 - bits;
    let half = (1_u64 << (cut - 1)) - 1;
    let word = x.to_bits();
    let near = f64::from_bits((word + half + (word >> cut & 1)) >> cut << cut);
    if !x.is_finite() || near.abs() < power(LOWEST) {
        if x.is_finite() { near } else { x }
    } else {
        f64::INFINITY.copysign(x)
    }
}

impl<const BITS: u32, const MARGIN: bool> Toy<BITS, MARGIN> {
    /// Every positive number from `2^low` to below `2^high`.
    pub fn positive(low: i32, high: i32) -> Vec<Self> {
        let first = 1_u32 << (BITS - 1);
        let mantissas = move |e| {
            let unit = power(e + 1 - BITS as i32);
            (first..2 * first).map(move |m| Self(f64::from(m) * unit))
        };
        (low..high).flat_map(mantissas).collect()
    }
}

macro_rules! operation {
    ($trait:ident, $method:ident, $symbol:tt) => {
        impl<const BITS: u32, const MARGIN: bool> $trait for Toy<BITS, MARGIN> {
            type Output = Self;
            fn $method(self, other: Self) -> Self {
                Self(rounded(self.0 $symbol other.0, BITS))
            }
        }
    };
}
operation!(Add, add, +);
operation!(Sub, sub, -);
operation!(Mul, mul, *);
operation!(Div, div, /);

impl<const BITS: u32, const MARGIN: bool> AddAssign for Toy<BITS, MARGIN> {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl<const BITS: u32, const MARGIN: bool> Float for Toy<BITS, MARGIN> {
    const ZERO: Self = Self(0.0);
    const ONE: Self = Self(1.0);
    const EPSILON: Self = Self(if MARGIN { power(1 - BITS as i32) } else { 0.0 });
    const MAX_WHOLE: Self = Self(power(BITS as i32 - 1 + !MARGIN as i32));
    const SAFE: (Self, Self) = (Self(power(-16)), Self(power(16)));

    fn whole(n: usize) -> Self {
        Self(rounded(n as f64, BITS))
    }
    fn integer(self) -> i64 {
        self.0 as i64
    }
    fn sqrt(self) -> Self {
        Self(rounded(self.0.sqrt(), BITS))
    }
    fn abs(self) -> Self {
        Self(self.0.abs())
    }
    fn is_finite(self) -> bool {
        self.0.is_finite()
    }
    fn mul_add(self, a: Self, b: Self) -> Self {
        Self(rounded(self.0.mul_add(a.0, b.0), BITS))
    }
    fn inverse_power(self) -> Self {
        Self(power(-libm::frexp(self.0).1.clamp(-30, 30)))
    }
}
