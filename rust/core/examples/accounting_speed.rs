//! Microseconds per call of the analytic Gaussian functions.
//!
//! `cargo run --release -p dpsvm-core --example accounting_speed`

use dpsvm_core::accounting::gaussian;
use std::hint::black_box;
use std::time::Instant;

const ROUNDS: usize = 200;

fn main() -> dpsvm_core::Result<()> {
    let epsilons = [1e-6, 1e-3, 0.1, 1.0, 4.0, 10.0, 100.0, 1e4];
    let deltas = [0.9, 0.5, 1e-3, 1e-6, 1e-10, 1e-50, 1e-300];
    let mut points = Vec::new();
    for epsilon in epsilons {
        for delta in deltas {
            points.push((epsilon, delta, gaussian::sigma(epsilon, delta)?));
        }
    }
    time("gaussian::sigma", &points, |&(e, d, _)| {
        gaussian::sigma(e, d)
    })?;
    time("gaussian::epsilon", &points, |&(_, d, s)| {
        gaussian::epsilon(d, s)
    })?;
    time("gaussian::delta", &points, |&(e, _, s)| {
        gaussian::delta(e, s)
    })?;
    time("gaussian::log_delta", &points, |&(e, _, s)| {
        gaussian::log_delta(e, s)
    })
}

/// Mean over all points, and the slowest point, each the best of [`ROUNDS`] rounds.
fn time<P>(
    name: &str,
    points: &[P],
    call: impl Fn(&P) -> dpsvm_core::Result<f64>,
) -> dpsvm_core::Result<()> {
    let mut best = vec![f64::INFINITY; points.len()];
    for _ in 0..ROUNDS {
        for (point, least) in points.iter().zip(&mut best) {
            let start = Instant::now();
            black_box(call(black_box(point))?);
            *least = least.min(start.elapsed().as_secs_f64() * 1e6);
        }
    }
    let mean = best.iter().sum::<f64>() / best.len() as f64;
    let slowest = best.iter().fold(0.0f64, |a, &b| a.max(b));
    println!("{name}: mean {mean:.2} us, slowest point {slowest:.2} us");
    Ok(())
}
