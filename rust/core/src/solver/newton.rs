//! Newton's linear system on the face: minimise `1/2 p'Hp + g'p` over the free coordinates.
//!
//! `H` is one Gram matrix a class, coupled only by the rows' sums.

use crate::error::Result;
use crate::parallel::Interrupt;
use crate::simd::{Kernel, Simd, add_scaled, dispatch};

/// Conjugate-gradient iterations of one Newton step at most.
const CG_STEPS: usize = 250;
/// Relative residual at which a Newton step's linear system counts as solved.
const CG_TOLERANCE: f64 = 1e-4;

/// The free coordinates: entries of rows with at least two positive ones, grouped by class.
pub struct Free {
    /// Row of each entry.
    pub row: Vec<u32>,
    /// Entries of class k are `start[k]..start[k + 1]`.
    pub start: Vec<usize>,
    /// Entries of each row, flat.
    pub of_row: Vec<u32>,
    /// Where each free row's entries begin in `of_row`, and the end.
    pub row_start: Vec<usize>,
    /// Gram matrices among the entries of each class, row-major, one after the other. Single
    /// precision: they only steer the steps, and are bound by memory traffic.
    blocks: Vec<f32>,
}

impl Free {
    /// Finds them in the duals of a set of rows (row-major) with Gram matrix `gram`.
    pub fn new(dual: &[f64], classes: usize, gram: &[f64]) -> Self {
        let m = dual.len() / classes;
        let mut by_class: Vec<Vec<u32>> = vec![Vec::new(); classes];
        let mut free_row = vec![false; m];
        for i in 0..m {
            let c = &dual[i * classes..(i + 1) * classes];
            if c.iter().filter(|c| **c > 0.0).count() < 2 {
                continue;
            }
            free_row[i] = true;
            for k in 0..classes {
                if c[k] > 0.0 {
                    by_class[k].push(i as u32);
                }
            }
        }
        let mut entries: Vec<Vec<u32>> = vec![Vec::new(); m];
        let (mut row, mut start, mut blocks) = (Vec::new(), vec![0], Vec::new());
        for rows in &by_class {
            for i in rows {
                entries[*i as usize].push(row.len() as u32);
                row.push(*i);
                let line = &gram[*i as usize * m..][..m];
                blocks.extend(rows.iter().map(|j| line[*j as usize] as f32));
            }
            start.push(row.len());
        }
        let (mut of_row, mut row_start) = (Vec::new(), vec![0]);
        for entries in entries.iter().filter(|e| !e.is_empty()) {
            of_row.extend_from_slice(entries);
            row_start.push(of_row.len());
        }
        Self {
            row,
            start,
            of_row,
            row_start,
            blocks,
        }
    }

    /// Minimises `1/2 p'Hp + g'p` over steps that keep every row's sum: projected conjugate
    /// gradients from 0.
    ///
    /// # Errors
    /// Interrupt.
    pub fn solve(&self, gradient: &[f64], interrupt: &dyn Interrupt) -> Result<Vec<f64>> {
        let n = gradient.len();
        let mut solution = vec![0.0; n];
        let mut residual: Vec<f64> = gradient.iter().map(|g| -g).collect();
        self.balance(&mut residual);
        let mut direction = residual.clone();
        let mut image = vec![0.0; n];
        let mut narrow = Default::default();
        let mut norm: f64 = residual.iter().map(|r| r * r).sum();
        let enough = norm * CG_TOLERANCE * CG_TOLERANCE;
        for _ in 0..CG_STEPS {
            interrupt.check()?;
            if norm <= enough {
                break;
            }
            dispatch(Product {
                free: self,
                x: &direction,
                out: &mut image,
                narrow: &mut narrow,
            });
            self.balance(&mut image);
            let curvature: f64 = direction.iter().zip(&image).map(|(d, h)| d * h).sum();
            if curvature.is_nan() || curvature <= 0.0 {
                break;
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
        Ok(solution)
    }

    /// `x' H x`.
    pub fn curvature(&self, x: &[f64]) -> f64 {
        let mut image = vec![0.0; x.len()];
        let mut narrow = Default::default();
        dispatch(Product {
            free: self,
            x,
            out: &mut image,
            narrow: &mut narrow,
        });
        image.iter().zip(x).map(|(h, x)| h * x).sum()
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
struct Product<'f> {
    free: &'f Free,
    x: &'f [f64],
    out: &'f mut [f64],
    /// Room for `x` and `out` in single precision.
    narrow: &'f mut [Vec<f32>; 2],
}

impl Kernel for Product<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let [x, out] = self.narrow;
        x.clear();
        x.extend(self.x.iter().map(|x| *x as f32));
        out.clear();
        out.resize(x.len(), 0.0);
        let mut blocks = self.free.blocks.as_slice();
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
        for (wide, narrow) in self.out.iter_mut().zip(out.iter()) {
            *wide = f64::from(*narrow);
        }
    }
}

/// `y += A x` for symmetric `A`: columns are rows, and adding scaled rows needs no horizontal
/// sums; four at a time, so that `y` is read and written a quarter as often.
#[inline(always)]
fn symmetric_product<S: Simd>(simd: S, a: &[f32], x: &[f32], y: &mut [f32]) {
    let size = x.len();
    let mut at = 0;
    while at + 4 <= size {
        let scale: [S::f32s; 4] = std::array::from_fn(|i| simd.splat_f32s(x[at + i]));
        let lines: [&[f32]; 4] = std::array::from_fn(|i| &a[(at + i) * size..][..size]);
        let (y, y_rest) = S::as_mut_simd_f32s(y);
        let whole: [&[S::f32s]; 4] =
            std::array::from_fn(|i| &S::as_simd_f32s(lines[i]).0[..y.len()]);
        for (j, y) in y.iter_mut().enumerate() {
            let low = simd.mul_add_e_f32s(scale[0], whole[0][j], *y);
            let high = simd.mul_f32s(scale[2], whole[2][j]);
            let low = simd.mul_add_e_f32s(scale[1], whole[1][j], low);
            let high = simd.mul_add_e_f32s(scale[3], whole[3][j], high);
            *y = simd.add_f32s(low, high);
        }
        let done = size - y_rest.len();
        for (j, y) in y_rest.iter_mut().enumerate() {
            for i in 0..4 {
                *y += x[at + i] * lines[i][done + j];
            }
        }
        at += 4;
    }
    for i in at..size {
        add_scaled(simd, y, x[i], &a[i * size..(i + 1) * size]);
    }
}
