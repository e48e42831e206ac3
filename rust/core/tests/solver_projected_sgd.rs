//! Projected SGD against a plain loop over full matrices, in every layout and variant.

use super::number;
use dpsvm_core::loss::smooth::SmoothLoss;
use dpsvm_core::rows::view::{CsrIndex, Layout, RowBounds, Rows, Values};
use dpsvm_core::runtime::interrupt::Never;
use dpsvm_core::solver::projected_sgd::Projection;
use dpsvm_core::solver::projected_sgd::orders;
use dpsvm_core::solver::projected_sgd::{
    Average, Ownership, SgdSettings, SgdSolution, rounding, solve,
};

const BOUNDS: RowBounds = RowBounds {
    data_norm: 3.0,
    intercept: 0.5,
};

struct Data {
    x: Vec<f64>,
    y: Vec<i64>,
    columns: usize,
}

/// Rows of norm below 3 with single-precision entries, so that nothing is clipped or rounded.
fn data(n: usize, columns: usize, classes: usize) -> Data {
    let mut state = 7_u64;
    let size = 2.0 / (columns as f64).sqrt();
    let mut x: Vec<f64> = (0..n * columns)
        .map(|_| f64::from(((number(&mut state) - 0.5) * size) as f32))
        .collect();
    for value in x.iter_mut().step_by(3) {
        *value = 0.0;
    }
    let y = (0..n).map(|_| (number(&mut state) * classes as f64) as i64);
    Data {
        y: y.collect(),
        x,
        columns,
    }
}

fn settings(loss: SmoothLoss) -> SgdSettings {
    SgdSettings {
        loss,
        epochs: 4,
        batch: 1,
        most_rows: 1,
        regularization: 0.02,
        radius: 1e3,
        projection: Projection::Joint,
        average: Average::Last,
        seed: 5,
        low_memory: false,
    }
}

fn dense(data: &Data, settings: &SgdSettings) -> SgdSolution {
    let shape = (data.y.len(), data.columns);
    let rows = Rows::new(Values::F64(&data.x), Layout::Dense, shape, BOUNDS).unwrap();
    solve(rows, &data.y, Ownership::default(), settings, &Never).unwrap()
}

fn sparse(data: &Data, settings: &SgdSettings) -> SgdSolution {
    let (mut values, mut index, mut start) = (Vec::new(), Vec::new(), vec![0_i64]);
    for row in data.x.chunks(data.columns) {
        for (j, value) in row.iter().enumerate().filter(|(_, value)| **value != 0.0) {
            values.push(*value);
            index.push(j as i64);
        }
        start.push(values.len() as i64);
    }
    let layout = Layout::Csr(CsrIndex::I64(&index, &start));
    let shape = (data.y.len(), data.columns);
    let rows = Rows::new(Values::F64(&values), layout, shape, BOUNDS).unwrap();
    solve(rows, &data.y, Ownership::default(), settings, &Never).unwrap()
}

/// The algorithm as its module states it, on rows `(x, s)` in the user's units.
fn plain(data: &Data, settings: &SgdSettings) -> Vec<f64> {
    let (n, d, k) = (data.y.len(), data.columns + 1, settings.loss.scores);
    let kappa2 = BOUNDS.data_norm * BOUNDS.data_norm + BOUNDS.intercept * BOUNDS.intercept;
    let first =
        settings.regularization / (settings.loss.curvature() * kappa2 + settings.regularization);
    let mut w = vec![0.0; k * d];
    let (mut sum, mut total) = (vec![0.0; k * d], 0.0);
    let order = orders(n as u32, settings.epochs, settings.seed, &Never).unwrap();
    let mut m = 0.0;
    for batch in order.chunks(n).flat_map(|pass| pass.chunks(settings.batch)) {
        m += 1.0;
        let q = f64::min(first, 1.0 / m);
        let mut next: Vec<f64> = w.iter().map(|w| w * (1.0 - q)).collect();
        for i in batch {
            let i = *i as usize;
            let mut row = data.x[i * data.columns..][..data.columns].to_vec();
            row.push(BOUNDS.intercept);
            let mut a: Vec<f64> = w.chunks(d).map(|w| dot(w, &row)).collect();
            let mut state = vec![0.0; k];
            settings
                .loss
                .gradient_row(data.y[i] as usize, &mut a, &mut state);
            let step = q / (settings.regularization * settings.batch as f64);
            for (w, a) in next.chunks_mut(d).zip(&a) {
                for (w, x) in w.iter_mut().zip(&row) {
                    *w -= step * a * x;
                }
            }
        }
        let part = if settings.projection == Projection::Joint {
            k * d
        } else {
            d
        };
        for w in next.chunks_mut(part) {
            let factor = (settings.radius / dot(w, w).sqrt()).min(1.0);
            for w in w {
                *w *= factor;
            }
        }
        w = next;
        let weight = if settings.average == Average::Weighted {
            m
        } else {
            1.0
        };
        total += weight;
        for (s, w) in sum.iter_mut().zip(&w) {
            *s += weight * w;
        }
    }
    if settings.average == Average::Last {
        return w;
    }
    sum.iter().map(|s| s / total).collect()
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

fn distance(a: &[f64], b: &[f64]) -> f64 {
    assert_eq!(a.len(), b.len());
    let squares = a.iter().zip(b).map(|(a, b)| (a - b) * (a - b));
    squares.sum::<f64>().sqrt()
}

/// All computations of one run agree within twice the bound of their rounding.
fn check(data: &Data, settings: &SgdSettings) -> SgdSolution {
    let bound = rounding(settings, BOUNDS, data.y.len(), data.columns + 1).unwrap();
    let expected = plain(data, settings);
    let solution = dense(data, settings);
    // The twin rounds about as much itself; a unit of slack for its plainer sums.
    let slack = 2.0 * bound;
    assert!(distance(&solution.weights, &expected) <= slack, "dense");
    assert!(
        distance(&sparse(data, settings).weights, &expected) <= slack,
        "sparse"
    );
    let low = SgdSettings {
        low_memory: true,
        ..*settings
    };
    assert_eq!(dense(data, &low).weights, solution.weights, "low memory");
    // Far below the sensitivity, or the radius where that is smaller.
    let moved = BOUNDS.row_norm() / (data.y.len() as f64 * settings.regularization);
    assert!(bound < 1e-5 * moved.min(settings.radius), "an idle bound");
    solution
}

// Proof: projected_sgd
#[test]
fn losses_and_widths_agree_with_a_plain_loop() {
    for (name, scores, smoothing, margin) in [
        ("softplus", 1, 0.4, 1.0),
        ("huber", 1, 0.5, 1.0),
        ("softmax_margin", 2, 0.4, 1.0),
        ("softmax_margin", 7, 0.4, 1.0),
        ("m3", 3, 0.5, 1.0),
        ("huber_ww", 4, 0.5, 1.0),
        ("margin_distance", 4, 0.5, 1.0),
        ("huber", 10, 0.5, 1.0),
        ("softplus", 20, 1.0, 0.0),
    ] {
        let loss = SmoothLoss::new(name, scores, smoothing, margin).unwrap();
        for columns in [1, 6, 33] {
            for batch in [1, 4, 25] {
                let data = data(30, columns, loss.classes());
                check(
                    &data,
                    &SgdSettings {
                        batch,
                        ..settings(loss)
                    },
                );
            }
        }
    }
}

// Proof: persons, "Projected SGD"
#[test]
fn a_person_of_equal_rows_is_one_row_of_their_weight() {
    let loss = SmoothLoss::new("softmax_margin", 3, 0.4, 1.0).unwrap();
    let single = data(20, 6, 3);
    // The last five rows four times each, with a quarter of the weight; a fifth of one is left out.
    let (mut x, mut y) = (single.x[..15 * 6].to_vec(), single.y[..15].to_vec());
    for row in 15..20 {
        for _ in 0..if row == 19 { 5 } else { 4 } {
            x.extend(&single.x[row * 6..(row + 1) * 6]);
            y.push(single.y[row]);
        }
    }
    let starts: Vec<i64> = vec![15, 19, 23, 27, 31, 36];
    let weights: Vec<f64> = (0..36).map(|i| if i < 15 { 1.0 } else { 0.25 }).collect();
    for batch in [1, 3, 20] {
        let own = SgdSettings {
            batch,
            most_rows: 4,
            epochs: 40,
            ..settings(loss)
        };
        let rows = |x, y: &Vec<i64>| {
            let shape = (y.len(), 6);
            Rows::new(x, Layout::Dense, shape, BOUNDS).unwrap()
        };
        let owned = Ownership {
            persons: &starts,
            weights: &weights,
        };
        let several = solve(rows(Values::F64(&x), &y), &y, owned, &own, &Never).unwrap();
        let none = Ownership::default();
        let one = SgdSettings { seed: 6, ..own };
        let (x, y) = (Values::F64(&single.x), &single.y);
        let one = solve(rows(x, y), y, none, &one, &Never).unwrap();
        // Orders differ, so only where one batch holds all are they the same run.
        let largest = several.weights.iter().fold(0.0, |a: f64, b| a.max(b.abs()));
        let apart = several.weights.iter().zip(&one.weights);
        let apart = apart.fold(0.0, |a: f64, (b, c)| a.max((b - c).abs()));
        assert!(apart <= if batch == 20 { 1e-12 } else { 0.3 } * largest);
    }
}

// Proof: projected_sgd
#[test]
fn projections_and_averages_agree_with_a_plain_loop() {
    let loss = SmoothLoss::new("softmax_margin", 5, 0.4, 1.0).unwrap();
    let data = data(40, 9, 5);
    for projection in [Projection::Joint, Projection::PerClass] {
        for average in [Average::Last, Average::Uniform, Average::Weighted] {
            for (radius, regularization) in [(0.05, 0.02), (1.0, 0.02), (1e3, 1e-4), (1e3, 50.0)] {
                let solution = check(
                    &data,
                    &SgdSettings {
                        batch: 3,
                        regularization,
                        radius,
                        projection,
                        average,
                        ..settings(loss)
                    },
                );
                assert!((solution.projections > 0) == (radius < 10.0) || radius == 1.0);
            }
        }
    }
}

// Proof: projected_sgd
#[test]
fn every_pass_visits_every_row_once() {
    let order = orders(50, 3, 9, &Never).unwrap();
    for pass in order.chunks(50) {
        let mut rows = pass.to_vec();
        rows.sort_unstable();
        assert_eq!(rows, (0..50).collect::<Vec<u32>>());
    }
    assert_ne!(order[..50], order[50..100]);
    assert_ne!(order[..50], orders(50, 3, 10, &Never).unwrap()[..50]);
    // More places than any machine should write out, however few rows.
    let refused = orders(1 << 30, 1 << 10, 9, &Never).unwrap_err();
    assert!(refused.to_string().starts_with("n_epochs"), "{refused}");
}

#[test]
fn bad_arguments_are_named() {
    let loss = SmoothLoss::new("softplus", 1, 0.4, 1.0).unwrap();
    let base = settings(loss);
    for (wrong, name) in [
        (SgdSettings { batch: 0, ..base }, "batch_size"),
        (SgdSettings { batch: 31, ..base }, "batch_size"),
        (SgdSettings { epochs: 0, ..base }, "n_epochs"),
        (
            SgdSettings {
                epochs: u64::MAX,
                ..base
            },
            "n_epochs",
        ),
        (
            SgdSettings {
                regularization: 0.0,
                ..base
            },
            "regularization",
        ),
        (
            SgdSettings {
                radius: f64::NAN,
                ..base
            },
            "radius",
        ),
    ] {
        let error = rounding(&wrong, BOUNDS, 30, 5).unwrap_err();
        assert!(error.to_string().starts_with(name), "{error}");
    }
}
