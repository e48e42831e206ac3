//! The Crammer-Singer solver from outside: certificates, layouts, threads, interrupts.

use dpsvm_core::Error;
use dpsvm_core::layout::lines::Lines;
use dpsvm_core::layout::weights::WeightLayout;
use dpsvm_core::rows::view::{CsrIndex, Layout, RowBounds, Rows, Values};
use dpsvm_core::runtime::interrupt::{Interrupt, Never};
use dpsvm_core::solver::crammer_singer::CrammerSingerSettings;
use dpsvm_core::solver::crammer_singer::end_game::system::System;
use dpsvm_core::solver::crammer_singer::problem::Problem;
use dpsvm_core::solver::crammer_singer::simplex::{leading, project, room};
use dpsvm_core::solver::crammer_singer::{CrammerSingerSolution, solve};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::cell::Cell;

const COST: f64 = 0.5;

struct Data {
    x: Vec<f64>,
    y: Vec<i64>,
    n: usize,
    d: usize,
    classes: usize,
}

/// Noisy linear labels; `keep` of the entries are not zero.
fn data(seed: u64, n: usize, d: usize, classes: usize, keep: f64) -> Data {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let mut number = || rng.random::<f64>() * 2.0 - 1.0;
    let teacher: Vec<f64> = (0..classes * d).map(|_| number()).collect();
    let mut x = Vec::new();
    let mut y = Vec::new();
    for _ in 0..n {
        let row: Vec<f64> = (0..d)
            .map(|_| if number().abs() < keep { number() } else { 0.0 })
            .collect();
        let score = |k: usize| -> f64 {
            let w = &teacher[k * d..(k + 1) * d];
            w.iter().zip(&row).map(|(w, x)| w * x).sum()
        };
        let noisy: Vec<f64> = (0..classes).map(|k| score(k) + 0.3 * number()).collect();
        let best = (0..classes).max_by(|a, b| noisy[*a].total_cmp(&noisy[*b]));
        y.push(best.unwrap_or(0) as i64);
        x.extend(row);
    }
    Data {
        x,
        y,
        n,
        d,
        classes,
    }
}

fn settings(data: &Data, tol: f64) -> CrammerSingerSettings {
    CrammerSingerSettings {
        classes: data.classes,
        cost: COST,
        radius: tol * 2.0_f64.sqrt() * COST,
        max_passes: None,
        seed: 7,
        threads: 1,
        low_memory: false,
    }
}

const BOUNDS: RowBounds = RowBounds {
    data_norm: 1.0,
    intercept: 0.2,
};

fn run(data: &Data, settings: &CrammerSingerSettings) -> CrammerSingerSolution {
    run_weighted(data, &[], settings)
}

fn run_weighted(
    data: &Data,
    weights: &[f64],
    settings: &CrammerSingerSettings,
) -> CrammerSingerSolution {
    let shape = (data.n, data.d);
    let rows = Rows::new(Values::F64(&data.x), Layout::Dense, shape, BOUNDS).unwrap();
    solve(rows, (&data.y, weights), settings, &Never).unwrap()
}

fn distance(a: &CrammerSingerSolution, b: &CrammerSingerSolution) -> f64 {
    let (a, b) = (a.weights.as_ref().unwrap(), b.weights.as_ref().unwrap());
    a.iter()
        .zip(b)
        .map(|(a, b)| (a - b).powi(2))
        .sum::<f64>()
        .sqrt()
}

// Proof: output_perturbation, "Inexact minimiser"
#[test]
fn certified_radii_hold_between_tolerances() {
    for (seed, n, d, classes, keep) in [
        (1, 300, 20, 3, 1.0),
        (2, 500, 60, 10, 0.1),
        (3, 200, 5, 26, 1.0),
        (4, 400, 30, 2, 0.3),
        (5, 60, 100, 40, 0.2),
    ] {
        let data = data(seed, n, d, classes, keep);
        let fine = run(&data, &settings(&data, 1e-5));
        for tol in [1e-1, 1e-2, 1e-3] {
            let wanted = settings(&data, tol);
            let coarse = run(&data, &wanted);
            assert!(coarse.radius <= wanted.radius);
            assert!(distance(&coarse, &fine) <= coarse.radius + fine.radius);
        }
        // A control: the radius means something, one record's weight is far outside it.
        assert!(fine.radius < 1e-3 * COST);
    }
}

/// Labels that hardly depend on rows which hardly differ.
fn overlapping(seed: u64, n: usize, d: usize, classes: usize) -> Data {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let mut data = data(seed, n, d, classes, 1.0);
    for (j, x) in data.x.iter_mut().enumerate() {
        let scale = 0.02_f64.powf((j % d) as f64 / d as f64);
        *x = 0.3 + 0.2 * scale * *x;
    }
    for y in &mut data.y {
        if rng.random::<f64>() < 0.7 {
            *y = rng.random_range(0..classes as i64);
        }
    }
    data
}

// Proof: output_perturbation, "Inexact minimiser"
#[test]
fn overlapping_classes_are_certified_in_few_passes() {
    for (seed, n, d, classes) in [(21, 2000, 8, 12), (22, 300, 2, 60), (23, 1500, 16, 4)] {
        let data = overlapping(seed, n, d, classes);
        let fine = run(&data, &settings(&data, 1e-4));
        let wanted = CrammerSingerSettings {
            max_passes: Some(400),
            ..settings(&data, 1e-3)
        };
        let coarse = run(&data, &wanted);
        assert!(coarse.radius <= wanted.radius && coarse.passes <= 400);
        assert!(distance(&coarse, &fine) <= coarse.radius + fine.radius);
        let threads = CrammerSingerSettings {
            threads: 2,
            ..wanted
        };
        assert_eq!(run(&data, &threads).weights, coarse.weights);
        memory_does_not_matter(&data, &wanted, &coarse);
    }
}

// Proof: output_perturbation, "Inexact minimiser"
#[test]
fn zero_is_certified_in_few_passes_where_it_is_the_minimiser() {
    // Labels that the rows tell nothing about: no weights are better than none.
    let mut data = data(24, 3000, 3, 40, 1.0);
    let mut rng = ChaCha8Rng::seed_from_u64(24);
    for y in &mut data.y {
        *y = rng.random_range(0..40);
    }
    let weights: Vec<f64> = (0..data.n).map(|i| (i % 4) as f64 / 3.0).collect();
    for weights in [&[][..], &weights] {
        for threads in [1, 2] {
            let wanted = CrammerSingerSettings {
                max_passes: Some(20),
                threads,
                ..settings(&data, 1e-4)
            };
            let solution = run_weighted(&data, weights, &wanted);
            assert!(solution.radius <= wanted.radius && solution.passes <= 20);
            let size: f64 = solution.weights.unwrap().iter().map(|w| w * w).sum();
            assert!(size.sqrt() <= solution.radius);
        }
    }
}

/// Without a copy of the rows the weights are the same, to the bit.
fn memory_does_not_matter(
    data: &Data,
    wanted: &CrammerSingerSettings,
    usual: &CrammerSingerSolution,
) {
    let low_memory = CrammerSingerSettings {
        low_memory: true,
        ..*wanted
    };
    assert_eq!(run(data, &low_memory).weights, usual.weights);
}

// Proof: output_perturbation, "Inexact minimiser"
#[test]
fn rows_in_shares_of_their_weight_are_the_rows_themselves() {
    let whole = overlapping(24, 1000, 8, 12);
    let shares = Data {
        x: whole.x.repeat(3),
        y: whole.y.repeat(3),
        n: 3 * whole.n,
        ..whole
    };
    let weights: Vec<f64> = [0.25, 0.75, 0.0]
        .iter()
        .flat_map(|w| vec![*w; 1000])
        .collect();
    let wanted = CrammerSingerSettings {
        max_passes: Some(400),
        ..settings(&whole, 1e-3)
    };
    let one = run(&whole, &wanted);
    let other = run_weighted(&shares, &weights, &wanted);
    assert!(one.radius.max(other.radius) <= wanted.radius);
    assert!(distance(&one, &other) <= one.radius + other.radius);
}

// Proof: output_perturbation, "Inexact minimiser"
#[test]
fn layouts_and_memory_modes_agree() {
    let data = data(11, 400, 40, 7, 0.2);
    let (mut values, mut columns, mut starts) = (Vec::new(), Vec::new(), vec![0_i32]);
    for row in data.x.chunks(data.d) {
        for (j, x) in row.iter().enumerate().filter(|(_, x)| **x != 0.0) {
            values.push(*x);
            columns.push(j as i32);
        }
        starts.push(values.len() as i32);
    }
    let sparse = Layout::Csr(CsrIndex::I32(&columns, &starts));
    let rows = Rows::new(Values::F64(&values), sparse, (data.n, data.d), BOUNDS).unwrap();
    let wanted = settings(&data, 1e-3);
    let dense = run(&data, &wanted);
    let csr = solve(rows, (&data.y, &[]), &wanted, &Never).unwrap();
    assert!(distance(&dense, &csr) <= dense.radius + csr.radius);
    memory_does_not_matter(&data, &wanted, &dense);
}

#[test]
fn threads_do_not_change_a_bit() {
    // Large enough for the parallel passes.
    let data = data(12, 8000, 50, 5, 1.0);
    let one = run(&data, &settings(&data, 1e-3));
    for threads in [2, 4] {
        let more = CrammerSingerSettings {
            threads,
            ..settings(&data, 1e-3)
        };
        assert_eq!(run(&data, &more).weights, one.weights);
    }
}

// Proof: output_perturbation, "Inexact minimiser"
#[test]
fn running_out_of_passes_releases_nothing() {
    let data = data(13, 500, 20, 4, 1.0);
    let short = CrammerSingerSettings {
        max_passes: Some(1),
        ..settings(&data, 1e-4)
    };
    let solution = run(&data, &short);
    assert!(solution.weights.is_none());
}

/// Stops at the n-th look.
struct After(Cell<u32>);

impl Interrupt for After {
    fn stopped(&self) -> bool {
        self.0.set(self.0.get().saturating_sub(1));
        self.0.get() == 0
    }
}

#[test]
fn interrupts_end_a_fit() {
    let data = data(14, 2000, 30, 6, 1.0);
    for looks in [1, 3, 20, 60] {
        let shape = (data.n, data.d);
        let rows = Rows::new(Values::F64(&data.x), Layout::Dense, shape, BOUNDS).unwrap();
        let stop = After(Cell::new(looks));
        let outcome = solve(rows, (&data.y, &[]), &settings(&data, 1e-3), &stop);
        assert!(matches!(outcome, Err(Error::Interrupted)));
    }
}

#[test]
fn what_cannot_be_solved_is_refused() {
    let mut bad = data(15, 20, 3, 3, 1.0);
    let wanted = settings(&bad, 1e-3);
    let refuse = |data: &Data, wanted: &CrammerSingerSettings| {
        let shape = (data.n, data.d);
        let rows = Rows::new(Values::F64(&data.x), Layout::Dense, shape, BOUNDS).unwrap();
        match solve(rows, (&data.y, &[]), wanted, &Never) {
            Err(Error::InvalidArgument { name, .. }) => name,
            other => panic!("not refused: {other:?}"),
        }
    };
    assert_eq!(
        refuse(
            &bad,
            &CrammerSingerSettings {
                cost: 1e200,
                ..wanted
            }
        ),
        "C"
    );
    assert_eq!(
        refuse(
            &bad,
            &CrammerSingerSettings {
                radius: 0.0,
                ..wanted
            }
        ),
        "tol"
    );
    assert_eq!(
        refuse(
            &bad,
            &CrammerSingerSettings {
                threads: 0,
                ..wanted
            }
        ),
        "n_threads"
    );
    bad.x[4] = f64::NAN;
    assert_eq!(refuse(&bad, &wanted), "X");
    bad.x[4] = 0.0;
    bad.y[2] = 3;
    assert_eq!(refuse(&bad, &wanted), "y");
}

/// Rows short beside the constant feature: nearly equal rows with many classes tie everywhere, and
/// clipped Newton steps once needed thousands of rounds.
#[test]
fn nearly_equal_rows_are_solved_in_a_few_rounds() {
    for seed in 20..40 {
        let mut data = data(seed, 13, 5, 9, 1.0);
        for x in &mut data.x {
            *x *= 0.01;
        }
        let bounds = RowBounds {
            data_norm: 1.0,
            intercept: 3.0,
        };
        let rows = Rows::new(Values::F64(&data.x), Layout::Dense, (13, 5), bounds).unwrap();
        let wanted = CrammerSingerSettings {
            cost: 5.0,
            ..settings(&data, 1e-3)
        };
        let solution = solve(rows, (&data.y, &[]), &wanted, &Never).unwrap();
        assert!(solution.rounds <= 20, "{} rounds", solution.rounds);
    }
}

/// The projection of `z`, and the class where it is a vertex.
fn projected(z: &[f64], total: f64) -> (Vec<f64>, Option<usize>) {
    let mut c = room(z.len()).unwrap();
    c[..z.len()].copy_from_slice(z);
    let vertex = project(&mut c, total);
    c.truncate(z.len());
    (c, vertex)
}

/// KKT: `c_k = max(z_k - t, 0)` for one `t`, and `sum c = total`.
fn check_projection(z: &[f64], total: f64) {
    let (c, vertex) = projected(z, total);
    let sum: f64 = c.iter().sum();
    assert!((sum - total).abs() <= 1e-14 * total, "{z:?} sums to {sum}");
    assert!(c.iter().all(|c| *c >= 0.0));
    let t = (0..z.len())
        .filter(|k| c[*k] > 0.0)
        .map(|k| z[k] - c[k])
        .fold(f64::NEG_INFINITY, f64::max);
    for (z_k, c_k) in z.iter().zip(&c) {
        let error = (c_k - (z_k - t).max(0.0)).abs();
        assert!(error < 1e-13 * (1.0 + z_k.abs()), "{z:?} -> {c:?}");
    }
    if let Some(m) = vertex {
        assert_eq!(c[m], total);
        assert_eq!(c.iter().filter(|c| **c != 0.0).count(), 1);
    }
}

// Proof: output_perturbation, "Inexact minimiser"
#[test]
fn projections_satisfy_their_optimality_conditions() {
    check_projection(&[0.3, 0.2, 0.1], 1.0);
    check_projection(&[5.0, 0.0], 1.0);
    check_projection(&[0.0, 0.0, 0.0, 0.0], 0.25);
    check_projection(&[1.0, 1.0 + 1e-16, -4.0], 2.0);
    check_projection(&[-1e3, 7.5, 7.4999, 7.2, 0.1], 0.5);
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    for case in 0..2000 {
        let classes = [7, 8, 9, 16, 35, 100][case % 6];
        let z: Vec<f64> = (0..classes).map(|_| 1.7 * rng.random::<f64>()).collect();
        check_projection(&z, 0.5);
        check_projection(&z, 3.0);
    }
}

// Proof: output_perturbation, "Inexact minimiser"
#[test]
fn vertices_are_exact() {
    let (c, vertex) = projected(&[0.1, 0.9, -3.0], 0.3);
    assert_eq!((c, vertex), (vec![0.0, 0.3, 0.0], Some(1)));
}

/// The lead of the best class decides which rows a certificate may leave out.
// Proof: output_perturbation, "Inexact minimiser"
#[test]
fn leading_classes_and_their_leads() {
    let mut rng = ChaCha8Rng::seed_from_u64(2);
    for _ in 0..20_000 {
        let classes = rng.random_range(2..40);
        // Few values, so that many tie.
        let scores: Vec<f64> = (0..classes)
            .map(|_| {
                f64::from(rng.random_range(-3_i8..4)) - 1e200 * f64::from(rng.random::<bool>())
            })
            .collect();
        let own = rng.random_range(0..classes);
        let mut expected = scores.clone();
        expected[own] -= 1.0;
        let mut gradient = room(classes).unwrap();
        let (best, top, second) = leading(&scores, own, &mut gradient);
        assert_eq!(gradient[..classes], expected);
        assert_eq!(expected[best], top);
        expected.sort_by(f64::total_cmp);
        assert_eq!(
            (top, second),
            (expected[classes - 1], expected[classes - 2])
        );
    }
}

/// A table of categories with noisy labels: thousands of open rows for some hundred weights. Working
/// sets in Gram space wandered there without an end.
#[test]
fn categories_are_certified_in_few_rounds() {
    let (n, parts, categories, classes) = (6000, 8, 20, 4);
    let mut rng = ChaCha8Rng::seed_from_u64(18);
    let d = parts * categories;
    let teacher: Vec<f64> = (0..classes * d)
        .map(|_| rng.random::<f64>() * 3.5)
        .collect();
    let (mut x, mut y) = (vec![0.0; n * d], Vec::new());
    for row in x.chunks_exact_mut(d) {
        let mut scores: Vec<f64> = (0..classes).map(|_| rng.random::<f64>() * 2.0).collect();
        for part in 0..parts {
            let column = part * categories + rng.random_range(0..categories);
            row[column] = 1.0 / (parts as f64).sqrt();
            for (k, score) in scores.iter_mut().enumerate() {
                *score += teacher[k * d + column];
            }
        }
        let best = (0..classes).max_by(|a, b| scores[*a].total_cmp(&scores[*b]));
        y.push(best.unwrap() as i64);
    }
    let data = Data {
        x,
        y,
        n,
        d,
        classes,
    };
    let mut wanted = settings(&data, 1e-3);
    wanted.cost = 10.0;
    wanted.radius *= 10.0 / COST;
    let solution = run(&data, &wanted);
    assert!(solution.rounds <= 8, "{} rounds", solution.rounds);
}

/// Rows so short that steps of a huge C overflow in single precision: no class has a score there.
// Proof: output_perturbation, "Inexact minimiser"
#[test]
fn scores_that_overflow_are_no_error() {
    for classes in [3, 9, 12, 26] {
        let mut data = data(24, 800, 6, classes, 1.0);
        for x in &mut data.x {
            *x *= 1e-25;
        }
        let mut wanted = settings(&data, 1e-3);
        (wanted.cost, wanted.radius) = (1e50, 1e45);
        wanted.max_passes = Some(300);
        let shape = (data.n, data.d);
        let bounds = RowBounds {
            data_norm: 1.0,
            intercept: 0.0,
        };
        let rows = Rows::new(Values::F64(&data.x), Layout::Dense, shape, bounds).unwrap();
        let solution = solve(rows, (&data.y, &[]), &wanted, &Never).unwrap();
        let found = solution.weights.unwrap_or_default();
        assert!(found.iter().all(|weight| weight.is_finite()));
    }
}

/// Large Newton systems: conjugate gradients where they come near in time, else the factor.
#[test]
fn newton_steps_of_many_weights() {
    let data = data(19, 600, 60, 25, 0.3);
    let rows = Rows::new(Values::F64(&data.x), Layout::Dense, (600, 60), BOUNDS).unwrap();
    let wanted = settings(&data, 1e-3);
    let problem = Problem::new(rows, (&data.y, &[]), &wanted, &Never).unwrap();
    let layout = Lines::new(25, problem.columns);
    let system = System::new(&problem, layout, &Never);
    let mut rng = ChaCha8Rng::seed_from_u64(20);
    let (all, mut start, mut classes) = ((0..600).collect::<Vec<u32>>(), vec![0], Vec::new());
    for _ in 0..600 {
        let first = rng.random_range(0..22_u32);
        classes.extend([first, first + 1, first + 3]);
        start.push(classes.len());
    }
    let right: Vec<f64> = (0..layout.stored())
        .map(|at| {
            if at < 25 * problem.columns {
                rng.random::<f64>() - 0.5
            } else {
                0.0
            }
        })
        .collect();
    let norm = |x: &[f64]| x.iter().map(|x| x * x).sum::<f64>().sqrt();
    for (sigma, off) in [(1.0, 0.1), (1e13, 1e-9)] {
        let free = (&all[..], &start[..], &classes[..]);
        let (mut quick, mut exact) = (right.clone(), right.clone());
        assert!(system.step(free, sigma, &mut quick).unwrap());
        assert!(system.solve(free, &[sigma], 1.0, &mut exact).unwrap());
        let error: Vec<f64> = quick.iter().zip(&exact).map(|(a, b)| a - b).collect();
        assert!(norm(&error) <= off * norm(&exact));
        // A control: the two ways differ where the gradients suffice.
        assert_eq!(sigma == 1.0, norm(&error) > 0.0);
    }
}

/// What conjugate gradients leave over on sparse rows with two, three and nine free classes: few are met one by one.
#[test]
fn newton_steps_of_sparse_rows() {
    let (n, classes, sigma) = (500, 25, 100.0);
    let mut data = data(21, n, 70, classes, 0.1);
    // No row is clipped.
    for x in &mut data.x {
        *x *= 0.2;
    }
    let rows = Rows::new(Values::F64(&data.x), Layout::Dense, (n, 70), BOUNDS).unwrap();
    let wanted = settings(&data, 1e-3);
    let problem = Problem::new(rows, (&data.y, &[]), &wanted, &Never).unwrap();
    let d = problem.columns;
    let mut gram = vec![0.0; d * d];
    for row in data.x.chunks(data.d) {
        let mut u = row.to_vec();
        u.push(BOUNDS.intercept);
        for x in &mut u {
            *x *= 0.5_f64.powi(BOUNDS.exponent());
        }
        for (line, a) in gram.chunks_mut(d).zip(&u) {
            line.iter_mut().zip(&u).for_each(|(g, b)| *g += a * b);
        }
    }
    let layout = Lines::new(classes, d);
    let system = System::new(&problem, layout, &Never);
    let mut rng = ChaCha8Rng::seed_from_u64(22);
    let all: Vec<u32> = (0..n as u32).collect();
    for free in [vec![3, 17], vec![0, 8, 24], (4..13).collect::<Vec<u32>>()] {
        let start: Vec<usize> = (0..=n).map(|i| i * free.len()).collect();
        let mut right = vec![0.0; layout.stored()];
        for (k, j) in free.iter().flat_map(|k| (0..d).map(|j| (*k as usize, j))) {
            right[layout.position(k, j)] = rng.random::<f64>() - 0.5;
        }
        let mut x = right.clone();
        let inside = (&all[..], &start[..], &free.repeat(n)[..]);
        assert!(system.step(inside, sigma, &mut x).unwrap());
        let share = 1.0 / free.len() as f64;
        let mean = |j: usize| -> f64 {
            let scores = free.iter().map(|k| x[layout.position(*k as usize, j)]);
            share * scores.sum::<f64>()
        };
        let means: Vec<f64> = (0..d).map(mean).collect();
        let (mut left, mut before) = (0.0, 0.0);
        for k in 0..classes {
            let part = if free.contains(&(k as u32)) {
                sigma
            } else {
                0.0
            };
            for j in 0..d {
                let line = gram[j * d..][..d].iter().zip(&means).enumerate();
                let moved = line.map(|(at, (g, mean))| g * (x[layout.position(k, at)] - mean));
                let place = layout.position(k, j);
                let rest = right[place] - x[place] - part * moved.sum::<f64>();
                let diagonal = 1.0 + part * (1.0 - share) * gram[j * d + j];
                left += rest * rest / diagonal;
                before += right[place] * right[place] / diagonal;
            }
        }
        let ratio = (left / before).sqrt();
        // A control: no factor solved it.
        assert!((1e-9..0.051).contains(&ratio), "{ratio}");
    }
}

/// Ties once made the projection go round for ever.
#[test]
fn projections_of_ties_end() {
    let mut rng = ChaCha8Rng::seed_from_u64(16);
    for _ in 0..100_000 {
        let classes = rng.random_range(2..12);
        let total = 10.0_f64.powi(rng.random_range(-6..6));
        let shared = total * rng.random::<f64>();
        let mut z: Vec<f64> = (0..classes)
            .map(|_| {
                shared
                    + if rng.random::<bool>() {
                        0.0
                    } else {
                        total * f64::EPSILON
                    }
            })
            .collect();
        z[0] += total * rng.random::<f64>();
        let (c, _) = projected(&z, total);
        let sum: f64 = c.iter().sum();
        assert!((sum - total).abs() <= 1e-12 * total);
    }
}

/// Rows with few columns of small whole numbers, labels that hardly follow them: thousands of
/// duals between their bounds for fifty-six weights.
#[test]
fn certified_radii_hold_on_lattices_of_few_columns() {
    let (n, d, classes) = (900, 6, 8);
    let mut rng = ChaCha8Rng::seed_from_u64(3);
    let mut x = Vec::new();
    let mut y = Vec::new();
    for i in 0..n {
        let class = i % classes;
        y.push(class as i64);
        for j in 0..d {
            let centre = if (class + j) % 3 == 0 { 9.0 } else { 4.0 };
            let number: f64 = centre + 6.0 * (rng.random::<f64>() + rng.random::<f64>() - 1.0);
            x.push(number.round().clamp(0.0, 16.0) / 80.0);
        }
    }
    let data = Data {
        x,
        y,
        n,
        d,
        classes,
    };
    let wanted = |tol: f64| CrammerSingerSettings {
        cost: 0.05,
        radius: tol * 2.0_f64.sqrt() * 0.05,
        max_passes: Some(2000),
        ..settings(&data, 1.0)
    };
    let fine = run(&data, &wanted(1e-5));
    for tol in [1e-1, 1e-2, 1e-3] {
        let coarse = run(&data, &wanted(tol));
        assert!(coarse.radius <= wanted(tol).radius);
        assert!(distance(&coarse, &fine) <= coarse.radius + fine.radius);
    }
}
