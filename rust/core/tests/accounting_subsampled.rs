//! Privacy loss distributions: closed forms, a direct convolution, published values, and promises
//! that hold for every argument. All reference values are read from Python as well.
#![allow(clippy::unreadable_literal)]

use dpsvm_core::accounting::gaussian;
use dpsvm_core::accounting::subsampled;
use dpsvm_core::accounting::subsampled::{Events, LossDistribution, Subsampled};
use dpsvm_core::runtime::interrupt::Never;
use dpsvm_core::{Error, Result};

fn delta(steps: Subsampled, at: f64, replace_one: bool) -> Result<f64> {
    subsampled::delta(steps, at, replace_one, &Never)
}

fn epsilon(steps: Subsampled, target: f64, replace_one: bool) -> Result<f64> {
    subsampled::epsilon(steps, target, replace_one, &Never)
}

fn noise_multiplier(at: f64, target: f64, rate: f64, n: u64, replace_one: bool) -> Result<f64> {
    subsampled::noise_multiplier(at, target, rate, n, replace_one, &Never)
}

fn steps(noise_multiplier: f64, sampling_rate: f64, n_steps: u64) -> Subsampled {
    Subsampled {
        noise_multiplier,
        sampling_rate,
        n_steps,
    }
}

type Row = (f64, f64, u64, f64, [(f64, f64); 2]);

/// Noise, rate, steps, delta; epsilon and its tolerance for `add_remove` and `replace_one`, from
/// another accountant whose grid was refined until it stood still.
const EPSILONS: [Row; 7] = [
    (
        0.6,
        0.018285714285714287,
        600,
        1e-05,
        [(10.255547495535373, 2e-06), (12.27638901929712, 1.9e-06)],
    ),
    (
        4.0,
        0.018285714285714287,
        6000,
        1e-06,
        [(1.5836525494664762, 8.5e-06), (3.3127010105705024, 0.00045)],
    ),
    (
        2.0,
        0.4266666666666667,
        100,
        0.001,
        [(8.91373086556235, 4.5e-07), (20.67020325091228, 1e-06)],
    ),
    (
        0.5,
        0.01,
        10,
        1e-05,
        [(4.360602546142314, 2.2e-07), (4.390939599089423, 2.2e-07)],
    ),
    (
        0.7,
        0.001,
        1000,
        1e-06,
        [(0.9783458078263657, 1.8e-06), (1.006299431755064, 9.9e-06)],
    ),
    (
        1.0,
        0.0001,
        1000,
        1e-07,
        [
            (0.018714209224962086, 9.5e-06),
            (0.027041062586510338, 8.3e-06),
        ],
    ),
    (
        2.0,
        0.1,
        100,
        1e-05,
        [(2.3373996896479063, 1e-06), (4.36809686458808, 6.9e-07)],
    ),
];

// Proof: accountant, "The accountant"
#[test]
fn epsilon_agrees_with_published_values() -> Result<()> {
    for (noise, rate, n, target, known) in EPSILONS {
        for (replace_one, (value, tolerance)) in [false, true].into_iter().zip(known) {
            let found = epsilon(steps(noise, rate, n), target, replace_one)?;
            let what = format!("{noise} {rate} {n} {replace_one}: {found} {value}");
            assert!(found >= value - tolerance, "{what}");
            assert!(found <= value * 1.001 + tolerance, "{what}");
        }
    }
    Ok(())
}

// Proof: accountant, "The accountant"
#[test]
fn half_and_twice_the_steps_are_told_apart() -> Result<()> {
    // The check above would not pass with a wrong number of steps, rate or direction.
    let (noise, rate, n, target, known) = EPSILONS[0];
    let (value, tolerance) = known[0];
    for wrong in [
        steps(noise, rate, n / 2),
        steps(noise, rate * 1.01, n),
        steps(noise * 0.995, rate, n),
        steps(noise, rate, n + 10),
    ] {
        let found = epsilon(wrong, target, false)?;
        let inside = found >= value - tolerance && found <= value * 1.001 + tolerance;
        assert!(!inside, "{wrong:?}: {found}");
    }
    Ok(())
}

/// Mass of the standard normal law above `u`: the curve of a Gaussian release at infinity noise.
fn normal_above(u: f64) -> f64 {
    0.5 * libm::erfc(u / std::f64::consts::SQRT_2)
}

/// One step's losses rounded to the grid (`up`: never down, else never up): first index, masses.
fn rounded(noise: f64, rate: f64, step: f64, up: bool, reversed: bool) -> (i64, Vec<f64>) {
    let last = 800;
    let position = |loss: f64| {
        let ratio = libm::expm1(loss) / rate;
        if ratio <= -1.0 {
            f64::NEG_INFINITY
        } else {
            noise * libm::log1p(ratio) + 0.5 / noise
        }
    };
    let above = |u: f64| {
        let (middle, side) = (normal_above(u), normal_above(u - 1.0 / noise));
        if reversed {
            middle
        } else {
            (1.0 - rate) * middle + rate * side
        }
    };
    let mut mass = vec![0.0; 2 * last + 2];
    for cell in 0..2 * last {
        let low = (cell as f64 - last as f64) * step;
        let p = above(position(low)) - above(position(low + step));
        // Of the reversed pair the loss is minus that of the pair.
        let end = if reversed { !up } else { up };
        let index = cell + usize::from(end);
        mass[if reversed { 2 * last - index } else { index }] += p;
    }
    (-(last as i64), mass)
}

fn by_hand(noise: f64, rate: f64, n: usize, at: f64, up: bool, reversed: bool) -> f64 {
    let step = 0.012;
    let (first, law) = rounded(noise, rate, step, up, reversed);
    let mut total = law.clone();
    for _ in 1..n {
        let mut next = vec![0.0; total.len() + law.len() - 1];
        for (i, a) in total.iter().enumerate().filter(|(_, a)| **a > 1e-30) {
            for (j, b) in law.iter().enumerate() {
                next[i + j] += a * b;
            }
        }
        total = next;
    }
    let offset = first * n as i64;
    total.iter().enumerate().fold(0.0, |sum, (i, p)| {
        let loss = (offset + i as i64) as f64 * step;
        sum + p * (-libm::expm1(at - loss)).max(0.0)
    })
}

// Proof: accountant, "The accountant"
#[test]
fn a_direct_convolution_brackets_delta() -> Result<()> {
    let (noise, rate, n) = (0.9, 0.2, 3);
    for at in [0.0, 0.3, 1.0, 2.0, 4.0] {
        let [low, high] = [false, true].map(|up| {
            let one = |reversed| by_hand(noise, rate, n, at, up, reversed);
            f64::max(one(false), one(true))
        });
        let found = delta(steps(noise, rate, n as u64), at, false)?;
        assert!(low <= found && found <= high, "{at}: {low} {found} {high}");
        assert!(high < 1.3 * low, "the bracket is narrow: {low} {high}");
        let middle = 0.5 * (low + high);
        assert!(
            (found / middle - 1.0).abs() < 0.02,
            "{at}: {found} {middle}"
        );
    }
    Ok(())
}

// Proof: accountant, "The accountant"
#[test]
fn the_whole_batch_is_one_gaussian_release() -> Result<()> {
    for (replace_one, relation) in [(false, 1.0), (true, 2.0)] {
        for n in [1, 10, 1000] {
            let sigma = 3.0 / (relation * f64::from(n).sqrt());
            let known = gaussian::delta(0.7, sigma)?;
            let found = delta(steps(3.0, 1.0, u64::from(n as u32)), 0.7, replace_one)?;
            assert!(found >= known && found <= known * (1.0 + 1e-11));
        }
        // Rates next to 1 take the other way round, and come out the same.
        let near = epsilon(steps(10.0, 1.0 - 1e-12, 50), 1e-6, replace_one)?;
        let whole = epsilon(steps(10.0, 1.0, 50), 1e-6, replace_one)?;
        assert!((near / whole - 1.0).abs() < 2e-4, "{near} {whole}");
        assert!(near >= whole * (1.0 - 1e-9), "{near} {whole}");
    }
    Ok(())
}

// Proof: accountant, "The accountant"
#[test]
fn one_step_equals_many_of_it_on_the_grid() -> Result<()> {
    // The closed form of one step against the grid: two steps, one of them with next to no loss.
    for replace_one in [false, true] {
        let events = Events {
            subsampled: vec![steps(1.0, 0.1, 1)],
            pure: vec![(1e-9, 1)],
            ..Events::default()
        };
        let mixed = LossDistribution::new(&events, replace_one)?;
        for at in [0.0, 0.1, 1.0, 2.5] {
            let exact = delta(steps(1.0, 0.1, 1), at, replace_one)?;
            let found = mixed.delta(at, &Never)?;
            assert!(found >= exact * (1.0 - 1e-12), "{at}: {found} {exact}");
            assert!(found <= exact * 1.01, "{at}: {found} {exact}");
        }
    }
    Ok(())
}

// Proof: accountant, "The accountant"
#[test]
fn noise_is_enough_and_hardly_more() -> Result<()> {
    let rate = 128.0 / 7000.0;
    for (at, target, n, known) in [
        (1.0, 1e-5, 600, [1.8748651587285103, 3.3424266251675196]),
        (8.0, 1e-5, 6000, [1.0891440768055753, 1.7100927125867398]),
    ] {
        for (replace_one, value) in [false, true].into_iter().zip(known) {
            let noise = noise_multiplier(at, target, rate, n, replace_one)?;
            assert!((noise / value - 1.0).abs() < 2e-4, "{noise} {value}");
            assert!(epsilon(steps(noise, rate, n), target, replace_one)? <= at);
            assert!(delta(steps(noise, rate, n), at, replace_one)? <= target);
        }
    }
    Ok(())
}

#[test]
fn more_steps_records_and_less_noise_cost_more() -> Result<()> {
    // The grids differ, so two results may lie on one side of the truth by this much each.
    let slack = 1.0 - 5e-4;
    for replace_one in [false, true] {
        let base = epsilon(steps(1.0, 0.01, 500), 1e-6, replace_one)?;
        for more in [
            steps(1.0, 0.01, 520),
            steps(1.0, 0.0102, 500),
            steps(0.99, 0.01, 500),
        ] {
            assert!(epsilon(more, 1e-6, replace_one)? > base * slack * 1.001);
        }
        let mut last = 1.0;
        for at in 0..40 {
            let found = delta(steps(1.0, 0.01, 500), f64::from(at) * 0.1, replace_one)?;
            assert!(found <= last * (1.0 + 1e-3), "{at}: {found} {last}");
            last = found;
        }
    }
    Ok(())
}

#[test]
fn gaussian_and_pure_events_meet_their_closed_form() -> Result<()> {
    let (mu, pure) = (0.8, 0.5);
    let events = Events {
        gaussian_mu: mu,
        pure: vec![(pure, 1)],
        ..Events::default()
    };
    let law = LossDistribution::new(&events, false)?;
    let high = 1.0 / (1.0 + libm::exp(-pure));
    for at in [0.0, 0.5, 1.0, 2.0, 4.0, 6.0] {
        let exact = high * gaussian::delta(at - pure, 1.0 / mu)?
            + (1.0 - high) * gaussian::delta(at + pure, 1.0 / mu)?;
        let found = law.delta(at, &Never)?;
        assert!(found >= exact * (1.0 - 1e-12), "{at}: {found} {exact}");
        assert!(found <= exact * 1.005, "{at}: {found} {exact}");
    }
    // Between the epsilons of a table, too.
    for index in 0..1000 {
        let at = f64::from(index) * 0.0061;
        let exact = high * gaussian::delta(at - pure, 1.0 / mu)?
            + (1.0 - high) * gaussian::delta(at + pure, 1.0 / mu)?;
        let found = law.quick_delta(at, &Never)?;
        assert!(found >= exact * (1.0 - 1e-12), "{at}: {found} {exact}");
        assert!(found <= exact * 1.02, "{at}: {found} {exact}");
    }
    Ok(())
}

// Proof: accountant, "Composition by tilted transforms"
#[test]
fn quick_deltas_are_close_bounds_whatever_was_asked_before() -> Result<()> {
    let steps = |noise_multiplier, sampling_rate, n_steps| Subsampled {
        noise_multiplier,
        sampling_rate,
        n_steps,
    };
    let gaussian_and_pure = Events {
        gaussian_mu: 0.8,
        pure: vec![(0.5, 1)],
        ..Events::default()
    };
    let sampled = Events {
        subsampled: vec![steps(1.1, 0.01, 2_000)],
        ..Events::default()
    };
    let mixed = Events {
        subsampled: vec![steps(0.8, 0.002, 500), steps(2.0, 0.1, 40)],
        zcdp_rho: 0.05,
        ..Events::default()
    };
    for events in [gaussian_and_pure, sampled, mixed] {
        for replace_one in [false, true] {
            let rising = LossDistribution::new(&events, replace_one)?;
            let falling = LossDistribution::new(&events, replace_one)?;
            let at: Vec<f64> = (0..60).map(|i| 0.137 * f64::from(i)).collect();
            for epsilon in at.iter().rev() {
                falling.quick_delta(*epsilon, &Never)?;
            }
            for epsilon in at {
                let quick = rising.quick_delta(epsilon, &Never)?;
                assert_eq!(quick, falling.quick_delta(epsilon, &Never)?);
                let close = rising.delta(epsilon, &Never)?;
                assert!(quick >= close * 0.99, "{epsilon}: {quick} {close}");
                assert!(quick <= close * 1.05, "{epsilon}: {quick} {close}");
            }
        }
    }
    Ok(())
}

/// A rare and huge loss makes grids coarse; without the record the loss is at most `-n ln(1 - q)`.
// Proof: accountant, "The largest loss"
#[test]
fn rare_huge_losses_leave_the_other_direction_small() -> Result<()> {
    let (rate, n_steps) = (1.29e-8, 272_363);
    let events = Events {
        subsampled: vec![Subsampled {
            noise_multiplier: 0.278,
            sampling_rate: rate,
            n_steps,
        }],
        ..Events::default()
    };
    let law = LossDistribution::new(&events, false)?;
    let most = -libm::log1p(-rate) * n_steps as f64;
    let mut last = 1.0;
    for share in [0.0, 0.5, 0.9, 0.999, 1.0 - 1e-7, 1.0, 1.001, 2.0, 50.0] {
        let found = law.quick_delta(share * most, &Never)?;
        // The direction with the record has at most 4e-4 from `most` / 2 on.
        let without = -libm::expm1((share - 1.0).min(0.0) * most);
        let with = if share < 0.5 { 1.0 } else { 4e-4 };
        assert!(
            found <= (without * (1.0 + 1e-6)).max(with),
            "{share}: {found}"
        );
        assert!(found <= 1.01 * last, "{share}: {found} {last}");
        last = found;
    }
    Ok(())
}

// Proof: accountant, "The accountant"
#[test]
fn pure_events_meet_the_optimal_composition() -> Result<()> {
    // Ten times 0.1: the exact frontier of Kairouz, Oh and Viswanath.
    let events = Events {
        pure: vec![(0.1, 7), (0.1, 3)],
        ..Events::default()
    };
    let law = LossDistribution::new(&events, false)?;
    for (at, exact) in [
        (0.0, 0.12253622356149267),
        (0.2, 0.052304414003131156),
        (0.6, 0.0031322675761113538),
        (0.8, 0.00028823385761864798),
    ] {
        let found = law.delta(at, &Never)?;
        assert!(found >= exact * (1.0 - 1e-12), "{at}: {found} {exact}");
        assert!(found <= exact * 1.02, "{at}: {found} {exact}");
    }
    assert!(law.delta(1.0 + 1e-3, &Never)? < 1e-6);
    Ok(())
}

// Proof: accountant, "The accountant"
#[test]
fn a_profile_composes_like_what_it_describes() -> Result<()> {
    // A Gaussian release known by points of its curve only, twice, one bound much too large.
    let mut points = Vec::new();
    for index in 0..1200 {
        let at = f64::from(index) * 0.01;
        let bad = if index == 77 { 0.5 } else { 0.0 };
        points.push((at, (gaussian::delta(at, 1.0)? + bad).min(1.0)));
    }
    let events = Events {
        profiles: vec![(points, 2)],
        ..Events::default()
    };
    let law = LossDistribution::new(&events, false)?;
    let sigma = 0.5_f64.sqrt();
    for at in [0.0, 0.77, 1.0, 3.0, 6.0] {
        let exact = gaussian::delta(at, sigma)?;
        let found = law.delta(at, &Never)?;
        assert!(found >= exact * (1.0 - 1e-12), "{at}: {found} {exact}");
        assert!(found <= exact * 1.01, "{at}: {found} {exact}");
    }
    assert!(
        law.epsilon(1e-40, &Never)?.is_infinite(),
        "the last point's delta stays"
    );
    Ok(())
}

#[test]
fn a_profile_from_below_zero_is_of_one_direction() -> Result<()> {
    // Laws (1/2, 1/2) and (1/4, 3/4), twice: losses ln 4, ln 4/3 and -ln 9/4.
    let (low, high) = (-(1.5_f64.ln()), 2.0_f64.ln());
    let one = |first: f64| {
        let points = [(low, 1.0 / 3.0), (0.0, 0.25), (high, 0.0)];
        let known = points.into_iter().filter(|(at, _)| *at >= first).collect();
        let events = Events {
            profiles: vec![(known, 2)],
            ..Events::default()
        };
        LossDistribution::new(&events, false)?.delta(0.5, &Never)
    };
    let exact = 0.25 * (1.0 - 0.25 * 0.5_f64.exp());
    assert!((one(low)? - exact).abs() < 1e-6, "{}", one(low)?);
    assert!(one(0.0)? > exact + 0.04, "both directions are worse");
    Ok(())
}

// Proof: accountant, "The accountant"
#[test]
fn concentrated_events_add_their_parameters() -> Result<()> {
    let alone = LossDistribution::new(
        &Events {
            zcdp_rho: 0.5,
            ..Events::default()
        },
        true,
    )?;
    let with = LossDistribution::new(
        &Events {
            zcdp_rho: 0.5,
            pure: vec![(1e-9, 1)],
            ..Events::default()
        },
        true,
    )?;
    for at in [0.5, 1.0, 3.0, 6.0] {
        let (a, b) = (alone.delta(at, &Never)?, with.delta(at, &Never)?);
        // Twice the curve of the Gaussian release with this rho, at most by a small factor.
        let gauss = gaussian::delta(at, 1.0)?;
        assert!(a >= gauss && a < 30.0 * gauss, "{at}: {a} {gauss}");
        assert!(b >= a * (1.0 - 1e-9) && b <= a * 1.01, "{at}: {a} {b}");
    }
    Ok(())
}

#[test]
fn every_argument_gives_a_bound() -> Result<()> {
    for noise in [0.1, 1.0, 1e4] {
        for rate in [1e-9, 0.02] {
            for n in [1, 1000] {
                let mut last = 0.0;
                for target in [1e-5, 1e-12, 1e-30] {
                    let found = epsilon(steps(noise, rate, n), target, false)?;
                    assert!(
                        found >= last * 0.999,
                        "{noise} {rate} {n} {target}: {found}"
                    );
                    last = found;
                }
                for at in [0.0, 0.01, 1000.0] {
                    let found = delta(steps(noise, rate, n), at, true)?;
                    assert!(
                        (0.0..=1.0).contains(&found),
                        "{noise} {rate} {n} {at}: {found}"
                    );
                }
            }
        }
    }
    Ok(())
}

#[test]
fn bad_arguments_are_named() {
    let named = |result: Result<f64>| match result {
        Err(Error::InvalidArgument { name, .. }) => name,
        other => panic!("{other:?}"),
    };
    let fine = steps(1.0, 0.1, 10);
    assert_eq!(
        named(delta(steps(0.0, 0.1, 10), 1.0, false)),
        "noise_multiplier"
    );
    assert_eq!(
        named(delta(steps(1.0, 0.0, 10), 1.0, false)),
        "sampling_rate"
    );
    assert_eq!(
        named(delta(steps(1.0, 1.1, 10), 1.0, false)),
        "sampling_rate"
    );
    assert_eq!(named(delta(steps(1.0, 0.1, 0), 1.0, false)), "n_steps");
    assert_eq!(named(delta(fine, f64::NAN, false)), "epsilon");
    assert_eq!(named(epsilon(fine, 0.0, false)), "delta");
    let events = Events {
        profiles: vec![(vec![(1.0, 0.1), (0.5, 0.2)], 1)],
        ..Events::default()
    };
    let law = LossDistribution::new(&events, false);
    assert_eq!(named(law.map(|_| 0.0)), "profiles");
}
