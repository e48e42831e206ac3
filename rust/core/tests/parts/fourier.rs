//! Random Fourier features against the formula, and records seen through them.

use crate::public_interface::number;
use dpsvm_core::descent::clipping::Clip;
use dpsvm_core::descent::optimizer::{Optimizer, Schedule};
use dpsvm_core::descent::release::NoiseKind;
use dpsvm_core::descent::settings::{Arithmetic, DescentSettings as Descent};
use dpsvm_core::descent::streams::DescentStreams;
use dpsvm_core::fourier::transform::transform;
use dpsvm_core::fourier::{Centre, Family, FourierMap, FourierSettings, Structure};
use dpsvm_core::loss::smooth::SmoothLoss;
use dpsvm_core::noise::Key;
use dpsvm_core::records::persons::Owners;
use dpsvm_core::records::store::{ROW_GRID, RecordRows, Records};
use dpsvm_core::rows::view::{Layout, RowBounds, Rows, Values};
use dpsvm_core::runtime::interrupt::Never;
use std::sync::Arc;

const FREE: RowBounds = RowBounds {
    data_norm: 1.0,
    intercept: 0.0,
};

fn settings(features: usize, components: usize, structure: Structure) -> FourierSettings {
    FourierSettings {
        features,
        components,
        gamma: 0.8,
        family: Family::Gaussian,
        structure,
        centre: Centre::Zero,
        seed: 11,
    }
}

fn matrix(n: usize, d: usize) -> Vec<f64> {
    let mut state = 3;
    (0..n * d).map(|_| number(&mut state) - 0.5).collect()
}

/// The formula, from the frequencies that the map shows.
fn plain(map: &FourierMap, x: &[f64]) -> Vec<f64> {
    let (d, weights) = (map.settings().features, map.weights().unwrap());
    let mut out = Vec::new();
    for row in x.chunks(d) {
        let products = weights
            .chunks(d)
            .map(|w| w.iter().zip(row).map(|(w, x)| w * x).sum());
        let angles: Vec<f64> = products.collect();
        let shifted = angles.iter().zip(map.constants()).map(|(t, e)| t.cos() - e);
        let features: Vec<f64> = shifted.chain(angles.iter().map(|t| t.sin())).collect();
        let norm = features.iter().map(|f| f * f).sum::<f64>().sqrt();
        out.extend(features.iter().map(|f| f / norm));
    }
    out
}

fn all_maps() -> Vec<FourierMap> {
    let mut maps = Vec::new();
    for (d, components) in [(1, 3), (3, 40), (20, 33), (130, 300), (600, 1100)] {
        for structure in [
            Structure::Independent,
            Structure::Orthogonal,
            Structure::Fast,
        ] {
            for centre in [Centre::Zero, Centre::Sphere, Centre::Ball] {
                let base = settings(d, components, structure);
                maps.push(FourierMap::new(FourierSettings { centre, ..base }).unwrap());
            }
        }
    }
    maps
}

// Proof: random_features, "The map"
#[test]
fn features_are_the_formula() {
    for map in all_maps() {
        let d = map.settings().features;
        let x = matrix(7, d);
        let rows = Rows::new(Values::F64(&x), Layout::Dense, (7, d), FREE).unwrap();
        let exact = plain(&map, &x);
        let mut double = vec![0.0; 7 * map.outputs()];
        transform(&map, map.double().unwrap(), &rows, &mut double, 1, &Never).unwrap();
        let mut single = vec![0.0; 7 * map.outputs()];
        transform(&map, map.single().unwrap(), &rows, &mut single, 1, &Never).unwrap();
        let short = &mut single[1..];
        assert!(transform(&map, map.single().unwrap(), &rows, short, 1, &Never).is_err());
        for ((exact, double), single) in exact.iter().zip(double).zip(single) {
            assert!((exact - double).abs() < 1e-12);
            assert!((exact - f64::from(single)).abs() < 1e-4);
        }
    }
}

/// Lengths have the law of Gaussian vectors, and rows of a block are orthogonal.
#[test]
fn frequencies_have_their_geometry() {
    for structure in [Structure::Orthogonal, Structure::Fast] {
        let map = FourierMap::new(settings(256, 256, structure)).unwrap();
        let w = map.weights().unwrap();
        let rows: Vec<&[f64]> = w.chunks(256).collect();
        let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
        for (i, a) in rows.iter().enumerate() {
            for b in &rows[..i] {
                assert!(dot(a, b).abs() < 1e-9);
            }
        }
        // Mean of 256 squared lengths 1.6 chi^2 of 256 degrees: five standard deviations.
        let mean = rows.iter().map(|a| dot(a, a)).sum::<f64>() / 256.0;
        assert!((mean / (1.6 * 256.0) - 1.0).abs() < 5.0 * (2.0_f64 / 256.0).sqrt() / 16.0);
    }
}

#[test]
fn seeds_and_bad_settings() {
    let base = settings(5, 50, Structure::Orthogonal);
    let map = FourierMap::new(base).unwrap();
    assert_eq!(
        map.weights().unwrap(),
        FourierMap::new(base).unwrap().weights().unwrap()
    );
    let other = FourierMap::new(FourierSettings { seed: 12, ..base }).unwrap();
    assert_ne!(map.weights().unwrap(), other.weights().unwrap());
    let laplacian = Family::Laplacian;
    for bad in [
        FourierSettings {
            features: 0,
            ..base
        },
        FourierSettings {
            components: 0,
            ..base
        },
        FourierSettings { gamma: 0.0, ..base },
        FourierSettings {
            gamma: f64::INFINITY,
            ..base
        },
        FourierSettings {
            gamma: f64::NAN,
            ..base
        },
        FourierSettings {
            family: laplacian,
            ..base
        },
    ] {
        assert!(FourierMap::new(bad).is_err());
    }
}

fn records(n: usize, d: usize) -> Records {
    let mut state = 5;
    let mut value = Vec::new();
    for _ in 0..n {
        let row: Vec<f64> = (0..d).map(|_| number(&mut state) - 0.5).collect();
        let norm = row.iter().map(|x| x * x).sum::<f64>().sqrt() * 1.000_001;
        value.extend(
            row.iter()
                .map(|x| ((x / norm / ROW_GRID).trunc() * ROW_GRID) as f32),
        );
    }
    Records {
        rows: RecordRows::Dense { value },
        label: (0..n as u32).map(|i| i % 3).collect(),
        columns: d,
        centre: None,
        norm: vec![1.0; n],
        n_classes: 3,
        owners: Owners::default(),
    }
}

/// Entries are multiples of the grid and no row is longer than 1, whatever the frequencies.
// Proof: random_features, "The map"
#[test]
fn lifted_rows_keep_the_bound() {
    for map in all_maps().into_iter().step_by(2) {
        let (d, map) = (map.settings().features, Arc::new(map));
        let mut lifted = records(70, d);
        lifted.lift(&map, true, 1, &Never).unwrap();
        let RecordRows::Dense { value } = &lifted.rows else {
            panic!("stored features are dense");
        };
        for row in value.chunks(map.outputs()) {
            let whole = |v: &f32| f64::from(*v) / ROW_GRID;
            assert!(row.iter().all(|v| whole(v) == whole(v).trunc()));
            let square: f64 = row.iter().map(|v| whole(v) * whole(v)).sum();
            let most = 1.0 / (ROW_GRID * ROW_GRID);
            assert!(square <= most && square > 0.99 * most);
        }
    }
}

fn descended(records: &Records, threads: usize) -> Vec<f64> {
    let descent = Descent {
        loss: SmoothLoss::new("softmax_margin", 3, 1.0, 0.0).unwrap(),
        features: records.columns,
        clip: Clip::new(0.25, 0.98, 0.2),
        noise: NoiseKind::None,
        divisor: 1.0,
        regularization: 0.0,
        optimizer: Optimizer::Gradient {
            momentum: 0.0,
            nesterov: false,
        },
        rate: 0.1,
        schedule: Schedule::Constant,
        average_from: Some(2),
        radius: None,
        arithmetic: Arithmetic::Single,
        exact_sums: false,
    };
    let key = Key::from_seed(1);
    let tasks = [key.task(0), key.task(1), key.task(2)];
    let streams = DescentStreams::new(tasks, 1.0, (0.0, None), (5, descent.weights())).unwrap();
    let mut state = descent.start().unwrap();
    descent
        .run(&mut state, records, &streams, 0..5, threads, &Never)
        .unwrap();
    state.weights
}

/// Stored or made again and again, on any number of threads: the same bits.
// Proof: random_features, "The map"
#[test]
fn streaming_changes_nothing() {
    for structure in [Structure::Orthogonal, Structure::Fast] {
        let base = settings(90, 200, structure);
        let centre = Centre::Sphere;
        let map = Arc::new(FourierMap::new(FourierSettings { centre, ..base }).unwrap());
        let mut results = Vec::new();
        for (stored, threads) in [(true, 1), (false, 1), (false, 3), (true, 2)] {
            let mut records = records(1500, 90);
            records.lift(&map, stored, threads, &Never).unwrap();
            assert_eq!(records.columns, 400);
            results.push(descended(&records, threads));
        }
        assert!(results[0].iter().any(|w| *w != 0.0));
        assert!(results.iter().all(|weights| *weights == results[0]));
    }
}

// Proof: random_features, "The map"
#[test]
fn streamed_features_leave_only_through_the_descent() {
    let map = Arc::new(FourierMap::new(settings(9, 20, Structure::Fast)).unwrap());
    let mut lifted = records(30, 9);
    lifted.lift(&map, false, 1, &Never).unwrap();
    assert!(lifted.sums(1, &Never).is_err());
    assert!(lifted.gram(1, &Never).is_err());
    assert!(lifted.centre(&[0.0; 40], 1, &Never).is_err());
    assert!(lifted.transform(&[0.0; 1600], 40, 1, &Never).is_err());
    assert!(lifted.lift(&map, true, 1, &Never).is_err());
    let mut wrong = records(30, 8);
    assert!(wrong.lift(&map, true, 1, &Never).is_err());
}
