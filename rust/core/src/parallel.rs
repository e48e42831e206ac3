//! Thread pools and reductions whose result does not depend on the number of threads.
//!
//! Work is cut into blocks whose boundaries are constants of the problem; each block is computed
//! by one thread, and partial results are combined in block order.

use crate::error::{Error, Result};
use crate::memory::with_capacity;
use rayon::prelude::*;
use rayon::{ThreadPool, ThreadPoolBuilder};
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, MutexGuard, TryLockError};
use std::time::Duration;

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
pub fn check_threads(threads: usize) -> Result<()> {
    if (1..=MAX_THREADS).contains(&threads) {
        return Ok(());
    }
    let message = format!("got {threads}, expected 1 to {MAX_THREADS}");
    Err(Error::invalid("n_threads", message))
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

/// The registers that say how a thread rounds and what it does with subnormal numbers: on x86-64
/// MXCSR and, 32 bits higher, the control word of x87, with which libraries still compute norms.
pub type Control = u64;

/// The registers as every program starts: to nearest, with subnormal numbers, without traps.
pub const USUAL_ARITHMETIC: Control = if cfg!(target_arch = "x86_64") {
    0x037f_0000_1f80
} else {
    0
};

/// Sets the registers of this thread, to the usual or to what this returned before.
///
/// A library in the process may have changed it, and a new thread inherits the mode of the one that
/// starts it: bounds of rounding errors would not hold, and bits depend on the number of threads.
#[inline(never)]
pub fn exchange_arithmetic(next: Control) -> Control {
    #[cfg(target_arch = "x86_64")]
    {
        let (mut before, mut before_x87) = (0_u32, 0_u16);
        let (next, next_x87) = (next as u32, (next >> 32) as u16);
        // SAFETY: stores and loads control registers, without bits that the processor refuses.
        unsafe {
            std::arch::asm!("stmxcsr [{}]", in(reg) &raw mut before, options(nostack));
            std::arch::asm!("fnstcw [{}]", in(reg) &raw mut before_x87, options(nostack));
            std::arch::asm!("ldmxcsr [{}]", in(reg) &raw const next, options(nostack));
            std::arch::asm!("fldcw [{}]", in(reg) &raw const next_x87, options(nostack));
        }
        Control::from(before_x87) << 32 | Control::from(before)
    }
    #[cfg(target_arch = "aarch64")]
    {
        let before: Control;
        // SAFETY: reads and writes the control register, without bits that the processor lacks.
        unsafe {
            std::arch::asm!("mrs {}, fpcr", out(reg) before, options(nostack));
            std::arch::asm!("msr fpcr, {}", in(reg) next, options(nostack));
        }
        before
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    next
}

/// `work` in the usual arithmetic, on this thread, whose own is put back.
pub fn in_usual_arithmetic<T>(work: impl FnOnce() -> T) -> T {
    struct Restored(Control);
    impl Drop for Restored {
        fn drop(&mut self) {
            exchange_arithmetic(self.0);
        }
    }
    /// A call of its own, so that the compiler moves no arithmetic out of it.
    #[inline(never)]
    fn call<T>(work: impl FnOnce() -> T) -> T {
        work()
    }
    let _before = Restored(exchange_arithmetic(USUAL_ARITHMETIC));
    call(work)
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

/// Asked by long computations whether they should give up.
///
/// Implementations must be cheap: a solver polls every few hundred microseconds.
pub trait Interrupt {
    /// True once the caller wants the computation to end.
    fn stopped(&self) -> bool;

    /// `Err(Interrupted)` once the caller wants the computation to end.
    ///
    /// # Errors
    /// [`Error::Interrupted`].
    fn check(&self) -> Result<()> {
        if self.stopped() {
            Err(Error::Interrupted)
        } else {
            Ok(())
        }
    }
}

/// Never stops: for tests, benchmarks and short work.
#[derive(Debug, Clone, Copy)]
pub struct Never;

impl Interrupt for Never {
    fn stopped(&self) -> bool {
        false
    }
}

/// Blocks handed to the pool before the interrupt is looked at again, per thread.
const WAVE: usize = 4;

/// `work(block)` for every block, results in block order.
///
/// Blocks run on `pool`, or on the calling thread when there is none. The interrupt is looked at
/// between waves of blocks, on the calling thread only.
///
/// # Errors
/// The first error of `work`; no memory; [`Error::Interrupted`].
pub fn map_blocks<R: Send>(
    pool: Option<&ThreadPool>,
    blocks: usize,
    interrupt: &dyn Interrupt,
    work: impl Fn(usize) -> Result<R> + Sync,
) -> Result<Vec<R>> {
    let mut results = with_capacity(blocks)?;
    let Some(pool) = pool else {
        for block in 0..blocks {
            interrupt.check()?;
            results.push(work(block)?);
        }
        return Ok(results);
    };
    let wave = WAVE * pool.current_num_threads();
    for first in (0..blocks).step_by(wave) {
        interrupt.check()?;
        let last = blocks.min(first + wave);
        let part: Vec<Result<R>> =
            pool.install(|| (first..last).into_par_iter().map(&work).collect());
        for found in part {
            results.push(found?);
        }
    }
    Ok(results)
}

/// `work` on every item, each by one thread.
///
/// Items run on `pool`, or one after the other on the calling thread when there is none. The
/// interrupt is looked at before, on the calling thread only.
///
/// # Errors
/// [`Error::Interrupted`].
pub fn each_block<T: Send>(
    pool: Option<&ThreadPool>,
    items: &mut [T],
    interrupt: &dyn Interrupt,
    work: impl Fn(&mut T) + Sync + Send,
) -> Result<()> {
    interrupt.check()?;
    match pool {
        Some(pool) => pool.install(|| items.par_iter_mut().with_max_len(1).for_each(work)),
        None => {
            for item in items {
                interrupt.check()?;
                work(item);
            }
        }
    }
    Ok(())
}

/// How often a caller that waits for other threads looks at its interrupt.
const WATCH_PERIOD: Duration = Duration::from_millis(10);

/// The caller's interrupt as other threads see it.
struct Relayed<'f>(&'f AtomicBool);

impl Interrupt for Relayed<'_> {
    fn stopped(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// Stack of a thread for work that calls deeply: a caller's own may have as little as 64 kB.
const LARGE_STACK: usize = 4 << 20;

fn large_stack() -> std::thread::Builder {
    std::thread::Builder::new()
        .name("dpsvm".into())
        .stack_size(LARGE_STACK)
}

/// What a thread that cannot be started is: there was no memory for its stack.
fn no_stack<E>(_: E) -> Error {
    Error::OutOfMemory { bytes: LARGE_STACK }
}

/// `work` on a thread with room on its stack, while the calling one watches the interrupt and
/// relays it.
///
/// # Errors
/// A thread that cannot be started; the errors of `work`.
///
/// # Panics
/// As `work` does.
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
        while wait.recv_timeout(WATCH_PERIOD) == Err(RecvTimeoutError::Timeout) {
            if interrupt.stopped() {
                stopped.store(true, Ordering::Relaxed);
            }
        }
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
/// As `work` does.
pub fn left_when_stopped<R: Send + 'static>(
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
    let pool = pool(threads)?;
    let stopped = AtomicBool::new(false);
    let (finished, wait) = channel::<()>();
    let mut outcome = None;
    pool.in_place_scope(|scope| {
        let (outcome, stopped, work) = (&mut outcome, &stopped, &work);
        scope.spawn(move |_| {
            // Dropped when the work is done, or has panicked.
            let _finished = finished;
            let relayed = Relayed(stopped);
            let tasks = items.par_iter_mut().enumerate();
            *outcome = tasks
                .filter_map(|(i, item)| {
                    let result = relayed.check().and_then(|()| work(i, item, &relayed));
                    result.err().map(|error| (i, error))
                })
                .min_by_key(|(i, _)| *i);
        });
        while wait.recv_timeout(WATCH_PERIOD) == Err(RecvTimeoutError::Timeout) {
            if interrupt.stopped() {
                stopped.store(true, Ordering::Relaxed);
            }
        }
    });
    match outcome {
        _ if stopped.into_inner() => Err(Error::Interrupted),
        Some((_, error)) => Err(error),
        None => Ok(()),
    }
}
