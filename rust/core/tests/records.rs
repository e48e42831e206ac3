//! Records: norms at most 1 in exact arithmetic, layouts that agree, sums without rounding.

use dpsvm_core::records::map::RowMap;
use dpsvm_core::records::parts::{join, split};
use dpsvm_core::records::persons::Owners;
use dpsvm_core::records::store::{ROW_GRID, RecordRows, Records};
use dpsvm_core::rows::view::{CsrIndex, Layout, RowBounds, Rows, Values};
use dpsvm_core::runtime::interrupt::Never;

/// Rows as they are, of norm 1.
pub(crate) const PLAIN: RowMap<'_> = RowMap {
    offset: None,
    scale: None,
    low: f64::NEG_INFINITY,
    floor: None,
    high: f64::INFINITY,
    constant: 0.0,
    data_norm: 1.0,
    unit: true,
};

fn bounds() -> RowBounds {
    RowBounds {
        data_norm: 1.0,
        intercept: 0.0,
    }
}

fn mapped(rows: &Rows<'_>, map: &RowMap<'_>, threads: usize) -> Records {
    let labels: Vec<i64> = (0..rows.n_rows() as i64).map(|i| i % 3).collect();
    Records::new(rows, map, &labels, 3, threads, &Never).unwrap()
}

fn dense(x: &[f64], columns: usize, map: &RowMap<'_>, threads: usize) -> Records {
    let shape = (x.len() / columns, columns);
    let rows = Rows::new(Values::F64(x), Layout::Dense, shape, bounds()).unwrap();
    mapped(&rows, map, threads)
}

/// The same rows from a CSR matrix.
fn sparse(x: &[f64], columns: usize, map: &RowMap<'_>, threads: usize) -> Records {
    let (mut values, mut index, mut start) = (Vec::new(), Vec::new(), vec![0_i64]);
    for row in x.chunks(columns) {
        for (j, v) in row.iter().enumerate().filter(|(_, v)| **v != 0.0) {
            values.push(*v);
            index.push(j as i64);
        }
        start.push(index.len() as i64);
    }
    let layout = Layout::Csr(CsrIndex::I64(&index, &start));
    let shape = (x.len() / columns, columns);
    let rows = Rows::new(Values::F64(&values), layout, shape, bounds()).unwrap();
    mapped(&rows, map, threads)
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
        RecordRows::Sparse(rows) => (0..records.len())
            .map(|i| {
                let mut row = vec![0; records.columns];
                for (j, x) in rows.row(i).entries() {
                    row[j] = whole(&x);
                }
                row
            })
            .collect(),
        RecordRows::Lifted(_) => panic!("not made here"),
    }
}

/// A number from -1/2 to 1/2 from a plain congruence.
fn number(state: &mut u64) -> f64 {
    *state = state
        .wrapping_mul(6_364_136_223_846_793_005)
        .wrapping_add(1);
    (*state >> 11) as f64 / (1_u64 << 53) as f64 - 0.5
}

// Proof: auto_pipeline, "Rows, sums, centre, whitening"
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
                let records = dense(&x, columns, &map, 1);
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
    let one = dense(&x, 37, &PLAIN, 1);
    let others = [
        dense(&x, 37, &PLAIN, 3),
        sparse(&x, 37, &PLAIN, 1),
        sparse(&x, 37, &PLAIN, 2),
    ];
    for (other, is_sparse) in others.iter().zip([false, true, true]) {
        assert_eq!(integers(&one), integers(other));
        assert_eq!(one.norm, other.norm);
        assert_eq!(one.label, other.label);
        assert_eq!(matches!(other.rows, RecordRows::Sparse(_)), is_sparse);
    }
}

/// Rows with many zeros, in both layouts.
fn both(n: usize, columns: usize, seed: u64) -> [Records; 2] {
    let mut state = seed;
    let x: Vec<f64> = (0..n * columns)
        .map(|_| (number(&mut state) - 0.42).max(0.0))
        .collect();
    [
        dense(&x, columns, &PLAIN, 1),
        sparse(&x, columns, &PLAIN, 1),
    ]
}

fn as_integers(values: &[f64], unit: f64) -> Vec<i128> {
    let whole = |v: &f64| {
        let v = v / unit;
        assert_eq!(v, v.trunc());
        v as i128
    };
    values.iter().map(whole).collect()
}

// Proof: auto_pipeline, "Rows, sums, centre, whitening"
#[test]
fn sums_are_exact() {
    for records in both(3000, 111, 3) {
        let mut expected = vec![0_i128; 111];
        for row in integers(&records) {
            expected
                .iter_mut()
                .zip(row)
                .for_each(|(s, v)| *s += i128::from(v));
        }
        for threads in [1, 2, 5] {
            let sums = records.sums(threads, &Never).unwrap();
            assert_eq!(as_integers(&sums, ROW_GRID), expected);
        }
    }
}

/// The effective row in integers: floor of the exact product, towards zero.
fn centred(row: &[i64], point: &[i64], factor: f32) -> Vec<i64> {
    let (mut mantissa, mut shift) = (f64::from(factor), 0);
    while mantissa.fract() != 0.0 {
        mantissa *= 2.0;
        shift += 1;
    }
    let difference = row.iter().zip(point).map(|(x, m)| i128::from(x - m));
    difference
        .map(|v| (v * mantissa as i128 / (1_i128 << shift)) as i64)
        .collect()
}

/// `factor^2 square <= 2^40` with `square` in units of `grid^2`, in integers.
fn short_enough(factor: f32, square: i128) -> bool {
    let (mut mantissa, mut shift) = (f64::from(factor), 0);
    while mantissa.fract() != 0.0 {
        mantissa *= 2.0;
        shift += 1;
    }
    let mantissa = mantissa as i128;
    mantissa * mantissa * square <= 1_i128 << (40 + 2 * shift)
}

// Proof: auto_pipeline, "Rows, sums, centre, whitening"
#[test]
fn centring_follows_integer_arithmetic() {
    for (size, seed) in [(0.0, 1), (0.05, 2), (0.2, 3), (6.0, 4)] {
        let mut state = seed;
        let columns = 97;
        let point: Vec<f64> = (0..columns)
            .map(|_| (2.0 * size * number(&mut state) / ROW_GRID).round() * ROW_GRID)
            .collect();
        let whole: Vec<i64> = point.iter().map(|m| (m / ROW_GRID) as i64).collect();
        let [mut dense, mut sparse] = both(2800, columns, seed);
        let before = integers(&dense);
        dense.centre(&point, 2, &Never).unwrap();
        sparse.centre(&point, 3, &Never).unwrap();
        assert!(sparse.centre(&point, 1, &Never).is_err());
        let centre = sparse.centre.as_ref().unwrap();
        assert_eq!(centre.point, point);
        let after = integers(&dense);
        for i in 0..dense.len() {
            let factor = centre.factor[i];
            let square: i128 = before[i]
                .iter()
                .zip(&whole)
                .map(|(x, m)| i128::from((x - m) * (x - m)))
                .sum();
            assert!(factor <= 16.0 && short_enough(factor, square));
            let ideal = 1.0 / ((square as f64).sqrt() * ROW_GRID).max(1.0 / 16.0);
            assert!(f64::from(factor) >= ideal * (1.0 - 2e-7));
            assert_eq!(after[i], centred(&before[i], &whole, factor));
            let length: i64 = after[i].iter().map(|v| v * v).sum();
            assert!(length <= 1 << 40);
            for norm in [dense.norm[i], sparse.norm[i]] {
                let norm = f64::from(norm);
                assert!(norm <= 1.0 && norm * norm >= length as f64 * ROW_GRID * ROW_GRID);
            }
            let exact = f64::from(factor).powi(2) * square as f64 * ROW_GRID * ROW_GRID;
            assert!(f64::from(sparse.norm[i]).powi(2) >= exact * (1.0 - 1e-15));
        }
        assert_eq!(
            dense.gram(1, &Never).unwrap(),
            sparse.gram(2, &Never).unwrap()
        );
    }
}

#[test]
fn a_row_at_the_centre_is_not_stretched() {
    let x = [0.6, 0.8, 0.0, 0.6, 0.8, 0.001];
    let mut records = dense(&x, 3, &PLAIN, 1);
    let RecordRows::Dense { value } = &records.rows else {
        unreachable!()
    };
    let point: Vec<f64> = value[..3].iter().map(|v| f64::from(*v)).collect();
    records.centre(&point, 1, &Never).unwrap();
    assert_eq!(integers(&records)[0], [0, 0, 0]);
    assert!(records.norm[0] == 0.0 && (0.015..0.017).contains(&records.norm[1]));
}

#[test]
fn centres_out_of_range_are_refused() {
    let [mut records, _] = both(2000, 97, 1);
    for bad in [f64::NAN, f64::INFINITY, 65.0, 1e300] {
        let mut point = vec![0.0; 97];
        point[5] = bad;
        assert!(records.centre(&point, 1, &Never).is_err());
    }
    assert!(records.centre(&[0.0; 96], 1, &Never).is_err());
}

// Proof: auto_pipeline, "Rows, sums, centre, whitening"
#[test]
fn outer_products_are_exact() {
    // More rows than are summed in double precision at once, and several tiles.
    for (n, columns) in [(9000, 9), (700, 300)] {
        let mut state = 11;
        let x: Vec<f64> = (0..n * columns).map(|_| number(&mut state)).collect();
        let records = dense(&x, columns, &PLAIN, 2);
        let mut expected = vec![0_i128; columns * columns];
        for row in integers(&records) {
            for (i, a) in row.iter().enumerate() {
                for (j, b) in row.iter().enumerate() {
                    expected[i * columns + j] += i128::from(a * b);
                }
            }
        }
        for threads in [1, 3] {
            let gram = records.gram(threads, &Never).unwrap();
            assert_eq!(as_integers(&gram, ROW_GRID * ROW_GRID), expected);
        }
    }
}

#[test]
fn transforms_follow_the_matrix() {
    let (columns, outputs) = (97, 61);
    let mut state = 5;
    let matrix: Vec<f64> = (0..columns * outputs).map(|_| number(&mut state)).collect();
    let point: Vec<f64> = (0..columns).map(|_| 0.1 * number(&mut state)).collect();
    for scale in [1.0, 1e-300, 1e300] {
        let matrix: Vec<f64> = matrix.iter().map(|m| m * scale).collect();
        let [mut first, mut second] = both(2803, columns, 9);
        first.centre(&point, 1, &Never).unwrap();
        second.centre(&point, 1, &Never).unwrap();
        let before = integers(&first);
        first.transform(&matrix, outputs, 1, &Never).unwrap();
        second.transform(&matrix, outputs, 4, &Never).unwrap();
        assert_eq!(integers(&first), integers(&second));
        assert!(first.columns == outputs && second.centre.is_none());
        for (row, (got, norm)) in before.iter().zip(integers(&first).iter().zip(&first.norm)) {
            let product: Vec<f64> = matrix
                .chunks(columns)
                .map(|m| m.iter().zip(row).map(|(m, x)| m / scale * *x as f64).sum())
                .collect();
            let length = product.iter().map(|p| p * p).sum::<f64>().sqrt();
            for (p, got) in product.iter().zip(got) {
                assert!((p / length - *got as f64 * ROW_GRID).abs() < 4e-6);
            }
            let square: i64 = got.iter().map(|v| v * v).sum();
            assert!(square <= 1 << 40 && f64::from(*norm) <= 1.0);
        }
    }
}

/// One record's row does not change when others are removed.
// Proof: auto_pipeline, "Rows, sums, centre, whitening"
#[test]
fn transformed_rows_depend_on_their_record_alone() {
    let columns = 131;
    let mut state = 5;
    let matrix: Vec<f64> = (0..columns * columns).map(|_| number(&mut state)).collect();
    let x: Vec<f64> = (0..300 * columns).map(|_| number(&mut state)).collect();
    let mut all = dense(&x, columns, &PLAIN, 2);
    all.transform(&matrix, columns, 2, &Never).unwrap();
    let all = integers(&all);
    for (first, end) in [(1, 300), (37, 38), (64, 201), (0, 299)] {
        let part = &x[first * columns..end * columns];
        let mut some = dense(part, columns, &PLAIN, 1);
        some.transform(&matrix, columns, 1, &Never).unwrap();
        assert_eq!(integers(&some), all[first..end]);
    }
}

#[test]
fn rows_that_vanish_stay_zero() {
    let mut records = dense(&[1.0, 0.0, 0.0, 0.0], 2, &PLAIN, 1);
    records
        .transform(&[0.0, 0.0, 0.0, 3.0], 2, 1, &Never)
        .unwrap();
    assert_eq!(integers(&records), [[0, 0], [0, 0]]);
    assert_eq!(records.norm, [0.0, 0.0]);
    for bad in [&[0.0; 3][..], &[f64::NAN; 2], &[]] {
        assert!(records.transform(bad, 1, 1, &Never).is_err());
    }
}

// Proof: gradient_perturbation, "Clipped sums and their rounding"
#[test]
fn parts_merge_by_addition() -> dpsvm_core::Result<()> {
    let most = 1_i128 << 90;
    let all = [
        0,
        1,
        -1,
        1 << 32,
        -(1 << 32) - 5,
        most / 3,
        -most / 3,
        77 << 50,
    ];
    let reversed: Vec<i128> = all.iter().rev().copied().collect();
    let (a, b) = (split(&all)?, split(&reversed)?);
    assert_eq!(join(&a, most)?, all);
    let merged: Vec<i64> = a.iter().zip(&b).map(|(a, b)| a + b).collect();
    let sums: Vec<i128> = all.iter().zip(&reversed).map(|(a, b)| a + b).collect();
    assert_eq!(join(&merged, most)?, sums);
    Ok(())
}

#[test]
fn numbers_out_of_range_are_refused() -> dpsvm_core::Result<()> {
    assert!(split(&[1 << 95]).is_err());
    assert!(split(&[(1 << 95) - 1, -(1 << 95)]).is_ok());
    assert!(join(&split(&[100])?, 99).is_err());
    assert!(join(&split(&[-100])?, 99).is_err());
    assert!(join(&[5, -1], 1 << 90).is_err());
    Ok(())
}

#[test]
fn owners_are_checked() {
    assert!(Owners::new(5, &[1, 3, 5], &[]).is_ok());
    assert!(Owners::new(5, &[], &[0.5, 1.0, 0.0, 1.0, 1.0]).is_ok());
    for several in [&[1, 3][..], &[3, 3, 5], &[5], &[-1, 5], &[2, 6]] {
        assert!(Owners::new(5, several, &[]).is_err());
    }
    for weight in [&[1.0; 4][..], &[1.0, 1.0, 1.0, 1.0, 1.5], &[f64::NAN; 5]] {
        assert!(Owners::new(5, &[], weight).is_err());
    }
}
