//! Threads that stand by while the calling one goes through many short pieces of work.
//!
//! A pool sleeps between two calls, and waking it takes as long as a step of descent on a small batch.
//! A team waits awake, on threads of its own. Each thread takes the pieces of its own share in their
//! order, so that it may ask for their memory early, and then those of the others' shares: the calling
//! thread never waits for one that has not begun.

use crate::error::Result;
use crate::runtime::float_mode::{USUAL_ARITHMETIC, exchange_arithmetic};
use crate::runtime::interrupt::{Interrupt, Never};
use crate::runtime::memory::collected;
use crate::runtime::threads::{default_threads, own};
use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

/// Work of a thread on a piece, by their numbers.
type Work<'w> = dyn Fn(usize, usize) + Sync + 'w;

/// The calling thread, number 0, and its helpers.
#[derive(Default)]
pub struct Team {
    /// Odd while pieces may be taken, [`OVER`] at the end.
    phase: AtomicUsize,
    /// The next piece of each thread's share.
    next: Vec<AtomicUsize>,
    count: AtomicUsize,
    /// Helpers that may be at a piece.
    busy: AtomicUsize,
    work: Mutex<Option<&'static Work<'static>>>,
}

/// No more phases.
const OVER: usize = usize::MAX;

/// Looks at a number that is about to change, before other programs get the processor: about 50
/// microseconds.
const LOOKS: usize = 1 << 11;

fn wait_until(reached: impl Fn() -> bool) {
    let mut looks = 0;
    while !reached() {
        if looks < LOOKS {
            looks += 1;
            std::hint::spin_loop();
        } else {
            std::thread::yield_now();
        }
    }
}

/// Calls a function when dropped, on a panic too.
struct Finally<F: FnMut()>(F);

impl<F: FnMut()> Drop for Finally<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

impl Team {
    /// `lead(team)` with helpers for `threads` in all, as far as there are cores and the system lends
    /// them.
    pub fn gather<R>(threads: usize, lead: impl FnOnce(&Self) -> R) -> R {
        // Asking for the number of cores takes as long as a short run.
        let team = Self::of(if threads > 1 {
            threads.min(default_threads())
        } else {
            1
        });
        std::thread::scope(|scope| {
            let _end = Finally(|| team.phase.store(OVER, SeqCst));
            for number in 1..team.threads() {
                let helper = std::thread::Builder::new().name("dpsvm".into());
                let team = &team;
                if helper
                    .spawn_scoped(scope, move || team.help(number))
                    .is_err()
                {
                    break;
                }
            }
            lead(&team)
        })
    }

    /// A team for so many threads, of which only the calling one is there yet.
    pub fn of(threads: usize) -> Self {
        Self {
            next: (0..threads).map(|_| AtomicUsize::new(0)).collect(),
            ..Self::default()
        }
    }

    /// Number of threads.
    pub fn threads(&self) -> usize {
        self.next.len()
    }

    /// `work(thread, piece)` for each piece below `count`.
    ///
    /// # Errors
    /// [`crate::Error::Interrupted`]; looked at before each piece of the calling thread.
    pub fn each(&self, count: usize, interrupt: &dyn Interrupt, work: &Work<'_>) -> Result<()> {
        self.count.store(count, SeqCst);
        for (thread, next) in self.next.iter().enumerate() {
            next.store(self.share(thread).start, SeqCst);
        }
        let shared = self.threads() > 1 && count > 1;
        if shared {
            // SAFETY: only the lifetime changes. Helpers call it while they are busy in this phase;
            // `_close` ends the phase and waits for all of them before `work` can die, on a panic too.
            let work = unsafe { std::mem::transmute::<&Work<'_>, &'static Work<'static>>(work) };
            *own(&self.work) = Some(work);
            self.phase.fetch_add(1, SeqCst);
        }
        let _close = Finally(|| {
            if shared {
                self.phase.fetch_add(1, SeqCst);
                wait_until(|| self.busy.load(SeqCst) == 0);
            }
        });
        while let Some(piece) = self.take(0) {
            if let Err(stopped) = interrupt.check() {
                // Nobody takes more.
                self.next.iter().for_each(|next| next.store(count, SeqCst));
                return Err(stopped);
            }
            work(0, piece);
        }
        Ok(())
    }

    /// `work(chunk, part)` on every chunk of `size` values.
    ///
    /// # Errors
    /// No memory.
    pub fn each_chunk<T: Send>(
        &self,
        values: &mut [T],
        size: usize,
        work: &(dyn Fn(usize, &mut [T]) + Sync),
    ) -> Result<()> {
        let parts = collected(values.chunks_mut(size).map(Mutex::new))?;
        self.each(parts.len(), &Never, &|_, chunk| {
            work(chunk, &mut own(&parts[chunk]));
        })
    }

    /// The pieces of a thread's share.
    fn share(&self, thread: usize) -> Range<usize> {
        let (count, threads) = (self.count.load(SeqCst), self.threads());
        count * thread / threads..count * (thread + 1) / threads
    }

    /// The next piece that nobody has, of this thread's share if there is one.
    fn take(&self, thread: usize) -> Option<usize> {
        let mut shares = (thread..self.threads()).chain(0..thread);
        shares.find_map(|share| {
            let piece = self.next[share].fetch_add(1, SeqCst);
            (piece < self.share(share).end).then_some(piece)
        })
    }

    /// The life of a helper.
    fn help(&self, number: usize) {
        exchange_arithmetic(USUAL_ARITHMETIC);
        let mut seen = 0;
        loop {
            wait_until(|| self.phase.load(SeqCst) != seen);
            seen = self.phase.load(SeqCst);
            if seen == OVER {
                return;
            }
            self.busy.fetch_add(1, SeqCst);
            let _idle = Finally(|| {
                self.busy.fetch_sub(1, SeqCst);
            });
            // The phase may have ended meanwhile: then the caller may have seen nobody busy.
            if seen % 2 == 1 && self.phase.load(SeqCst) == seen {
                let work = *own(&self.work);
                while let (Some(work), Some(piece)) = (work, self.take(number)) {
                    work(number, piece);
                }
            }
        }
    }
}
