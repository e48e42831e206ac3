//! Gamma-ball noise and symmetric matrices: ranges, shapes and exact symmetries. The laws are
//! tested statistically from Python.

use dpsvm_core::noise::{Key, gamma_ball, symmetric_gaussian};
use dpsvm_core::runtime::interrupt::Never;

fn norm(vector: &[f64]) -> f64 {
    let largest = vector.iter().fold(0.0, |a: f64, b| a.max(b.abs()));
    let squares: f64 = vector.iter().map(|b| (b / largest).powi(2)).sum();
    largest * squares.sqrt()
}

/// A Gamma variable of shape d is within `sqrt(2 d t) + t` of d with probability `1 - 2 exp(-t)`.
#[test]
fn norm_is_finite_and_in_range_for_extreme_rates() {
    let key = Key::from_seed(1);
    let t = 20.0;
    for (task, size) in [1, 2, 3, 100, 10_000, 300_000].into_iter().enumerate() {
        for beta in [1e-295, 1e-100, 1.0, 1e100, 1e290] {
            let d = size as f64;
            let vector = gamma_ball(key.task(task as u32), size, beta, 2, &Never).unwrap();
            assert!(vector.iter().all(|b| b.is_finite()), "{size} {beta}");
            let radius = norm(&vector) * beta;
            let slack = (2.0 * d * t).sqrt() + t;
            assert!(
                radius > 0.0 && (radius - d).abs() < slack,
                "{size} {beta}: {radius}"
            );
        }
    }
}

#[test]
fn rates_that_could_overflow_or_lose_the_law_are_refused() {
    let key = Key::from_seed(1);
    for beta in [0.0, -1.0, f64::NAN, f64::INFINITY, 1e-306, 5e-324, 1e300] {
        assert!(
            gamma_ball(key.task(0), 3, beta, 1, &Never).is_err(),
            "{beta}"
        );
    }
    assert!(gamma_ball(key.task(0), 10_000_000, 1e-302, 1, &Never).is_err());
}

/// With the same streams the rate is a scale and nothing else.
#[test]
fn rate_only_scales() {
    let key = Key::from_seed(4);
    let one = gamma_ball(key.task(0), 50, 1.0, 1, &Never).unwrap();
    let two = gamma_ball(key.task(0), 50, 0.25, 1, &Never).unwrap();
    for (a, b) in one.iter().zip(&two) {
        assert_eq!(4.0 * a, *b);
    }
}

#[test]
fn symmetric_matrix_is_exactly_symmetric() {
    let key = Key::from_seed(2);
    for d in [1, 2, 63, 64, 65, 200] {
        let m = symmetric_gaussian(key.task(0), d, 2.0, 2, &Never).unwrap();
        assert_eq!(m.len(), d * d);
        for i in 0..d {
            for j in 0..d {
                assert_eq!(m[i * d + j].to_bits(), m[j * d + i].to_bits());
                assert!(m[i * d + j] != 0.0, "{d} {i} {j}");
            }
        }
    }
}
