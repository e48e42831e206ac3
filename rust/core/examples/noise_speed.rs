//! Speed of the samplers: `cargo run --release --example noise_speed [n_threads]`.
//!
//! Prints one CSV line a sampler: name, threads, values, median milliseconds, million values/s.

use dpsvm_core::error::Result;
use dpsvm_core::noise::{
    GridScale, Key, discrete_gaussian, gamma_ball, gaussian, gaussian_on_grid, symmetric_gaussian,
};
use dpsvm_core::runtime::interrupt::Never;
use std::cell::RefCell;
use std::hint::black_box;
use std::time::Instant;

const REPEATS: usize = 9;

/// Median time of `work`, as a CSV line. `work` gets a fresh task number each time.
fn report(
    name: &str,
    threads: usize,
    values: usize,
    work: impl Fn(u32) -> Result<()>,
) -> Result<()> {
    let mut seconds = Vec::new();
    for repeat in 0..REPEATS {
        let start = Instant::now();
        work(repeat as u32)?;
        seconds.push(start.elapsed().as_secs_f64());
    }
    seconds.sort_by(f64::total_cmp);
    let median = seconds[REPEATS / 2];
    let rate = values as f64 / median * 1e-6;
    println!("{name},{threads},{values},{:.3},{rate:.1}", median * 1e3);
    Ok(())
}

fn main() -> Result<()> {
    let threads = std::env::args().nth(1).and_then(|a| a.parse().ok());
    let threads = threads.unwrap_or_else(dpsvm_core::runtime::threads::default_threads);
    let key = Key::from_system()?;
    let n = 1_000_000;
    if cfg!(debug_assertions) {
        eprintln!("this is a debug build: its times mean nothing");
    }
    println!("sampler,threads,values,ms,million_per_s");
    for ratio in [3.7, 1000.25, 2f64.powi(40)] {
        let name = format!("gaussian_on_grid sigma/grid={ratio}");
        report(&name, threads, n, |i| {
            gaussian_on_grid(key.task(i), n, ratio, 1.0, threads, &Never)
                .map(|v| drop(black_box(v)))
        })?;
    }
    for sigma in [1, 16, 1000, 1 << 10, 1 << 20, 1_000_003] {
        let name = format!("discrete_gaussian sigma={sigma}");
        report(&name, threads, n, |i| {
            discrete_gaussian(key.task(i), n, sigma, threads, &Never).map(|v| drop(black_box(v)))
        })?;
    }
    // As a training step uses it: one stream and one reused buffer for all weights.
    for weights in [200, 2570, 78_500] {
        let scale = GridScale::new(2f64.powi(20) * 3.7, 1.0)?;
        let buffer = RefCell::new(vec![0; weights]);
        let steps = n.div_ceil(weights);
        let name = format!("GridScale::fill of {weights}");
        report(&name, 1, steps * weights, |i| {
            let task = key.task(100 + i);
            for step in 0..steps {
                scale.fill(&mut task.stream(step as u32), &mut buffer.borrow_mut());
            }
            Ok(())
        })?;
    }
    report("gaussian", threads, n, |i| {
        gaussian(key.task(i), n, 1.0, threads, &Never).map(|v| drop(black_box(v)))
    })?;
    report("gamma_ball", threads, n, |i| {
        gamma_ball(key.task(i), n, 1.0, threads, &Never).map(|v| drop(black_box(v)))
    })?;
    report("symmetric_gaussian", threads, n, |i| {
        symmetric_gaussian(key.task(i), 1000, 1.0, threads, &Never).map(|v| drop(black_box(v)))
    })
}
