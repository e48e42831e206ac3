//! The loss of one record: which scores it sees, its gradient and Hessian.
//!
//! Of all ellipsoids a record's loss sees its target and those of the other classes, in this
//! order: `(K - 1) M + 1` scores. The other ellipsoids of its own class take no part.

use crate::loss::smooth::SmoothLoss;
use crate::simd::{Real, Simd};
use crate::solver::ellipsoids::lifted::RecordMap;

/// Targets of the records and what each target sees.
#[derive(Clone)]
pub struct Targets {
    /// The loss over the scores that a record sees, its own one first.
    pub loss: SmoothLoss,
    target: Vec<u32>,
    /// Factor of each record's loss, from 0 to 1; nothing where all are 1.
    weight: Vec<f64>,
    /// The ellipsoids that each target sees.
    seen: Vec<Vec<u32>>,
}

/// More scores than this are gathered on the heap.
const USUAL_SCORES: usize = 64;

impl Targets {
    /// `target[i]` is in `0..classes * each`, its class `target[i] / each`.
    pub fn new(
        loss: SmoothLoss,
        (target, weight): (&[i64], &[f64]),
        classes: usize,
        each: usize,
    ) -> Self {
        let ellipsoids = classes * each;
        let seen = |own: usize| {
            let rivals = (0..ellipsoids).filter(move |j| j / each != own / each);
            std::iter::once(own)
                .chain(rivals)
                .map(|j| j as u32)
                .collect()
        };
        Self {
            loss,
            target: target.iter().map(|t| *t as u32).collect(),
            weight: weight.to_vec(),
            seen: (0..ellipsoids).map(seen).collect(),
        }
    }

    /// Multiplies what a record adds by its factor.
    #[inline(always)]
    fn weigh<T: Real>(&self, record: usize, row: &mut [T]) {
        if let Some(weight) = self.weight.get(record) {
            for a in row {
                *a = T::near(a.wide() * weight);
            }
        }
    }

    /// Gathers what record `record` sees of `products`, lets `work` rewrite it and puts it back;
    /// the rest becomes zero.
    #[inline(always)]
    fn through<T: Copy + Default, R>(
        &self,
        record: usize,
        products: &mut [T],
        work: impl FnOnce(&mut [T]) -> R,
    ) -> R {
        let seen = &self.seen[self.target[record] as usize];
        let mut few = [T::default(); USUAL_SCORES];
        let mut many = Vec::new();
        let gathered = if seen.len() <= USUAL_SCORES {
            &mut few[..seen.len()]
        } else {
            many.resize(seen.len(), T::default());
            &mut many
        };
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
/// keeps the curvature. Returns `||a||`.
pub struct Gradient<'p>(pub &'p Targets);

impl RecordMap<f64> for Gradient<'_> {
    fn states(&self) -> usize {
        self.0.loss.scores
    }

    #[inline(always)]
    fn apply<S: Simd>(
        &self,
        _simd: S,
        record: usize,
        products: &mut [f64],
        state: &mut [f32],
    ) -> f64 {
        self.0.through(record, products, |row| {
            negate(row);
            self.0.loss.gradient_row(0, row, state);
            self.0.weigh(record, row);
            let size = row.iter().map(|a| a * a).sum::<f64>().sqrt();
            negate(row);
            size
        })
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

impl RecordMap<f32> for Hessian<'_> {
    fn states(&self) -> usize {
        self.0.loss.scores
    }

    #[inline(always)]
    fn apply<S: Simd>(
        &self,
        simd: S,
        record: usize,
        products: &mut [f32],
        state: &mut [f32],
    ) -> f64 {
        self.0.through(record, products, |row| {
            self.0.loss.hessian_row(simd, 0, row, state);
            self.0.weigh(record, row);
        });
        0.0
    }
}
