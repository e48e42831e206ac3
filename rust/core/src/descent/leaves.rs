//! Small groups of records that a neighbour of the data set hardly changes.
//!
//! Sums in single precision round, and their rounding depends on what they are made of. So records
//! are summed in groups of at most [`LEAF`], the leaves of a trie over random tags, one tag a
//! record: one record more enters one leaf, or splits it in two, and touches no other sum. Groups
//! of consecutive records would all shift.

use std::ops::Range;

/// Records of a leaf at most.
pub const LEAF: usize = 64;

/// Bits of a tag.
const TAG_BITS: u32 = 32;

/// Buckets of tags are told apart by so many of their bits at most.
const BUCKET_BITS: u32 = 11;

/// Orders `batch` by tags and gives the leaves as ranges of it.
///
/// `tags` has one independent uniform tag for each place of `batch`. Within a leaf the records are
/// in order of tag and then of place, which depends on the records of the leaf alone. `keys` and `before`
/// are room as long as the batch.
pub fn plant(
    batch: &mut [u32],
    tags: &[u32],
    (keys, before): (&mut [u64], &mut [u32]),
    leaves: &mut Vec<Range<usize>>,
) {
    before.copy_from_slice(batch);
    sort(tags, keys);
    for (record, key) in batch.iter_mut().zip(keys.iter()) {
        *record = before[*key as u32 as usize];
    }
    leaves.clear();
    split(keys, 0, TAG_BITS, leaves);
}

/// Tags with their places, in order: into buckets of about one first, as tags are uniform.
fn sort(tags: &[u32], keys: &mut [u64]) {
    let bits = tags.len().max(2).ilog2().min(BUCKET_BITS);
    let bucket = |tag: u32| (tag >> (TAG_BITS - bits)) as usize;
    // Counted one bucket further, so that sums are the places of each bucket's next key.
    let mut next = [0_u32; (1 << BUCKET_BITS) + 1];
    for tag in tags {
        next[bucket(*tag) + 1] += 1;
    }
    for at in 1..=1 << bits {
        next[at] += next[at - 1];
    }
    for (place, tag) in tags.iter().enumerate() {
        let next = &mut next[bucket(*tag)];
        keys[*next as usize] = u64::from(*tag) << TAG_BITS | place as u64;
        *next += 1;
    }
    let mut first = 0;
    for end in &next[..1 << bits] {
        let end = *end as usize;
        if end > first + 1 {
            keys[first..end].sort_unstable();
        }
        first = end;
    }
}

/// Leaves of the sorted `keys`, whose first places are `first`, from bit `bits` downwards.
fn split(keys: &[u64], first: usize, bits: u32, leaves: &mut Vec<Range<usize>>) {
    if keys.is_empty() {
        return;
    }
    if keys.len() <= LEAF {
        leaves.push(first..first + keys.len());
    } else if bits == 0 {
        // Equal tags, which does not happen: each record by itself.
        leaves.extend((first..first + keys.len()).map(|at| at..at + 1));
    } else {
        let bit = 1 << (TAG_BITS + bits - 1);
        let middle = keys.partition_point(|key| key & bit == 0);
        split(&keys[..middle], first, bits - 1, leaves);
        split(&keys[middle..], first + middle, bits - 1, leaves);
    }
}
