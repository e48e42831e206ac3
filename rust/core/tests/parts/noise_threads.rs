//! What every sampler owes: the same values for any number of threads, an end when asked, errors
//! instead of aborts.

use dpsvm_core::noise::{
    BLOCK, Key, Task, discrete_gaussian, gamma_ball, gaussian, gaussian_on_grid, symmetric_gaussian,
};
use dpsvm_core::runtime::interrupt::{Interrupt, Never};
use dpsvm_core::{Error, Result};
use std::cell::Cell;

type Sampler = fn(Task<'_>, usize, usize, &dyn Interrupt) -> Result<Vec<u64>>;

fn bits(values: Vec<f64>) -> Vec<u64> {
    values.into_iter().map(f64::to_bits).collect()
}

/// Every sampler as a function of (task, size, threads, interrupt), values as bits.
const SAMPLERS: [(&str, Sampler); 5] = [
    ("gaussian_on_grid", |task, size, threads, interrupt| {
        let values = gaussian_on_grid(task, size, 3.7, 0.25, threads, interrupt)?;
        Ok(values.into_iter().map(i64::cast_unsigned).collect())
    }),
    ("discrete_gaussian", |task, size, threads, interrupt| {
        let values = discrete_gaussian(task, size, 1000, threads, interrupt)?;
        Ok(values.into_iter().map(i64::cast_unsigned).collect())
    }),
    ("gaussian", |task, size, threads, interrupt| {
        gaussian(task, size, 3.7, threads, interrupt).map(bits)
    }),
    ("gamma_ball", |task, size, threads, interrupt| {
        gamma_ball(task, size, 3.7, threads, interrupt).map(bits)
    }),
    ("symmetric_gaussian", |task, size, threads, interrupt| {
        symmetric_gaussian(task, size.isqrt(), 3.7, threads, interrupt).map(bits)
    }),
];

// Proof: grid_gaussian
// Proof: discrete_gaussian
#[test]
fn values_do_not_depend_on_the_number_of_threads() {
    let key = Key::from_seed(11);
    for (name, sample) in SAMPLERS {
        for size in [1, 5, BLOCK, 8 * BLOCK + 1, 130 * BLOCK + 17] {
            let one = sample(key.task(2), size, 1, &Never).unwrap();
            for threads in [2, 4] {
                let more = sample(key.task(2), size, threads, &Never).unwrap();
                assert!(one == more, "{name}, size {size}, {threads} threads");
            }
        }
    }
}

#[test]
fn tasks_and_keys_give_different_values() {
    for (name, sample) in SAMPLERS {
        let draw = |seed, task| sample(Key::from_seed(seed).task(task), 100, 1, &Never).unwrap();
        assert_ne!(draw(1, 0), draw(1, 1), "{name}");
        assert_ne!(draw(1, 0), draw(2, 0), "{name}");
        assert_eq!(draw(1, 0), draw(1, 0), "{name}");
    }
}

/// Stops when asked for the n-th time.
struct After(Cell<usize>);

impl Interrupt for After {
    fn stopped(&self) -> bool {
        self.0.set(self.0.get().saturating_sub(1));
        self.0.get() == 0
    }
}

#[test]
fn an_interrupt_ends_a_long_draw() {
    let key = Key::from_seed(0);
    for (name, sample) in SAMPLERS {
        // 8 GB in the end, but only a few megabytes of it are touched before the stop.
        let outcome = sample(key.task(0), 1_000_000_000, 2, &After(Cell::new(3)));
        assert_eq!(outcome.err(), Some(Error::Interrupted), "{name}");
    }
}

#[test]
fn impossible_sizes_are_errors() {
    let key = Key::from_seed(0);
    for (name, sample) in SAMPLERS {
        for size in [usize::MAX, usize::MAX / 16, 1 << 58] {
            let outcome = sample(key.task(0), size, 1, &Never).err();
            assert!(
                matches!(
                    outcome,
                    Some(Error::OutOfMemory { .. } | Error::InvalidArgument { .. })
                ),
                "{name} {size}: {outcome:?}"
            );
        }
    }
}

#[test]
fn thread_counts_are_checked() {
    let key = Key::from_seed(0);
    for (name, sample) in SAMPLERS {
        for threads in [0, 1_000_000] {
            let outcome = sample(key.task(0), 10_000, threads, &Never).err();
            assert!(
                matches!(
                    outcome,
                    Some(Error::InvalidArgument {
                        name: "n_threads",
                        ..
                    })
                ),
                "{name} {threads}: {outcome:?}"
            );
        }
    }
}

#[test]
fn empty_arrays_work() {
    let key = Key::from_seed(0);
    for (name, sample) in SAMPLERS {
        let values = sample(key.task(0), 0, 1, &Never).unwrap();
        assert!(values.is_empty(), "{name}");
    }
}

#[test]
fn sigma_zero_gives_zeros_and_bad_sigmas_are_refused() {
    let key = Key::from_seed(0);
    assert!(gaussian(key.task(0), 9, 0.0, 1, &Never).unwrap() == [0.0; 9]);
    assert!(gaussian_on_grid(key.task(0), 9, 0.0, 0.5, 1, &Never).unwrap() == [0; 9]);
    assert!(symmetric_gaussian(key.task(0), 3, 0.0, 1, &Never).unwrap() == [0.0; 9]);
    for sigma in [-1.0, f64::NAN, f64::INFINITY, 5e-324, 1e308] {
        assert!(gaussian(key.task(0), 9, sigma, 1, &Never).is_err());
        assert!(symmetric_gaussian(key.task(0), 3, sigma, 1, &Never).is_err());
    }
}

/// The meaning of a seed must not change between versions or platforms.
#[test]
fn seeded_values_are_pinned() {
    let key = Key::from_seed(2026);
    let grid = gaussian_on_grid(key.task(0), 6, 1000.25, 1.0, 1, &Never).unwrap();
    assert_eq!(grid, [-678, -345, 1890, -1586, -265, -110]);
    let fast = gaussian(key.task(1), 3, 1.0, 1, &Never).unwrap();
    assert_eq!(
        fast,
        [
            0.424_201_216_839_534_77,
            0.295_384_557_697_495_4,
            -1.904_063_428_497_218
        ]
    );
}
