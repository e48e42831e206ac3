//! Private choice of one candidate out of several by integer scores, the lowest the best.
//!
//! Both mechanisms look at the differences `z_i - min z` alone and decide with exact coins, so that
//! the law is the stated one bit for bit:
//!
//! - [`exponential_choice`]: `P(i)` proportional to `exp(-rate (z_i - min z))`. `McSherry` and
//!   Talwar, FOCS 2007; by rejection from the uniform law.
//! - [`permute_and_flip`]: candidates are visited in a uniformly random order, and candidate i is
//!   taken with probability `exp(-rate (z_i - min z))`. `McKenna` and Sheldon, `NeurIPS` 2020.
//!
//! The argument is the project's page `docs/proofs/private_selection.md`.

use crate::error::{Error, Result, require};
use crate::noise::Task;
use crate::noise::coins::{below, bernoulli_exp};
use crate::runtime::interrupt::{Interrupt, poll};
use crate::runtime::memory::collected;

/// Significant bits that a rate may have: with differences of 32 bits all products are exact.
const RATE_BITS: i32 = 20;

/// Scores may differ by less than this.
const MAX_DIFFERENCE: u64 = 1 << 32;

/// Products of rates from here on with differences could overflow.
const MAX_RATE: f64 = 1e290;

/// Scores and rate, checked.
struct Scores<'s> {
    scores: &'s [i64],
    best: i64,
    rate: f64,
}

impl<'s> Scores<'s> {
    fn new(scores: &'s [i64], rate: f64) -> Result<Self> {
        let (Some(best), Some(worst)) = (scores.iter().min(), scores.iter().max()) else {
            return Err(Error::invalid("scores", "got none, expected at least one"));
        };
        let message = "expected scores that differ by less than 2**32";
        require(worst.abs_diff(*best) < MAX_DIFFERENCE, "scores", message)?;
        let message = format_args!("got {rate:e}, expected a positive number up to {MAX_RATE:e}");
        require(rate > 0.0 && rate <= MAX_RATE, "rate", message)?;
        let leading = libm::ldexp(libm::frexp(rate).0, RATE_BITS);
        let message =
            format_args!("got {rate:e}, expected a number of at most {RATE_BITS} significant bits");
        require(leading == leading.trunc(), "rate", message)?;
        Ok(Self {
            scores,
            best: *best,
            rate,
        })
    }

    /// `rate (z_i - min z)`, exactly: a product of 32 and 20 bits.
    fn exponent(&self, i: usize) -> f64 {
        self.rate * self.scores[i].abs_diff(self.best) as f64
    }
}

/// The exponential mechanism: an index with probability proportional to
/// `exp(-rate (z_i - min z))`, exactly.
///
/// # Errors
/// No scores, or scores 2^32 apart; a rate that is not positive, above 1e290, or of more than 20
/// significant bits; interrupted.
pub fn exponential_choice(
    task: Task<'_>,
    scores: &[i64],
    rate: f64,
    interrupt: &dyn Interrupt,
) -> Result<usize> {
    let scores = Scores::new(scores, rate)?;
    let mut stream = task.stream(0);
    let count = scores.scores.len() as u64;
    // One candidate at least is always taken: `count` tries on average at most.
    let mut tries = 0_usize;
    loop {
        poll(tries, interrupt)?;
        tries = tries.wrapping_add(1);
        let i = below(&mut stream, count) as usize;
        if bernoulli_exp(&mut stream, scores.exponent(i)) {
            return Ok(i);
        }
    }
}

/// Permute and flip: the first candidate taken, in a uniformly random order of visits.
///
/// # Errors
/// As [`exponential_choice`]; no memory for the order.
pub fn permute_and_flip(
    task: Task<'_>,
    scores: &[i64],
    rate: f64,
    interrupt: &dyn Interrupt,
) -> Result<usize> {
    let scores = Scores::new(scores, rate)?;
    let mut stream = task.stream(0);
    let count = scores.scores.len();
    let mut order = collected(0..count)?;
    let mut last = 0;
    for visited in 0..count {
        poll(visited, interrupt)?;
        // The order is shuffled only as far as it is visited.
        let pick = visited + below(&mut stream, (count - visited) as u64) as usize;
        order.swap(visited, pick);
        last = order[visited];
        if bernoulli_exp(&mut stream, scores.exponent(last)) {
            break;
        }
    }
    // The best candidate is always taken when it is met, so the loop never runs out.
    Ok(last)
}
