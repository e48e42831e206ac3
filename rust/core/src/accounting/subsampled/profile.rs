//! Events known by their curve: zero-concentrated, pure, and any upper bounds of `delta`.
//!
//! Atoms stand for a curve that is linear in `exp(epsilon)` between its points; it lies above
//! the true one, because that is convex (`docs/proofs/accountant.md`, "Mixed events").

use crate::accounting::subsampled::compose::log_factor;
use crate::accounting::subsampled::law::Atoms;
use crate::accounting::subsampled::pair::ULP;

/// Points of the curve of a zero-concentrated event for each unit of `sqrt(2 rho)`.
const DENSITY: f64 = 64.0;

/// Most points of such a curve.
const MAX_POINTS: f64 = 16_384.0;

/// Randomised response: both directions of an `epsilon`-private event at its worst.
pub(super) fn pure_atoms(epsilon: f64) -> Atoms {
    let high = -libm::log1p(libm::exp(-epsilon));
    Atoms {
        log_mass: vec![high - epsilon, high],
        loss: vec![-epsilon, epsilon],
        infinite: 0.0,
    }
}

/// Upper bound on `delta` at `epsilon` of every `rho`-zCDP mechanism.
///
/// The least over `a > 0` of `exp(a (rho (a + 1) - epsilon)) (a / (a + 1))^a / (a + 1)`
/// (Canonne, Kamath and Steinke, 2020, Proposition 12); any `a` gives a bound.
pub(super) fn zcdp_delta(rho: f64, epsilon: f64) -> f64 {
    let (mut low, mut high) = (-700.0_f64, 700.0_f64);
    while high - low > 1e-9 {
        let middle = 0.5 * (low + high);
        let a = libm::exp(middle);
        if rho * (2.0 * a + 1.0) - epsilon - libm::log1p(1.0 / a) < 0.0 {
            low = middle;
        } else {
            high = middle;
        }
    }
    let a = libm::exp(high);
    let (up, down) = (a * rho * (a + 1.0), a * epsilon);
    let factor = log_factor(a);
    let error = 8.0 * ULP * (1.0 + up + down.abs() + factor.abs());
    // At most 1 as a number of no other meaning.
    libm::exp((up - down + factor + error).min(0.0)) + f64::MIN_POSITIVE
}

/// The curve of `rho`-zCDP down to `delta` of about `tail`.
pub(super) fn zcdp_atoms(rho: f64, tail: f64) -> Atoms {
    let width = (2.0 * rho).sqrt();
    let log = -libm::log(tail.max(1e-300));
    let end = rho + width * (2.0 * log).sqrt();
    let n = (end / width * DENSITY).ceil().clamp(64.0, MAX_POINTS);
    let points: Vec<(f64, f64)> = (0..=n as usize)
        .map(|i| {
            let epsilon = end * i as f64 / n;
            (epsilon, zcdp_delta(rho, epsilon).min(1.0))
        })
        .collect();
    profile_atoms(points)
}

/// Mass at the middle one of three neighbouring points of a curve, rounded up; `None`: no point
/// to the left or to the right.
fn mass(left: Option<(f64, f64)>, (epsilon, delta): (f64, f64), right: Option<(f64, f64)>) -> f64 {
    let (left_epsilon, left_delta) = left.unwrap_or((f64::NEG_INFINITY, 1.0));
    let into = (left_delta - delta) / -libm::expm1(left_epsilon - epsilon);
    let out = right.map_or(0.0, |(right_epsilon, right_delta)| {
        (delta - right_delta) / libm::expm1(right_epsilon - epsilon)
    });
    into * (1.0 + 8.0 * ULP) - out * (1.0 - 8.0 * ULP)
}

/// Atoms of the least convex curve through points of upper bounds: valid in both directions where
/// they begin at 0 or above, and in one direction alone where they begin below 0.
///
/// `points` have increasing first members; the second ones are in [0, 1].
pub(super) fn profile_atoms(points: Vec<(f64, f64)>) -> Atoms {
    let both = points.first().is_none_or(|(epsilon, _)| *epsilon >= 0.0);
    // The curve of the reversed pair: delta(-e) = 1 - exp(-e) (1 - delta(e)).
    let mut all: Vec<(f64, f64)> = points
        .iter()
        .filter(|(epsilon, _)| both && *epsilon > 0.0)
        .map(|&(epsilon, delta)| {
            let mirrored = -libm::expm1(-epsilon) + libm::exp(-epsilon) * delta;
            (-epsilon, (mirrored * (1.0 + 4.0 * ULP)).min(1.0))
        })
        .collect();
    all.extend(points);
    all.sort_by(|a, b| a.0.total_cmp(&b.0).then(b.1.total_cmp(&a.1)));
    let mut hull: Vec<(f64, f64)> = Vec::with_capacity(all.len());
    for point in all {
        if hull.last().is_some_and(|last| last.1 <= point.1) {
            continue;
        }
        if hull.last().is_some_and(|last| last.0 == point.0) {
            hull.pop();
        }
        while let Some(&last) = hull.last() {
            let before = hull.len().checked_sub(2).map(|i| hull[i]);
            if mass(before, last, Some(point)) > 0.0 {
                break;
            }
            hull.pop();
        }
        hull.push(point);
    }
    let mut atoms = Atoms {
        infinite: hull.last().map_or(1.0, |last| last.1),
        ..Atoms::default()
    };
    for (i, &point) in hull.iter().enumerate() {
        let before = i.checked_sub(1).map(|i| hull[i]);
        let p = mass(before, point, hull.get(i + 1).copied());
        if p > 0.0 {
            atoms.log_mass.push(libm::log(p));
            atoms.loss.push(point.0);
        }
    }
    atoms
}
