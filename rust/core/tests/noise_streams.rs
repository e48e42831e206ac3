//! Keys and streams: separate, reproducible, secret, and never weaker than asked.

use dpsvm_core::Error;
use dpsvm_core::noise::Key;
use rand::Rng;
use std::collections::BTreeSet;

#[test]
fn failing_entropy_source_is_an_error() {
    let broken = |bytes: &mut [u8]| {
        bytes[..16].fill(7);
        Err("no device")
    };
    match Key::from_source(broken) {
        Err(Error::Entropy(why)) => assert_eq!(why, "no device"),
        other => panic!("expected an entropy error, got {other:?}"),
    }
}

#[test]
fn source_fills_the_whole_key() {
    let mut asked = 0;
    let key = Key::from_source(|bytes: &mut [u8]| {
        asked = bytes.len();
        bytes.fill(1);
        Ok::<(), &str>(())
    });
    assert!(key.is_ok());
    assert_eq!(asked, 32);
}

#[test]
fn system_keys_differ() {
    let words: BTreeSet<u64> = (0..64)
        .map(|_| Key::from_system().unwrap().task(0).first_word())
        .collect();
    assert_eq!(words.len(), 64);
}

/// By the birthday bound, 975,000 independent words repeat with probability below 3e-8.
#[test]
fn streams_never_repeat_a_word() {
    let mut seen = BTreeSet::new();
    for seed in [0, 1, u64::MAX] {
        let key = Key::from_seed(seed);
        for task in [0, 1, 2, 1 << 31, u32::MAX] {
            for step in [0, 1, 2, 1 << 31, u32::MAX] {
                let mut stream = key.task(task).stream(step);
                for _ in 0..13_000 {
                    let fresh = seen.insert(stream.next_u64());
                    assert!(fresh, "seed {seed}, task {task}, step {step}");
                }
            }
        }
    }
    assert_eq!(seen.len(), 975_000);
}

#[test]
fn a_stream_can_be_opened_again() {
    let key = Key::from_seed(3);
    let read = |task, step| -> Vec<u64> {
        let mut stream = key.task(task).stream(step);
        (0..1000).map(|_| stream.next_u64()).collect()
    };
    assert_eq!(read(5, 6), read(5, 6));
    assert_ne!(read(5, 6), read(6, 5));
}

#[test]
fn printing_shows_no_secret() {
    let key = Key::from_seed(0x0123_4567_89ab_cdef);
    assert_eq!(format!("{key:?}"), "Key(..)");
    assert_eq!(format!("{:?}", key.task(0).stream(0)), "Stream(..)");
    assert_eq!(
        format!("{:?}", key.task(4)),
        "Task { key: Key(..), number: 4 }"
    );
}
