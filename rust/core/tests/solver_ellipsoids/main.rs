//! The solver of the Gaussian margin classifier against a slow one written down a second time.

mod slow;

use dpsvm_core::Error;
use dpsvm_core::rows::view::Values;
use dpsvm_core::runtime::interrupt::{Interrupt, Never};
use dpsvm_core::solver::ellipsoids::{EllipsoidSettings, solve};
use slow::Case;
use slow::SETTINGS;
use slow::distance;
use slow::eigen;
use slow::project;
use std::cell::Cell;

/// One and several ellipsoids, both losses, with and without the cone.
fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for (loss, ellipsoids, psd) in [
        ("softmax_margin", 1, true),
        ("softmax_margin", 2, true),
        ("huber_ww", 1, true),
        ("huber_ww", 2, false),
        ("softmax_margin", 1, false),
    ] {
        let settings = EllipsoidSettings {
            loss,
            ellipsoids,
            psd,
            ..SETTINGS
        };
        cases.push(Case::new(24, 2, 1.0, settings));
        cases.push(Case::new(24, 2, 8.0, settings));
    }
    cases
}

#[test]
fn minimisers_are_those_of_the_slow_solver() {
    for case in cases() {
        let found = case.solve();
        let phi = found.matrices.unwrap();
        assert!(found.distance <= case.settings.gradient_tol / case.settings.regularization);
        let apart = distance(&phi, &case.slow(12_000));
        assert!(apart <= found.distance + 1e-10, "{apart:e}");
    }
}

// Proof: gaussian_margin, "Constants, budgets, anchors, certificates of the code"
#[test]
fn minimisers_satisfy_the_optimality_conditions() {
    for case in cases() {
        let phi = case.solve().matrices.unwrap();
        let gradient = case.gradient(&phi);
        let size = phi.len() / case.count();
        let mut ranks = 0;
        for (phi, gradient) in phi.chunks_exact(size).zip(gradient.chunks_exact(size)) {
            if !case.settings.psd {
                assert!(distance(gradient, &vec![0.0; size]) <= 1e-8);
                continue;
            }
            let values = eigen(phi, case.d + 1);
            assert!(values.iter().all(|(l, _)| *l >= -1e-12));
            ranks += values.iter().filter(|(l, _)| *l > 1e-6).count();
            assert!(eigen(gradient, case.d + 1).iter().all(|(l, _)| *l >= -1e-8));
            let slack: f64 = phi.iter().zip(gradient).map(|(w, g)| w * g).sum();
            assert!(slack.abs() <= 1e-7, "{slack:e}");
        }
        // The cone's boundary matters in these problems, or they would not test it.
        assert!(!case.settings.psd || ranks < case.count() * (case.d + 1));
    }
}

// Proof: gaussian_margin, "Constants, budgets, anchors, certificates of the code"
#[test]
fn distances_are_upper_bounds() {
    for case in cases() {
        let sharp = case.solve();
        let exact = sharp.matrices.unwrap();
        for gradient_tol in [1.0, 1e-2, 1e-4] {
            let mut rough = case.clone();
            rough.settings.gradient_tol = gradient_tol;
            let found = rough.solve();
            let apart = distance(&found.matrices.unwrap(), &exact);
            assert!(apart <= found.distance + sharp.distance);
            assert!(found.distance <= gradient_tol / case.settings.regularization);
        }
    }
}

#[test]
fn without_records_the_projection_is_returned() {
    let settings = EllipsoidSettings {
        regularization: 0.25,
        ..SETTINGS
    };
    let case = Case::new(0, 1, 3.0, settings);
    let found = case.solve();
    for (phi, b) in found
        .matrices
        .unwrap()
        .chunks_exact(3)
        .zip(case.linear.chunks_exact(3))
    {
        let mut z: Vec<f64> = b.iter().map(|b| -4.0 * b).collect();
        project(&mut z, 2);
        assert!(distance(phi, &z) <= 1e-13);
    }
    assert!(found.distance <= 1e-11);
}

#[test]
fn one_feature_two_classes_and_empty_classes_are_solved() {
    let settings = EllipsoidSettings {
        classes: 2,
        ..SETTINGS
    };
    let small = Case::new(9, 1, 0.3, settings);
    let mut empty = Case::new(12, 2, 0.3, SETTINGS);
    empty.target.iter_mut().for_each(|t| *t %= 2);
    let mut alone = Case::new(1, 1, 0.0, settings);
    alone.target[0] = 1;
    for case in [small, empty, alone] {
        let found = case.solve();
        let apart = distance(&found.matrices.unwrap(), &case.slow(12_000));
        assert!(apart <= found.distance + 1e-10, "{apart:e}");
    }
}

#[test]
fn the_number_of_threads_changes_nothing() {
    let mut case = Case::new(6000, 7, 0.5, SETTINGS);
    case.settings.ellipsoids = 2;
    case = Case::new(case.n, case.d, 0.5, case.settings);
    case.settings.gradient_tol = 1e-3;
    let first = case.solve();
    for threads in [2, 3] {
        case.settings.threads = threads;
        let other = case.solve();
        assert_eq!(first.matrices, other.matrices);
        assert_eq!(first.distance.to_bits(), other.distance.to_bits());
    }
    assert!(first.matrices.is_some());
}

#[test]
fn single_precision_input_is_the_same_problem() {
    let case = Case::new(24, 2, 1.0, SETTINGS);
    let narrow: Vec<f32> = case.x.iter().map(|x| *x as f32).collect();
    let x = Values::F32(&narrow);
    let found = solve(
        x,
        (24, 2),
        (&case.target, &[]),
        &case.linear,
        &case.settings,
        &Never,
    )
    .unwrap();
    assert_eq!(found.matrices, case.solve().matrices);
}

// Proof: persons, "Ellipsoids"
#[test]
fn a_record_of_weight_three_quarters_is_three_of_a_quarter() {
    let case = Case::new(30, 2, 1.0, SETTINGS);
    let solved = |x: &[f64], target: &[i64], weights: &[f64]| {
        let (x, shape) = (Values::F64(x), (target.len(), 2));
        let found = solve(
            x,
            shape,
            (target, weights),
            &case.linear,
            &case.settings,
            &Never,
        );
        found.unwrap().matrices.unwrap()
    };
    let once = solved(&case.x, &case.target, &[0.75; 30]);
    let (x, target) = (case.x.repeat(3), case.target.repeat(3));
    let thrice = solved(&x, &target, &[0.25; 90]);
    let whole = solved(&case.x, &case.target, &[]);
    let apart = |a: &[f64], b: &[f64]| {
        let squares = a.iter().zip(b).map(|(a, b)| (a - b) * (a - b));
        squares.sum::<f64>().sqrt()
    };
    let reach = 2.0 * case.settings.gradient_tol / case.settings.regularization;
    assert!(apart(&once, &thrice) <= reach);
    assert!(apart(&once, &whole) > 100.0 * reach);
    assert_eq!(solved(&case.x, &case.target, &[1.0; 30]), whole);
}

// Proof: gaussian_margin, "Constants, budgets, anchors, certificates of the code"
#[test]
fn failures_return_nothing_and_end() {
    let mut case = Case::new(60, 3, 4.0, SETTINGS);
    case.settings.max_passes = Some(3);
    let found = case.solve();
    assert!(found.matrices.is_none() && found.distance == f64::INFINITY);
    // Below what rounding allows.
    case.settings.max_passes = None;
    case.settings.gradient_tol = 1e-18;
    let found = case.solve();
    assert!(found.matrices.is_none() && found.distance == f64::INFINITY);
    assert!(found.bound > 1e-18 && found.bound < 1e-8);
    // What is certified just above it holds.
    case.settings.gradient_tol = 1.5 * found.bound;
    assert!(case.solve().matrices.is_some());
}

#[test]
fn hard_problems_are_certified() {
    for loss in ["softmax_margin", "huber_ww"] {
        for (smoothing, regularization) in [(0.01, 0.1), (0.1, 1e-3)] {
            for psd in [true, false] {
                let settings = EllipsoidSettings {
                    loss,
                    smoothing,
                    regularization,
                    psd,
                    gradient_tol: 1e-5,
                    ..SETTINGS
                };
                let case = Case::new(150, 4, 1.0, settings);
                assert!(case.solve().matrices.is_some(), "{settings:?}");
            }
        }
    }
}

/// Stops at the n-th look.
struct Patience(Cell<u32>);

impl Interrupt for Patience {
    fn stopped(&self) -> bool {
        self.0.set(self.0.get().saturating_sub(1));
        self.0.get() == 0
    }
}

#[test]
fn interrupts_are_seen() {
    let case = Case::new(60, 3, 4.0, SETTINGS);
    for looks in [1, 2, 10, 40] {
        let outcome = case.with(&Patience(Cell::new(looks)));
        assert_eq!(outcome.unwrap_err(), Error::Interrupted);
    }
}

#[test]
fn bad_arguments_are_named() {
    let good = Case::new(9, 2, 1.0, SETTINGS);
    let check = |name: &str, spoil: &dyn Fn(&mut Case)| {
        let mut case = good.clone();
        spoil(&mut case);
        match case.with(&Never) {
            Err(Error::InvalidArgument { name: got, .. }) => assert_eq!(got, name),
            other => panic!("{name}: {other:?}"),
        }
    };
    check("X", &|c| c.x[3] = f64::NAN);
    check("X", &|c| c.x[3] = f64::INFINITY);
    check("X", &|c| c.d = usize::MAX - 1);
    check("X", &|c| c.d = 6000);
    check("target", &|c| c.target[0] = 3);
    check("target", &|c| c.target[0] = -1);
    check("target", &|c| c.target.truncate(8));
    check("linear", &|c| c.linear.truncate(17));
    check("linear", &|c| c.linear[2] = f64::NAN);
    check("linear", &|c| c.linear[2] = -1e60);
    check("regularization", &|c| c.settings.regularization = 0.0);
    check("regularization", &|c| c.settings.regularization = f64::NAN);
    check("gradient_tol", &|c| c.settings.gradient_tol = -1.0);
    check("data_norm", &|c| c.settings.data_norm = 0.0);
    check("data_norm", &|c| c.settings.data_norm = f64::INFINITY);
    check("smoothing", &|c| c.settings.smoothing = 0.0);
    check("margin", &|c| c.settings.margin = -1.0);
    check("loss", &|c| c.settings.loss = "softplus");
    check("loss", &|c| c.settings.loss = "hinge");
    check("n_classes", &|c| c.settings.classes = 1);
    check("n_ellipsoids", &|c| c.settings.ellipsoids = 0);
    check("n_ellipsoids", &|c| c.settings.ellipsoids = usize::MAX);
    check("n_threads", &|c| c.settings.threads = 0);
}
