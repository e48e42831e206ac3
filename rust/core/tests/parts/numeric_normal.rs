//! The normal tail against values computed to 60 digits with mpmath.

// The digits are as mpmath prints them.
#![allow(clippy::unreadable_literal)]

use dpsvm_core::numeric::normal::{mean_complement, mills, mills_complement};

/// x, R(x), S(x) = 1 - x R(x), each rounded to nearest.
#[rustfmt::skip]
const VALUES: [(f64, f64, f64); 21] = [
    (-0.5, 1.9640174953579939, 1.982008747678997),
    (-0.3, 1.6201656087067893, 1.4860496826120368),
    (-0.0625, 1.3183458523761462, 1.0823966157735092),
    (0.0, 1.2533141373155003, 1.0),
    (0.1, 1.1592623996187363, 0.8840737600381263),
    (0.49, 0.8820125451756892, 0.5678138528639123),
    (0.875, 0.7012808218544301, 0.3863792808773737),
    (0.9999, 0.6557139760214149, 0.34435159537618726),
    (1.0, 0.6556795424187984, 0.34432045758120156),
    (1.1, 0.6227436548688335, 0.3149819796442831),
    (1.999, 0.42152654426936165, 0.157368438005546),
    (2.5, 0.35426511132979366, 0.11433722167551583),
    (3.7, 0.25377763740679354, 0.06102274159486376),
    (7.3, 0.1345483871591707, 0.017796773738053898),
    (12.5, 0.07949752916111721, 0.006280885486034846),
    (15.99, 0.0622973033085532, 0.003866120096234247),
    (16.0, 0.0622586659950262, 0.0038613440795808676),
    (17.25, 0.05777812677301058, 0.003327313165567556),
    (40.0, 0.02498440420572057, 0.0006238317711771541),
    (1000.0, 0.0009999990000029999, 9.99997000015e-07),
    (10000000000.0, 1e-10, 1e-20),
];

/// The bounds promised, in units of 2^-53.
const MILLS_BOUND: f64 = 4.0;
const COMPLEMENT_BOUND: f64 = 5.0;

fn roundoffs(value: f64, exact: f64) -> f64 {
    // One half for the stored value's own rounding.
    ((value - exact) / exact).abs() / (f64::EPSILON / 2.0) - 1.0
}

// Proof: analytic_gaussian
#[test]
fn mills_ratio_and_complement_match_high_precision() {
    for (x, ratio, complement) in VALUES {
        assert!(roundoffs(mills(x), ratio) <= MILLS_BOUND, "R({x})");
        assert!(
            roundoffs(mills_complement(x), complement) <= COMPLEMENT_BOUND,
            "S({x})"
        );
    }
}

// Proof: analytic_gaussian
#[test]
fn pieces_join_within_rounding() {
    let mut ends: Vec<f64> = (-3..8).map(|k| f64::from(k) / 8.0).collect();
    for octave in 0..4 {
        ends.extend((0..8).map(|m| 2f64.powi(octave) * (1.0 + f64::from(m) / 8.0)));
    }
    ends.push(16.0);
    for end in ends {
        let (below, above) = (end.next_down(), end);
        assert!(
            roundoffs(mills(below), mills(above)) <= 2.0 * MILLS_BOUND,
            "R at {end}"
        );
        let jump = roundoffs(mills_complement(below), mills_complement(above));
        assert!(jump <= 2.0 * COMPLEMENT_BOUND, "S at {end}");
    }
}

#[test]
fn mean_of_the_complement_is_a_difference_of_mills_ratios() {
    // (R(-1/2) - R(3/2)) / 2 and (R(9) - R(11)) / 2 from mpmath.
    let wide = [(0.5, 0.7241009285700152), (10.0, 0.009805803538621805)];
    for (centre, exact) in wide {
        assert!(
            roundoffs(mean_complement(centre, 1.0), exact) <= 20.0,
            "{centre}"
        );
    }
    assert!(roundoffs(mean_complement(3.0, 1e-300), mills_complement(3.0)) <= 20.0);
}
