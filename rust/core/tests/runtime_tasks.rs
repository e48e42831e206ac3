//! Many independent tasks: results, errors and interrupts that do not depend on the threads.

use dpsvm_core::Error;
use dpsvm_core::runtime::interrupt::{Interrupt, Never};
use dpsvm_core::runtime::tasks::each_task;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

#[test]
fn every_item_is_worked_on_once() {
    for threads in [1, 2, 4] {
        for len in [0, 1, 2, 1000] {
            let mut items = vec![0; len];
            let outcome = each_task(threads, &mut items, &Never, |i, item, _| {
                *item += i + 1;
                Ok(())
            });
            assert_eq!(outcome, Ok(()));
            assert!(items.iter().enumerate().all(|(i, item)| *item == i + 1));
        }
    }
}

#[test]
fn the_first_error_is_returned() {
    for threads in [1, 2, 4] {
        let outcome = each_task(threads, &mut [(); 500], &Never, |i, (), _| {
            if i % 100 == 37 {
                return Err(Error::invalid("X", format!("task {i}")));
            }
            Ok(())
        });
        assert_eq!(outcome, Err(Error::invalid("X", "task 37")));
    }
}

#[test]
fn threads_out_of_range_are_refused() {
    for threads in [0, 1025] {
        let outcome = each_task(threads, &mut [1, 2], &Never, |_, _, _| Ok(()));
        assert!(matches!(
            outcome,
            Err(Error::InvalidArgument {
                name: "n_threads",
                ..
            })
        ));
    }
}

/// Stops some time after it was made.
struct Later(Instant);

impl Interrupt for Later {
    fn stopped(&self) -> bool {
        self.0.elapsed() > Duration::from_millis(50)
    }
}

/// Long tasks see the interrupt, and those that have not begun do not begin.
#[test]
fn an_interrupt_reaches_the_workers() {
    for threads in [1, 3] {
        let begun = AtomicUsize::new(0);
        let later = Later(Instant::now());
        let outcome = each_task(threads, &mut [(); 10_000], &later, |_, (), interrupt| {
            begun.fetch_add(1, Ordering::Relaxed);
            loop {
                interrupt.check()?;
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        assert_eq!(outcome, Err(Error::Interrupted));
        assert!(begun.into_inner() <= threads);
    }
}

#[test]
#[should_panic(expected = "a task of its own")]
fn a_panic_comes_back_and_does_not_hang() {
    let _ = each_task(2, &mut [(); 10], &Never, |i, (), _| {
        assert!(i != 7, "a task of its own");
        Ok(())
    });
}
