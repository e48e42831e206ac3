//! Gaps of single rows in twice the working precision, for when rounding is what keeps a
//! certificate from closing: many open rows, or weights large beside the radius.
//!
//! Error-free transformations (Ogita, Rump, Oishi, SIAM J. Sci. Comput. 2005): products split
//! into value and error by a fused multiply-add, sums by Knuth's two-sum.

use crate::error::Result;
use crate::layout::weights::WeightLayout;
use crate::numeric::ROUNDOFF;
use crate::numeric::float::{two_fold_sum, two_sum};
use crate::rows::view::Row;
use crate::runtime::memory::filled;
use crate::solver::crammer_singer::certificate::row_gap;
use crate::solver::crammer_singer::problem::Problem;

/// A score as an unevaluated sum of two numbers.
fn score<L: WeightLayout>(row: Row<'_>, layout: L, weights: &[f64], class: usize) -> (f64, f64) {
    let term = |(column, x)| (f64::from(x), weights[layout.position(class, column)]);
    two_fold_sum(row.entries().map(term))
}

/// Upper bound on the sum of the gaps of `rows` at `weights`, whose largest class norm is at most
/// `longest`. A row misses the simplex by at most `feasibility_error` in the 1-norm.
///
/// # Errors
/// No memory.
pub fn gap<L: WeightLayout>(
    problem: &Problem<'_>,
    layout: L,
    weights: &[f64],
    longest: f64,
    dual: &[f64],
    rows: &[u32],
) -> Result<f64> {
    let classes = problem.classes;
    let mut buffer = problem.store.buffer()?;
    let mut scores = filled(classes, (0.0, 0.0))?;
    let mut total = 0.0;
    for i in rows {
        let i = *i as usize;
        let row = problem.store.row(i, &mut buffer);
        let (own, cost) = (problem.label[i] as usize, problem.cost_of(i));
        for (k, slot) in scores.iter_mut().enumerate() {
            let (high, low) = score(row, layout, weights, k);
            let (high, error) = two_sum(high, if k == own { -1.0 } else { 0.0 });
            *slot = two_sum(high, low + error);
        }
        let mut best = 0;
        for k in 1..classes {
            if difference(scores[k], scores[best]) > 0.0 {
                best = k;
            }
        }
        let c = &dual[i * classes..(i + 1) * classes];
        // Choosing the leading class compares sums whose errors may add up over the classes.
        let length = (row.value.len() + classes) as f64 + 8.0;
        let eta = 4.0 * length * length * ROUNDOFF * ROUNDOFF * (longest + 1.0);
        let behind = |k: usize| difference(scores[best], scores[k]).max(0.0);
        let (sum, missed) = row_gap(c, cost, eta, behind);
        total += sum * (1.0 + 8.0 * ROUNDOFF * (classes as f64 + 4.0)) + 2.0 * cost * eta + missed;
    }
    Ok(total)
}

/// `a - b`, to about `ROUNDOFF^2` of the larger of the two.
fn difference(a: (f64, f64), b: (f64, f64)) -> f64 {
    let (high, error) = two_sum(a.0, -b.0);
    high + (error + (a.1 - b.1))
}

#[cfg(test)]
mod tests {
    use super::{difference, score};
    use crate::layout::class_major::ClassMajor;
    use crate::rows::view::Row;

    // Proof: output_perturbation, "Inexact minimiser"
    #[test]
    fn scores_survive_cancellation() {
        // 1e16 + 1 - 1e16 in plain double precision loses the 1.
        let row = Row {
            index: &[],
            value: &[1.0, 1.0, 1.0],
        };
        let layout = ClassMajor::new(2, 3);
        let weights = [1e16, 1.0, -1e16, 0.0, 1.0, 0.0];
        let first = score(row, layout, &weights, 0);
        assert_eq!(first.0 + first.1, 1.0);
        assert_eq!(difference(first, score(row, layout, &weights, 1)), 0.0);
    }
}
