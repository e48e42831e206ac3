//! The laws of objective perturbation: promises that need no reference values.
//! Agreement with references is tested from Python.

use dpsvm_core::accounting::gaussian;
use dpsvm_core::accounting::objective;
use dpsvm_core::accounting::objective::{Curvature, Jacobian, Law, Relation};
use dpsvm_core::runtime::interrupt::Never;
use dpsvm_core::{Error, Result};

fn delta(law: Law, relation: Relation, at: f64, noise: f64, price: Jacobian) -> Result<f64> {
    objective::delta(law, relation, at, noise, price, &Never)
}

fn log_delta(law: Law, relation: Relation, at: f64, noise: f64, price: Jacobian) -> Result<f64> {
    objective::log_delta(law, relation, at, noise, price, &Never)
}

fn sigma(law: Law, relation: Relation, at: f64, target: f64, price: Curvature) -> Result<f64> {
    objective::sigma(law, relation, at, target, price, &Never)
}

const RELATIONS: [Relation; 2] = [Relation::AddRemove, Relation::ReplaceOne];

const LAWS: [Law; 9] = [
    Law::Softmax { classes: 2 },
    Law::Softmax { classes: 3 },
    Law::Softmax { classes: 1000 },
    Law::Logistic { scores: 1 },
    Law::Logistic { scores: 4 },
    Law::Huber { scores: 1 },
    Law::Huber { scores: 10 },
    Law::WestonWatkins { classes: 2 },
    Law::WestonWatkins { classes: 4 },
];

/// Relative rounding of the curves: closed forms and one-dimensional integrals, or convolutions.
fn rounding(law: Law) -> f64 {
    match law {
        Law::Logistic { scores: 4 }
        | Law::Huber { scores: 10 }
        | Law::WestonWatkins { classes: 4 } => 1e-6,
        _ => 1e-9,
    }
}

/// Every law under both relations, each with a given Jacobian and, for those without a joint bound
/// (whose own search leaves steps), with `kappa`.
fn every_case() -> impl Iterator<Item = (Law, Relation, bool)> {
    LAWS.into_iter().flat_map(|law| {
        let joint = matches!(law, Law::Softmax { classes: 3.. });
        RELATIONS
            .into_iter()
            .flat_map(move |relation| [(law, relation, false), (law, relation, true)])
            .filter(move |&(_, _, kappa)| !(kappa && joint))
    })
}

fn jacobian(kappa: bool, value: f64) -> Jacobian {
    if kappa {
        Jacobian::Kappa(value)
    } else {
        Jacobian::Given(value)
    }
}

/// Noise in units of the law's gradient norm, so that delta is neither 0 nor 1.
fn scale(law: Law, relation: Relation) -> f64 {
    let norm = match law {
        Law::Softmax { .. } | Law::WestonWatkins { classes: 2 } => 1.5,
        Law::Logistic { scores } | Law::Huber { scores } => (scores as f64).sqrt(),
        Law::WestonWatkins { .. } => 4.0,
    };
    match relation {
        Relation::AddRemove => norm,
        Relation::ReplaceOne => 2.0 * norm,
    }
}

fn assert_falls(values: &[f64], tolerance: f64, what: &str) {
    for pair in values.windows(2) {
        assert!(
            pair[1] <= pair[0] * (1.0 + tolerance) + 1e-300,
            "{what}: {pair:?}"
        );
    }
}

// Proof: objective_perturbation, "Laws as numbers"
#[test]
fn delta_falls_with_epsilon() -> Result<()> {
    for (law, relation, kappa) in every_case() {
        let sigma = 2.0 * scale(law, relation);
        let values: Vec<f64> = [
            0.0, 1e-9, 0.1, 0.199_999, 0.2, 0.200_001, 0.3, 0.7, 2.0, 9.0,
        ]
        .into_iter()
        .map(|epsilon| delta(law, relation, epsilon, sigma, jacobian(kappa, 0.2)))
        .collect::<Result<_>>()?;
        assert_falls(
            &values,
            rounding(law),
            &format!("{law:?} {relation:?} {kappa}"),
        );
        assert!(values[9] < 0.01 * values[6], "{law:?} {relation:?}");
    }
    Ok(())
}

// Proof: objective_perturbation, "Laws as numbers"
#[test]
fn delta_falls_with_sigma() -> Result<()> {
    for (law, relation, kappa) in every_case() {
        let unit = scale(law, relation);
        for epsilon in [0.1, 2.0] {
            let values: Vec<f64> = [1e-9, 1e-3, 0.1, 0.3, 0.7, 1.0, 1.000_01, 1.5, 3.0, 8.0, 1e3]
                .into_iter()
                .map(|factor| delta(law, relation, epsilon, factor * unit, jacobian(kappa, 0.2)))
                .collect::<Result<_>>()?;
            let what = format!("{law:?} {relation:?} {kappa} {epsilon}");
            assert_falls(&values, rounding(law), &what);
            assert!(values[0] > 0.999, "{what}");
        }
    }
    Ok(())
}

// Proof: objective_perturbation, "Laws as numbers"
#[test]
fn delta_grows_with_the_jacobian() -> Result<()> {
    for (law, relation, kappa) in every_case() {
        let sigma = 1.5 * scale(law, relation);
        let mut values: Vec<f64> = [0.0, 1e-12, 0.01, 0.1, 0.5, 1.0, 2.0, 4.0, 20.0, 1e6]
            .into_iter()
            .map(|value| delta(law, relation, 1.5, sigma, jacobian(kappa, value)))
            .collect::<Result<_>>()?;
        values.reverse();
        assert_falls(
            &values,
            rounding(law),
            &format!("{law:?} {relation:?} {kappa}"),
        );
    }
    Ok(())
}

// Proof: objective_perturbation, "Laws as numbers"
#[test]
fn sigma_satisfies_its_own_inequality_and_is_least() -> Result<()> {
    for (law, relation, kappa) in every_case() {
        for (epsilon, target) in [(0.5, 1e-3), (1.0, 1e-6), (6.0, 1e-15)] {
            let value = 0.05;
            let curvature = if kappa {
                Curvature::Kappa(value)
            } else {
                Curvature::Given(value)
            };
            let s = sigma(law, relation, epsilon, target, curvature)?;
            let jacobian = jacobian(kappa, value);
            let what = format!("{law:?} {relation:?} {kappa} {epsilon} {target}: {s}");
            assert!(
                delta(law, relation, epsilon, s, jacobian)? <= target,
                "{what}"
            );
            let less = s * (1.0 - 1e-6);
            assert!(
                delta(law, relation, epsilon, less, jacobian)? > target,
                "{what}"
            );
        }
    }
    Ok(())
}

// Proof: objective_perturbation, "Laws as numbers"
#[test]
fn sigma_follows_a_kappa_that_falls_with_the_noise() -> Result<()> {
    for law in [
        Law::Logistic { scores: 1 },
        Law::Huber { scores: 3 },
        Law::Softmax { classes: 2 },
    ] {
        let slope = 4.0;
        let s = sigma(
            law,
            Relation::AddRemove,
            0.5,
            1e-6,
            Curvature::KappaPerT(slope),
        )?;
        let at = |s: f64| {
            let kappa = Jacobian::Kappa(slope / s);
            delta(law, Relation::AddRemove, 0.5, s, kappa)
        };
        assert!(at(s)? <= 1e-6);
        assert!(at(s * (1.0 - 1e-6))? > 1e-6);
    }
    Ok(())
}

// Proof: objective_perturbation, "Laws as numbers"
#[test]
fn one_score_is_the_gaussian_mechanism() -> Result<()> {
    for (epsilon, s) in [(0.0, 3.0), (1.0, 1.0), (4.0, 0.4), (20.0, 5.0)] {
        let huber = Law::Huber { scores: 1 };
        let plain = log_delta(huber, Relation::AddRemove, epsilon, s, Jacobian::Given(0.0))?;
        let exact = gaussian::log_delta(epsilon, s)?;
        assert!((plain - exact).abs() <= 1e-12 * (1.0 + exact.abs()));
        // The Jacobian of a logistic loss is free up to epsilon + t^2 / 2.
        let free = Jacobian::Kappa(epsilon + 0.5 / s / s);
        let logistic = Law::Logistic { scores: 1 };
        let value = log_delta(logistic, Relation::AddRemove, epsilon, s, free)?;
        assert!((value - exact).abs() <= 1e-12 * (1.0 + exact.abs()));
        let dear = Jacobian::Kappa(3.0 * epsilon + 2.0 / s / s);
        let value = log_delta(logistic, Relation::AddRemove, epsilon, s, dear)?;
        assert!(value > exact + 1e-6 * exact.abs());
    }
    Ok(())
}

/// `E (1 - e^{e - U})_+` by midpoints from the density of `max_{k <= n} z_k` and of `z_y`.
fn softmax_by_midpoints(e: f64, t: f64, n: i32) -> f64 {
    let phi = |x: f64| (-0.5 * x * x).exp() / (2.0 * std::f64::consts::PI).sqrt();
    let below = |x: f64| 0.5 * libm::erfc(-x / std::f64::consts::SQRT_2);
    let step = 0.01;
    let grid: Vec<f64> = (-800..800).map(|i| (f64::from(i) + 0.5) * step).collect();
    let mut sum = 0.0;
    for &w in &grid {
        let density = f64::from(n) * phi(w) * below(w).powi(n - 1);
        for &z in &grid {
            let loss = t * t + t * (w - z);
            if loss > e {
                sum += density * phi(z) * -(e - loss).exp_m1() * step * step;
            }
        }
    }
    sum
}

// Proof: objective_perturbation, "Laws as numbers"
#[test]
fn softmax_agrees_with_a_double_sum() -> Result<()> {
    for (epsilon, t, n) in [(0.5, 0.3, 2), (2.0, 0.7, 9), (0.0, 0.2, 4)] {
        let classes = n as usize + 1;
        let law = Law::Softmax { classes };
        let value = delta(
            law,
            Relation::AddRemove,
            epsilon,
            1.0 / t,
            Jacobian::Given(0.0),
        )?;
        let wanted = softmax_by_midpoints(epsilon, t, n);
        assert!((value / wanted - 1.0).abs() < 1e-4, "{value} {wanted}");
    }
    Ok(())
}

// Proof: objective_perturbation, "Laws as numbers"
#[test]
fn tails_reach_far_below_the_least_double() -> Result<()> {
    for law in LAWS {
        let wanted = -1000.0;
        let curvature = Curvature::Given(0.1);
        let far = sigma(law, Relation::AddRemove, 2.0, 1e-300, curvature)?;
        let at = |s: f64| log_delta(law, Relation::AddRemove, 2.0, s, Jacobian::Given(0.1));
        let log = at(far)?;
        assert!(log <= -690.775 && log > -690.78, "{law:?}: {log}");
        // Beyond, the logarithm goes on falling about like sigma^2.
        let further = at(2.0 * far)?;
        assert!(
            further < 2.5 * log && further < wanted,
            "{law:?}: {further}"
        );
        assert!(further > 6.0 * log, "{law:?}: {further}");
    }
    Ok(())
}

#[test]
fn every_argument_in_range_gives_a_probability() -> Result<()> {
    for law in [
        Law::Softmax { classes: 5 },
        Law::Softmax { classes: 100_000 },
        Law::Logistic { scores: 1 },
        Law::Logistic { scores: 3 },
        Law::Huber { scores: 100 },
        Law::WestonWatkins { classes: 3 },
    ] {
        for relation in RELATIONS {
            for s in [5e-324, 1e-150, 1e-8, 0.3, 1e3, 1e20, 1e150, 1e300, f64::MAX] {
                for epsilon in [0.0, 1e-300, 1.0, 1e4] {
                    for value in [0.0, 1e-300, 1.0, 1e8] {
                        let given = Jacobian::Given(value);
                        let log = log_delta(law, relation, epsilon, s, given)?;
                        let d = delta(law, relation, epsilon, s, given)?;
                        let what = format!("{law:?} {relation:?} {s} {epsilon} {value}");
                        assert!((-f64::MAX..=0.0).contains(&log), "{what}: {log}");
                        assert!(d > 0.0 && d <= 1.0, "{what}: {d}");
                    }
                }
            }
        }
    }
    Ok(())
}

#[test]
fn logistic_extremes_give_a_probability() -> Result<()> {
    for scores in [1, 3] {
        let law = Law::Logistic { scores };
        for s in [1e-150, 1e-3, 0.3, 1e3, 1e20, 1e300] {
            for epsilon in [0.0, 1e-3, 1.0, 1e4] {
                for kappa in [0.0, 1e-300, 1e-3, 1.0, 1e3, 1e8, 1e300] {
                    let jacobian = Jacobian::Kappa(kappa);
                    let log = log_delta(law, Relation::AddRemove, epsilon, s, jacobian)?;
                    let what = format!("{scores} {s} {epsilon} {kappa}");
                    assert!((-f64::MAX..=0.0).contains(&log), "{what}: {log}");
                }
            }
        }
    }
    Ok(())
}

// Proof: objective_perturbation, "Laws as numbers"
#[test]
fn a_jacobian_without_room_is_refused() -> Result<()> {
    let law = Law::Huber { scores: 1 };
    let refused = sigma(law, Relation::AddRemove, 1.0, 1e-6, Curvature::Given(1.1));
    assert!(matches!(refused, Err(Error::InvalidArgument { name, .. }) if name == "jacobian"));
    let refused = sigma(law, Relation::AddRemove, 1.0, 1e-6, Curvature::Kappa(8.0));
    assert!(matches!(refused, Err(Error::InvalidArgument { name, .. }) if name == "kappa"));
    // kappa = 8 / sigma finds room.
    let s = sigma(
        law,
        Relation::AddRemove,
        1.0,
        1e-6,
        Curvature::KappaPerT(8.0),
    )?;
    assert!(s > 8.0 / 6.9);
    // Where delta itself has room for it, so has the noise.
    let s = sigma(law, Relation::AddRemove, 1.0, 0.2, Curvature::Given(1.1))?;
    assert!(delta(law, Relation::AddRemove, 1.0, s, Jacobian::Given(1.1))? <= 0.2);
    Ok(())
}

#[test]
fn arguments_out_of_range_are_named() {
    let named = |result: Result<f64>, wanted: &str| {
        assert!(
            matches!(result, Err(Error::InvalidArgument { name, .. }) if name == wanted),
            "{wanted}"
        );
    };
    let law = Law::Softmax { classes: 3 };
    let zero = Jacobian::Given(0.0);
    let at =
        |law, epsilon, sigma, jacobian| delta(law, Relation::AddRemove, epsilon, sigma, jacobian);
    for bad in [f64::NAN, f64::INFINITY, -1.0, 1.0001e4] {
        named(at(law, bad, 1.0, zero), "epsilon");
        let least = sigma(law, Relation::AddRemove, bad, 1e-6, Curvature::Given(0.0));
        named(least, "epsilon");
    }
    for bad in [f64::NAN, 0.0, -1.0, f64::INFINITY] {
        named(at(law, 1.0, bad, zero), "sigma");
    }
    for bad in [f64::NAN, -1.0, f64::INFINITY] {
        named(at(law, 1.0, 1.0, Jacobian::Given(bad)), "jacobian");
        named(at(law, 1.0, 1.0, Jacobian::Kappa(bad)), "kappa");
        let along = |curvature| sigma(law, Relation::AddRemove, 1.0, 1e-6, curvature);
        named(along(Curvature::KappaPerT(bad)), "kappa_per_t");
        named(along(Curvature::Kappa(bad)), "kappa");
        named(along(Curvature::Given(bad)), "jacobian");
    }
    for bad in [f64::NAN, 0.0, 1.0, 1.5, 1e-310] {
        let least = sigma(law, Relation::AddRemove, 1.0, bad, Curvature::Given(0.0));
        named(least, "delta");
    }
    for bad in [
        Law::Softmax { classes: 1 },
        Law::WestonWatkins { classes: 1 },
        Law::Huber { scores: 0 },
        Law::Logistic { scores: 100_001 },
    ] {
        named(at(bad, 1.0, 1.0, zero), "n_scores");
    }
}
