//! Speed of private gradient steps on synthetic dense rows.
//!
//! `cargo run --release -p dpsvm-core --example descent_speed [n_threads]`; one CSV line a shape,
//! batch and kind of noise: rows, columns, classes, batch, noise, threads, median microseconds a
//! step.

use dpsvm_core::descent::clipping::Clip;
use dpsvm_core::descent::optimizer::{Optimizer, Schedule};
use dpsvm_core::descent::settings::{Arithmetic, DescentSettings};
use dpsvm_core::descent::streams::DescentStreams;
use dpsvm_core::error::Result;
use dpsvm_core::loss::smooth::{Kind, SmoothLoss};
use dpsvm_core::noise::Key;
use dpsvm_core::records::map::RowMap;
use dpsvm_core::records::store::Records;
use dpsvm_core::rows::view::{Layout, RowBounds, Rows, Values};
use dpsvm_core::runtime::interrupt::Never;
use dpsvm_core::runtime::threads::default_threads;
use rand::Rng;
use std::time::Instant;

const REPEATS: u32 = 9;
const CLIP: f64 = 0.25;
const GRID: f64 = 1.0 / (1u64 << 36) as f64;
/// Multiplications of one measurement.
const WORK: usize = 1 << 27;

/// Rows of independent uniform entries, scaled to norm 1; labels in turn.
fn records(n: usize, d: usize, classes: usize, key: &Key) -> Result<Records> {
    let mut stream = key.task(0).stream(0);
    let mut draw = || f64::from(stream.next_u32()) / f64::from(u32::MAX) - 0.5;
    let x: Vec<f64> = (0..n * d).map(|_| draw()).collect();
    let y: Vec<i64> = (0..n).map(|i| (i % classes) as i64).collect();
    let bounds = RowBounds {
        data_norm: 1.0,
        intercept: 0.0,
    };
    let rows = Rows::new(Values::F64(&x), Layout::Dense, (n, d), bounds)?;
    let map = RowMap {
        offset: None,
        scale: None,
        low: f64::NEG_INFINITY,
        floor: None,
        high: f64::INFINITY,
        constant: 0.0,
        data_norm: 1.0,
        unit: true,
    };
    Records::new(&rows, &map, &y, classes, 1, &Never)
}

/// Softmax, plain descent, noise as large as the clip norm, or none.
fn settings(d: usize, classes: usize, batch: usize, noise: (f64, Option<f64>)) -> DescentSettings {
    DescentSettings {
        loss: SmoothLoss {
            kind: Kind::Softmax,
            smoothing: 1.0,
            margin: 0.0,
            scores: classes,
        },
        features: d,
        clip: Clip::new(CLIP, 1.0, 0.0),
        noise: DescentStreams::kind(noise.0, noise.1),
        divisor: batch as f64,
        regularization: 0.0,
        optimizer: Optimizer::Gradient {
            momentum: 0.0,
            nesterov: false,
        },
        rate: 0.1,
        schedule: Schedule::Constant,
        average_from: None,
        radius: None,
        arithmetic: Arithmetic::Single,
        exact_sums: false,
    }
}

/// Median microseconds a step, many steps a measurement.
fn time(
    settings: &DescentSettings,
    records: &Records,
    (batch, noise): (usize, (f64, Option<f64>)),
    threads: usize,
    key: &Key,
) -> Result<f64> {
    let steps = (WORK / (batch * settings.weights())).max(1) as u32;
    let rate = batch as f64 / records.len() as f64;
    let mut state = settings.start().unwrap();
    let mut taken = Vec::new();
    for repeat in 0..REPEATS {
        let tasks = [0, 1, 2].map(|task| key.task(1 + 3 * repeat + task));
        let streams = DescentStreams::new(tasks, rate, noise, (steps, settings.weights()))?;
        let start = Instant::now();
        settings.run(&mut state, records, &streams, 0..steps, threads, &Never)?;
        taken.push(start.elapsed().as_secs_f64() * 1e6 / f64::from(steps));
    }
    taken.sort_by(f64::total_cmp);
    Ok(taken[taken.len() / 2])
}

fn main() -> Result<()> {
    let threads = std::env::args().nth(1).and_then(|a| a.parse().ok());
    let threads = threads.unwrap_or_else(default_threads);
    if cfg!(debug_assertions) {
        eprintln!("this is a debug build: its times mean nothing");
    }
    let key = Key::from_system()?;
    println!("rows,columns,classes,batch,noise,threads,us_a_step");
    for (n, d, classes) in [(7_438, 256, 10), (8_183, 561, 6), (1_248, 617, 26)] {
        let rows = records(n, d, classes, &key)?;
        for batch in [128, 1024, n] {
            for (name, noise) in [
                ("exact", (CLIP, Some(GRID))),
                ("float", (CLIP, None)),
                ("none", (0.0, None)),
            ] {
                let settings = settings(d, classes, batch, noise);
                let median = time(&settings, &rows, (batch, noise), threads, &key)?;
                println!("{n},{d},{classes},{batch},{name},{threads},{median:.1}");
            }
        }
    }
    Ok(())
}
