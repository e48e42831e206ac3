//! The loss of one record: which scores it sees, its gradient and Hessian.
//!
//! A record's loss depends on its target ellipsoid and those of the other classes only, in this
//! order: `(K - 1) M + 1` scores. The other ellipsoids of its own class take no part.

use crate::error::Result;
use crate::loss::smooth::SmoothLoss;
use crate::rows::labels::weigh;
use crate::runtime::memory::{copied, mapped, with_capacity};
use crate::simd::Simd;
use crate::solver::smooth::problem::RowMap;

/// Targets of the records, and the scores of each target.
pub struct Targets {
    /// The loss over the scores that a record sees, its own one first.
    pub loss: SmoothLoss,
    target: Vec<u32>,
    /// Factor of each record's loss, from 0 to 1; nothing where all are 1.
    weight: Vec<f64>,
    /// The ellipsoids that each target sees.
    seen: Vec<Vec<u32>>,
}

impl Targets {
    /// `target[i]` is in `0..classes * each`, its class `target[i] / each`.
    ///
    /// # Errors
    /// No memory.
    pub fn new(
        loss: SmoothLoss,
        (target, weight): (&[i64], &[f64]),
        classes: usize,
        each: usize,
    ) -> Result<Self> {
        let ellipsoids = classes * each;
        let mut seen = with_capacity(ellipsoids)?;
        for own in 0..ellipsoids {
            let mut line = with_capacity(ellipsoids - each + 1)?;
            line.push(own as u32);
            let rivals = (0..ellipsoids).filter(|j| j / each != own / each);
            line.extend(rivals.map(|j| j as u32));
            seen.push(line);
        }
        Ok(Self {
            loss,
            target: mapped(target, |t| *t as u32)?,
            weight: copied(weight)?,
            seen,
        })
    }

    /// Gathers what record `record` sees of `products`, lets `work` rewrite it and puts it back;
    /// the rest becomes zero.
    #[inline(always)]
    pub fn through<T: Copy + Default, R>(
        &self,
        record: usize,
        (products, gathered): (&mut [T], &mut [T]),
        work: impl FnOnce(&mut [T]) -> R,
    ) -> R {
        let seen = &self.seen[self.target[record] as usize];
        for (slot, j) in gathered.iter_mut().zip(seen) {
            *slot = products[*j as usize];
        }
        let result = work(gathered);
        products.fill(T::default());
        for (slot, j) in gathered.iter().zip(seen) {
            products[*j as usize] = *slot;
        }
        result
    }
}

/// Gradient: from `<phi_j, u>` to `-a_j`, where `a` is the gradient at the scores `-<phi_j, u>`;
/// keeps the curvature. Returns `||a||`. Maps here rewrite what a record sees, by [`Targets::through`].
pub struct Gradient<'p>(pub &'p Targets);

impl RowMap<f64> for Gradient<'_> {
    #[inline(always)]
    fn apply<S: Simd>(&self, _simd: S, record: usize, row: &mut [f64], state: &mut [f32]) -> f64 {
        negate(row);
        self.0.loss.gradient_row(0, row, state);
        weigh(&self.0.weight, record, row);
        let size = row.iter().map(|a| a * a).sum::<f64>().sqrt();
        negate(row);
        size
    }
}

#[inline(always)]
fn negate(row: &mut [f64]) {
    for x in row {
        *x = -*x;
    }
}

/// Hessian: from `<direction_j, u>` to the coefficients of `u` in the Hessian's product with the
/// direction. The two signs of the scores cancel.
pub struct Hessian<'p>(pub &'p Targets);

impl RowMap<f32> for Hessian<'_> {
    #[inline(always)]
    fn apply<S: Simd>(&self, simd: S, record: usize, row: &mut [f32], state: &mut [f32]) -> f64 {
        self.0.loss.hessian_row(simd, 0, row, state);
        weigh(&self.0.weight, record, row);
        0.0
    }
}
