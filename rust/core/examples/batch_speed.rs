//! Fits per second of batches of small problems.
//!
//! `cargo run --release --example batch_speed [threads]`

use dpsvm_core::descent::clipping::Clip;
use dpsvm_core::descent::optimizer::{Optimizer, Schedule};
use dpsvm_core::descent::settings::{Arithmetic, DescentSettings};
use dpsvm_core::descent::streams::{DescentBatch, DescentStreams};
use dpsvm_core::loss::smooth::SmoothLoss;
use dpsvm_core::noise::Key;
use dpsvm_core::records::persons::Owners;
use dpsvm_core::records::store::{RecordRows, Records};
use dpsvm_core::rows::view::{Layout, RowBounds, Rows, Values};
use dpsvm_core::runtime::interrupt::Never;
use dpsvm_core::solver::ellipsoids::{EllipsoidSettings, solve_batch as ellipsoids};
use dpsvm_core::solver::smooth::SmoothSettings;
use dpsvm_core::solver::smooth::solve_batch as smooth;
use std::time::Instant;

/// Microseconds of one fit, the best of three runs.
fn per_fit(fits: usize, mut run: impl FnMut()) -> f64 {
    let once = |_| {
        let start = Instant::now();
        run();
        start.elapsed().as_secs_f64() * 1e6 / fits as f64
    };
    (0..3).map(once).fold(f64::INFINITY, f64::min)
}

fn numbers(key: &Key, task: u32, size: usize, sigma: f64) -> Vec<f64> {
    dpsvm_core::noise::gaussian(key.task(task), size, sigma, 1, &Never).expect("noise")
}

struct Shape {
    n: usize,
    d: usize,
    k: usize,
    threads: usize,
}

fn smooth_time(shape: &Shape, name: &str) -> f64 {
    let key = Key::from_seed(1);
    let fits = 4000;
    let scores = if shape.k == 2 { 1 } else { shape.k };
    let x = numbers(&key, 0, shape.n * shape.d, 0.4);
    let y: Vec<i64> = (0..shape.n).map(|i| (i % shape.k) as i64).collect();
    let linear = numbers(&key, 1, fits * scores * (shape.d + 1), 2.0);
    let bounds = RowBounds {
        data_norm: 1.0,
        intercept: 1.0,
    };
    let rows = Rows::new(Values::F64(&x), Layout::Dense, (shape.n, shape.d), bounds).expect("rows");
    let settings = SmoothSettings {
        loss: SmoothLoss::new(name, scores, 0.5, 1.0).expect("loss"),
        regularization: 0.5,
        gradient_tol: 1e-8,
        max_steps: None,
        seed: 1,
        threads: shape.threads,
        low_memory: false,
    };
    per_fit(fits, || {
        let found = smooth(rows, &y, &linear, &settings, &Never).expect("fits");
        assert!(found.certified.iter().all(|ok| *ok));
    })
}

fn descent_time(shape: &Shape, steps: u32, rate: f64) -> f64 {
    let key = Key::from_seed(2);
    let fits = 2000;
    let value: Vec<f32> = numbers(&key, 0, shape.n * shape.d, 0.3)
        .iter()
        .map(|x| (*x as f32 * 1024.0).round() / 1024.0)
        .collect();
    let records = Records {
        rows: RecordRows::Dense { value },
        label: (0..shape.n).map(|i| (i % shape.k) as u32).collect(),
        columns: shape.d,
        centre: None,
        norm: vec![1.0; shape.n],
        n_classes: shape.k,
        owners: Owners::default(),
    };
    let noise = (0.5, Some(2f64.powi(-30)));
    let scores = if shape.k == 2 { 1 } else { shape.k };
    let settings = DescentSettings {
        loss: SmoothLoss::new("huber", scores, 0.5, 1.0).expect("loss"),
        features: shape.d,
        clip: Clip::new(0.5, 1.0, 1.0),
        noise: DescentStreams::kind(noise.0, noise.1),
        divisor: shape.n as f64,
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
    };
    let start = settings.start().unwrap();
    let batch = DescentBatch {
        settings: &settings,
        start: &start,
        rate,
        noise,
        steps,
    };
    let tasks: Vec<_> = (0..fits as u32)
        .map(|i| std::array::from_fn(|j| key.task(1 + 3 * i + j as u32)))
        .collect();
    per_fit(fits, || {
        batch
            .run(&records, &tasks, shape.threads, &Never)
            .expect("fits");
    })
}

fn ellipsoid_time(shape: &Shape) -> f64 {
    let key = Key::from_seed(3);
    let fits = 500;
    let x = numbers(&key, 0, shape.n * shape.d, 0.4);
    let target: Vec<i64> = (0..shape.n).map(|i| (i % shape.k) as i64).collect();
    let size = (shape.d + 1) * (shape.d + 2) / 2;
    let linear = numbers(&key, 1, fits * shape.k * size, 2.0);
    let settings = EllipsoidSettings {
        loss: "softmax_margin",
        classes: shape.k,
        ellipsoids: 1,
        smoothing: 0.5,
        margin: 1.0,
        regularization: 0.5,
        data_norm: 1.0,
        psd: true,
        gradient_tol: 1e-8,
        max_passes: None,
        threads: shape.threads,
    };
    per_fit(fits, || {
        let x = Values::F64(&x);
        ellipsoids(x, (shape.n, shape.d), &target, &linear, &settings, &Never).expect("fits");
    })
}

fn main() {
    let threads = std::env::args().nth(1).map_or(1, |arg| {
        arg.parse().expect("the argument is a number of threads")
    });
    println!("microseconds a fit, {threads} threads");
    println!(" n d K   huber softmax  descent(10 steps) sampled  ellipsoids");
    for n in [2, 8, 20] {
        for d in [1, 2, 4] {
            for k in [2, 3] {
                let shape = Shape { n, d, k, threads };
                let name = if k == 2 { "softplus" } else { "softmax_margin" };
                println!(
                    "{n:2} {d} {k} {:7.1} {:7.1} {:14.1} {:12.1} {:12.1}",
                    smooth_time(&shape, "huber"),
                    smooth_time(&shape, name),
                    descent_time(&shape, 10, 1.0),
                    descent_time(&shape, 10, 0.3),
                    ellipsoid_time(&shape),
                );
            }
        }
    }
}
