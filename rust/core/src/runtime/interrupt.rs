//! Interruption of a long computation by the caller.

use crate::error::{Error, Result};
use std::sync::atomic::{AtomicBool, Ordering};

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

/// Rows between two looks at the interrupt: below a millisecond for rows of a thousand entries.
const POLL_ROWS: usize = 256;

/// Looks at the interrupt now and then.
///
/// # Errors
/// [`Error::Interrupted`].
#[inline(always)]
pub(crate) fn poll(at: usize, interrupt: &dyn Interrupt) -> Result<()> {
    if at.is_multiple_of(POLL_ROWS) {
        interrupt.check()
    } else {
        Ok(())
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

/// The caller's interrupt as other threads see it.
pub(crate) struct Relayed<'f>(pub &'f AtomicBool);

impl Interrupt for Relayed<'_> {
    fn stopped(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}
