//! Dense records in files, where memory has no room for them: entries in one, classes in another.
//!
//! Files are not trusted: entries are multiples of [`ROW_GRID`], norms
//! are computed anew from their squares, which are exact, and are at most 1. So a file that was
//! changed is refused, or holds other rows within the same bounds, and no sum moves further than
//! `docs/proofs/gradient_perturbation.md` says.
//!
//! Read and not mapped: pages of a map count as memory of the process, and a disk that fails ends it.

use crate::error::{Error, Result, require};
use crate::records::map::norm_above;
use crate::records::persons::Owners;
use crate::records::store::{ROW_GRID, RecordRows, Records};
use crate::rows::clip::sum_of_squares;
use crate::runtime::interrupt::Interrupt;
use crate::runtime::memory::{collected, resize};
use crate::runtime::threads::{PARALLEL_ENTRIES, each_block, pool_above, waves};
use crate::simd::{Kernel, Simd, dispatch};
use pulp::bytemuck::{cast_slice, cast_slice_mut};
use std::fs::File;
use std::io::{self, Write};

/// Rows that one thread reads at a time: they stay in the second-level cache while they are checked.
const PART_ROWS: usize = 256;

/// Files of the same records.
#[derive(Debug)]
pub struct RecordFiles {
    /// Entries in single precision, row after row.
    pub entries: File,
    /// Classes as unsigned 32-bit numbers.
    pub classes: File,
}

impl Records {
    /// Appends the records to files.
    ///
    /// # Errors
    /// Records that are sparse, lifted or have a centre; a disk that is full.
    pub fn append_to(&self, files: &mut RecordFiles) -> Result<()> {
        let (RecordRows::Dense { value }, None) = (&self.rows, &self.centre) else {
            return Err(Error::invalid("records", "expected dense rows"));
        };
        let written = files.entries.write_all(cast_slice(value));
        let written = written.and_then(|()| files.classes.write_all(cast_slice(&self.label)));
        written.map_err(|error| Error::file(&error))
    }

    /// Replaces the records by the first `n` of files, in the same memory.
    ///
    /// After an error some rows are new and others are not.
    ///
    /// # Errors
    /// Files that end before, or hold anything else than [`Self::append_to`] writes; records of
    /// another layout; threads out of range; no memory; an interrupt.
    pub fn read_from(
        &mut self,
        files: &RecordFiles,
        n: usize,
        n_threads: usize,
        interrupt: &dyn Interrupt,
    ) -> Result<()> {
        let (columns, n_classes) = (self.columns, self.n_classes);
        let (RecordRows::Dense { value }, None) = (&mut self.rows, &self.centre) else {
            return Err(Error::invalid("records", "expected dense rows"));
        };
        let entries = n.saturating_mul(columns);
        let pool = pool_above(n_threads, entries, PARALLEL_ENTRIES)?;
        let threads = pool.as_ref().map_or(1, |pool| pool.current_num_threads());
        resize(value, entries)?;
        resize(&mut self.norm, n)?;
        resize(&mut self.label, n)?;
        self.owners = Owners::default();
        for wave in waves(n, entries, threads) {
            let rows =
                value[wave.start * columns..wave.end * columns].chunks_mut(PART_ROWS * columns);
            let norms = self.norm[wave.clone()].chunks_mut(PART_ROWS);
            let labels = self.label[wave.clone()].chunks_mut(PART_ROWS);
            let parts = wave.step_by(PART_ROWS).zip(rows.zip(norms.zip(labels)));
            let mut parts = collected(parts)?;
            each_block(pool.as_deref(), &mut parts, interrupt, |part| {
                let (first, (value, (norm, label))) = part;
                let place = |width: usize| (*first * width * size_of::<f32>()) as u64;
                read_at(&files.entries, cast_slice_mut(value), place(columns))
                    .and_then(|()| read_at(&files.classes, cast_slice_mut(label), place(1)))
                    .map_err(|error| Error::file(&error))?;
                let known = label.iter().all(|y| (*y as usize) < n_classes);
                let norms = Norms {
                    value,
                    norm,
                    columns,
                };
                let message = "their file was changed";
                require(known && dispatch(norms), "records", message)
            })?;
        }
        Ok(())
    }
}

/// Writes the norms of rows; false if a row cannot be one of a record.
struct Norms<'p> {
    value: &'p [f32],
    norm: &'p mut [f32],
    columns: usize,
}

impl Kernel for Norms<'_> {
    type Output = bool;

    #[inline(always)]
    fn run<S: Simd>(self, _simd: S) -> bool {
        let mut right = true;
        for (row, norm) in self.value.chunks_exact(self.columns).zip(self.norm) {
            // Exact below 2^53, and not a number is neither.
            let square = sum_of_squares(row, 1.0 / ROW_GRID);
            let whole = row.iter().fold(true, |all, x| {
                let units = f64::from(*x) / ROW_GRID;
                all & (units == units.trunc())
            });
            right &= whole && square <= 1.0 / (ROW_GRID * ROW_GRID);
            *norm = norm_above(square);
        }
        right
    }
}

#[cfg(unix)]
fn read_at(file: &File, bytes: &mut [u8], offset: u64) -> io::Result<()> {
    std::os::unix::fs::FileExt::read_exact_at(file, bytes, offset)
}

#[cfg(windows)]
fn read_at(file: &File, mut bytes: &mut [u8], mut offset: u64) -> io::Result<()> {
    while !bytes.is_empty() {
        let n = std::os::windows::fs::FileExt::seek_read(file, bytes, offset)?;
        if n == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        bytes = &mut bytes[n..];
        offset += n as u64;
    }
    Ok(())
}
