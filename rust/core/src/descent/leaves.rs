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

/// Orders `batch` by tags and gives the leaves as ranges of it.
///
/// `tags` has one independent uniform tag for each place of `batch`. Within a leaf the records are
/// in order of tag and then of place, which depends on the records of the leaf alone.
pub fn plant(
    batch: &mut [u32],
    tags: &[u32],
    keys: &mut Vec<(u64, u32)>,
    leaves: &mut Vec<Range<usize>>,
) {
    keys.clear();
    let places = tags.iter().zip(batch.iter()).enumerate();
    keys.extend(
        places.map(|(place, (tag, record))| (u64::from(*tag) << TAG_BITS | place as u64, *record)),
    );
    keys.sort_unstable();
    for (record, (_, sorted)) in batch.iter_mut().zip(keys.iter()) {
        *record = *sorted;
    }
    leaves.clear();
    split(keys, 0, TAG_BITS, leaves);
}

/// Leaves of the sorted `keys`, whose first places are `first`, from bit `bits` downwards.
fn split(keys: &[(u64, u32)], first: usize, bits: u32, leaves: &mut Vec<Range<usize>>) {
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
        let middle = keys.partition_point(|(key, _)| key & bit == 0);
        split(&keys[..middle], first, bits - 1, leaves);
        split(&keys[middle..], first + middle, bits - 1, leaves);
    }
}

#[cfg(test)]
mod tests {
    use super::{LEAF, plant};
    use std::collections::BTreeSet;

    fn number(state: &mut u64) -> u32 {
        *state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (*state >> 32) as u32
    }

    fn groups(records: &[u32], tags: &[u32]) -> BTreeSet<Vec<u32>> {
        let (mut batch, mut keys, mut leaves) = (records.to_vec(), Vec::new(), Vec::new());
        plant(&mut batch, tags, &mut keys, &mut leaves);
        assert_eq!(
            leaves.iter().map(ExactSizeIterator::len).sum::<usize>(),
            batch.len()
        );
        leaves
            .into_iter()
            .map(|leaf| batch[leaf].to_vec())
            .collect()
    }

    // Proof: gradient_perturbation, "Clipped sums and their rounding"
    #[test]
    fn one_record_more_changes_one_leaf() {
        let mut state = 7;
        for n in [1, 2, 63, 64, 65, 127, 128, 129, 500, 3000] {
            let records: Vec<u32> = (0..n).collect();
            let tags: Vec<u32> = records.iter().map(|_| number(&mut state)).collect();
            let all = groups(&records, &tags);
            for removed in [0, n / 2, n - 1] {
                let keep = |i: &u32| *i != removed;
                let rest: Vec<u32> = records.iter().copied().filter(keep).collect();
                let tags: Vec<u32> = rest.iter().map(|i| tags[*i as usize]).collect();
                let fewer = groups(&rest, &tags);
                let gone: Vec<_> = all.difference(&fewer).collect();
                let new: Vec<_> = fewer.difference(&all).collect();
                assert!(gone.len() <= 2 && new.len() <= 1);
                let touched: usize = gone.iter().map(|leaf| leaf.len()).sum();
                assert!(touched <= LEAF + 1);
            }
        }
    }

    #[test]
    fn equal_tags_are_leaves_of_their_own() {
        let records: Vec<u32> = (0..70).collect();
        assert_eq!(groups(&records, &[5; 70]).len(), 70);
        assert_eq!(groups(&records[..64], &[5; 64]).len(), 1);
    }
}
