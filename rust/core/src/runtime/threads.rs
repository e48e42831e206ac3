//! Thread pools and reductions whose result does not depend on the number of threads.
//!
//! Work is cut into blocks whose boundaries are constants of the problem; each block is computed
//! by one thread, and partial results are combined in block order.

use crate::error::{Error, Result, require};
use crate::runtime::float_mode::{USUAL_ARITHMETIC, exchange_arithmetic};
use crate::runtime::interrupt::Interrupt;
use crate::runtime::memory::{collected, with_capacity};
use rayon::prelude::*;
use rayon::{ThreadPool, ThreadPoolBuilder};
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Duration;

/// Entries of X from which a pass is worth sharing out: below, waking the pool up (10 to 20
/// microseconds) eats the gain.
pub(crate) const PARALLEL_ENTRIES: usize = 1 << 18;

/// Multiplications from which work is worth sharing out, for the same reason.
pub(crate) const PARALLEL_WORK: usize = 1 << 20;

/// Largest number of threads that a caller may ask for.
pub const MAX_THREADS: usize = 1024;

/// Threads used when the caller names none: the cores this process may run on.
pub fn default_threads() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Pools by size, each with the process that started it: after `fork` the child has no worker
/// threads, so a pool of another process is never used.
static POOLS: Mutex<Vec<SharedPool>> = Mutex::new(Vec::new());

/// Process, threads, pool.
type SharedPool = (u32, usize, Arc<ThreadPool>);

/// Refuses numbers of threads that no machine has.
///
/// # Errors
/// `n_threads` of 0 or above [`MAX_THREADS`].
pub(crate) fn check_threads(threads: usize) -> Result<()> {
    let message = format_args!("got {threads}, expected 1 to {MAX_THREADS}");
    require((1..=MAX_THREADS).contains(&threads), "n_threads", message)
}

/// The shared pool of `threads` workers of this process.
///
/// # Errors
/// `n_threads` of 0 or above [`MAX_THREADS`]; a system that cannot start the threads.
pub fn pool(threads: usize) -> Result<Arc<ThreadPool>> {
    check_threads(threads)?;
    let process = std::process::id();
    let Some(mut pools) = lock() else {
        return start(threads);
    };
    if pools.iter().any(|(id, _, _)| *id != process) {
        // Dropping a pool of the parent would wait for threads that do not exist here.
        pools.drain(..).for_each(std::mem::forget);
    }
    if let Some((_, _, pool)) = pools.iter().find(|(_, n, _)| *n == threads) {
        return Ok(Arc::clone(pool));
    }
    let pool = start(threads)?;
    pools.push((process, threads, Arc::clone(&pool)));
    Ok(pool)
}

/// [`pool`] where `size` is worth sharing out, `least` being the least that is; none for one thread.
///
/// # Errors
/// As [`pool`]; threads are checked for small sizes too.
pub(crate) fn pool_above(
    threads: usize,
    size: usize,
    least: usize,
) -> Result<Option<Arc<ThreadPool>>> {
    check_threads(threads)?;
    let shared = threads > 1 && size >= least;
    shared.then(|| pool(threads)).transpose()
}

fn start(threads: usize) -> Result<Arc<ThreadPool>> {
    ThreadPoolBuilder::new()
        .num_threads(threads)
        .thread_name(|i| format!("dpsvm-{i}"))
        .start_handler(|_| {
            exchange_arithmetic(USUAL_ARITHMETIC);
        })
        .build()
        .map(Arc::new)
        .map_err(|e| Error::invalid("n_threads", format!("cannot start {threads} threads: {e}")))
}

/// The list of pools; `None` when it stays locked: a fork while another thread held the lock
/// leaves it so in the child for ever, and the child then does without sharing.
fn lock() -> Option<MutexGuard<'static, Vec<SharedPool>>> {
    for _ in 0..LOCK_TRIES {
        match POOLS.try_lock() {
            Ok(pools) => return Some(pools),
            Err(TryLockError::Poisoned(pools)) => return Some(pools.into_inner()),
            Err(TryLockError::WouldBlock) => std::thread::sleep(Duration::from_millis(1)),
        }
    }
    None
}

/// Milliseconds to wait for the list: starting a pool of a thousand threads takes less.
const LOCK_TRIES: usize = 200;

/// Blocks handed to the pool between two checks of the interrupt, per thread.
const WAVE: usize = 4;

/// `work(block)` for every block, results in block order.
///
/// Blocks run on `pool`, or on the calling thread when there is none. The interrupt is looked at
/// between waves of blocks, on the calling thread only.
///
/// # Errors
/// The first error of `work`; no memory; [`Error::Interrupted`].
pub(crate) fn map_blocks<R: Send>(
    pool: Option<&ThreadPool>,
    blocks: usize,
    interrupt: &dyn Interrupt,
    work: impl Fn(usize) -> Result<R> + Sync,
) -> Result<Vec<R>> {
    let mut results = with_capacity(blocks)?;
    let wave = pool.map_or(blocks, |pool| WAVE * pool.current_num_threads());
    for first in (0..blocks).step_by(wave.max(1)) {
        let last = blocks.min(first + wave);
        let mut found = collected((first..last).map(|block| (block, None)))?;
        each_block(pool, &mut found, interrupt, |(block, result)| {
            *result = Some(work(*block)?);
            Ok(())
        })?;
        results.extend(found.into_iter().filter_map(|(_, result)| result));
    }
    Ok(results)
}

/// `work(chunk, part)` on every chunk of `size` values, each by one thread of `pool`, or one after the
/// other on the calling thread when there is none.
pub(crate) fn each_chunk<T: Send>(
    pool: Option<&ThreadPool>,
    values: &mut [T],
    size: usize,
    work: &(dyn Fn(usize, &mut [T]) + Sync),
) {
    if let Some(pool) = pool {
        return pool.install(|| {
            let chunks = values.par_chunks_mut(size).enumerate().with_max_len(1);
            chunks.for_each(|(chunk, part)| work(chunk, part));
        });
    }
    for (chunk, part) in values.chunks_mut(size).enumerate() {
        work(chunk, part);
    }
}

/// `work(i)` for each `i < count` on the pool; compiled once for all that is shared out.
pub(super) fn share(pool: &ThreadPool, count: usize, work: &(dyn Fn(usize) + Sync)) {
    pool.install(|| (0..count).into_par_iter().with_max_len(1).for_each(work));
}

/// Locks a slot that only one block uses, so that it never waits.
pub(crate) fn own<T>(slot: &Mutex<T>) -> MutexGuard<'_, T> {
    slot.lock().unwrap_or_else(PoisonError::into_inner)
}

/// `work` on every item, each by one thread.
///
/// Items run on `pool`, or one after the other on the calling thread when there is none. The
/// interrupt is looked at before, on the calling thread only.
///
/// # Errors
/// The first error of `work`, in the order of the items; [`Error::Interrupted`].
pub(crate) fn each_block<T: Send>(
    pool: Option<&ThreadPool>,
    items: &mut [T],
    interrupt: &dyn Interrupt,
    work: impl Fn(&mut T) -> Result<()> + Sync + Send,
) -> Result<()> {
    interrupt.check()?;
    if let Some(pool) = pool {
        let slots = collected(items.iter_mut().map(|item| Mutex::new((item, None))))?;
        share(pool, slots.len(), &|at| {
            let mut slot = own(&slots[at]);
            slot.1 = work(slot.0).err();
        });
        let mut errors = slots.iter().filter_map(|slot| own(slot).1.take());
        return errors.next().map_or(Ok(()), Err);
    }
    items.iter_mut().try_for_each(|item| {
        interrupt.check()?;
        work(item)
    })
}

/// Entries that each thread treats between two looks at the interrupt: a few milliseconds.
const WAVE_ENTRIES: usize = 1 << 21;

/// Ranges of `n` rows with `stored` entries, each small enough for one wave.
pub(crate) fn waves(n: usize, stored: usize, threads: usize) -> impl Iterator<Item = Range<usize>> {
    let per_row = stored.div_ceil(n.max(1)).max(1);
    let rows = (WAVE_ENTRIES / per_row).max(256).saturating_mul(threads);
    (0..n)
        .step_by(rows)
        .map(move |first| first..n.min(first.saturating_add(rows)))
}

/// Cuts `wave` into one range a share.
pub(crate) fn share_out<T>(
    wave: &Range<usize>,
    shares: &mut [T],
    range: impl Fn(&mut T) -> &mut Range<usize>,
) {
    let length = wave.len().div_ceil(shares.len()).max(1);
    for (at, share) in shares.iter_mut().enumerate() {
        let first = wave.end.min(wave.start + at * length);
        *range(share) = first..wave.end.min(first + length);
    }
}
