//! Gradients in score space: two ways to compute them, and how long they may be.

use crate::descent::clipping::Clip;
use crate::descent::gradients::{Members, exp_down, one_by_one, single};
use crate::descent::leaves::LEAF;
use crate::descent::passes::Rule;
use crate::loss::smooth::SmoothLoss;

#[test]
fn exponential_is_accurate() {
    for i in 0..87_000 {
        let x = -0.001 * i as f32;
        let exact = f64::from(x).exp();
        assert!((f64::from(exp_down(x)) - exact).abs() <= 4e-7 * exact);
    }
    assert_eq!(exp_down(-100.0), 0.0);
    assert_eq!(exp_down(f32::MIN), 0.0);
}

/// Both ways agree, and no contribution is longer than the bound.
#[test]
fn single_precision_follows_double() -> crate::Result<()> {
    let label: Vec<u32> = (0..LEAF as u32).map(|i| i % 5).collect();
    let norm = [0.9_f32; LEAF];
    let members = Members {
        label: &label,
        norm: &norm,
    };
    for (name, smoothing, margin) in [
        ("softmax_margin", 0.3, 1.0),
        ("softmax_margin", 1e-3, 1.0),
        ("softplus", 0.5, 1.0),
        ("huber", 0.5, 1.0),
        ("m3", 0.5, 1.0),
        ("huber_ww", 0.5, 1.0),
        ("margin_distance", 0.25, 1.0),
    ] {
        for bound in [0.1, 100.0] {
            let rule = Rule {
                loss: SmoothLoss::new(name, 5, smoothing, margin)?,
                clip: Clip::new(bound, 0.98, 0.2),
                coefficient_grid: 1e-9,
            };
            let score = |k: usize, i: usize| ((k * 37 + i * 11) % 64) as f32 * 0.1 - 3.0;
            let mut fast: Vec<[f32; LEAF]> = (0..5)
                .map(|k| std::array::from_fn(|i| score(k, i)))
                .collect();
            let mut slow: Vec<[f64; LEAF]> = (0..5)
                .map(|k| std::array::from_fn(|i| f64::from(score(k, i))))
                .collect();
            let mut state = [0.0; 5];
            single(&rule, members, &mut fast, (&mut [0.0; 5], &mut state));
            one_by_one(&rule, members, &mut slow, (&mut [0.0; 5], &mut state));
            for i in 0..LEAF {
                let mut square = 0.0;
                for k in 0..5 {
                    let (fast, slow) = (f64::from(fast[k][i]), slow[k][i]);
                    let error = (fast - slow).abs();
                    assert!(
                        error <= 1e-5 * (1.0 + 1.0 / smoothing * 0.01),
                        "{name} {error:e}"
                    );
                    square += fast * fast;
                }
                let row = 0.9_f64.hypot(rule.clip.intercept);
                assert!(square.sqrt() * row <= bound);
            }
        }
    }
    Ok(())
}
