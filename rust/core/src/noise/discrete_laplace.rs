//! Discrete Laplace noise, exactly: `P(k)` proportional to `exp(-|k| / scale)`.
//!
//! Canonne, Kamath and Steinke (2020), Algorithm 2, with a rational scale `t/s`: integers and random
//! bits decide everything.

use crate::error::{Result, require};
use crate::noise::coins::{below, bernoulli_exp, bernoulli_exp_ratio};
use crate::noise::{Task, fill_blocks};
use crate::runtime::interrupt::Interrupt;
use rand::Rng;

/// Largest numerator and denominator of a scale.
pub const MAX_SCALE: u64 = 1 << 50;

/// `size` independent draws with `P(k)` proportional to `exp(-|k| denominator / numerator)`.
///
/// Values beyond `i64`, of probability below `exp(-8191)`, are cut off at its ends.
///
/// # Errors
/// A numerator or denominator not from 1 to [`MAX_SCALE`]; `n_threads` out of range; no memory;
/// interrupted.
pub fn discrete_laplace(
    task: Task<'_>,
    size: usize,
    (numerator, denominator): (u64, u64),
    n_threads: usize,
    interrupt: &dyn Interrupt,
) -> Result<Vec<i64>> {
    let scale = [
        ("scale_numerator", numerator),
        ("scale_denominator", denominator),
    ];
    for (name, value) in scale {
        let message = format_args!("got {value}, expected 1 to {MAX_SCALE}");
        require((1..=MAX_SCALE).contains(&value), name, message)?;
    }
    fill_blocks(task, 0, size, n_threads, interrupt, |stream, block| {
        for value in block {
            *value = draw(stream, numerator, denominator);
        }
    })
}

/// One draw for the scale `t/s`.
#[inline]
fn draw<R: Rng>(rng: &mut R, t: u64, s: u64) -> i64 {
    loop {
        // x = u + t v has P(x) proportional to exp(-x / t); x div s then to exp(-k s / t).
        let u = below(rng, t);
        if !bernoulli_exp_ratio(rng, u, t) {
            continue;
        }
        let mut v = 0_u64;
        while bernoulli_exp(rng, 1.0) {
            v += 1;
        }
        let x = u128::from(u) + u128::from(t) * u128::from(v);
        let magnitude = i64::try_from(x / u128::from(s)).unwrap_or(i64::MAX);
        let negative = rng.next_u32() & 1 == 1;
        // Zero would be counted under both signs.
        if !(negative && magnitude == 0) {
            return if negative { -magnitude } else { magnitude };
        }
    }
}
