//! Sums of columns and of their squares against integer arithmetic entry by entry.

use dpsvm_core::rows::moments::{ColumnMoments, column_moments};
use dpsvm_core::rows::view::{CsrIndex, Layout, RowBounds, Rows, Values};
use dpsvm_core::runtime::interrupt::Never;
use dpsvm_core::{Error, Result};

const BOUNDS: RowBounds = RowBounds {
    data_norm: 1.0,
    intercept: 0.0,
};
const OFFSET: [f64; 3] = [0.5, -3.0, 1e300];
const SCALE: [f64; 3] = [2.0, 0.1, 1e-300];

/// Entries from a linear congruential generator, some far outside the bounds, some zero.
fn entries(n: usize) -> Vec<f64> {
    let mut state = 12_345_u64;
    (0..n)
        .map(|i| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            let x = (state >> 11) as f64 / (1_u64 << 53) as f64;
            match i % 7 {
                0 => 0.0,
                3 => (x - 0.5) * 40.0,
                5 if i % 3 == 2 => -1.7e308,
                _ => x,
            }
        })
        .collect()
}

/// The same in integers, one entry after the other.
fn slow(x: &[f64]) -> ColumnMoments {
    let (mut first, mut second) = (vec![0_i64; 3], vec![0_i64; 3]);
    for row in x.chunks(3) {
        for j in 0..3 {
            let z = ((row[j] - OFFSET[j]) * SCALE[j]).clamp(-1.0, 1.0);
            let k = (z * 1_048_576.0).round_ties_even() as i64;
            first[j] += k;
            second[j] += (k * k + (1 << 20) - 1) >> 20;
        }
    }
    ColumnMoments { first, second }
}

fn dense(x: &[f64], threads: usize) -> Result<ColumnMoments> {
    let rows = Rows::new(Values::F64(x), Layout::Dense, (x.len() / 3, 3), BOUNDS)?;
    column_moments(&rows, &OFFSET, &SCALE, threads, &Never)
}

// Proof: private_scaling
#[test]
fn dense_sums_are_exact_on_any_number_of_threads() -> Result<()> {
    let x = entries(3 * 100_003);
    let expected = slow(&x);
    assert!(expected.second.iter().all(|s| *s > 0));
    for threads in [1, 2, 3, 7] {
        assert_eq!(dense(&x, threads)?, expected);
    }
    Ok(())
}

// Proof: private_scaling
#[test]
fn sparse_sums_have_the_zeros_that_are_not_stored() -> Result<()> {
    let x = entries(3 * 90_001);
    let (mut value, mut index, mut start) = (vec![], vec![], vec![0_i64]);
    for row in x.chunks(3) {
        for (j, v) in row.iter().enumerate().filter(|(_, v)| **v != 0.0) {
            value.push(*v);
            index.push(j as i64);
        }
        start.push(value.len() as i64);
    }
    let layout = Layout::Csr(CsrIndex::I64(&index, &start));
    let rows = Rows::new(Values::F64(&value), layout, (x.len() / 3, 3), BOUNDS)?;
    for threads in [1, 2] {
        let found = column_moments(&rows, &OFFSET, &SCALE, threads, &Never)?;
        assert_eq!(found, slow(&x));
    }
    Ok(())
}

#[test]
fn single_precision_is_widened_first() -> Result<()> {
    let narrow: Vec<f32> = entries(3000)
        .iter()
        .map(|x| x.clamp(-9.0, 9.0) as f32)
        .collect();
    let wide: Vec<f64> = narrow.iter().map(|x| f64::from(*x)).collect();
    let rows = Rows::new(Values::F32(&narrow), Layout::Dense, (1000, 3), BOUNDS)?;
    assert_eq!(
        column_moments(&rows, &OFFSET, &SCALE, 1, &Never)?,
        slow(&wide)
    );
    Ok(())
}

// Proof: private_scaling
#[test]
fn what_cannot_be_summed_is_refused() -> Result<()> {
    let named = |outcome: Result<ColumnMoments>, expected: &str| match outcome {
        Err(Error::InvalidArgument { name, .. }) => assert_eq!(name, expected),
        other => panic!("{other:?}"),
    };
    for bad in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
        named(dense(&[0.0, 1.0, 2.0, 0.5, bad, 3.0], 1), "X");
    }
    named(dense(&[0.0, 1.0, 2.0], 0), "n_threads");
    let x = [0.0, 1.0, 2.0];
    let rows = Rows::new(Values::F64(&x), Layout::Dense, (1, 3), BOUNDS)?;
    named(
        column_moments(&rows, &OFFSET[..2], &SCALE, 1, &Never),
        "offset",
    );
    for bad in [f64::NAN, 0.0, -1.0] {
        let broken = [1.0, bad, 1.0];
        named(column_moments(&rows, &OFFSET, &broken, 1, &Never), "scale");
    }
    Ok(())
}
