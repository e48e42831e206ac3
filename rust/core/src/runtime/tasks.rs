//! Work on threads other than the caller's, which watches the interrupt meanwhile.

use crate::error::{Error, Result};
use crate::runtime::float_mode::{USUAL_ARITHMETIC, exchange_arithmetic};
use crate::runtime::interrupt::{Interrupt, Relayed};
use crate::runtime::memory::{collected, matrix, zeros};
use crate::runtime::threads::{PARALLEL_WORK, check_threads, own, pool, share};
use rayon::ThreadPool;
use std::panic::resume_unwind;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

/// Interval at which a caller that waits for other threads polls its interrupt.
const WATCH_PERIOD: Duration = Duration::from_millis(10);

/// Stack of a thread for work that calls deeply: a caller's own may have as little as 64 kB.
const LARGE_STACK: usize = 4 << 20;

fn large_stack() -> std::thread::Builder {
    std::thread::Builder::new()
        .name("dpsvm".into())
        .stack_size(LARGE_STACK)
}

/// Error of a thread that cannot be started: there was no memory for its stack.
fn no_stack<E>(_: E) -> Error {
    Error::OutOfMemory { bytes: LARGE_STACK }
}

/// Relays the interrupt until the other side of the channel is dropped.
fn relay(wait: &Receiver<()>, interrupt: &dyn Interrupt, stopped: &AtomicBool) {
    while wait.recv_timeout(WATCH_PERIOD) == Err(RecvTimeoutError::Timeout) {
        if interrupt.stopped() {
            stopped.store(true, Ordering::Relaxed);
        }
    }
}

/// `work` on a thread with room on its stack, while the calling one watches the interrupt and
/// relays it.
///
/// # Errors
/// A thread that cannot be started; the errors of `work`.
///
/// # Panics
/// If `work` panics.
pub fn on_large_stack<R: Send>(
    interrupt: &dyn Interrupt,
    work: impl FnOnce(&dyn Interrupt) -> Result<R> + Send,
) -> Result<R> {
    let stopped = AtomicBool::new(false);
    let (finished, wait) = channel::<()>();
    std::thread::scope(|scope| {
        let stopped = &stopped;
        let worker = large_stack()
            .spawn_scoped(scope, move || {
                // Dropped when the work is done, or has panicked.
                let _finished = finished;
                exchange_arithmetic(USUAL_ARITHMETIC);
                work(&Relayed(stopped))
            })
            .map_err(no_stack)?;
        relay(&wait, interrupt, stopped);
        worker.join().unwrap_or_else(|panic| resume_unwind(panic))
    })
}

/// `work` on a thread with room on its stack, for work that never looks at an interrupt: it is left
/// alone when the caller wants to stop, and ends by itself.
///
/// # Errors
/// A thread that cannot be started; [`Error::Interrupted`]; the errors of `work`.
///
/// # Panics
/// If `work` panics.
pub(crate) fn left_when_stopped<R: Send + 'static>(
    interrupt: &dyn Interrupt,
    work: impl FnOnce() -> Result<R> + Send + 'static,
) -> Result<R> {
    let (finished, wait) = channel::<()>();
    let worker = large_stack()
        .spawn(move || {
            let _finished = finished;
            exchange_arithmetic(USUAL_ARITHMETIC);
            work()
        })
        .map_err(no_stack)?;
    while wait.recv_timeout(WATCH_PERIOD) == Err(RecvTimeoutError::Timeout) {
        interrupt.check()?;
    }
    worker.join().unwrap_or_else(|panic| resume_unwind(panic))
}

/// `work(i, item, interrupt)` on every item, each by one thread: for many independent tasks, long
/// or short.
///
/// With several threads the calling one only watches the interrupt, and relays it to the others.
/// The error returned is that of the first item that has one, whatever the number of threads.
///
/// # Errors
/// [`Error::Interrupted`], threads out of range, the errors of `work`.
pub fn each_task<T: Send>(
    threads: usize,
    items: &mut [T],
    interrupt: &dyn Interrupt,
    work: impl Fn(usize, &mut T, &dyn Interrupt) -> Result<()> + Sync,
) -> Result<()> {
    check_threads(threads)?;
    if threads == 1 || items.len() < 2 {
        for (i, item) in items.iter_mut().enumerate() {
            interrupt.check()?;
            work(i, item, interrupt)?;
        }
        return Ok(());
    }
    let slots = collected(items.iter_mut().map(Mutex::new))?;
    watched(&*pool(threads)?, slots.len(), interrupt, &|i, interrupt| {
        work(i, &mut **own(&slots[i]), interrupt)
    })
}

/// Solves `count` independent problems; returns `size` numbers each, one problem after the other,
/// zeros where there are none, and what else `solve` returns. One thread solves a problem.
///
/// # Errors
/// Threads out of range; no memory; an interrupt; the errors of `solve`.
pub(crate) fn each_problem<R: Clone + Default + Send>(
    (count, size): (usize, usize),
    threads: usize,
    interrupt: &dyn Interrupt,
    solve: impl Fn(usize, &dyn Interrupt) -> Result<(Option<Vec<f64>>, R)> + Sync,
) -> Result<(Vec<f64>, Vec<R>)> {
    let (mut numbers, mut told) = (matrix(count, size)?, zeros(count)?);
    // Without numbers there is nothing to write to, for any problem.
    let mut places = numbers.chunks_exact_mut(size.max(1));
    let tasks = told
        .iter_mut()
        .map(|told| (places.next().unwrap_or_default(), told));
    let mut tasks = collected(tasks)?;
    each_task(threads, &mut tasks, interrupt, |i, (place, told), watch| {
        let (found, own) = solve(i, watch)?;
        if let Some(found) = found {
            place.copy_from_slice(&found);
        }
        **told = own;
        Ok(())
    })?;
    Ok((numbers, told))
}

/// `work(i, interrupt)` for each `i < count` on the pool, while the calling thread watches.
fn watched(
    pool: &ThreadPool,
    count: usize,
    interrupt: &dyn Interrupt,
    work: &(dyn Fn(usize, &dyn Interrupt) -> Result<()> + Sync),
) -> Result<()> {
    let stopped = AtomicBool::new(false);
    let (finished, wait) = channel::<()>();
    let first: Mutex<Option<(usize, Error)>> = Mutex::new(None);
    pool.in_place_scope(|scope| {
        let (first, stopped) = (&first, &stopped);
        scope.spawn(move |_| {
            // Dropped when the work is done, or has panicked.
            let _finished = finished;
            let relayed = Relayed(stopped);
            share(pool, count, &|i| {
                if let Err(error) = relayed.check().and_then(|()| work(i, &relayed)) {
                    let mut first = own(first);
                    if first.as_ref().is_none_or(|(least, _)| i < *least) {
                        *first = Some((i, error));
                    }
                }
            });
        });
        relay(&wait, interrupt, stopped);
    });
    if stopped.into_inner() {
        return Err(Error::Interrupted);
    }
    match own(&first).take() {
        Some((_, error)) => Err(error),
        None => Ok(()),
    }
}

/// Rows that one thread maps at a time.
const PART_ROWS: usize = 16;

/// Multiplications of one thread between two looks at the interrupt: some milliseconds.
pub(crate) const LOOK_WORK: usize = 1 << 25;

/// `work(first, part, interrupt)` on all of `out`, which has `width` numbers a row and about `cost`
/// multiplications for each: `part` holds the rows from `first` on. A row that costs more than
/// [`LOOK_WORK`] comes alone, for `work` to look at the interrupt within it.
///
/// # Errors
/// As [`each_task`]; no memory.
pub(crate) fn each_row_part<T: Send>(
    (out, width): (&mut [T], usize),
    (cost, threads): (usize, usize),
    interrupt: &dyn Interrupt,
    work: impl Fn(usize, &mut [T], &dyn Interrupt) -> Result<()> + Sync,
) -> Result<()> {
    check_threads(threads)?;
    let n = out.len() / width.max(1);
    let rows = (LOOK_WORK / cost.max(1)).clamp(1, PART_ROWS);
    let firsts = (0..n).step_by(rows);
    let mut parts = collected(firsts.zip(out.chunks_mut(rows * width.max(1))))?;
    let shared = n.saturating_mul(cost) >= PARALLEL_WORK;
    let threads = if shared { threads } else { 1 };
    each_task(
        threads,
        &mut parts,
        interrupt,
        |_, (first, part), interrupt| work(*first, part, interrupt),
    )
}
