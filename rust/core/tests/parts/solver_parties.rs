//! Many parties in one call: single fits side by side, in the space of few rows.

use dpsvm_core::Error;
use dpsvm_core::loss::smooth::SmoothLoss;
use dpsvm_core::noise::{Key, gaussian};
use dpsvm_core::rows::view::{Layout, RowBounds, Rows, Values};
use dpsvm_core::runtime::interrupt::{Interrupt, Never};
use dpsvm_core::solver::Fits;
use dpsvm_core::solver::crammer_singer::{dual_coordinate, problem};
use dpsvm_core::solver::parties::{Parties, crammer_singer, smooth};
use dpsvm_core::solver::smooth::SmoothSettings;
use dpsvm_core::solver::smooth::{erm::solve_few_rows, solve};

const COLUMNS: usize = 90;
const CLASSES: usize = 3;

/// Rows in random directions; every fifth repeats the one before, every seventh is zero.
fn data(n: usize) -> (Vec<f64>, Vec<i64>) {
    let key = Key::from_seed(n as u64);
    let mut x = gaussian(key.task(0), n * COLUMNS, 0.2, 1, &Never).unwrap();
    for i in 1..n {
        if i % 5 == 0 {
            x.copy_within((i - 1) * COLUMNS..i * COLUMNS, i * COLUMNS);
        }
        if i % 7 == 0 {
            x[i * COLUMNS..][..COLUMNS].fill(0.0);
        }
    }
    (x, (0..n).map(|i| (i % CLASSES) as i64).collect())
}

fn rows(x: &[f64]) -> Rows<'_> {
    let bounds = RowBounds {
        data_norm: 1.0,
        intercept: 0.5,
    };
    let shape = (x.len() / COLUMNS, COLUMNS);
    Rows::new(Values::F64(x), Layout::Dense, shape, bounds).unwrap()
}

fn settings(kind: &str, regularization: f64, distance: f64) -> SmoothSettings {
    SmoothSettings {
        loss: SmoothLoss::new(kind, CLASSES, 0.5, 1.0).unwrap(),
        regularization,
        gradient_tol: distance * regularization,
        max_steps: None,
        seed: 3,
        threads: 1,
        low_memory: false,
    }
}

fn distance(a: &[f64], b: &[f64]) -> f64 {
    let squares = a.iter().zip(b).map(|(a, b)| (a - b).powi(2));
    squares.sum::<f64>().sqrt()
}

#[test]
fn few_rows_have_the_minimiser_of_the_full_problem() {
    for n in [1, 2, 20, 45] {
        let (x, y) = data(n);
        for kind in ["huber", "softplus", "softmax_margin", "huber_ww"] {
            for lambda in [0.01, 3.0] {
                let settings = settings(kind, lambda, 1e-6);
                let full = solve(rows(&x), (&y, &[]), None, &settings, &Never).unwrap();
                let few = solve_few_rows(rows(&x), &y, &settings, &Never).unwrap();
                assert!(few.gradient_norm <= settings.gradient_tol);
                let (full, few) = (full.weights.unwrap(), few.weights.unwrap());
                assert!(distance(&full, &few) <= 2e-6, "{n} {kind} {lambda}");
                // What is compared is no zero.
                assert!(distance(&full, &vec![0.0; full.len()]) > 1e-3);
            }
        }
    }
}

/// The work over all columns is the certificate: fewer gradients than a search over them takes.
#[test]
fn few_rows_need_little_work_over_all_columns() {
    let (x, y) = data(40);
    let settings = settings("huber", 0.01, 1e-5);
    let full = solve(rows(&x), (&y, &[]), None, &settings, &Never).unwrap();
    let few = solve_few_rows(rows(&x), &y, &settings, &Never).unwrap();
    assert!(full.gradients > 5, "{}", full.gradients);
    assert!(few.gradients <= 2, "{}", few.gradients);
}

/// Rows of zeros span nothing: the search begins and ends at weights of 0.
#[test]
fn rows_of_zeros_have_weights_of_zero() {
    let x = [0.0; 3 * COLUMNS];
    let bounds = RowBounds {
        data_norm: 1.0,
        intercept: 0.0,
    };
    let rows = Rows::new(Values::F64(&x), Layout::Dense, (3, COLUMNS), bounds).unwrap();
    let few = solve_few_rows(rows, &[0, 1, 2], &settings("huber", 1.0, 1e-6), &Never).unwrap();
    assert_eq!(few.weights.unwrap(), [0.0; CLASSES * COLUMNS]);
}

#[test]
fn parties_are_single_fits_on_any_number_of_threads() {
    let (x, y) = data(60);
    let offsets = [0, 20, 20, 57, 60];
    let parties = Parties::new(rows(&x), &y, &offsets).unwrap();
    let lambdas = [0.1, 1.0, 0.02, 5.0];
    let tols = lambdas.map(|lambda| 1e-5 * lambda);
    let (costs, radii) = ([0.2, 1.0, 0.1, 0.5], [1e-4; 4]);
    let singer = |threads| problem::CrammerSingerSettings {
        classes: CLASSES,
        cost: 1.0,
        radius: 1.0,
        max_passes: None,
        seed: 5,
        threads,
        low_memory: false,
    };
    for threads in [1, 2, 4] {
        let shared = SmoothSettings {
            threads,
            ..settings("huber", 1.0, 1.0)
        };
        let fits = smooth(&parties, &shared, (&lambdas, &tols), &Never).unwrap();
        let dual = crammer_singer(&parties, &singer(threads), (&costs, &radii), &Never).unwrap();
        for i in 0..4 {
            let range = offsets[i] as usize..offsets[i + 1] as usize;
            let (x, y) = (&x[range.start * COLUMNS..range.end * COLUMNS], &y[range]);
            let own = settings("huber", lambdas[i], 1e-5);
            let single = solve_few_rows(rows(x), y, &own, &Never).unwrap().weights;
            assert_eq!(part(&fits, i), single.unwrap(), "{i} {threads}");
            let own = problem::CrammerSingerSettings {
                cost: costs[i],
                radius: radii[i],
                ..singer(1)
            };
            let single = dual_coordinate::solve(rows(x), (y, &[]), &own, &Never).unwrap();
            assert_eq!(part(&dual, i), single.weights.unwrap(), "{i} {threads}");
        }
    }
}

fn part(fits: &Fits, i: usize) -> &[f64] {
    assert!(fits.certified[i]);
    let size = fits.weights.len() / fits.certified.len();
    &fits.weights[i * size..][..size]
}

#[test]
fn parties_that_are_none_are_refused() {
    let (x, y) = data(6);
    for offsets in [
        &[][..],
        &[1, 6],
        &[0, 5],
        &[0, 4, 3, 6],
        &[0, -1, 6],
        &[0, 7],
    ] {
        let refused = Parties::new(rows(&x), &y, offsets).err();
        assert!(
            matches!(
                &refused,
                Some(Error::InvalidArgument {
                    name: "offsets",
                    ..
                })
            ),
            "{offsets:?}: {refused:?}"
        );
    }
    assert!(Parties::new(rows(&x), &y[1..], &[0, 6]).is_err());
    let parties = Parties::new(rows(&x), &y, &[0, 6]).unwrap();
    assert_eq!((parties.len(), parties.is_empty()), (1, false));
    let settings = settings("huber", 1.0, 1e-3);
    let two = ([1.0; 2], [1e-3; 2]);
    assert!(smooth(&parties, &settings, (&two.0, &two.1), &Never).is_err());
    assert!(smooth(&parties, &settings, (&two.0[..1], &two.1), &Never).is_err());
}

struct Now;

impl Interrupt for Now {
    fn stopped(&self) -> bool {
        true
    }
}

#[test]
fn parties_can_be_interrupted() {
    // Several threads are told within 10 ms, which the work must outlast.
    let (x, y) = data(6000);
    let offsets: Vec<i64> = (0..=400).map(|i| 15 * i).collect();
    let parties = Parties::new(rows(&x), &y, &offsets).unwrap();
    for threads in [1, 2] {
        let settings = SmoothSettings {
            threads,
            ..settings("huber", 1.0, 1e-3)
        };
        let numbers = ([0.01; 400], [1e-9; 400]);
        let fits = smooth(&parties, &settings, (&numbers.0, &numbers.1), &Now);
        assert_eq!(fits.err(), Some(Error::Interrupted));
    }
}
