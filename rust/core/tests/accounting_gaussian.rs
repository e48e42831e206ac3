//! The privacy curve and its inverses: promises that need no high-precision arithmetic.
//! Agreement with 25-digit references is tested from Python.

use dpsvm_core::accounting::gaussian::{delta, epsilon, log_delta, sigma};
use dpsvm_core::{Error, Result};

const EPSILONS: [f64; 9] = [0.0, 1e-320, 1e-6, 1e-3, 0.5, 1.0, 8.0, 300.0, 1e4];
const DELTAS: [f64; 8] = [
    f64::MIN_POSITIVE,
    1e-300,
    1e-50,
    1e-6,
    0.3,
    0.5,
    0.9,
    1.0 - f64::EPSILON / 2.0,
];

// Proof: analytic_gaussian
#[test]
fn sigma_satisfies_its_own_inequality_and_is_least() -> Result<()> {
    for e in EPSILONS {
        for d in DELTAS {
            let s = sigma(e, d)?;
            assert!(delta(e, s)? <= d, "epsilon {e}, delta {d}");
            assert!(delta(e, s * (1.0 - 2e-14))? > d, "epsilon {e}, delta {d}");
        }
    }
    Ok(())
}

// Proof: analytic_gaussian
#[test]
fn epsilon_satisfies_its_own_inequality_and_is_least() -> Result<()> {
    for s in [1e-150, 1e-20, 1e-3, 0.1, 1.0, 50.0, 1e6, 1e200] {
        for d in DELTAS {
            let e = epsilon(d, s)?;
            assert!(delta(e, s)? <= d, "sigma {s}, delta {d}");
            let less = e * (1.0 - 1e-9);
            assert!(e == 0.0 || delta(less, s)? > d, "sigma {s}, delta {d}");
        }
    }
    Ok(())
}

#[test]
fn no_epsilon_is_large_enough_for_hardly_any_noise() -> Result<()> {
    assert_eq!(epsilon(1e-6, 1e-160)?, f64::INFINITY);
    assert_eq!(epsilon(1e-6, 5e-324)?, f64::INFINITY);
    Ok(())
}

// Proof: analytic_gaussian
#[test]
fn every_finite_argument_gives_a_probability() -> Result<()> {
    let sizes = [
        5e-324,
        1e-308,
        1e-300,
        1e-150,
        1e-8,
        1.0,
        1e8,
        1e20,
        1e150,
        1e300,
        f64::MAX,
    ];
    for s in sizes {
        for size in sizes {
            for e in [size, -size, 0.0, 0.5 / s / s, (0.5 / s / s).next_up()] {
                if !e.is_finite() {
                    continue;
                }
                let (d, log) = (delta(e, s)?, log_delta(e, s)?);
                assert!(d > 0.0 && d <= 1.0, "delta({e}, {s}) = {d}");
                assert!(
                    (-f64::MAX..=0.0).contains(&log),
                    "log_delta({e}, {s}) = {log}"
                );
            }
        }
    }
    Ok(())
}

#[test]
fn limits_are_reached() -> Result<()> {
    assert_eq!(delta(1.0, 1e-300)?, 1.0);
    assert_eq!(log_delta(1.0, 1e-300)?, 0.0);
    assert!(delta(1.0, 1e300)? < 1e-300);
    assert!(log_delta(1e300, 1e300)? < -1.797e308);
    // This was NaN.
    let far = log_delta(3.607_877_872_495_777_5e158, 3.716_258_810_242_831_6e-5)?;
    assert!(far <= 0.0 && (0.0..=1.0).contains(&far.exp()));
    // Without a bound on the loss below -epsilon: 1 - exp(-epsilon).
    let limit = -(-2.0f64).exp_m1();
    assert!((delta(-2.0, 1e300)? / limit - 1.0).abs() < 1e-14);
    assert_eq!(delta(-1e300, 1.0)?, 1.0);
    Ok(())
}

#[test]
fn negative_zero_is_zero() -> Result<()> {
    for delta in [1e-300, 6.8e-16, 0.5] {
        assert_eq!(sigma(-0.0, delta)?, sigma(0.0, delta)?);
    }
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
    for bad in [f64::NAN, f64::INFINITY, -1.0, 1.0001e4] {
        named(sigma(bad, 1e-6), "epsilon");
    }
    for bad in [f64::NAN, 0.0, -0.1, 1.0, 1.5, f64::INFINITY, 1e-310] {
        named(sigma(1.0, bad), "delta");
        named(epsilon(bad, 1.0), "delta");
    }
    for bad in [f64::NAN, 0.0, -1.0, f64::INFINITY] {
        named(epsilon(1e-6, bad), "sigma");
        named(delta(1.0, bad), "sigma");
        named(log_delta(1.0, bad), "sigma");
    }
    for bad in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
        named(delta(bad, 1.0), "epsilon");
        named(log_delta(bad, 1.0), "epsilon");
    }
}
