//! The smooth solver certifies where kinks and little regularisation make Newton steps poor.

use dpsvm_core::loss::smooth::SmoothLoss;
use dpsvm_core::rows::view::{Layout, RowBounds, Rows, Values};
use dpsvm_core::runtime::interrupt::Never;
use dpsvm_core::solver::smooth::solve;
use dpsvm_core::solver::smooth::{SmoothSettings, SmoothSolution};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

const D: usize = 12;

/// `n` rows, an entry being 0 with a probability, labelled by a linear model.
fn solved(
    (n, zero): (usize, f64),
    (name, scores, smoothing): (&str, usize, f64),
    regularization: f64,
) -> SmoothSolution {
    let mut rng = ChaCha8Rng::seed_from_u64(7);
    let mut number = || rng.random::<f64>() * 2.0 - 1.0;
    let classes = scores.max(2);
    let teacher: Vec<f64> = (0..classes * D).map(|_| number()).collect();
    let mut x: Vec<f64> = (0..n * D).map(|_| number()).collect();
    let y: Vec<i64> = (x.chunks_exact(D))
        .map(|row| {
            let score = |k: usize| -> f64 {
                let w = &teacher[k * D..(k + 1) * D];
                w.iter().zip(row).map(|(w, x)| w * x).sum()
            };
            let best = (0..classes).max_by(|a, b| score(*a).total_cmp(&score(*b)));
            best.unwrap_or(0) as i64
        })
        .collect();
    let linear: Vec<f64> = (0..scores * D).map(|_| 0.1 * number()).collect();
    for x in &mut x {
        if 0.5 * (number() + 1.0) < zero {
            *x = 0.0;
        }
    }
    let bounds = RowBounds {
        data_norm: 1.0,
        intercept: 0.0,
    };
    let rows = Rows::new(Values::F64(&x), Layout::Dense, (n, D), bounds).unwrap();
    let settings = SmoothSettings {
        loss: SmoothLoss::new(name, scores, smoothing, 1.0).unwrap(),
        regularization,
        gradient_tol: 1e-5,
        max_steps: None,
        seed: 1,
        threads: 1,
        low_memory: false,
    };
    let found = solve(rows, (&y, &[]), Some(&linear), &settings, &Never).unwrap();
    assert!(
        found.weights.is_some(),
        "{name} {smoothing} {regularization}: {}",
        found.gradient_norm
    );
    assert!(found.gradient_norm <= 1e-5);
    found
}

/// A sample of the rows is enough for most of the work where they are many, also with few entries.
#[test]
fn many_rows_are_mostly_solved_on_a_sample() {
    for zero in [0.0, 0.8] {
        let found = solved((20_000, zero), ("softmax_margin", 3, 1.0), 1e-2);
        let (sampled, whole) = (found.sample_products, found.products);
        assert!(sampled > whole, "{zero}: {sampled} and {whole}");
    }
}

// Proof: objective_perturbation, "Events, both noises, the approximate minimum"
#[test]
fn separable_rows_with_kinks_and_little_regularisation_are_certified() {
    for (name, scores, smoothing) in [
        ("huber", 1, 0.5),
        ("huber", 1, 0.01),
        ("huber", 1, 0.001),
        ("huber", 4, 0.5),
        ("huber", 4, 0.03),
        ("softplus", 1, 0.01),
        ("m3", 4, 0.1),
        ("huber_ww", 2, 0.5),
        ("huber_ww", 4, 0.5),
        ("huber_ww", 4, 0.03),
        ("margin_distance", 2, 0.5),
        ("margin_distance", 4, 0.5),
        ("margin_distance", 4, 0.03),
        ("softmax_margin", 4, 0.4),
    ] {
        for regularization in [1e-4, 1e-2, 1.0] {
            let found = solved((1500, 0.0), (name, scores, smoothing), regularization);
            assert!(found.steps > 0);
        }
    }
}
