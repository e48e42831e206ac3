//! Natural numbers of any size: what the exact comparison of the sampler needs, plain and slow.

use std::cmp::Ordering;

/// A natural number in base `2^32`, the lowest digit first, without leading zeros.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Natural(Vec<u32>);

impl Natural {
    /// `head` followed by more digits, the highest first.
    pub fn from_digits(head: u128, digits: &[u32]) -> Self {
        let mut limbs: Vec<u32> = digits.iter().rev().copied().collect();
        limbs.extend((0..4).map(|i| (head >> (32 * i)) as u32));
        Self(limbs).trimmed()
    }

    /// `2^exponent`.
    pub fn power_of_two(exponent: usize) -> Self {
        let mut limbs = vec![0; exponent / 32];
        limbs.push(1 << (exponent % 32));
        Self(limbs)
    }

    fn trimmed(mut self) -> Self {
        while self.0.last() == Some(&0) {
            self.0.pop();
        }
        self
    }

    /// `self * other`.
    pub fn times(&self, other: &Self) -> Self {
        let mut product = vec![0; self.0.len() + other.0.len()];
        for (i, a) in self.0.iter().enumerate() {
            let mut carry = 0;
            for (place, b) in product[i..].iter_mut().zip(&other.0) {
                let sum = u64::from(*place) + u64::from(*a) * u64::from(*b) + carry;
                *place = sum as u32;
                carry = sum >> 32;
            }
            product[i + other.0.len()] = carry as u32;
        }
        Self(product).trimmed()
    }

    /// `self + other`.
    pub fn plus(&self, other: &Self) -> Self {
        let mut limbs = Vec::with_capacity(self.0.len().max(other.0.len()) + 1);
        let mut carry = 0;
        for i in 0..self.0.len().max(other.0.len()) {
            let digit = |n: &Self| u64::from(n.0.get(i).copied().unwrap_or(0));
            let sum = digit(self) + digit(other) + carry;
            limbs.push(sum as u32);
            carry = sum >> 32;
        }
        limbs.push(carry as u32);
        Self(limbs).trimmed()
    }

    /// `self - other`, or 0 where that would be negative.
    pub fn minus(&self, other: &Self) -> Self {
        if *self < *other {
            return Self(Vec::new());
        }
        let mut borrow = 0;
        let limbs = self.0.iter().enumerate().map(|(i, a)| {
            let b = i64::from(other.0.get(i).copied().unwrap_or(0));
            let difference = i64::from(*a) - b - borrow;
            borrow = i64::from(difference < 0);
            difference as u32
        });
        Self(limbs.collect()).trimmed()
    }

    /// `floor(self / 2^bits)`.
    pub fn shifted_down(&self, bits: usize) -> Self {
        let (limbs, bits) = (bits / 32, bits % 32);
        let Some(kept) = self.0.get(limbs..) else {
            return Self(Vec::new());
        };
        let shifted = kept.iter().enumerate().map(|(i, low)| {
            let high = kept.get(i + 1).copied().unwrap_or(0);
            ((u64::from(high) << 32 | u64::from(*low)) >> bits) as u32
        });
        Self(shifted.collect()).trimmed()
    }

    /// `floor(self / divisor)`, for a positive divisor.
    pub fn divided(&self, divisor: u32) -> Self {
        let mut rest = 0;
        let mut limbs = self.0.clone();
        for limb in limbs.iter_mut().rev() {
            let dividend = rest << 32 | u64::from(*limb);
            *limb = (dividend / u64::from(divisor)) as u32;
            rest = dividend % u64::from(divisor);
        }
        Self(limbs).trimmed()
    }
}

impl PartialOrd for Natural {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Natural {
    fn cmp(&self, other: &Self) -> Ordering {
        let lengths = self.0.len().cmp(&other.0.len());
        lengths.then_with(|| self.0.iter().rev().cmp(other.0.iter().rev()))
    }
}
