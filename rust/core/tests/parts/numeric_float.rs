//! Sums and products with their errors, for all numbers of a few bits.

use super::toy::Toy;
use crate::numeric::float::{two_fold_sum, two_product, two_sum};

/// The format is what it says: for every pair of numbers the nearest one, in the middle the even.
#[test]
fn toy_numbers_round_to_nearest() {
    let numbers = Toy::<4>::positive(-1, 6);
    for a in Toy::<4>::positive(0, 4) {
        for b in Toy::<4>::positive(-3, 4) {
            for (got, exact) in [((a + b).0, a.0 + b.0), ((a * b).0, a.0 * b.0)] {
                if (1.0..32.0).contains(&exact) {
                    let off = |n: &Toy<4>| (n.0 - exact).abs();
                    let nearest = numbers.iter().map(off).fold(f64::INFINITY, f64::min);
                    assert_eq!((got - exact).abs(), nearest);
                }
            }
        }
    }
    assert_eq!((Toy::<4>(8.0) + Toy(0.5)).0, 8.0);
    assert_eq!((Toy::<4>(9.0) + Toy(0.5)).0, 10.0);
}

/// `a + b` and `a b` with their errors, for all numbers of five bits over fourteen binades.
// Proof: output_perturbation, "Inexact minimiser"
#[test]
fn sums_and_products_of_all_small_numbers_are_error_free() {
    let positive = Toy::<5>::positive(-7, 7);
    let negative = positive.iter().map(|x| Toy(-x.0));
    let all: Vec<Toy<5>> = positive.iter().copied().chain(negative).collect();
    for a in &all {
        for b in &all {
            let (sum, error) = two_sum(*a, *b);
            assert_eq!(sum.0 + error.0, a.0 + b.0, "{a:?} {b:?}");
            let (product, error) = two_product(*a, *b);
            assert_eq!(product.0 + error.0, a.0 * b.0, "{a:?} {b:?}");
        }
    }
}

/// The error of a sum of `m` products is below `(m + 1)^2 u^2` times the sum of their magnitudes:
/// all pairs of products of three bits, and triples with signs that cancel.
// Proof: output_perturbation, "Inexact minimiser"
#[test]
fn sums_of_two_small_products_have_twice_the_precision() {
    let positive = Toy::<3>::positive(-3, 3);
    let both = |x: &Toy<3>| [*x, Toy(-x.0)];
    let signed: Vec<Toy<3>> = positive.iter().flat_map(both).collect();
    let unit = 0.125_f64;
    let mut rounds_once = false;
    let mut check = |terms: &[(Toy<3>, Toy<3>)]| {
        let exact: f64 = terms.iter().map(|(a, b)| a.0 * b.0).sum();
        let size: f64 = terms.iter().map(|(a, b)| (a.0 * b.0).abs()).sum();
        let plain = terms.iter().fold(Toy(0.0), |sum, (a, b)| sum + *a * *b);
        let (high, low) = two_fold_sum(terms.iter().copied());
        let m = terms.len() as f64 + 1.0;
        let bound = m * m * unit * unit * size;
        assert!((high.0 + low.0 - exact).abs() <= bound, "{terms:?}");
        rounds_once |= (plain.0 - exact).abs() > bound;
    };
    for a in &positive {
        for b in &positive {
            for c in &signed {
                for d in &positive {
                    check(&[(*a, *b), (*c, *d)]);
                    check(&[(*a, *b), (*c, *d), (Toy(-a.0), *b)]);
                }
            }
        }
    }
    // Negative control: plain sums do not keep this bound.
    assert!(rounds_once);
}
