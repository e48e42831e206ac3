//! The preconditioner of sparse rows.

use crate::rows::shuffled::Store;
use crate::rows::sparse::SparseRows;
use crate::runtime::interrupt::Never;
use crate::solver::smooth::coarse::{CoarseInverse, ColumnSums};

/// Columns that are met together.
const FREQUENT: usize = 64;
const RELATIVE: f64 = 0.7;
const SCORES: usize = 3;

/// Rows of seven entries, the sums over their columns, and the inverse.
fn inverse(n: usize, columns: usize) -> crate::Result<(SparseRows, CoarseInverse)> {
    let index: Vec<u32> = (0..7 * n)
        .map(|at| ((at / 7 * 5 + at % 7) % columns) as u32)
        .collect();
    let value: Vec<f32> = (0..7 * n).map(|at| ((at * 11) % 13) as f32 / 8.0).collect();
    let mut sums = vec![ColumnSums::default(); columns];
    for (column, x) in index.iter().zip(&value) {
        sums[*column as usize].entries += x;
        sums[*column as usize].squares += x * x;
    }
    let start = (0..=n).map(|at| 7 * at).collect();
    let store = Store::Sparse(SparseRows::new(value, index, start));
    let inverse = CoarseInverse::new((&store, n), &sums, RELATIVE, &Never)?;
    match store {
        Store::Sparse(rows) => Ok((rows, inverse)),
        _ => unreachable!(),
    }
}

fn lines(columns: usize, step: usize) -> Vec<f64> {
    let number = |at: usize| ((at * step) % 17) as f64 - 8.0;
    (0..columns * SCORES).map(number).collect()
}

#[test]
fn of_few_columns_it_is_exact() -> crate::Result<()> {
    let columns = FREQUENT / 2;
    let (rows, inverse) = inverse(50, columns)?;
    let right = lines(columns, 7);
    let mut x = right.clone();
    inverse.apply(SCORES, &mut x)?;
    for score in 0..SCORES {
        let mut back: Vec<f64> = x[score..].iter().step_by(SCORES).copied().collect();
        for row in (0..50).map(|at| rows.row(at)) {
            let seen: f64 = (row.entries())
                .map(|(column, u)| f64::from(u) * x[column * SCORES + score])
                .sum();
            row.entries()
                .for_each(|(column, u)| back[column] += RELATIVE * seen * f64::from(u));
        }
        for (column, back) in back.iter().enumerate() {
            assert!((back - right[column * SCORES + score]).abs() < 1e-9);
        }
    }
    Ok(())
}

#[test]
fn of_many_it_is_symmetric_and_positive() -> crate::Result<()> {
    let columns = 3 * FREQUENT;
    let (_, inverse) = inverse(400, columns)?;
    let (a, b) = (lines(columns, 7), lines(columns, 5));
    let (mut met_a, mut met_b) = (a.clone(), b.clone());
    inverse.apply(SCORES, &mut met_a)?;
    inverse.apply(SCORES, &mut met_b)?;
    let product = |x: &[f64], y: &[f64]| -> f64 { x.iter().zip(y).map(|(x, y)| x * y).sum() };
    let (one, other) = (product(&a, &met_b), product(&b, &met_a));
    assert!((one - other).abs() < 1e-9 * product(&a, &met_a));
    assert!(product(&a, &met_a) > 0.0 && product(&b, &met_b) > 0.0);
    Ok(())
}
