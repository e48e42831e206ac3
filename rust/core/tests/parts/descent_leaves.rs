//! Leaves of a batch, and how few of them one record changes.

use crate::descent::leaves::{LEAF, plant};
use std::collections::BTreeSet;

fn number(state: &mut u64) -> u32 {
    *state = state
        .wrapping_mul(6_364_136_223_846_793_005)
        .wrapping_add(1);
    (*state >> 32) as u32
}

fn groups(records: &[u32], tags: &[u32]) -> BTreeSet<Vec<u32>> {
    let (mut batch, mut leaves) = (records.to_vec(), Vec::new());
    let (mut keys, mut before) = (vec![0; tags.len()], vec![0; tags.len()]);
    plant(&mut batch, tags, (&mut keys, &mut before), &mut leaves);
    let mut sorted: Vec<_> = tags.iter().zip(records).collect();
    sorted.sort();
    let sorted: Vec<_> = sorted.into_iter().map(|(_, record)| *record).collect();
    assert_eq!(batch, sorted);
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
