//! Sums of multiples of a power of two, without rounding.
//!
//! Partial sums are doubles as long as none can leave the integers below `2^53` (in the unit), then
//! 128-bit integers. So the order of addition, and the number of threads, change nothing.

/// Below this many units, adding and subtracting [`ROUNDING`] units rounds a double to whole ones.
pub const MOST_ROUNDED: f64 = 2_251_799_813_685_248.0;
/// `1.5 * 2^52`.
pub const ROUNDING: f64 = 3.0 * MOST_ROUNDED;

/// A sum of vectors whose entries are multiples of `unit`.
#[derive(Debug, Clone)]
pub struct ExactSum {
    /// A power of two.
    unit: f64,
    /// The terms of late; exact.
    small: Vec<f64>,
    /// Bound on the entries of `small`, in units.
    reached: f64,
    /// All earlier terms, in units.
    large: Option<Vec<i128>>,
}

/// Doubles hold every integer up to `2^53`; one bit is kept for the rounding of the bound itself.
const MOST_UNITS: f64 = 4_503_599_627_370_496.0;

impl ExactSum {
    /// Zero, of `len` entries.
    pub fn new(len: usize, unit: f64) -> Self {
        Self {
            unit,
            small: vec![0.0; len],
            reached: 0.0,
            large: None,
        }
    }

    /// The unit.
    pub fn unit(&self) -> f64 {
        self.unit
    }

    /// Number of entries.
    pub fn len(&self) -> usize {
        self.small.len()
    }

    /// True without entries.
    pub fn is_empty(&self) -> bool {
        self.small.is_empty()
    }

    /// Room for more terms, whose entries are multiples of the unit and whose absolute values, of
    /// one entry over all terms, add up to at most `size`.
    #[inline(always)]
    pub fn room(&mut self, size: f64) -> &mut [f64] {
        let units = size / self.unit;
        if self.reached + units > MOST_UNITS {
            self.flush();
        }
        self.reached += units;
        &mut self.small
    }

    /// Moves the doubles to the integers.
    #[cold]
    fn flush(&mut self) {
        let inverse = 1.0 / self.unit;
        let large = self.large.get_or_insert_with(|| vec![0; self.small.len()]);
        for (large, small) in large.iter_mut().zip(&mut self.small) {
            *large += i128::from((*small * inverse) as i64);
            *small = 0.0;
        }
        self.reached = 0.0;
    }

    /// Adds another sum of the same unit and length.
    pub fn merge(&mut self, other: &mut Self) {
        if other.large.is_some() || self.reached + other.reached > MOST_UNITS {
            self.flush();
            other.flush();
        }
        self.reached += other.reached;
        for (mine, theirs) in self.small.iter_mut().zip(&other.small) {
            *mine += theirs;
        }
        if let (Some(mine), Some(theirs)) = (&mut self.large, &other.large) {
            for (mine, theirs) in mine.iter_mut().zip(theirs) {
                *mine += theirs;
            }
        }
    }

    /// Back to zero.
    pub fn clear(&mut self) {
        self.small.fill(0.0);
        self.reached = 0.0;
        self.large = None;
    }

    /// The entries where all of them are doubles, with a bound on their absolute values.
    pub fn doubles(&self) -> Option<(&[f64], f64)> {
        let bound = self.reached * self.unit;
        self.large.is_none().then_some((&self.small, bound))
    }

    /// Entry `at` in units.
    pub fn integer(&self, at: usize) -> i128 {
        let large = self.large.as_ref().map_or(0, |large| large[at]);
        large + i128::from((self.small[at] / self.unit) as i64)
    }
}

#[cfg(test)]
mod tests {
    use super::ExactSum;

    #[test]
    fn nothing_is_lost_past_the_doubles() {
        let unit = 0.25;
        let mut sum = ExactSum::new(2, unit);
        let term = 4_503_599_627_370_495.0 * unit;
        for _ in 0..5 {
            let room = sum.room(term);
            room[0] += term;
            room[1] -= unit;
        }
        assert!(sum.doubles().is_none());
        assert_eq!(sum.integer(0), 5 * 4_503_599_627_370_495);
        assert_eq!(sum.integer(1), -5);
        let mut other = ExactSum::new(2, unit);
        other.room(unit)[1] += unit;
        sum.merge(&mut other);
        assert_eq!(sum.integer(1), -4);
        let mut third = ExactSum::new(2, unit);
        third.merge(&mut sum);
        assert_eq!(third.integer(0), 5 * 4_503_599_627_370_495);
    }
}
