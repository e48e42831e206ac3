//! Memory whose size the user's data or settings choose.
//!
//! `vec![0.0; n]` ends the process when the system has no room, and with it a server that trains
//! models for others. Everything whose length follows from rows, columns or classes is allocated
//! here, so that a lack of memory is an error like any other.

use crate::error::{Error, Result};

/// Makes room for exactly `len` more entries.
///
/// # Errors
/// [`Error::OutOfMemory`].
pub fn reserve<T>(vec: &mut Vec<T>, len: usize) -> Result<()> {
    let before = vec.capacity();
    vec.try_reserve_exact(len).map_err(|_| Error::OutOfMemory {
        bytes: len.saturating_mul(size_of::<T>()),
    })?;
    if vec.capacity() != before {
        in_large_pages(vec);
    }
    Ok(())
}

/// Bytes of a large page.
#[cfg(target_os = "linux")]
const LARGE_PAGE: usize = 1 << 21;

/// Asks for memory in large pages where it is large: rows of a batch lie anywhere, and each page needs a
/// translation, as well as a fault when it is first written to.
fn in_large_pages<T>(vec: &mut Vec<T>) {
    #[cfg(target_os = "linux")]
    {
        let start = vec.as_mut_ptr() as usize;
        let first = start.next_multiple_of(LARGE_PAGE);
        let end = (start + vec.capacity() * size_of::<T>()) / LARGE_PAGE * LARGE_PAGE;
        if end > first {
            // SAFETY: the range lies within the vector's memory, and the advice changes none of its
            // contents. It may be refused.
            unsafe { libc::madvise(first as *mut libc::c_void, end - first, libc::MADV_HUGEPAGE) };
        }
    }
    #[cfg(not(target_os = "linux"))]
    let _ = vec;
}

/// Makes room for `len` more entries; if it has to grow, for as many again.
///
/// # Errors
/// [`Error::OutOfMemory`].
pub fn grow<T>(vec: &mut Vec<T>, len: usize) -> Result<()> {
    let bytes = len.saturating_mul(size_of::<T>());
    vec.try_reserve(len)
        .map_err(|_| Error::OutOfMemory { bytes })
}

/// An empty vector with room for exactly `len` entries.
///
/// # Errors
/// [`Error::OutOfMemory`].
pub fn with_capacity<T>(len: usize) -> Result<Vec<T>> {
    let mut vec = Vec::new();
    reserve(&mut vec, len)?;
    Ok(vec)
}

/// `len` copies of `value`.
///
/// # Errors
/// [`Error::OutOfMemory`].
pub fn filled<T: Clone>(len: usize, value: T) -> Result<Vec<T>> {
    let mut vec = with_capacity(len)?;
    vec.resize(len, value);
    Ok(vec)
}

/// `len` zeros.
///
/// # Errors
/// [`Error::OutOfMemory`].
pub fn zeros<T: Clone + Default>(len: usize) -> Result<Vec<T>> {
    filled(len, T::default())
}

/// `rows * columns` zeros; a product beyond the address space is a lack of memory too.
///
/// # Errors
/// [`Error::OutOfMemory`].
pub fn matrix<T: Clone + Default>(rows: usize, columns: usize) -> Result<Vec<T>> {
    // `isize::MAX` bytes at most are ever allocated, so the saturated size is refused.
    zeros(rows.saturating_mul(columns))
}

/// Makes `vec` as long as `len`, new entries zero.
///
/// # Errors
/// [`Error::OutOfMemory`].
pub fn resize<T: Clone + Default>(vec: &mut Vec<T>, len: usize) -> Result<()> {
    reserve(vec, len.saturating_sub(vec.len()))?;
    vec.resize(len, T::default());
    Ok(())
}

/// Collects an iterator of known length.
///
/// # Errors
/// [`Error::OutOfMemory`].
pub fn collected<T>(values: impl ExactSizeIterator<Item = T>) -> Result<Vec<T>> {
    let mut vec = with_capacity(values.len())?;
    vec.extend(values);
    Ok(vec)
}

/// `map` of every one of `values`.
///
/// # Errors
/// [`Error::OutOfMemory`].
pub fn mapped<T, U>(values: &[T], map: impl Fn(&T) -> U) -> Result<Vec<U>> {
    collected(values.iter().map(map))
}

/// Appends `more`; where there is no room, with as much again to spare.
///
/// # Errors
/// [`Error::OutOfMemory`].
pub fn append<T: Copy>(vec: &mut Vec<T>, more: &[T]) -> Result<()> {
    let spare = vec.len();
    append_sparing(vec, more, spare)
}

/// Appends `more`; where there is no room, with room for `spare` entries.
///
/// # Errors
/// [`Error::OutOfMemory`].
pub fn append_sparing<T: Copy>(vec: &mut Vec<T>, more: &[T], spare: usize) -> Result<()> {
    if vec.capacity() - vec.len() < more.len() {
        reserve(vec, more.len().max(spare))?;
    }
    vec.extend_from_slice(more);
    Ok(())
}

/// A copy of `values`.
///
/// # Errors
/// [`Error::OutOfMemory`].
pub fn copied<T: Clone>(values: &[T]) -> Result<Vec<T>> {
    let mut vec = with_capacity(values.len())?;
    vec.extend_from_slice(values);
    Ok(vec)
}
