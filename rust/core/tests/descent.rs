//! Private descent against a plain computation, and against itself on other threads.

use super::number;
use dpsvm_core::descent::bounds::clipped_sum_distance;
use dpsvm_core::descent::clipping::Clip;
use dpsvm_core::descent::optimizer::{Optimizer, Schedule, State};
use dpsvm_core::descent::settings::{Arithmetic, DescentSettings};
use dpsvm_core::descent::streams::DescentStreams;
use dpsvm_core::loss::smooth::SmoothLoss;
use dpsvm_core::noise::Key;
use dpsvm_core::records::persons::Owners;
use dpsvm_core::records::store::{ROW_GRID, RecordRows, Records};
use dpsvm_core::rows::sparse::SparseRows;
use dpsvm_core::runtime::interrupt::Never;
use dpsvm_core::{Error, Result};

const GRID: f64 = 1.0 / (1u64 << 40) as f64;

/// Random rows of norm at most 1, as dense and as sparse records.
fn records(n: usize, d: usize, k: usize, seed: u64) -> [Records; 2] {
    let mut state = seed;
    let mut dense = Vec::new();
    let (mut value, mut index, mut start) = (Vec::new(), Vec::new(), vec![0]);
    for _ in 0..n {
        let row: Vec<f64> = (0..d)
            .map(|_| (number(&mut state) - 0.5) * f64::from(number(&mut state) < 0.4))
            .collect();
        let norm = row.iter().map(|x| x * x).sum::<f64>().sqrt().max(1e-9) * 1.000_001;
        for (j, x) in row.iter().enumerate() {
            let entry = ((x / norm / ROW_GRID).trunc() * ROW_GRID) as f32;
            dense.push(entry);
            if entry != 0.0 {
                value.push(entry);
                index.push(j as u32);
            }
        }
        start.push(value.len());
    }
    let label: Vec<u32> = (0..n)
        .map(|_| (number(&mut state) * k as f64) as u32)
        .collect();
    let sparse = RecordRows::Sparse(SparseRows::new(value, index, start));
    [RecordRows::Dense { value: dense }, sparse].map(|rows| Records {
        rows,
        label: label.clone(),
        columns: d,
        centre: None,
        norm: vec![1.0; n],
        n_classes: k,
        owners: Owners::default(),
    })
}

fn settings(name: &str, scores: usize, d: usize, sigma: f64) -> Result<DescentSettings> {
    Ok(DescentSettings {
        loss: SmoothLoss::new(name, scores, 0.5, 1.0)?,
        features: d,
        clip: Clip::new(0.4, 0.9, 0.3),
        noise: DescentStreams::kind(sigma, Some(GRID)),
        divisor: 3.0,
        regularization: 0.01,
        optimizer: Optimizer::Gradient {
            momentum: 0.0,
            nesterov: false,
        },
        rate: 0.5,
        schedule: Schedule::Constant,
        average_from: None,
        radius: None,
        arithmetic: Arithmetic::Single,
        exact_sums: false,
    })
}

fn run(
    settings: &DescentSettings,
    records: &Records,
    (rate, sigma): (f64, f64),
    (steps, threads): (u32, usize),
) -> Result<State> {
    let key = Key::from_seed(11);
    let tasks = [key.task(0), key.task(1), key.task(2)];
    let size = (steps, settings.weights());
    let streams = DescentStreams::new(tasks, rate, (sigma, Some(GRID)), size)?;
    let mut state = settings.start().unwrap();
    settings.run(&mut state, records, &streams, 0..steps, threads, &Never)?;
    Ok(state)
}

#[test]
fn layouts_and_precisions_agree() -> Result<()> {
    for (name, scores) in [
        ("softmax_margin", 3),
        ("softmax_margin", 13),
        ("softplus", 1),
        ("softplus", 5),
        ("huber", 1),
        ("huber", 4),
        ("m3", 11),
        ("huber_ww", 3),
        ("huber_ww", 11),
    ] {
        for (n, d) in [(1, 1), (70, 33), (300, 17)] {
            let both = records(n, d, scores.max(2), 5);
            let mut at = settings(name, scores, d, 0.0)?;
            let dense = run(&at, &both[0], (1.0, 0.0), (4, 1))?;
            let sparse = run(&at, &both[1], (1.0, 0.0), (4, 1))?;
            at.arithmetic = Arithmetic::Double;
            let double = run(&at, &both[0], (1.0, 0.0), (4, 1))?;
            let size = double.weights.iter().map(|w| w.abs()).fold(1e-3, f64::max);
            for (at, exact) in double.weights.iter().enumerate() {
                assert!(
                    (dense.weights[at] - exact).abs() < 3e-5 * size,
                    "{name} dense"
                );
                assert!(
                    (sparse.weights[at] - exact).abs() < 3e-5 * size,
                    "{name} sparse"
                );
            }
        }
    }
    Ok(())
}

// Proof: gradient_perturbation, "Noise, sampling, whole runs"
#[test]
fn threads_change_nothing() -> Result<()> {
    for (n, rate) in [(3000, 1.0), (3000, 0.3)] {
        for records in &records(n, 90, 7, 3) {
            let at = settings("softmax_margin", 7, 90, 2.0)?;
            let one = run(&at, records, (rate, 2.0), (5, 1))?;
            for threads in [2, 4] {
                assert_eq!(run(&at, records, (rate, 2.0), (5, threads))?, one);
            }
        }
    }
    Ok(())
}

/// One step from 0 with rate and divisor 1 leaves minus the sum in the weights.
// Proof: gradient_perturbation, "Noise, sampling, whole runs"
#[test]
fn one_record_moves_the_sum_no_further_than_promised() -> Result<()> {
    for seed in 0..20 {
        let n = 1 + (seed as usize * 37) % 400;
        for mut records in records(n, 21, 4, seed) {
            let mut at = settings("softmax_margin", 4, 21, 0.0)?;
            (at.divisor, at.rate, at.regularization) = (1.0, 1.0, 0.0);
            let with = run(&at, &records, (1.0, 0.0), (1, 1))?.weights;
            // The last record leaves: the tags of the others stay.
            records.label.pop();
            records.norm.pop();
            let without = run(&at, &records, (1.0, 0.0), (1, 1))?.weights;
            let square: f64 = with
                .iter()
                .zip(&without)
                .map(|(a, b)| (a - b) * (a - b))
                .sum();
            assert!(square.sqrt() <= clipped_sum_distance(0.4, at.weights(), Some(GRID))?);
            assert!(square.sqrt() > 0.05);
        }
    }
    Ok(())
}

// Proof: gradient_perturbation, "Noise, sampling, whole runs"
#[test]
fn weights_stay_on_their_grid_for_the_last_iterate() -> Result<()> {
    let [dense, _] = records(50, 9, 3, 1);
    let mut at = settings("softmax_margin", 3, 9, 5.0)?;
    (at.arithmetic, at.divisor, at.rate) = (Arithmetic::Double, 1.0, 0.25);
    at.radius = Some(20.0);
    let step = 0.25 * GRID;
    for w in run(&at, &dense, (1.0, 5.0), (3, 1))?.weights {
        assert!(w != 0.0 && (w / step).fract() == 0.0);
    }
    at.radius = Some(4e3);
    assert!(run(&at, &dense, (1.0, 5.0), (1, 1)).is_err());
    at.radius = Some(20.0);
    at.rate = 0.3;
    let refused = run(&at, &dense, (1.0, 5.0), (1, 1));
    assert!(matches!(refused, Err(Error::InvalidArgument { .. })));
    (at.rate, at.schedule) = (0.25, Schedule::Inverse);
    assert!(run(&at, &dense, (1.0, 5.0), (1, 1)).is_err());
    Ok(())
}

#[test]
fn an_empty_batch_is_a_step() -> Result<()> {
    let [dense, sparse] = records(3, 5, 3, 1);
    for records in [dense, sparse] {
        let at = settings("softmax_margin", 3, 5, 1.0)?;
        let state = run(&at, &records, (1e-12, 1.0), (6, 1))?;
        assert_eq!(state.steps, 6);
        assert!(state.weights.iter().all(|w| *w != 0.0));
    }
    Ok(())
}

#[test]
fn records_of_another_shape_are_refused() -> Result<()> {
    let [dense, _] = records(5, 4, 3, 1);
    let at = settings("softmax_margin", 3, 5, 0.0)?;
    assert!(run(&at, &dense, (1.0, 0.0), (1, 1)).is_err());
    let at = settings("softmax_margin", 2, 4, 0.0)?;
    assert!(run(&at, &dense, (1.0, 0.0), (1, 1)).is_err());
    Ok(())
}

// Proof: gradient_perturbation, "Clipped sums and their rounding"
#[test]
fn the_product_of_norms_stays_below_the_bound() {
    let clip = Clip::new(0.25, 0.98, 0.2);
    assert!(clip.intercept <= 0.2 && clip.intercept > 0.199_999);
    for square in [0.0, 1e-300, 0.01, 0.065, 1.0, 2.0, 1e4] {
        for norm in [0.0_f32, 1e-6, 0.5, 1.0] {
            let row = f64::from(norm).hypot(clip.intercept);
            let factor = clip.factor(square, norm);
            assert!(square.sqrt() * factor * row <= 0.25);
            assert!(factor <= clip.row_scale);
        }
    }
    // Not vacuous: a long gradient is scaled to the bound.
    let length = 2.0_f64.sqrt() * clip.factor(2.0, 1.0) * 1.0_f64.hypot(clip.intercept);
    assert!(length > 0.25 * (1.0 - 1e-8));
}
