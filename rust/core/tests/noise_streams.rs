//! Keys and streams: separate, reproducible, secret, and never weaker than asked.

use dpsvm_core::Error;
use dpsvm_core::noise::{Key, Stream};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha20Rng;
use std::collections::BTreeSet;

// Proof: grid_gaussian
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
// Proof: grid_gaussian
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

/// A key with the given bytes.
fn key(bytes: [u8; 32]) -> Key {
    let fill = |out: &mut [u8]| {
        out.copy_from_slice(&bytes);
        Ok::<(), &str>(())
    };
    Key::from_source(fill).unwrap()
}

/// Block `number` of a stream.
fn block(mut stream: Stream, number: usize) -> [u8; 64] {
    let mut bytes = vec![0; 64 * (number + 1)];
    stream.fill_bytes(&mut bytes);
    bytes[64 * number..].try_into().unwrap()
}

/// RFC 8439, appendix A.1, vectors 1 to 5 (first 16 bytes of each block). Its nonce of vector 5 is
/// the stream number here.
// Proof: grid_gaussian
#[test]
fn streams_are_the_cipher_of_the_standard() {
    let last = |byte| {
        let mut bytes = [0; 32];
        bytes[31] = byte;
        bytes
    };
    let mut second = [0; 32];
    second[1] = 0xff;
    let zero = [0; 32];
    let cases = [
        (zero, 0, 0, 0x76b8_e0ad_a0f1_3d90_405d_6ae5_5386_bd28),
        (zero, 0, 1, 0x9f07_e7be_5551_387a_98ba_977c_732d_080d),
        (last(1), 0, 1, 0x3aeb_5224_ecf8_4992_9b9d_828d_b1ce_d4dd),
        (second, 0, 2, 0x72d5_4dfb_f12e_c44b_3626_92df_9413_7f32),
        (
            zero,
            0x0200_0000,
            0,
            0xc2c6_4d37_8cd5_3637_4ae2_04b9_ef93_3fcd,
        ),
    ];
    for (bytes, task, number, expected) in cases {
        let found = block(key(bytes).task(task).stream(0), number);
        let found = u128::from_be_bytes(found[..16].try_into().unwrap());
        assert_eq!(found, expected, "{found:x}");
    }
}

/// Word for word the keystream of another implementation, however it is read.
// Proof: grid_gaussian
#[test]
fn streams_equal_another_implementation() {
    let bytes = std::array::from_fn(|i| (i * i + 11) as u8);
    for (task, step) in [(0, 0), (1, 2), (u32::MAX, 7)] {
        let mut ours = key(bytes).task(task).stream(step);
        let mut theirs = ChaCha20Rng::from_seed(bytes);
        theirs.set_stream(u64::from(task) << 32 | u64::from(step));
        for i in 0..3000 {
            match i % 7 {
                0 | 3 => assert_eq!(ours.next_u32(), theirs.next_u32()),
                1 | 2 | 4 => assert_eq!(ours.next_u64(), theirs.next_u64()),
                _ => {
                    let size = [1, 3, 4, 63, 64, 1000, 1024, 4099][i % 8];
                    let (mut a, mut b) = (vec![0; size], vec![0; size]);
                    ours.fill_bytes(&mut a);
                    theirs.fill_bytes(&mut b);
                    assert!(a == b, "read {i} of {size} bytes");
                }
            }
        }
    }
}
