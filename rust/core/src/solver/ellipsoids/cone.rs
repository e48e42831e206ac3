//! Symmetric matrices in svec coordinates, their projection on the positive semidefinite cone, its
//! derivative, and bounds of its rounding.
//!
//! A computed eigen-decomposition `Z ~ V Lambda V^T` has a V that is orthogonal up to
//! `e >= ||V^T V - I||_F`, measured. With Q the orthogonal factor of V (polar decomposition),
//! `||V - Q||_2 <= e`, so for the positive (or negative) part `L` of Lambda
//!
//! ```text
//! ||fl(V L V^T) - Q L Q^T||_F <= (e (2 + e) + gamma_{d+8} sqrt(d) (1 + e)) ||L||_F
//! ```
//!
//! `Q L+ Q^T` is exactly positive semidefinite and `Q L- Q^T` exactly in the normal cone there,
//! whatever the decomposition's own error.

use crate::error::Result;
use crate::linalg::SymmetricEigen;
use crate::linalg::gemm::Product;
use crate::numeric::ROUNDOFF;
use crate::runtime::interrupt::Interrupt;
use crate::runtime::memory::{collected, copied, matrix, with_capacity, zeros};
use crate::runtime::threads::each_block;
use crate::solver::smooth::newton_parts::norm;
use rayon::ThreadPool;
use std::f64::consts::SQRT_2;

/// Rotation into the eigenvectors of one matrix, and the derivative of the projection there.
pub struct Frame {
    /// Row k is the k-th eigenvector.
    vectors: Vec<f64>,
    /// `(max(l_a, 0) - max(l_b, 0)) / (l_a - l_b)` of every entry, in svec order.
    pub share: Vec<f64>,
}

/// One matrix split into its positive and its negative part.
pub struct Split {
    /// Its upper triangle in svec coordinates.
    pub positive: Vec<f64>,
    /// Negative part.
    pub negative: Vec<f64>,
    /// Eigenbasis in which the derivative of the projection is diagonal; `None` without a cone.
    pub frame: Option<Frame>,
    /// Largest distance of `positive` from an exactly positive semidefinite matrix.
    pub positive_error: f64,
    /// Largest distance of `negative` from the normal cone at that matrix.
    pub negative_error: f64,
}

/// Symmetric `order` x `order` matrices, several of them one after the other.
#[derive(Debug, Clone, Copy)]
pub struct Cone {
    /// Rows of a matrix.
    pub order: usize,
    /// Whether matrices are to be positive semidefinite at all.
    pub psd: bool,
}

impl Cone {
    fn size(&self) -> usize {
        self.order * (self.order + 1) / 2
    }

    /// Splits every matrix of `z`; the negative parts are multiplied by `stretch`.
    ///
    /// `None` when a decomposition fails (entries that are not finite).
    ///
    /// # Errors
    /// An interrupt; no memory.
    pub fn split(
        &self,
        z: &[f64],
        stretch: f64,
        pool: Option<&ThreadPool>,
        interrupt: &dyn Interrupt,
    ) -> Result<Option<Vec<Split>>> {
        let mut tasks = collected(z.chunks_exact(self.size()).map(|z| (z, None)))?;
        each_block(pool, &mut tasks, interrupt, |(z, split)| {
            *split = if self.psd {
                self.split_one(z, stretch)?
            } else {
                Some(whole(z)?)
            };
            Ok(())
        })?;
        Ok(tasks.into_iter().map(|(_, split)| split).collect())
    }

    fn split_one(&self, z: &[f64], stretch: f64) -> Result<Option<Split>> {
        let d = self.order;
        let mut eigen = SymmetricEigen::new(d)?;
        if eigen.decompose(&full(z, d)?).is_err() {
            return Ok(None);
        }
        let mut values = copied(eigen.values())?;
        let mut vectors = matrix(d, d)?;
        for (k, line) in vectors.chunks_exact_mut(d).enumerate() {
            line.copy_from_slice(eigen.vector(k));
        }
        let first = values.partition_point(|l| *l > 0.0);
        values[first..].iter_mut().for_each(|l| *l *= stretch);
        let Some(off) = orthogonality(&vectors, d)? else {
            return Ok(None);
        };
        let gamma = (d as f64 + 8.0) * 1.01 * ROUNDOFF;
        let relative = off * (2.0 + off) + gamma * (d as f64).sqrt() * (1.0 + off);
        let (above, below) = values.split_at(first);
        let (top, bottom) = vectors.split_at(first * d);
        Ok(Some(Split {
            positive: rebuilt(top, above, d)?,
            negative: rebuilt(bottom, below, d)?,
            positive_error: 1.001 * relative * norm(above),
            negative_error: 1.001 * relative * norm(below),
            frame: Some(Frame {
                share: shares(&values)?,
                vectors,
            }),
        }))
    }
}

/// A matrix that need not be positive semidefinite.
fn whole(z: &[f64]) -> Result<Split> {
    Ok(Split {
        positive: copied(z)?,
        negative: zeros(z.len())?,
        frame: None,
        positive_error: 0.0,
        negative_error: 0.0,
    })
}

/// Upper bound of `||V^T V - I||_F`; `None` above a tenth.
fn orthogonality(vectors: &[f64], d: usize) -> Result<Option<f64>> {
    let mut gram = matrix(d, d)?;
    f64::times_transposed(vectors, vectors, &mut gram, (d, d, d));
    gram.iter_mut().step_by(d + 1).for_each(|x| *x -= 1.0);
    // A row of V has a norm of at most 1.1, its products at most d + 2 roundings.
    let rounding = 1.3 * (d as f64 + 2.0) * ROUNDOFF * d as f64;
    let bound = norm(&gram) * (1.0 + 1e-9) + rounding;
    Ok((bound <= 0.1).then_some(bound))
}

/// `sum_k l_k v_k v_k^T` in svec coordinates.
fn rebuilt(vectors: &[f64], values: &[f64], d: usize) -> Result<Vec<f64>> {
    let mut sum = matrix(d, d)?;
    if !values.is_empty() {
        let mut scaled = copied(vectors)?;
        for (v, l) in scaled.chunks_exact_mut(d).zip(values) {
            for x in v {
                *x *= l;
            }
        }
        f64::add_transposed_times(vectors, &scaled, &mut sum, (values.len(), d, d));
    }
    packed(&sum, d)
}

/// Divided differences of `max(., 0)`, in svec order; `values` are descending.
fn shares(values: &[f64]) -> Result<Vec<f64>> {
    let share = |a: f64, b: f64| match (a > 0.0, b > 0.0) {
        (true, true) => 1.0,
        (false, false) => 0.0,
        _ => a / (a - b),
    };
    let mut all = with_capacity(values.len() * (values.len() + 1) / 2)?;
    for (at, a) in values.iter().enumerate() {
        all.extend(values[at..].iter().map(|b| share(*a, *b)));
    }
    Ok(all)
}

/// The whole matrix of svec coordinates.
fn full(z: &[f64], d: usize) -> Result<Vec<f64>> {
    let mut matrix = matrix(d, d)?;
    let mut at = 0;
    for a in 0..d {
        matrix[a * d + a] = z[at];
        at += 1;
        for b in a + 1..d {
            let entry = z[at] / SQRT_2;
            (matrix[a * d + b], matrix[b * d + a]) = (entry, entry);
            at += 1;
        }
    }
    Ok(matrix)
}

/// The svec coordinates of a matrix, from its upper triangle.
fn packed(matrix: &[f64], d: usize) -> Result<Vec<f64>> {
    let mut z = with_capacity(d * (d + 1) / 2)?;
    for a in 0..d {
        z.push(matrix[a * d + a]);
        z.extend(
            matrix[a * d + a + 1..(a + 1) * d]
                .iter()
                .map(|x| SQRT_2 * x),
        );
    }
    Ok(z)
}

impl Frame {
    fn order(&self) -> usize {
        self.vectors.len().isqrt()
    }

    /// `V^T Z V`.
    ///
    /// # Errors
    /// No memory.
    pub fn enter(&self, z: &[f64]) -> Result<Vec<f64>> {
        let d = self.order();
        let (mut half, mut rotated) = (matrix(d, d)?, matrix(d, d)?);
        f64::times_transposed(&self.vectors, &full(z, d)?, &mut half, (d, d, d));
        f64::times_transposed(&half, &self.vectors, &mut rotated, (d, d, d));
        packed(&rotated, d)
    }

    /// `V Z V^T`.
    ///
    /// # Errors
    /// No memory.
    pub fn leave(&self, z: &[f64]) -> Result<Vec<f64>> {
        let d = self.order();
        let (mut half, mut rotated) = (matrix(d, d)?, matrix(d, d)?);
        f64::add_transposed_times(&full(z, d)?, &self.vectors, &mut half, (d, d, d));
        f64::add_transposed_times(&self.vectors, &half, &mut rotated, (d, d, d));
        packed(&rotated, d)
    }
}
