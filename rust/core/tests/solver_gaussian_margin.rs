//! The solver of the Gaussian margin classifier against a slow one written down a second time.

use dpsvm_core::Error;
use dpsvm_core::parallel::{Interrupt, Never};
use dpsvm_core::rows::Values;
use dpsvm_core::solver::gaussian_margin::{EllipsoidSettings, EllipsoidSolution, solve};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::cell::Cell;

/// One problem with everything the slow solver needs.
#[derive(Clone)]
struct Case {
    n: usize,
    d: usize,
    x: Vec<f64>,
    target: Vec<i64>,
    linear: Vec<f64>,
    settings: EllipsoidSettings<'static>,
}

const SETTINGS: EllipsoidSettings<'static> = EllipsoidSettings {
    loss: "softmax_margin",
    classes: 3,
    ellipsoids: 1,
    smoothing: 0.5,
    margin: 1.0,
    regularization: 1.0,
    data_norm: 2.0,
    psd: true,
    gradient_tol: 1e-9,
    max_passes: None,
    threads: 1,
};

impl Case {
    /// Records on a grid that single precision holds exactly, inside the ball.
    fn new(n: usize, d: usize, noise: f64, settings: EllipsoidSettings<'static>) -> Self {
        let mut rng = ChaCha8Rng::seed_from_u64(n as u64 + 31 * d as u64);
        let mut number = || rng.random::<f64>() * 2.0 - 1.0;
        let count = settings.classes * settings.ellipsoids;
        let size = (d + 1) * (d + 2) / 2;
        let scale = 32.0 / (d as f64).sqrt();
        let x: Vec<f64> = (0..n * d)
            .map(|at| {
                let class = at / d % count;
                let centre = if at % d == class % d { 1.0 } else { -0.5 };
                ((number() + 0.6 * centre) * scale).round() / 32.0
            })
            .collect();
        Self {
            n,
            d,
            x,
            target: (0..n).map(|i| (i % count) as i64).collect(),
            linear: (0..count * size).map(|_| noise * number()).collect(),
            settings,
        }
    }

    fn solve(&self) -> EllipsoidSolution {
        self.with(&Never).unwrap()
    }

    fn with(&self, interrupt: &dyn Interrupt) -> Result<EllipsoidSolution, Error> {
        let shape = (self.n, self.d);
        let x = Values::F64(&self.x);
        let (target, linear) = (&self.target, &self.linear);
        solve(x, shape, target, linear, &self.settings, interrupt)
    }

    fn count(&self) -> usize {
        self.settings.classes * self.settings.ellipsoids
    }

    /// Lifted rows by their definition.
    fn lifted(&self) -> Vec<Vec<f64>> {
        let square = self.settings.data_norm.powi(2) + 1.0;
        (self.x.chunks_exact(self.d))
            .map(|x| {
                let mut row = x.to_vec();
                row.push(1.0);
                let mut lift = Vec::new();
                for a in 0..row.len() {
                    for b in a..row.len() {
                        let factor = if a == b { 1.0 } else { 2.0f64.sqrt() };
                        lift.push(factor * row[a] * row[b] / square);
                    }
                }
                lift
            })
            .collect()
    }

    /// Gradient of F, class by class and record by record.
    fn gradient(&self, phi: &[f64]) -> Vec<f64> {
        let size = phi.len() / self.count();
        let settings = &self.settings;
        let scaled = phi.iter().map(|w| settings.regularization * w);
        let mut gradient: Vec<f64> = scaled.zip(&self.linear).map(|(w, b)| w + b).collect();
        for (u, own) in self.lifted().iter().zip(&self.target) {
            let own = *own as usize;
            let score = |j: usize| -> f64 {
                let phi = &phi[j * size..(j + 1) * size];
                -phi.iter().zip(u).map(|(w, u)| w * u).sum::<f64>()
            };
            let class = |j: usize| j / settings.ellipsoids;
            let rivals: Vec<usize> = (0..self.count())
                .filter(|j| class(*j) != class(own))
                .collect();
            let excess: Vec<f64> = (rivals.iter())
                .map(|j| settings.margin + score(*j) - score(own))
                .collect();
            let weights = rival_weights(settings, &excess);
            for (j, weight) in rivals.iter().zip(weights) {
                for (at, u) in u.iter().enumerate() {
                    gradient[j * size + at] -= weight * u;
                    gradient[own * size + at] += weight * u;
                }
            }
        }
        gradient
    }

    /// Plain projected gradients, run until they stand still.
    fn slow(&self, steps: usize) -> Vec<f64> {
        let settings = &self.settings;
        let scores = self.count() as f64;
        let curvature = scores * self.n as f64 / settings.smoothing;
        let most = settings.regularization + curvature;
        let mut phi = vec![0.0; self.linear.len()];
        for _ in 0..steps {
            let gradient = self.gradient(&phi);
            phi.iter_mut()
                .zip(&gradient)
                .for_each(|(w, g)| *w -= g / most);
            if settings.psd {
                for part in phi.chunks_exact_mut(self.linear.len() / self.count()) {
                    project(part, self.d + 1);
                }
            }
        }
        phi
    }
}

/// Derivatives of the losses in the excesses `m + s_k - s_y`.
fn rival_weights(settings: &EllipsoidSettings<'_>, excess: &[f64]) -> Vec<f64> {
    let tau = settings.smoothing;
    if settings.loss == "huber_ww" {
        return excess
            .iter()
            .map(|g| ((g + tau) / (2.0 * tau)).clamp(0.0, 1.0))
            .collect();
    }
    let top = excess.iter().fold(0.0f64, |top, g| top.max(*g));
    let weights: Vec<f64> = excess.iter().map(|g| ((g - top) / tau).exp()).collect();
    let total = (-top / tau).exp() + weights.iter().sum::<f64>();
    weights.iter().map(|w| w / total).collect()
}

/// The matrix of svec coordinates.
fn matrix(z: &[f64], order: usize) -> Vec<Vec<f64>> {
    let mut matrix = vec![vec![0.0; order]; order];
    let mut entries = z.iter();
    for a in 0..order {
        for b in a..order {
            let entry = entries.next().unwrap();
            let entry = if a == b {
                *entry
            } else {
                entry / 2.0f64.sqrt()
            };
            (matrix[a][b], matrix[b][a]) = (entry, entry);
        }
    }
    matrix
}

/// Eigenvalues and vectors by Jacobi's rotations.
fn eigen(z: &[f64], order: usize) -> Vec<(f64, Vec<f64>)> {
    let mut a = matrix(z, order);
    let mut v: Vec<Vec<f64>> = (0..order)
        .map(|i| (0..order).map(|j| f64::from(u8::from(i == j))).collect())
        .collect();
    for _ in 0..30 {
        for p in 0..order {
            for q in p + 1..order {
                let angle = 0.5 * (2.0 * a[p][q]).atan2(a[q][q] - a[p][p]);
                let (s, c) = angle.sin_cos();
                for k in 0..order {
                    let (x, y) = (a[p][k], a[q][k]);
                    (a[p][k], a[q][k]) = (c * x - s * y, s * x + c * y);
                    let (x, y) = (v[p][k], v[q][k]);
                    (v[p][k], v[q][k]) = (c * x - s * y, s * x + c * y);
                }
                for line in &mut a {
                    let (x, y) = (line[p], line[q]);
                    (line[p], line[q]) = (c * x - s * y, s * x + c * y);
                }
            }
        }
    }
    (0..order).map(|i| (a[i][i], v[i].clone())).collect()
}

fn project(z: &mut [f64], order: usize) {
    let parts = eigen(z, order);
    let mut at = 0;
    for a in 0..order {
        for b in a..order {
            let entry: f64 = parts.iter().map(|(l, v)| l.max(0.0) * v[a] * v[b]).sum();
            z[at] = if a == b { entry } else { 2.0f64.sqrt() * entry };
            at += 1;
        }
    }
}

fn distance(a: &[f64], b: &[f64]) -> f64 {
    a.iter()
        .zip(b)
        .map(|(a, b)| (a - b).powi(2))
        .sum::<f64>()
        .sqrt()
}

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
        &case.target,
        &case.linear,
        &case.settings,
        &Never,
    )
    .unwrap();
    assert_eq!(found.matrices, case.solve().matrices);
}

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
