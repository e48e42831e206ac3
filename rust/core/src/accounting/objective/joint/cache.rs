//! Recent calibrations.
//!
//! A fit, its certificate and its clones ask for the same number. The cache never blocks: after a
//! fork in the middle of an update, or next to another thread, it is simply not used.

use std::sync::{Mutex, TryLockError};

/// Entries kept.
const CAPACITY: usize = 64;

/// The arguments of a calibration, bit for bit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Key {
    pub bits: [u64; 3],
    pub classes: usize,
    pub flags: (u8, bool),
}

/// Arguments and result.
type Entry = (Key, Option<f64>);

static RECENT: Mutex<Vec<Entry>> = Mutex::new(Vec::new());

/// Runs `work` on the entries unless someone else holds them.
fn with<T>(work: impl FnOnce(&mut Vec<Entry>) -> T) -> Option<T> {
    match RECENT.try_lock() {
        Ok(mut entries) => Some(work(&mut entries)),
        // Entries are whole at every moment: a panic elsewhere cannot have broken them.
        Err(TryLockError::Poisoned(broken)) => Some(work(&mut broken.into_inner())),
        Err(TryLockError::WouldBlock) => None,
    }
}

/// The entry stored for `key`, if any: it becomes the most recent one.
pub(super) fn find(key: &Key) -> Option<Entry> {
    with(|entries| {
        let at = entries.iter().position(|(known, _)| known == key)?;
        entries[at..].rotate_left(1);
        entries.last().copied()
    })
    .flatten()
}

/// Remembers `value`, forgetting the entry not used for longest.
pub(super) fn store(key: Key, value: Option<f64>) {
    with(|entries| {
        if entries.iter().any(|(known, _)| *known == key) {
            return;
        }
        if entries.len() >= CAPACITY {
            entries.remove(0);
        }
        entries.push((key, value));
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(k: u64) -> Key {
        Key {
            bits: [k, 7, 7],
            classes: 2,
            flags: (9, true),
        }
    }

    #[test]
    fn entries_come_back_until_the_capacity_is_used_up() {
        store(key(0), Some(1.5));
        store(key(1), None);
        assert_eq!(find(&key(0)), Some((key(0), Some(1.5))));
        assert_eq!(find(&key(1)), Some((key(1), None)));
        assert_eq!(find(&key(2)), None);
        for k in 10..10 + CAPACITY as u64 {
            store(key(k), Some(0.0));
        }
        assert_eq!(find(&key(0)), None);
        assert!(with(|entries| entries.len()) <= Some(CAPACITY));
    }
}
