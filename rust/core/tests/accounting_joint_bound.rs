//! The joint bound: agreement with an independent implementation and with Monte-Carlo values of
//! the exact pathwise supremum, and the shape of the curve.

use dpsvm_core::accounting::gaussian;
use dpsvm_core::accounting::objective::{Curvature, joint};
use dpsvm_core::runtime::interrupt::Never;

fn delta(at: f64, t: f64, kappa: f64, classes: usize, replace_one: bool, target: f64) -> f64 {
    joint::delta(at, t, kappa, classes, replace_one, target, &Never).expect("not interrupted")
}

fn sigma(at: f64, target: f64, curve: Curvature, classes: usize, replace_one: bool) -> Option<f64> {
    joint::sigma(at, target, curve, classes, replace_one, &Never).expect("not interrupted")
}

/// Classes, epsilon, delta, kappa, noise by another implementation, Monte-Carlo value of the exact
/// pathwise supremum at that noise and its standard error (0 where there is none). From
/// `tests/stored/objective_perturbation_joint.json`.
#[rustfmt::skip]
#[allow(clippy::unreadable_literal)]
const POINTS: [(usize, f64, f64, f64, f64, f64, f64); 26] = [
    (3, 1.0, 1e-05, 0.25, 5.554704, 9.7588e-06, 5e-08),
    (3, 2.0, 1e-05, 1.0, 3.117165, 9.2327e-06, 7e-08),
    (3, 4.0, 1e-05, 1.0, 1.58802, 9.4968e-06, 5e-08),
    (3, 8.0, 1e-08, 2.0, 1.081369, 9.1236e-09, 5.7e-11),
    (3, 0.5, 1e-06, 0.1, 11.87437, 9.8979e-07, 5.2e-09),
    (5, 1.0, 1e-05, 0.25, 5.890308, 8.2693e-06, 4.6e-08),
    (5, 2.0, 1e-06, 0.5, 3.433241, 7.8507e-07, 5.2e-09),
    (5, 8.0, 1e-05, 4.0, 0.964987, 4.2081e-06, 3.6e-08),
    (5, 0.5, 1e-05, 0.25, 13.012522, 7.7588e-06, 7.9e-08),
    (10, 0.5, 1e-05, 0.1, 11.683182, 8.5544e-06, 4.4e-08),
    (10, 1.0, 1e-05, 0.1, 5.955054, 9.8021e-06, 4.8e-08),
    (10, 1.0, 1e-05, 0.5, 7.651097, 6.1774e-06, 9.7e-08),
    (10, 2.0, 1e-05, 0.5, 3.29088, 6.9438e-06, 4.3e-08),
    (10, 4.0, 1e-05, 1.0, 1.743246, 6.5111e-06, 4e-08),
    (10, 4.0, 1e-05, 2.0, 2.060193, 3.2603e-06, 6.2e-08),
    (10, 8.0, 1e-05, 6.0, 1.317308, 1.0916e-06, 1.3e-07),
    (10, 1.0, 1e-09, 0.25, 8.680078, 6.1988e-10, 1e-11),
    (10, 20.0, 1e-06, 10.0, 0.500317, 8.8838e-08, 1.1e-09),
    (26, 1.0, 1e-05, 0.1, 6.261699, 9.5101e-06, 6.1e-08),
    (26, 4.0, 1e-05, 1.0, 1.854358, 5.2882e-06, 4.7e-08),
    (26, 8.0, 1e-06, 2.0, 1.065149, 3.8889e-07, 3.9e-09),
    (100, 1.0, 1e-05, 0.1, 6.663174, 0.0, 0.0),
    (100, 2.0, 1e-06, 0.5, 4.126184, 0.0, 0.0),
    (100, 8.0, 1e-05, 1.0, 0.995311, 0.0, 0.0),
    (1000, 1.0, 1e-06, 0.05, 7.758244, 0.0, 0.0),
    (1000, 8.0, 1e-06, 1.0, 1.13235, 0.0, 0.0),
];

/// `E (1 - exp(epsilon - max(0, t^2 + t max (z_k - z_y))))_+` by quadrature: no Jacobian.
fn without_jacobian(epsilon: f64, t: f64, classes: usize) -> f64 {
    let normal = |x: f64| 0.5 * libm::erfc(-x / std::f64::consts::SQRT_2);
    let density = |x: f64| libm::exp(-0.5 * x * x) / (2.0 * std::f64::consts::PI).sqrt();
    let others = i32::try_from(classes).unwrap() - 2;
    let (v, step) = (epsilon / t - t, 1e-3);
    let integral: f64 = (-10_000..14_000)
        .map(|k| {
            let w = f64::from(k) * step;
            let own = normal(w).powi(others) * normal(w - v);
            let shifted = normal(w - t).powi(others) * normal(w - 2.0 * t - v);
            density(w) * (own - libm::exp(epsilon) * shifted) * step
        })
        .sum();
    f64::from(others + 1) * integral
}

// Proof: joint_bound
#[test]
fn noise_is_within_one_percent_of_another_implementation() {
    for (classes, epsilon, target, kappa, known, _, _) in POINTS {
        let found = sigma(epsilon, target, Curvature::Kappa(kappa), classes, false).unwrap();
        // The other implementation searches less: ours may lie a little below.
        let ratio = found / known;
        assert!(
            (0.985..1.001).contains(&ratio),
            "{classes} {epsilon} {kappa}: {ratio}"
        );
        let again = delta(epsilon, 1.0 / found, kappa, classes, false, f64::INFINITY);
        assert!(again <= target, "{again} above {target}");
        let less = delta(
            epsilon,
            1.0 / (0.995 * found),
            kappa,
            classes,
            false,
            f64::INFINITY,
        );
        assert!(less > target, "{classes} {epsilon} {kappa}: {less}");
    }
}

// Proof: joint_bound
#[test]
fn the_bound_is_above_the_exact_pathwise_value() {
    for (classes, epsilon, _, kappa, known, exact, error) in POINTS {
        let bound = delta(epsilon, 1.0 / known, kappa, classes, false, f64::INFINITY);
        assert!(
            bound >= exact - 4.0 * error,
            "{classes} {epsilon} {kappa}: {bound}"
        );
    }
}

// Proof: joint_bound
#[test]
fn small_curvature_costs_nothing() {
    for (classes, epsilon, t) in [
        (3, 1.0, 0.2),
        (10, 2.0, 0.4),
        (26, 8.0, 1.0),
        (10, 0.5, 0.5),
    ] {
        let truth = without_jacobian(epsilon, t, classes);
        for share in [0.0, 0.5, 1.0] {
            let kappa = share * 0.5 * t * t;
            let found = delta(epsilon, t, kappa, classes, false, f64::INFINITY);
            assert!(found >= truth * (1.0 - 1e-6), "{found} {truth}");
            assert!(
                found <= truth * 1.002,
                "{classes} {epsilon} {t}: {found} {truth}"
            );
        }
        // Not so above the threshold.
        let more = delta(epsilon, t, 4.0 * t * t, classes, false, f64::INFINITY);
        assert!(more > truth * 1.01, "{more} {truth}");
    }
}

// Proof: joint_bound
#[test]
fn the_bound_is_monotone_but_for_the_search() {
    // The search for the free parameter stops at a few values: 2 percent is left to it.
    let at = |e: f64, t: f64, kappa: f64, classes: usize| {
        delta(e, t, kappa, classes, false, f64::INFINITY)
    };
    let base = at(1.0, 0.15, 0.2, 10);
    assert!(base > 0.0 && base < 1e-3);
    for step in 1..6 {
        let s = f64::from(step);
        let before = s - 1.0;
        assert!(at(1.0 + 0.1 * s, 0.15, 0.2, 10) <= 1.02 * at(1.0 + 0.1 * before, 0.15, 0.2, 10));
        assert!(at(1.0, 0.15 + 0.02 * s, 0.2, 10) * 1.02 >= at(1.0, 0.15 + 0.02 * before, 0.2, 10));
        assert!(at(1.0, 0.15, 0.2 + 0.1 * s, 10) * 1.02 >= at(1.0, 0.15, 0.2 + 0.1 * before, 10));
        assert!(at(1.0, 0.15, 0.2, 10 + 4 * step as usize) >= 0.98 * base);
    }
}

// Proof: joint_bound
#[test]
fn proportional_regularisation_and_replacement_are_calibrated() {
    for classes in [3, 4, 10, 100, 1000] {
        for (epsilon, target) in [(1.0, 1e-5), (8.0, 1e-6), (0.1, 1e-6)] {
            let curve = Curvature::KappaPerT(1.0);
            let added = sigma(epsilon, target, curve, classes, false).unwrap();
            let replaced = sigma(epsilon, target, curve, classes, true).unwrap();
            assert!(
                replaced > 1.5 * added && replaced < 2.5 * added,
                "{added} {replaced}"
            );
            for (noise, replace) in [(added, false), (replaced, true)] {
                let t = 1.0 / noise;
                let found = delta(epsilon, t, t, classes, replace, f64::INFINITY);
                assert!(found <= target && found > 0.9 * target, "{found} {target}");
            }
            let least = gaussian::sigma(epsilon, target).unwrap() * std::f64::consts::SQRT_2;
            assert!(added > least && added < 1.6 * least, "{added} {least}");
        }
    }
}

#[test]
fn a_target_only_cuts_the_search_short_above_it() {
    let full = delta(1.0, 1.0 / 6.0, 0.2, 10, false, f64::INFINITY);
    for target in [full * 0.5, full * 0.999, full * 1.001, 1e-2] {
        let found = delta(1.0, 1.0 / 6.0, 0.2, 10, false, target);
        assert!(found >= full);
        assert!(found > target || target > full && found == full);
    }
}

#[test]
fn extremes_give_a_probability_or_no_noise() {
    for epsilon in [1e-12, 1e-3, 1.0, 30.0, 1e3, 1e4] {
        for t in [1e-9, 1e-4, 0.1, 3.0, 100.0, 1e6] {
            for kappa in [0.0, 1e-12, 0.5, 50.0, 1e9] {
                for replace in [false, true] {
                    let found = delta(epsilon, t, kappa, 7, replace, f64::INFINITY);
                    assert!(
                        (0.0..=1.0).contains(&found),
                        "{epsilon} {t} {kappa}: {found}"
                    );
                }
            }
        }
    }
    let bad = f64::NAN;
    for (e, t, k, classes) in [
        (bad, 0.1, 0.1, 5),
        (1.0, bad, 0.1, 5),
        (1.0, 0.1, bad, 5),
        (1.0, 0.1, 0.1, 2),
        (0.0, 0.1, 0.1, 5),
        (1.0, f64::INFINITY, 0.1, 5),
        (1.0, 0.1, f64::INFINITY, 5),
    ] {
        assert_eq!(delta(e, t, k, classes, false, f64::INFINITY), 1.0);
    }
    // Far more curvature than epsilon allows; arguments out of range.
    assert_eq!(sigma(0.01, 1e-9, Curvature::Kappa(1e3), 10, false), None);
    assert_eq!(sigma(1.0, 2.0, Curvature::KappaPerT(1.0), 10, false), None);
    assert_eq!(sigma(bad, 1e-5, Curvature::KappaPerT(1.0), 10, false), None);
    assert_eq!(
        sigma(1.0, 1e-5, Curvature::KappaPerT(-1.0), 10, false),
        None
    );
    assert_eq!(sigma(1.0, 1e-5, Curvature::KappaPerT(1.0), 2, false), None);
}

#[test]
fn results_are_the_same_again_and_from_many_threads() {
    let first = sigma(2.0, 1e-7, Curvature::KappaPerT(0.7), 12, false);
    let others: Vec<_> = std::thread::scope(|scope| {
        let spawned: Vec<_> = (0..4)
            .map(|_| scope.spawn(|| sigma(2.0, 1e-7, Curvature::KappaPerT(0.7), 12, false)))
            .collect();
        spawned
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .collect()
    });
    assert!(first.is_some() && others.iter().all(|&other| other == first));
    let once = delta(2.0, 0.3, 0.2, 12, false, f64::INFINITY);
    let more = std::thread::spawn(|| delta(2.0, 0.3, 0.2, 12, false, f64::INFINITY));
    assert_eq!(more.join().unwrap(), once);
}

/// Never below a search for the same epsilon but for what the searches miss, and hardly above.
// Proof: joint_bound
#[test]
fn the_points_are_those_of_single_questions() -> dpsvm_core::Result<()> {
    for (classes, t, kappa, low, high, replace_one) in [
        (3, 0.164, 0.164, 0.3, 2.0, false),
        (3, 0.06, 0.5, 0.5, 1.0, false),
        (10, 0.5, 2.0, 2.0, 6.0, false),
        (5, 0.4, 0.05, 0.5, 3.0, false),
        (4, 0.2, 0.5, 1.0, 3.0, true),
    ] {
        let points = joint::profile(low, high, 60, t, kappa, classes, replace_one, &Never)?;
        assert!(points[0].0 <= low * (1.0 + 1e-12) && points[points.len() - 1].0 >= high);
        assert!(points.windows(2).all(|pair| pair[0].0 < pair[1].0));
        for &(epsilon, bound) in points.iter().step_by(7) {
            let alone = delta(epsilon, t, kappa, classes, replace_one, f64::INFINITY);
            let what = format!("{classes} {t} {kappa} {epsilon}: {bound} {alone}");
            assert!(bound <= alone * 1.05 || bound < 1e-14, "{what}");
            assert!(bound >= alone * 0.97, "{what}");
        }
    }
    Ok(())
}
