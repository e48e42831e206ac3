//! Rows of features from rows of numbers.

use crate::error::Result;
use crate::fourier::circle::{Phase, circle};
use crate::fourier::hadamard::hadamard;
use crate::fourier::{FourierMap, Frequencies, SignBlock};
use crate::linalg::packed::{Packed, TILE_ROWS};
use crate::rows::clip::sum_of_squares;
use crate::runtime::memory::{mapped, resize};
use crate::simd::{Real, Simd};

/// Scratch rows are whole vectors at every level.
const WIDEST: usize = 16;

/// A map in one precision, frequencies in turns.
#[derive(Debug)]
pub struct Prepared<T> {
    columns: usize,
    components: usize,
    phases: Phases<T>,
    constants: Vec<T>,
}

#[derive(Debug)]
enum Phases<T> {
    Dense(Packed<T>),
    Fast(Vec<SignBlock<T>>),
}

/// Room for some rows on their way.
#[derive(Debug, Clone, Default)]
pub struct LiftScratch<T> {
    product: Vec<T>,
    block: Vec<T>,
    turns: Vec<T>,
    cos: Vec<T>,
    sin: Vec<T>,
}

/// One row of features before it is scaled: cosines, sines, and the sum of their squares.
#[derive(Debug, Clone, Copy)]
pub struct Features<'f, T> {
    /// `cos - e`.
    pub cos: &'f [T],
    /// `sin`.
    pub sin: &'f [T],
    /// Sum of the squares of both, nearly.
    pub square: f64,
}

impl<T: Phase> Prepared<T> {
    /// In this precision.
    ///
    /// # Errors
    /// No memory.
    pub(super) fn new(map: &FourierMap) -> Result<Self> {
        let settings = map.settings();
        let (d, components) = (settings.features, settings.components);
        let turn = 0.5 / std::f64::consts::PI;
        let near = |values: &[f64], factor: f64| mapped(values, |x| T::near(x * factor));
        let phases = match &map.frequencies {
            Frequencies::Dense(w) => {
                let entry = |j: usize, column: usize| T::near(w[j * d + column] * turn);
                Phases::Dense(Packed::new((components, d), &entry)?)
            }
            Frequencies::Fast(blocks) => {
                let one = |block: &SignBlock| -> Result<SignBlock<T>> {
                    let [a, b, c] = &block.signs;
                    Ok(SignBlock {
                        signs: [near(a, 1.0)?, near(b, 1.0)?, near(c, 1.0)?],
                        scale: near(&block.scale, turn)?,
                    })
                };
                Phases::Fast(blocks.iter().map(one).collect::<Result<_>>()?)
            }
        };
        Ok(Self {
            columns: d,
            components,
            phases,
            constants: near(&map.constants, 1.0)?,
        })
    }

    /// Entries of a row of features.
    pub fn outputs(&self) -> usize {
        2 * self.components
    }

    /// Multiplications for one row, about.
    pub fn work(&self) -> usize {
        let phases = match &self.phases {
            Phases::Dense(_) => self.columns * self.components,
            Phases::Fast(blocks) => blocks
                .iter()
                .map(|block| 4 * block.signs[0].len() * (block.signs[0].len().ilog2() as usize + 1))
                .sum(),
        };
        phases + 32 * self.components
    }

    /// `emit(i, features)` for each of `rows` rows that lie one after the other in `row`; that is
    /// padded to a multiple of [`TILE_ROWS`] rows.
    ///
    /// # Errors
    /// No memory.
    #[inline(always)]
    pub fn dense<S: Simd>(
        &self,
        simd: S,
        row: &[T],
        rows: usize,
        scratch: &mut LiftScratch<T>,
        mut emit: impl FnMut(usize, Features<'_, T>),
    ) -> Result<()> {
        self.prepare(scratch)?;
        let d = self.columns;
        match &self.phases {
            Phases::Dense(matrix) => {
                let mut product = std::mem::take(&mut scratch.product);
                matrix.multiply(simd, row, rows, &mut product)?;
                for i in 0..rows {
                    matrix.collect(&product, (rows, i), &mut scratch.turns);
                    emit(i, self.finish(simd, scratch));
                }
                scratch.product = product;
            }
            Phases::Fast(blocks) => {
                for (i, row) in row.chunks_exact(d).take(rows).enumerate() {
                    Self::spin(simd, blocks, scratch, |block| {
                        block[..d].copy_from_slice(row);
                        block[d..].fill(T::default());
                    })?;
                    emit(i, self.finish(simd, scratch));
                }
            }
        }
        Ok(())
    }

    /// The features of one sparse row, whose columns increase; the same as of the dense row.
    ///
    /// # Errors
    /// No memory.
    #[inline(always)]
    pub fn sparse<'s, S: Simd>(
        &self,
        simd: S,
        entries: &(impl Iterator<Item = (usize, T)> + Clone),
        scratch: &'s mut LiftScratch<T>,
    ) -> Result<Features<'s, T>> {
        self.prepare(scratch)?;
        match &self.phases {
            Phases::Dense(matrix) => {
                let mut product = std::mem::take(&mut scratch.product);
                matrix.multiply_sparse(simd, entries, &mut product)?;
                matrix.collect(&product, (1, 0), &mut scratch.turns);
                scratch.product = product;
            }
            Phases::Fast(blocks) => Self::spin(simd, blocks, scratch, |block| {
                block.fill(T::default());
                entries.clone().for_each(|(column, x)| block[column] = x);
            })?,
        }
        Ok(self.finish(simd, scratch))
    }

    fn prepare(&self, scratch: &mut LiftScratch<T>) -> Result<()> {
        let padded = self.components.next_multiple_of(WIDEST);
        let mut lines = [&mut scratch.turns, &mut scratch.cos, &mut scratch.sin].into_iter();
        lines.try_for_each(|line| resize(line, padded))
    }

    /// The turns of one row: `scale H D_2 H D_1 H D_0 x`, block after block.
    #[inline(always)]
    fn spin<S: Simd>(
        simd: S,
        blocks: &[SignBlock<T>],
        scratch: &mut LiftScratch<T>,
        load: impl Fn(&mut [T]),
    ) -> Result<()> {
        let mut first = 0;
        for signs in blocks {
            let p = signs.signs[0].len();
            resize(&mut scratch.block, p)?;
            load(&mut scratch.block);
            for signs in &signs.signs {
                times(simd, &mut scratch.block, signs);
                hadamard(simd, &mut scratch.block);
            }
            let used = signs.scale.len();
            times(simd, &mut scratch.block[..used], &signs.scale);
            scratch.turns[first..first + used].copy_from_slice(&scratch.block[..used]);
            first += used;
        }
        Ok(())
    }

    #[inline(always)]
    fn finish<'s, S: Simd>(&self, simd: S, scratch: &'s mut LiftScratch<T>) -> Features<'s, T> {
        circle(simd, &mut scratch.turns, &mut scratch.cos, &mut scratch.sin);
        let d = self.components;
        let (cos, sin) = (&mut scratch.cos[..d], &scratch.sin[..d]);
        for (c, e) in cos.iter_mut().zip(&self.constants) {
            *c = T::minus(*c, *e);
        }
        let square = sum_of_squares(cos, 1.0) + sum_of_squares(sin, 1.0);
        Features { cos, sin, square }
    }
}

/// `x_j <- x_j y_j`.
#[inline(always)]
fn times<S: Simd, T: Real>(simd: S, x: &mut [T], y: &[T]) {
    let (x, x_rest) = T::vectors_mut::<S>(x);
    let (y, y_rest) = T::vectors::<S>(y);
    for (x, y) in x.iter_mut().zip(y) {
        *x = T::mul(simd, *x, *y);
    }
    if !x_rest.is_empty() {
        let product = T::mul(simd, T::load_part(simd, x_rest), T::load_part(simd, y_rest));
        T::store_part(simd, x_rest, product);
    }
}

impl<T: Phase> Features<'_, T> {
    /// Writes the row scaled to norm 1, up to rounding; zeros where all features are.
    #[inline(always)]
    pub fn unit(&self, out: &mut [T]) {
        // Shorter rows than 1 over the largest number of T count as zeros.
        let inverse = T::near(1.0 / self.square.sqrt());
        let factor = if inverse.wide().is_finite() {
            inverse
        } else {
            T::default()
        };
        let (cos, sin) = out.split_at_mut(self.cos.len());
        for (out, values) in [(cos, self.cos), (sin, self.sin)] {
            for (out, value) in out.iter_mut().zip(values) {
                *out = T::times(*value, factor);
            }
        }
    }
}

/// Rows are taken together in multiples of this.
pub const TILE: usize = TILE_ROWS;
