//! Times the Crammer-Singer solver on a raw file.
//!
//! `cargo run --release --example solver_speed -- FILE C [TOL] [REPEATS]`; the file holds
//! n, d, classes (u64), then n*d float64, then n labels (int64), all little-endian.

use dpsvm_core::rows::view::{Layout, RowBounds, Rows, Values};
use dpsvm_core::runtime::interrupt::Never;
use dpsvm_core::solver::crammer_singer::CrammerSingerSettings;
use dpsvm_core::solver::crammer_singer::solve;
use std::time::Instant;

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let number = |at: usize, default: f64| {
        arguments
            .get(at)
            .and_then(|a| a.parse().ok())
            .unwrap_or(default)
    };
    let path = arguments
        .get(1)
        .expect("usage: solver_speed FILE C [TOL] [REPEATS]");
    let bytes = std::fs::read(path).expect("readable file");
    let word = |at: usize| <[u8; 8]>::try_from(&bytes[at * 8..at * 8 + 8]).expect("whole file");
    let (n, d) = (
        u64::from_le_bytes(word(0)) as usize,
        u64::from_le_bytes(word(1)) as usize,
    );
    let classes = u64::from_le_bytes(word(2)) as usize;
    let x: Vec<f64> = (0..n * d)
        .map(|i| f64::from_le_bytes(word(3 + i)))
        .collect();
    let y: Vec<i64> = (0..n)
        .map(|i| i64::from_le_bytes(word(3 + n * d + i)))
        .collect();
    let (cost, tol) = (number(2, 0.1), number(3, 1e-3));
    let bounds = RowBounds {
        data_norm: 1.0,
        intercept: 0.0,
    };
    let rows = Rows::new(Values::F64(&x), Layout::Dense, (n, d), bounds).expect("a matrix");
    let mut times = Vec::new();
    for seed in 0..number(4, 5.0) as u64 {
        let settings = CrammerSingerSettings {
            classes,
            cost,
            radius: tol * 2.0_f64.sqrt() * cost,
            max_passes: None,
            seed,
            threads: 1,
            low_memory: false,
        };
        let start = Instant::now();
        let solution = solve(rows, (&y, &[]), &settings, &Never).expect("finite data");
        times.push(start.elapsed().as_secs_f64() * 1e3);
        assert!(solution.radius <= settings.radius);
    }
    times.sort_by(f64::total_cmp);
    println!(
        "{:.2} ms (median of {})",
        times[times.len() / 2],
        times.len()
    );
}
