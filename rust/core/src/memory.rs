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
    vec.try_reserve_exact(len).map_err(|_| Error::OutOfMemory {
        bytes: len.saturating_mul(size_of::<T>()),
    })
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

/// A copy of `values`.
///
/// # Errors
/// [`Error::OutOfMemory`].
pub fn copied<T: Clone>(values: &[T]) -> Result<Vec<T>> {
    let mut vec = with_capacity(values.len())?;
    vec.extend_from_slice(values);
    Ok(vec)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lack_of_memory_is_an_error() {
        let refused = |bytes| Err::<Vec<f64>, _>(Error::OutOfMemory { bytes });
        assert_eq!(zeros::<f64>(usize::MAX / 8), refused(usize::MAX / 8 * 8));
        assert_eq!(matrix::<f64>(usize::MAX, 3), refused(usize::MAX));
        assert_eq!(matrix::<f64>(2, 2), Ok(vec![0.0; 4]));
        assert_eq!(copied(&[1.0, 2.0]), Ok(vec![1.0, 2.0]));
    }
}
