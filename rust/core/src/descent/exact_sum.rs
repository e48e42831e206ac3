//! Sums of multiples of a power of two, without rounding.
//!
//! A term of at most `2^52` units has room; a larger one is refused, never rounded.
//!
//! Partial sums are doubles as long as none can leave the integers below `2^53` (in the unit), then
//! 128-bit integers. So the order of addition, and the number of threads, change nothing.

use crate::error::{Error, Result};
use crate::numeric::float::Float;
use crate::runtime::memory::{filled, zeros};
use crate::runtime::team::Team;

/// Below this many units, adding and subtracting [`ROUNDING`] units rounds a double to whole ones.
pub const MAX_ROUNDED: f64 = 2_251_799_813_685_248.0;
/// `1.5 * 2^52`.
pub const ROUNDING: f64 = 3.0 * MAX_ROUNDED;

/// Entries that one thread merges at a time.
const CHUNK: usize = 1 << 14;

/// A sum of vectors whose entries are multiples of `unit`.
#[derive(Debug, Clone)]
pub struct ExactSum<F = f64> {
    /// A power of two.
    unit: F,
    /// The terms of late; exact.
    small: Vec<F>,
    /// Bound on the entries of `small`, in units.
    reached: F,
    /// All earlier terms, in units.
    large: Option<Vec<i128>>,
}

#[cold]
fn too_large() -> Error {
    let message = "so small that the gradient of one record cannot be summed exactly";
    Error::invalid("clip", message)
}

impl<F: Float + Send + Sync> ExactSum<F> {
    /// Zero, of `len` entries.
    ///
    /// # Errors
    /// No memory.
    pub fn new(len: usize, unit: F) -> Result<Self> {
        Ok(Self {
            unit,
            small: filled(len, F::ZERO)?,
            reached: F::ZERO,
            large: None,
        })
    }

    /// The unit.
    pub fn unit(&self) -> F {
        self.unit
    }

    /// The largest `size` that has room.
    #[inline(always)]
    pub fn largest(&self) -> F {
        F::MAX_WHOLE * self.unit
    }

    /// Room for more terms, whose entries are multiples of the unit and whose absolute values, of
    /// one entry over all terms, add up to at most `size`.
    ///
    /// # Errors
    /// A size above [`Self::largest`], or none: doubles could not hold the terms. No memory.
    #[inline(always)]
    pub fn room(&mut self, size: F) -> Result<&mut [F]> {
        let units = size / self.unit;
        if self.reached + units > F::MAX_WHOLE {
            self.flush()?;
        }
        let reached = self.reached + units;
        let kept = reached <= F::MAX_WHOLE;
        if !kept {
            return Err(too_large());
        }
        self.reached = reached;
        Ok(&mut self.small)
    }

    /// The terms of late, to add what has room already.
    #[inline(always)]
    pub fn reserved(&mut self) -> &mut [F] {
        &mut self.small
    }

    /// Moves the doubles to the integers.
    #[cold]
    fn flush(&mut self) -> Result<()> {
        let inverse = F::ONE / self.unit;
        let large = match &mut self.large {
            Some(large) => large,
            none => none.insert(zeros(self.small.len())?),
        };
        for (large, small) in large.iter_mut().zip(&mut self.small) {
            *large += i128::from((*small * inverse).integer());
            *small = F::ZERO;
        }
        self.reached = F::ZERO;
        Ok(())
    }

    /// Adds other sums of the same unit and length, some entries by each thread.
    ///
    /// # Errors
    /// No memory.
    pub fn merge(&mut self, others: &mut [&mut Self], team: &Team) -> Result<()> {
        let reached = |reached: F, other: &&mut Self| reached + other.reached;
        let reached = others.iter().fold(self.reached, reached);
        if others.iter().any(|other| other.large.is_some()) || reached > F::MAX_WHOLE {
            self.flush()?;
            others.iter_mut().try_for_each(|other| other.flush())?;
        } else {
            self.reached = reached;
        }
        let add_small = |chunk: usize, mine: &mut [F]| {
            for other in others.iter() {
                let theirs = &other.small[chunk * CHUNK..];
                for (mine, theirs) in mine.iter_mut().zip(theirs) {
                    *mine += *theirs;
                }
            }
        };
        let add_large = |chunk: usize, mine: &mut [i128]| {
            for theirs in others.iter().filter_map(|other| other.large.as_ref()) {
                for (mine, theirs) in mine.iter_mut().zip(&theirs[chunk * CHUNK..]) {
                    *mine += theirs;
                }
            }
        };
        team.each_chunk(&mut self.small, CHUNK, &add_small)?;
        let large = self.large.as_deref_mut().unwrap_or_default();
        team.each_chunk(large, CHUNK, &add_large)
    }

    /// Back to zero.
    pub fn clear(&mut self) {
        self.small.fill(F::ZERO);
        self.reached = F::ZERO;
        self.large = None;
    }

    /// The entries where all of them are doubles, with a bound on their absolute values.
    pub fn doubles(&self) -> Option<(&[F], F)> {
        let bound = self.reached * self.unit;
        self.large.is_none().then_some((&self.small, bound))
    }

    /// Entry `at` in units.
    pub fn integer(&self, at: usize) -> i128 {
        let large = self.large.as_ref().map_or(0, |large| large[at]);
        large + i128::from((self.small[at] / self.unit).integer())
    }
}

#[cfg(test)]
mod tests {
    use super::ExactSum;
    use crate::numeric::float::Float;
    use crate::parts::toy::Toy;
    use crate::runtime::team::Team;
    use std::collections::BTreeSet;

    // Proof: gradient_perturbation, "Clipped sums and their rounding"
    #[test]
    fn nothing_is_lost_past_the_doubles() -> crate::Result<()> {
        let unit = 0.25;
        let mut sum = ExactSum::new(2, unit)?;
        let term = 4_503_599_627_370_495.0 * unit;
        for _ in 0..5 {
            let room = sum.room(term)?;
            room[0] += term;
            room[1] -= unit;
        }
        assert!(sum.doubles().is_none());
        assert_eq!(sum.integer(0), 5 * 4_503_599_627_370_495);
        assert_eq!(sum.integer(1), -5);
        let mut other = ExactSum::new(2, unit)?;
        other.room(unit)?[1] += unit;
        sum.merge(&mut [&mut other], &Team::of(1))?;
        assert_eq!(sum.integer(1), -4);
        let mut third = ExactSum::new(2, unit)?;
        third.merge(&mut [&mut sum], &Team::of(1))?;
        assert_eq!(third.integer(0), 5 * 4_503_599_627_370_495);
        Ok(())
    }

    // Proof: gradient_perturbation, "Clipped sums and their rounding"
    #[test]
    fn a_term_that_doubles_cannot_hold_is_refused() -> crate::Result<()> {
        let mut sum = ExactSum::new(1, 0.5)?;
        sum.room(sum.largest())?[0] -= sum.largest();
        for size in [sum.largest().next_up(), 1e300, f64::INFINITY, f64::NAN] {
            assert!(sum.room(size).is_err());
        }
        sum.room(1.0)?[0] += 1.0;
        assert_eq!(sum.integer(0), 2 - (1 << 52));
        Ok(())
    }

    type Small<const MARGIN: bool> = Toy<5, MARGIN>;

    fn sum<const MARGIN: bool>(unit: f64, (small, reached): (f64, f64)) -> ExactSum<Small<MARGIN>> {
        ExactSum {
            unit: Toy(unit),
            small: vec![Toy(small * unit)],
            reached: Toy(reached),
            large: None,
        }
    }

    /// Runs this very source in floats of five bits from every state that it can reach, with every
    /// term that may come next. True if no sum ever loses anything.
    fn all_small_sums_are_exact<const MARGIN: bool>(unit: f64) -> bool {
        let mut sizes = Small::<MARGIN>::positive(-2, 6);
        sizes.push(Toy(0.0));
        let mut known: BTreeSet<(i64, i64)> = BTreeSet::from([(0, 0)]);
        let mut open = vec![(0.0, 0.0)];
        let mut exact = true;
        let mut take = |state: (f64, f64), open: &mut Vec<(f64, f64)>| {
            if known.insert(((state.0 * 64.0) as i64, (state.1 * 64.0) as i64)) {
                open.push(state);
            }
        };
        while let Some(state) = open.pop() {
            for size in &sizes {
                let most = size.0.floor() as i64;
                for term in -most..=most {
                    let mut sum = sum::<MARGIN>(unit, state);
                    let before = sum.integer(0);
                    let Ok(room) = sum.room(Toy(size.0 * unit)) else {
                        exact &= size.0 > Small::<MARGIN>::MAX_WHOLE.0 && sum.integer(0) == before;
                        continue;
                    };
                    room[0] += Toy(term as f64 * unit);
                    exact &= sum.integer(0) == before + i128::from(term);
                    exact &= size.0 <= Small::<MARGIN>::MAX_WHOLE.0;
                    take((sum.small[0].0 / unit, sum.reached.0), &mut open);
                }
            }
            if !exact {
                return false;
            }
        }
        let states: Vec<(f64, f64)> = known
            .iter()
            .map(|(small, reached)| (*small as f64 / 64.0, *reached as f64 / 64.0))
            .collect();
        assert!(states.len() > 100);
        for a in &states {
            for b in states.iter().step_by(3) {
                let (mut mine, mut theirs) = (sum::<MARGIN>(unit, *a), sum::<MARGIN>(unit, *b));
                exact &= mine.merge(&mut [&mut theirs], &Team::of(1)).is_ok();
                exact &= mine.integer(0) == (a.0 + b.0) as i128;
            }
        }
        exact
    }

    // Proof: gradient_perturbation, "Clipped sums and their rounding"
    #[test]
    fn no_small_sum_loses_anything() {
        for unit in [0.25, 1.0, 8.0] {
            assert!(all_small_sums_are_exact::<true>(unit));
        }
        // Negative control: with room for one bit more sums are lost.
        assert!(!all_small_sums_are_exact::<false>(1.0));
    }
}
