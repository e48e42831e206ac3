//! A team does each piece once, ends when asked, and passes panics on.

use crate::runtime::team::Team;
use dpsvm_core::runtime::interrupt::{Interrupt, Never};
use dpsvm_core::{Error, Result};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};

#[test]
fn each_piece_is_done_once() -> Result<()> {
    for threads in [1, 2, 3, 64] {
        Team::gather(threads, |team| {
            // Many phases at once: a helper that comes late must not take a piece of another phase.
            for count in (0..2000).map(|phase| phase % 23) {
                let done: Vec<_> = (0..count).map(|_| AtomicUsize::new(0)).collect();
                team.each(count, &Never, &|thread, piece| {
                    assert!(thread < team.threads());
                    done[piece].fetch_add(1, SeqCst);
                })?;
                assert!(done.iter().all(|times| times.load(SeqCst) == 1));
            }
            let mut values = vec![0; 1001];
            team.each_chunk(&mut values, 10, &|chunk, part| part.fill(chunk))?;
            assert!(values.iter().enumerate().all(|(i, chunk)| i / 10 == *chunk));
            Ok(())
        })?;
    }
    Ok(())
}

struct After<'a>(&'a AtomicUsize, usize);

impl Interrupt for After<'_> {
    fn stopped(&self) -> bool {
        self.0.load(SeqCst) >= self.1
    }
}

#[test]
fn an_interrupt_ends_the_phase_and_not_the_team() {
    for threads in [1, 2] {
        Team::gather(threads, |team| {
            let done = AtomicUsize::new(0);
            let work = |_, _| {
                done.fetch_add(1, SeqCst);
                std::thread::yield_now();
            };
            let stopped = team.each(100_000, &After(&done, 5), &work);
            assert!(matches!(stopped, Err(Error::Interrupted)));
            let before = done.load(SeqCst);
            assert!((5..100_000).contains(&before));
            team.each(7, &Never, &work).unwrap();
            assert_eq!(done.load(SeqCst), before + 7);
        });
    }
}

#[test]
fn panics_reach_the_caller() {
    for in_helper in [false, true] {
        let met = AtomicBool::new(false);
        let run = || {
            Team::gather(2, |team| {
                for _ in 0..1000 {
                    let _ = team.each(2, &Never, &|thread, _| {
                        // Either thread may take both pieces: until it happened, the other waits.
                        if (thread == 1) == in_helper || team.threads() == 1 {
                            met.store(true, SeqCst);
                            panic!("meant");
                        }
                        while in_helper && !met.load(SeqCst) {
                            std::thread::yield_now();
                        }
                    });
                }
            });
        };
        assert!(catch_unwind(AssertUnwindSafe(run)).is_err(), "{in_helper}");
    }
}
