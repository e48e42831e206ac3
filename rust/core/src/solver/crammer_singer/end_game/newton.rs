//! Newton's linear system on the face: minimise `1/2 p'Hp + g'p` over the free coordinates.
//!
//! `H` is one Gram matrix a class, coupled only by the rows' sums.

use crate::error::Result;
use crate::runtime::interrupt::Interrupt;
use crate::runtime::memory::{append, copied, filled, mapped, with_capacity, zeros};
use crate::simd::{Kernel, Real, Simd, add_scaled, dispatch};

/// Largest number of conjugate-gradient iterations of one Newton step.
const CG_STEPS: usize = 250;
/// Free entries up to which the Gram matrices are kept in double precision: they fit the caches,
/// and a badly conditioned face (rows short beside the constant feature) needs it. Above, they
/// are bound by memory traffic and single precision steers well enough.
const WIDE_ENTRIES: usize = 600;
/// Relative residual at which a Newton step's linear system counts as solved.
const CG_TOLERANCE: f64 = 1e-4;

/// Direction of a step on the face.
pub enum Step {
    /// Towards the minimum of the quadratic.
    Newton(Vec<f64>),
    /// Downhill with no curvature to speak of (more free coordinates than the data have
    /// dimensions): only a bound ends it.
    Flat(Vec<f64>),
}

/// The free coordinates: entries of rows with at least two positive ones, grouped by class.
pub struct Free {
    /// Row of each entry.
    pub row: Vec<u32>,
    /// Entries of class k are `start[k]..start[k + 1]`.
    pub start: Vec<usize>,
    /// Entries of each row, flat.
    pub of_row: Vec<u32>,
    /// First entry of each free row in `of_row`, and the end.
    pub row_start: Vec<usize>,
    /// Gram matrices among the entries of each class, row-major, one after the other.
    blocks: Blocks,
}

/// The Gram matrices only steer the steps: their precision decides speed, never the result's.
enum Blocks {
    Narrow(Vec<f32>),
    Wide(Vec<f64>),
}

/// Matrices among the rows of each class in precision `T`.
fn gather<T: Real>(by_class: &[Vec<u32>], gram: &[f64], m: usize) -> Result<Vec<T>> {
    let squares = by_class.iter().map(|rows| rows.len() * rows.len());
    let mut blocks = with_capacity(squares.sum())?;
    for rows in by_class {
        for i in rows {
            let line = &gram[*i as usize * m..][..m];
            blocks.extend(rows.iter().map(|j| T::near(line[*j as usize])));
        }
    }
    Ok(blocks)
}

impl Free {
    /// Finds them in the duals of a set of rows (row-major) with Gram matrix `gram`.
    ///
    /// # Errors
    /// No memory.
    pub fn new(dual: &[f64], classes: usize, gram: &[f64]) -> Result<Self> {
        let m = dual.len() / classes;
        let mut by_class: Vec<Vec<u32>> = filled(classes, Vec::new())?;
        for i in 0..m {
            let c = &dual[i * classes..(i + 1) * classes];
            if c.iter().filter(|c| **c > 0.0).count() < 2 {
                continue;
            }
            for k in 0..classes {
                if c[k] > 0.0 {
                    append(&mut by_class[k], &[i as u32])?;
                }
            }
        }
        let mut entries: Vec<Vec<u32>> = filled(m, Vec::new())?;
        let free = by_class.iter().map(Vec::len).sum();
        let (mut row, mut start) = (with_capacity(free)?, with_capacity(classes + 1)?);
        start.push(0);
        for rows in &by_class {
            for i in rows {
                append(&mut entries[*i as usize], &[row.len() as u32])?;
                row.push(*i);
            }
            start.push(row.len());
        }
        let blocks = if row.len() <= WIDE_ENTRIES {
            Blocks::Wide(gather(&by_class, gram, m)?)
        } else {
            Blocks::Narrow(gather(&by_class, gram, m)?)
        };
        let (mut of_row, mut row_start) = (with_capacity(free)?, with_capacity(m + 1)?);
        row_start.push(0);
        for entries in entries.iter().filter(|e| !e.is_empty()) {
            of_row.extend_from_slice(entries);
            row_start.push(of_row.len());
        }
        Ok(Self {
            row,
            start,
            of_row,
            row_start,
            blocks,
        })
    }

    /// Minimises `1/2 p'Hp + g'p` over steps that keep every row's sum: projected conjugate
    /// gradients from 0.
    ///
    /// # Errors
    /// Interrupt; no memory.
    pub fn solve(&self, gradient: &[f64], interrupt: &dyn Interrupt) -> Result<Step> {
        let n = gradient.len();
        let mut solution = zeros(n)?;
        let mut residual = mapped(gradient, |g| -g)?;
        self.balance(&mut residual);
        let mut direction = copied(&residual)?;
        let mut image = zeros(n)?;
        let mut norm: f64 = residual.iter().map(|r| r * r).sum();
        let enough = norm * CG_TOLERANCE * CG_TOLERANCE;
        for _ in 0..CG_STEPS {
            interrupt.check()?;
            if norm <= enough {
                break;
            }
            self.product(&direction, &mut image)?;
            self.balance(&mut image);
            let curvature: f64 = direction.iter().zip(&image).map(|(d, h)| d * h).sum();
            let square: f64 = direction.iter().map(|d| d * d).sum();
            if curvature.is_nan() || curvature <= self.flat() * square {
                return Ok(Step::Flat(direction));
            }
            let length = norm / curvature;
            let mut next = 0.0;
            for at in 0..n {
                solution[at] += length * direction[at];
                residual[at] -= length * image[at];
                next += residual[at] * residual[at];
            }
            let ratio = next / norm;
            norm = next;
            for at in 0..n {
                direction[at] = residual[at] + ratio * direction[at];
            }
        }
        Ok(Step::Newton(solution))
    }

    /// Whether few enough entries are free that steps are cheap and in double precision.
    pub fn is_wide(&self) -> bool {
        matches!(self.blocks, Blocks::Wide(_))
    }

    /// Curvature, relative to that of a single row, below which a direction counts as flat: what
    /// the precision of the blocks can tell from none.
    fn flat(&self) -> f64 {
        match self.blocks {
            Blocks::Narrow(_) => 1e-6,
            Blocks::Wide(_) => 1e-13,
        }
    }

    /// `out = H x`.
    fn product(&self, x: &[f64], out: &mut [f64]) -> Result<()> {
        let free = self;
        match &self.blocks {
            Blocks::Narrow(blocks) => dispatch(Product {
                free,
                blocks,
                x,
                out,
            }),
            Blocks::Wide(blocks) => dispatch(Product {
                free,
                blocks,
                x,
                out,
            }),
        }
    }

    /// `x' H x`.
    ///
    /// # Errors
    /// No memory.
    pub fn curvature(&self, x: &[f64]) -> Result<f64> {
        let mut image = zeros(x.len())?;
        self.product(x, &mut image)?;
        Ok(image.iter().zip(x).map(|(h, x)| h * x).sum())
    }

    /// Subtracts each row's mean over its entries.
    fn balance(&self, x: &mut [f64]) {
        for pair in self.row_start.windows(2) {
            let entries = &self.of_row[pair[0]..pair[1]];
            let sum: f64 = entries.iter().map(|at| x[*at as usize]).sum();
            let mean = sum / entries.len() as f64;
            for at in entries {
                x[*at as usize] -= mean;
            }
        }
    }
}

/// `out = H x`, class by class.
struct Product<'f, T> {
    free: &'f Free,
    blocks: &'f [T],
    x: &'f [f64],
    out: &'f mut [f64],
}

impl<T: Real> Kernel for Product<'_, T> {
    type Output = Result<()>;

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) -> Result<()> {
        let x = mapped(self.x, |x| T::near(*x))?;
        let mut out = zeros(x.len())?;
        let mut blocks = self.blocks;
        for pair in self.free.start.windows(2) {
            let size = pair[1] - pair[0];
            let (block, rest) = blocks.split_at(size * size);
            symmetric_product(
                simd,
                block,
                &x[pair[0]..pair[1]],
                &mut out[pair[0]..pair[1]],
            );
            blocks = rest;
        }
        for (wide, narrow) in self.out.iter_mut().zip(&out) {
            *wide = narrow.wide();
        }
        Ok(())
    }
}

/// `y += A x` for symmetric `A`: columns are rows, and adding scaled rows needs no horizontal
/// sums; four at a time, so that `y` is read and written a quarter as often.
#[inline(always)]
fn symmetric_product<S: Simd, T: Real>(simd: S, a: &[T], x: &[T], y: &mut [T]) {
    let size = x.len();
    let mut at = 0;
    while at + 4 <= size {
        let scale: [T::Vector<S>; 4] = std::array::from_fn(|i| T::splat(simd, x[at + i]));
        let lines: [&[T]; 4] = std::array::from_fn(|i| &a[(at + i) * size..][..size]);
        let (y, y_rest) = T::vectors_mut::<S>(y);
        let whole: [&[T::Vector<S>]; 4] =
            std::array::from_fn(|i| &T::vectors::<S>(lines[i]).0[..y.len()]);
        for (j, y) in y.iter_mut().enumerate() {
            let mut sum = *y;
            for i in 0..4 {
                sum = T::fma(simd, scale[i], whole[i][j], sum);
            }
            *y = sum;
        }
        if !y_rest.is_empty() {
            let done = size - y_rest.len();
            let mut sum = T::load_part(simd, y_rest);
            for i in 0..4 {
                let part = T::load_part(simd, &lines[i][done..]);
                sum = T::fma(simd, scale[i], part, sum);
            }
            T::store_part(simd, y_rest, sum);
        }
        at += 4;
    }
    for i in at..size {
        add_scaled(simd, y, x[i], &a[i * size..(i + 1) * size]);
    }
}
