//! The logarithm that decides how fast a batch is drawn.

use crate::noise::poisson_batch::minus_log;

#[test]
fn logarithm_is_as_near_as_gaps_need() {
    let mut words: Vec<u64> = (0..64).map(|bit| 1 << bit).collect();
    words.extend((1..20_000).map(|i: u64| i.wrapping_mul(0x9e37_79b9_7f4a_7c15)));
    words.extend((0..64).map(|bit| u64::MAX - ((1 << bit) - 1)));
    for word in words {
        let exact = -libm::log(word as f64 / 2_f64.powi(64));
        let error = (minus_log(word as f64) - exact).abs();
        assert!(error <= exact * 2_f64.powi(-49), "{word} {error:e}");
    }
    assert!(minus_log(0.0).is_finite());
}
