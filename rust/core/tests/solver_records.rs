//! Records: norms at most 1 in exact arithmetic, layouts that agree, sums without rounding.

use dpsvm_core::parallel::Never;
use dpsvm_core::rows::{Layout, RowBounds, Rows, Values};
use dpsvm_core::solver::records::{ROW_GRID, RecordRows, Records, Storage};
use dpsvm_core::solver::records_map::RowMap;

const PLAIN: RowMap<'_> = RowMap {
    offset: None,
    scale: None,
    low: f64::NEG_INFINITY,
    high: f64::INFINITY,
    data_norm: 1.0,
    unit: true,
};

fn bounds() -> RowBounds {
    RowBounds {
        data_norm: 1.0,
        intercept: 0.0,
    }
}

fn dense(x: &[f64], columns: usize, map: &RowMap<'_>, storage: Storage, threads: usize) -> Records {
    let n = x.len() / columns;
    let rows = Rows::new(Values::F64(x), Layout::Dense, (n, columns), bounds()).unwrap();
    let labels: Vec<i64> = (0..n as i64).map(|i| i % 3).collect();
    Records::new(&rows, map, &labels, 3, storage, threads, &Never).unwrap()
}

/// All entries as integers, `entry / ROW_GRID`.
fn integers(records: &Records) -> Vec<Vec<i64>> {
    let whole = |v: &f32| {
        let v = f64::from(*v) / ROW_GRID;
        assert_eq!(v, v.trunc());
        v as i64
    };
    match &records.rows {
        RecordRows::Dense { value } => value
            .chunks(records.columns)
            .map(|row| row.iter().map(whole).collect())
            .collect(),
        RecordRows::Sparse {
            value,
            index,
            start,
        } => start
            .windows(2)
            .map(|ends| {
                let mut row = vec![0; records.columns];
                for at in ends[0]..ends[1] {
                    row[index[at] as usize] = whole(&value[at]);
                }
                row
            })
            .collect(),
    }
}

/// A number from -1/2 to 1/2 from a plain congruence.
fn number(state: &mut u64) -> f64 {
    *state = state
        .wrapping_mul(6_364_136_223_846_793_005)
        .wrapping_add(1);
    (*state >> 11) as f64 / (1_u64 << 53) as f64 - 0.5
}

#[test]
fn norms_are_at_most_one_exactly_for_all_sizes() {
    let mut state = 1;
    for exponent in [-320, -308, -200, -20, 0, 20, 200, 308] {
        for columns in [1, 3, 16, 785] {
            let size = format!("1e{exponent}").parse::<f64>().unwrap();
            let x: Vec<f64> = (0..20 * columns)
                .map(|_| 3.4 * number(&mut state) * size)
                .collect();
            for unit in [true, false] {
                let map = RowMap {
                    unit,
                    data_norm: 0.7,
                    ..PLAIN
                };
                let records = dense(&x, columns, &map, Storage::AsGiven, 1);
                for (row, norm) in integers(&records).iter().zip(&records.norm) {
                    let square: i64 = row.iter().map(|v| v * v).sum();
                    assert!(square <= 1 << 40);
                    let above = f64::from(*norm);
                    assert!(above <= 1.0 && above * above >= square as f64 * ROW_GRID * ROW_GRID);
                    if unit {
                        assert!(
                            square as f64 > 0.9999 * (1_u64 << 40) as f64,
                            "{exponent} {columns}"
                        );
                    }
                }
            }
        }
    }
}

#[test]
fn layouts_and_threads_agree() {
    let mut state = 7;
    let x: Vec<f64> = (0..1500 * 37)
        .map(|_| (number(&mut state) - 0.42).max(0.0))
        .collect();
    let one = dense(&x, 37, &PLAIN, Storage::AsGiven, 1);
    for (storage, threads) in [
        (Storage::AsGiven, 3),
        (Storage::Cheaper, 1),
        (Storage::Cheaper, 2),
    ] {
        let other = dense(&x, 37, &PLAIN, storage, threads);
        assert_eq!(integers(&one), integers(&other));
        assert_eq!(one.norm, other.norm);
        assert_eq!(one.label, other.label);
        assert_eq!(
            matches!(other.rows, RecordRows::Sparse { .. }),
            storage == Storage::Cheaper
        );
    }
}
