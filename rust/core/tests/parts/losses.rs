//! Losses in score space against their formulas.

use dpsvm_core::Result;
use dpsvm_core::loss::smooth::SmoothLoss;
use dpsvm_core::simd::{Kernel, Simd, dispatch};

struct Product<'p> {
    loss: &'p SmoothLoss,
    label: usize,
    row: &'p mut [f32],
    state: &'p [f32],
}

impl Kernel for Product<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        self.loss
            .hessian_row(simd, self.label, self.row, self.state);
    }
}

/// The Hessian's product with the scores of a direction.
fn product(loss: &SmoothLoss, label: usize, row: &mut [f32], state: &[f32]) {
    dispatch(Product {
        loss,
        label,
        row,
        state,
    });
}

const SMOOTHING: f64 = 0.5;
const MARGIN: f64 = 1.0;

/// The sum of Huber hinges, from its formula.
fn value(label: usize, scores: &[f64]) -> f64 {
    let hinge = |z: f64| {
        if z > MARGIN + SMOOTHING {
            0.0
        } else if z < MARGIN - SMOOTHING {
            MARGIN - z
        } else {
            (MARGIN + SMOOTHING - z).powi(2) / (4.0 * SMOOTHING)
        }
    };
    let others = (0..scores.len()).filter(|&k| k != label);
    others.map(|k| hinge(scores[label] - scores[k])).sum()
}

fn gradient(loss: &SmoothLoss, label: usize, scores: &[f64]) -> (Vec<f64>, Vec<f32>) {
    let (mut row, mut state) = (scores.to_vec(), vec![0.0; scores.len()]);
    loss.gradient_row(label, &mut row, &mut state);
    (row, state)
}

/// Scores on both sides of every kink, none within a difference quotient's step of one.
fn scores(case: usize, classes: usize) -> Vec<f64> {
    let place = |k: usize| ((case * 37 + k * 53) % 89) as f64;
    (0..classes).map(|k| 0.0613 * place(k) - 2.7).collect()
}

#[test]
fn pairwise_huber_follows_its_formula() -> Result<()> {
    let step = 1e-4;
    for classes in [2, 3, 7] {
        let loss = SmoothLoss::new("huber_ww", classes, SMOOTHING, MARGIN)?;
        for case in 0..60 {
            let (label, at) = (case % classes, scores(case, classes));
            let (a, state) = gradient(&loss, label, &at);
            for k in 0..classes {
                let (mut up, mut down) = (at.clone(), at.clone());
                (up[k], down[k]) = (at[k] + step, at[k] - step);
                let slope = (value(label, &up) - value(label, &down)) / (2.0 * step);
                assert!((slope - a[k]).abs() < 1e-9, "{classes} {case} {k}");
                // Row k of the Hessian, which is symmetric.
                let mut direction = vec![0.0_f32; classes];
                direction[k] = 1.0;
                product(&loss, label, &mut direction, &state);
                let (up, down) = (
                    gradient(&loss, label, &up).0,
                    gradient(&loss, label, &down).0,
                );
                for j in 0..classes {
                    let curvature = (up[j] - down[j]) / (2.0 * step);
                    assert!((curvature - f64::from(direction[j])).abs() < 1e-5);
                }
            }
        }
    }
    Ok(())
}

// Proof: losses, "Curvature"
#[test]
fn pairwise_huber_reaches_its_bounds() -> Result<()> {
    for classes in [2, 3, 7] {
        let loss = SmoothLoss::new("huber_ww", classes, SMOOTHING, MARGIN)?;
        let length = |a: &[f64]| a.iter().map(|a| a * a).sum::<f64>().sqrt();
        let bound = ((classes * (classes - 1)) as f64).sqrt();
        let mut wrong = vec![3.0; classes];
        wrong[0] = -3.0;
        assert!((length(&gradient(&loss, 0, &wrong).0) - bound).abs() < 1e-12);
        // All pairs at the middle of their quadratic part: the star with equal weights.
        let mut inside = vec![0.0; classes];
        inside[0] = MARGIN;
        let (_, state) = gradient(&loss, 0, &inside);
        let mut star = vec![-1.0_f32; classes];
        star[0] = (classes - 1) as f32;
        let before = star.clone();
        product(&loss, 0, &mut star, &state);
        for (after, before) in star.iter().zip(&before) {
            let wanted = loss.curvature() * f64::from(*before);
            assert!((f64::from(*after) - wanted).abs() < 1e-6);
        }
        for case in 0..200 {
            let (a, state) = gradient(&loss, case % classes, &scores(case, classes));
            assert!(length(&a) <= bound * (1.0 + 1e-14));
            assert!(
                state
                    .iter()
                    .all(|h| (0.0..=0.5 / SMOOTHING as f32).contains(h))
            );
        }
    }
    Ok(())
}

/// Huber function of the distance to the scores that keep the margin; the distance by bisection.
fn distance_loss(label: usize, scores: &[f64]) -> f64 {
    let rivals = || (0..scores.len()).filter(|&k| k != label);
    let lowered = |u: f64| -> Vec<f64> {
        rivals()
            .map(|k| (scores[k] - scores[label] + MARGIN - u).max(0.0))
            .collect()
    };
    let (mut low, mut high) = (0.0, 1e3);
    for _ in 0..200 {
        let u = 0.5 * (low + high);
        if u < lowered(u).iter().sum() {
            low = u;
        } else {
            high = u;
        }
    }
    let square = lowered(low).iter().map(|q| q * q).sum::<f64>() + low * low;
    let distance = square.sqrt();
    if distance <= SMOOTHING {
        square / (2.0 * SMOOTHING)
    } else {
        distance - 0.5 * SMOOTHING
    }
}

// Proof: losses, "The distance to the margin"
#[test]
fn margin_distance_follows_its_formula() -> Result<()> {
    let step = 1e-4;
    for classes in [2, 3, 7] {
        let loss = SmoothLoss::new("margin_distance", classes, SMOOTHING, MARGIN)?;
        for case in 0..60 {
            let (label, at) = (case % classes, scores(case, classes));
            let (a, state) = gradient(&loss, label, &at);
            for k in 0..classes {
                let (mut up, mut down) = (at.clone(), at.clone());
                (up[k], down[k]) = (at[k] + step, at[k] - step);
                let slope =
                    (distance_loss(label, &up) - distance_loss(label, &down)) / (2.0 * step);
                assert!((slope - a[k]).abs() < 1e-7, "{classes} {case} {k}");
                let mut direction = vec![0.0_f32; classes];
                direction[k] = 1.0;
                product(&loss, label, &mut direction, &state);
                let (up, down) = (
                    gradient(&loss, label, &up).0,
                    gradient(&loss, label, &down).0,
                );
                for j in 0..classes {
                    let curvature = (up[j] - down[j]) / (2.0 * step);
                    assert!((curvature - f64::from(direction[j])).abs() < 1e-5);
                }
            }
        }
    }
    Ok(())
}

// Proof: losses, "The distance to the margin"
#[test]
fn margin_distance_reaches_its_bounds() -> Result<()> {
    let length = |a: &[f64]| a.iter().map(|a| a * a).sum::<f64>().sqrt();
    for classes in [2, 3, 7, 40] {
        let loss = SmoothLoss::new("margin_distance", classes, SMOOTHING, MARGIN)?;
        // Norm 1 wherever the margin is far, whether one class leads or all tie.
        for lead in [0.0, 5.0, 1e6] {
            let mut at = vec![0.0; classes];
            at[classes - 1] = lead;
            assert!((length(&gradient(&loss, 0, &at).0) - 1.0).abs() < 1e-12);
        }
        for case in 0..200 {
            let label = case % classes;
            let (a, _) = gradient(&loss, label, &scores(case, classes));
            assert!(length(&a) <= 1.0 + 1e-14);
            assert!(a.iter().sum::<f64>().abs() < 1e-12);
            // The gradient moves no faster than the curvature.
            let mut other = scores(case + 1, classes);
            let (b, _) = gradient(&loss, label, &other);
            for (o, s) in other.iter_mut().zip(scores(case, classes)) {
                *o -= s;
            }
            let moved: Vec<f64> = a.iter().zip(&b).map(|(a, b)| a - b).collect();
            assert!(length(&moved) <= loss.curvature() * length(&other) * (1.0 + 1e-12));
        }
        // Kept margins have no gradient, of any kind.
        let mut kept = vec![0.0; classes];
        kept[0] = MARGIN;
        let (a, state) = gradient(&loss, 0, &kept);
        assert!(a.iter().all(|a| *a == 0.0));
        let mut direction = vec![1.0_f32; classes];
        product(&loss, 0, &mut direction, &state);
        assert!(direction.iter().all(|d| *d == 0.0));
    }
    Ok(())
}
