//! Exact sums on their way between processes: whole numbers of up to 95 bits as pairs of 64-bit ones.
//!
//! `value = high 2^32 + low`, all high halves first, then all low ones. Parts are merged by adding
//! them as they are: `low` is below `2^32` in one part and has room for `2^31` parts, so no carry is
//! needed and the order of merging changes nothing.

use crate::error::{Error, Result, require};
use crate::runtime::memory::with_capacity;

/// Bits of the low half.
const LOW_BITS: u32 = 32;

/// Whole numbers as halves: all high ones, then all low ones.
///
/// # Errors
/// No memory, or a number beyond the halves, which no sum over `2^32` records reaches.
pub fn split(values: &[i128]) -> Result<Vec<i64>> {
    let mut parts = with_capacity(values.len().saturating_mul(2))?;
    for value in values {
        let high = i64::try_from(value >> LOW_BITS);
        parts.push(high.map_err(|_| Error::invalid("records", "their sum is too large"))?);
    }
    let mask = (1 << LOW_BITS) - 1;
    parts.extend(values.iter().map(|value| (value & mask) as i64));
    Ok(parts)
}

/// The whole numbers of merged parts, of absolute value at most `most`.
///
/// # Errors
/// Low halves below 0 or numbers beyond `most`: too many parts, or damaged ones. No memory.
pub fn join(parts: &[i64], most: i128) -> Result<Vec<i128>> {
    let (high, low) = parts.split_at(parts.len() / 2);
    let mut values = with_capacity(high.len())?;
    for (high, low) in high.iter().zip(low) {
        let value = (i128::from(*high) << LOW_BITS) + i128::from(*low);
        let message = "beyond what sums of records can be: too many parts, or damaged ones";
        require(*low >= 0 && value.abs() <= most, "parts", message)?;
        values.push(value);
    }
    Ok(values)
}
