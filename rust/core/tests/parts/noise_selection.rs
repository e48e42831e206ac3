//! Exact coins, private selection, discrete Laplace noise and random parts.
//!
//! Statistical tests accept with probability `1 - ALPHA` at least under the claimed law; each has a
//! control that the same test refuses.

use dpsvm_core::Error;
use dpsvm_core::noise::coins::{below, bernoulli, bernoulli_exp, bernoulli_exp_ratio};
use dpsvm_core::noise::{
    Key, Stream, discrete_laplace, exponential_choice, permute_and_flip, random_parts,
};
use dpsvm_core::runtime::interrupt::{Interrupt, Never};
use rand::TryRng;
use std::convert::Infallible;

/// Error probability of one statistical test.
const ALPHA: f64 = 1e-6;

/// Upper ALPHA quantile of chi-square, from the bound of Laurent and Massart (2000, Lemma 1).
fn largest_chi_square(freedom: usize) -> f64 {
    let (k, x) = (freedom as f64, -ALPHA.ln());
    k + 2.0 * (k * x).sqrt() + 2.0 * x
}

/// Pearson's test; cells with fewer than 10 expected draws are merged into one.
fn fits(counts: &[u64], law: &[f64]) -> bool {
    let total = counts.iter().sum::<u64>() as f64;
    let (mut statistic, mut cells) = (0.0, 0);
    let (mut rare, mut rare_expected) = (0.0, 0.0);
    for (count, p) in counts.iter().zip(law) {
        let (count, expected) = (*count as f64, p * total);
        if expected < 10.0 {
            rare += count;
            rare_expected += expected;
            continue;
        }
        cells += 1;
        statistic += (count - expected).powi(2) / expected;
    }
    if rare_expected >= 10.0 {
        cells += 1;
        statistic += (rare - rare_expected).powi(2) / rare_expected;
    } else if rare > 60.0 {
        // Poisson with mean below 10 exceeds 60 with probability below 1e-25.
        return false;
    }
    statistic <= largest_chi_square(cells - 1)
}

fn stream(seed: u64) -> Stream {
    Key::from_seed(seed).task(0).stream(0)
}

/// The words given, then a panic: what was not drawn cannot have mattered.
struct Words(Vec<u64>);

impl TryRng for Words {
    type Error = Infallible;

    fn try_next_u32(&mut self) -> Result<u32, Infallible> {
        self.try_next_u64().map(|word| word as u32)
    }

    fn try_next_u64(&mut self) -> Result<u64, Infallible> {
        Ok(self.0.remove(0))
    }

    fn try_fill_bytes(&mut self, _: &mut [u8]) -> Result<(), Infallible> {
        unreachable!("coins draw words")
    }
}

/// `bernoulli(p)` is the comparison of a binary fraction with `p`, to the last digit.
#[test]
fn coin_compares_digit_by_digit() {
    let half = 1 << 63;
    assert!(bernoulli(&mut Words(vec![half - 1]), 0.5));
    assert!(!bernoulli(&mut Words(vec![half]), 0.5));
    assert!(!bernoulli(&mut Words(vec![]), 0.0));
    assert!(bernoulli(&mut Words(vec![]), 1.0));
    // 2^-1074, the smallest double: 16 digits of 64 bits, then bit 1074 - 1024 = 50 of the next.
    let tiny = f64::from_bits(1);
    let mut words = vec![0; 17];
    words[16] = (1 << 14) - 1;
    assert!(bernoulli(&mut Words(words.clone()), tiny));
    words[16] = 1 << 14;
    assert!(!bernoulli(&mut Words(words), tiny));
    assert!(!bernoulli(&mut Words(vec![0, 1]), tiny));
    // A number across two digits.
    let p = (1.0 + f64::EPSILON) * 2f64.powi(-60);
    assert!(bernoulli(&mut Words(vec![16, 0]), p + 2f64.powi(-62)));
    assert!(bernoulli(&mut Words(vec![16, (1 << 16) - 1]), p));
    assert!(!bernoulli(&mut Words(vec![16, 1 << 16]), p));
}

/// Every answer keeps the same number of words: those below the excess are drawn again.
// Proof: private_selection, "Samplers"
#[test]
fn uniform_integers_are_exact() {
    // 2^64 mod 6 = 4: the first word of a run of 2^64 / 6 is at multiples of it.
    assert_eq!(below(&mut Words(vec![0, 5]), 6), 0);
    assert_eq!(below(&mut Words(vec![u64::MAX]), 6), 5);
    assert_eq!(below(&mut Words(vec![1 << 63]), 1), 0);
    assert_eq!(below(&mut Words(vec![u64::MAX]), u64::MAX), u64::MAX - 1);
    // By law for numbers of all sizes.
    for m in [2_u64, 3, 10, 37, (1 << 63) + 1] {
        let mut rng = stream(m);
        let cells = m.min(37) as usize;
        let mut counts = vec![0; cells];
        for _ in 0..100_000 {
            let x = below(&mut rng, m);
            assert!(x < m);
            counts[(u128::from(x) * cells as u128 / u128::from(m)) as usize] += 1;
        }
        assert!(fits(&counts, &vec![1.0 / cells as f64; cells]), "{m}");
    }
}

fn heads(n: u64, mut coin: impl FnMut() -> bool) -> [u64; 2] {
    let heads = (0..n).filter(|_| coin()).count() as u64;
    [heads, n - heads]
}

// Proof: private_selection, "Samplers"
#[test]
fn exponential_coin_has_its_probability() {
    let n = 400_000;
    let mut rng = stream(1);
    for x in [
        0.0, 1e-12, 0.01, 0.3, 0.5, 0.75, 1.0, 1.1, 1.5, 2.0, 2.5, 3.75, 5.0, 6.125,
    ] {
        let p = f64::exp(-x);
        let counts = heads(n, || bernoulli_exp(&mut rng, x));
        assert!(fits(&counts, &[p, 1.0 - p]), "{x}: {counts:?}");
        if x > 0.01 {
            let wrong = f64::exp(-x * 1.2);
            assert!(!fits(&counts, &[wrong, 1.0 - wrong]), "{x}");
        }
    }
    for (p, q) in [(0, 7), (1, 3), (6, 7), (7, 7), ((1 << 50) - 1, 1 << 50)] {
        let law = f64::exp(-(p as f64) / q as f64);
        let counts = heads(n, || bernoulli_exp_ratio(&mut rng, p, q));
        assert!(fits(&counts, &[law, 1.0 - law]), "{p}/{q}: {counts:?}");
    }
}

/// No exponent is too large or too small, and none takes long.
#[test]
fn extreme_exponents_end() {
    let mut rng = stream(2);
    for x in [1e3, 1e17, 1e300, f64::MAX] {
        assert!((0..1000).all(|_| !bernoulli_exp(&mut rng, x)), "{x}");
    }
    for x in [0.0, f64::from_bits(1), f64::MIN_POSITIVE, 1e-200] {
        assert!((0..1000).all(|_| bernoulli_exp(&mut rng, x)), "{x}");
    }
}

type Choice =
    fn(dpsvm_core::noise::Task<'_>, &[i64], f64, &dyn Interrupt) -> dpsvm_core::Result<usize>;

fn counts(choose: Choice, scores: &[i64], rate: f64, n: u32) -> Vec<u64> {
    let key = Key::from_seed(3);
    let mut counts = vec![0; scores.len()];
    for task in 0..n {
        counts[choose(key.task(task), scores, rate, &Never).unwrap()] += 1;
    }
    counts
}

fn exponential_law(scores: &[i64], rate: f64) -> Vec<f64> {
    let best = *scores.iter().min().unwrap();
    let weight = |z: &i64| (-rate * (z - best) as f64).exp();
    let sum: f64 = scores.iter().map(weight).sum();
    scores.iter().map(|z| weight(z) / sum).collect()
}

/// The law of permute and flip by going through all orders of visits.
fn flip_law(scores: &[i64], rate: f64) -> Vec<f64> {
    fn visit(keep: &[f64], open: &mut Vec<usize>, reach: f64, law: &mut [f64]) {
        let each = reach / open.len() as f64;
        for at in 0..open.len() {
            let i = open.remove(at);
            law[i] += each * keep[i];
            if keep[i] < 1.0 {
                visit(keep, open, each * (1.0 - keep[i]), law);
            }
            open.insert(at, i);
        }
    }
    let best = *scores.iter().min().unwrap();
    let keep: Vec<f64> = scores
        .iter()
        .map(|z| (-rate * (z - best) as f64).exp())
        .collect();
    let mut law = vec![0.0; scores.len()];
    visit(&keep, &mut (0..scores.len()).collect(), 1.0, &mut law);
    law
}

// Proof: private_selection, "Samplers"
#[test]
fn selections_have_their_laws() {
    let n = 40_000;
    for (scores, rate) in [
        (vec![3, 1, 4, 1, 5], 0.5),
        (vec![0, 0, 0], 2.0),
        (vec![10, 0], 0.25),
        (vec![7], 1.0),
        (vec![i64::MAX, i64::MAX - 2, i64::MAX - 1], 0.75),
        (vec![i64::MIN, i64::MIN + 3, i64::MIN + 3], 0.125),
    ] {
        let both = [
            (exponential_choice as Choice, exponential_law(&scores, rate)),
            (permute_and_flip as Choice, flip_law(&scores, rate)),
        ];
        for (choose, law) in both {
            assert!((law.iter().sum::<f64>() - 1.0).abs() < 1e-12);
            let seen = counts(choose, &scores, rate, n);
            assert!(fits(&seen, &law), "{scores:?} {rate}: {seen:?} {law:?}");
        }
    }
    // Negative control: the laws of the two mechanisms differ, and the test tells.
    let scores = [3, 1, 4, 1, 5];
    assert!(!fits(
        &counts(permute_and_flip, &scores, 0.5, n),
        &exponential_law(&scores, 0.5)
    ));
    assert!(!fits(
        &counts(exponential_choice, &scores, 0.5, n),
        &exponential_law(&scores, 0.625)
    ));
}

/// The same streams give the same choice after a common shift, bit for bit.
// Proof: private_selection, "Samplers"
#[test]
fn selections_depend_on_differences_alone() {
    let key = Key::from_seed(4);
    let scores = [12, 7, 9, 30, 7];
    for task in 0..2000 {
        for choose in [exponential_choice as Choice, permute_and_flip as Choice] {
            let pick = choose(key.task(task), &scores, 0.25, &Never);
            for shift in [-1_000_000, 5, i64::MAX - 30, i64::MIN] {
                let moved = scores.map(|z| z.wrapping_add(shift));
                // i64::MIN + z stays in order for z >= 0.
                assert_eq!(choose(key.task(task), &moved, 0.25, &Never), pick);
            }
        }
    }
}

#[test]
fn hopeless_candidates_are_never_taken_and_never_hang() {
    let far = (1_i64 << 32) - 1;
    for rate in [1.0, 2f64.powi(900), f64::from((1 << 20) - 1)] {
        let mut scores = vec![far; 1000];
        scores[617] = 0;
        for choose in [exponential_choice as Choice, permute_and_flip as Choice] {
            let seen = counts(choose, &scores, rate, 20);
            assert_eq!(seen[617], 20);
        }
    }
    // Products below all normal numbers are exact too: nearly a fair choice.
    let seen = counts(exponential_choice, &[0, far], f64::from_bits(3), 4000);
    assert!(fits(&seen, &[0.5, 0.5]));
}

#[test]
fn bad_selections_are_refused() {
    let key = Key::from_seed(5);
    let name = |scores: &[i64], rate: f64| {
        let both = [exponential_choice as Choice, permute_and_flip as Choice];
        let errors = both.map(|choose| match choose(key.task(0), scores, rate, &Never) {
            Err(Error::InvalidArgument { name, .. }) => name,
            other => panic!("expected a refusal, got {other:?}"),
        });
        assert_eq!(errors[0], errors[1]);
        errors[0]
    };
    assert_eq!(name(&[], 1.0), "scores");
    assert_eq!(name(&[0, 1 << 32], 1.0), "scores");
    assert_eq!(name(&[i64::MIN, i64::MAX], 1.0), "scores");
    for rate in [
        0.0,
        -1.0,
        f64::NAN,
        f64::INFINITY,
        1e300,
        0.1,
        1.0 + 2f64.powi(-20),
    ] {
        assert_eq!(name(&[0, 1], rate), "rate", "{rate}");
    }
    // 20 significant bits are accepted.
    let rate = 1.0 + 2f64.powi(-19);
    assert!(exponential_choice(key.task(0), &[0, 1], rate, &Never).is_ok());
}

/// Stops at the first look.
struct Now;

impl Interrupt for Now {
    fn stopped(&self) -> bool {
        true
    }
}

#[test]
fn selections_and_draws_can_be_interrupted() {
    let key = Key::from_seed(6);
    for choose in [exponential_choice as Choice, permute_and_flip as Choice] {
        assert_eq!(
            choose(key.task(0), &[1, 2], 1.0, &Now),
            Err(Error::Interrupted)
        );
    }
    let laplace = discrete_laplace(key.task(0), 10, (1, 1), 1, &Now);
    assert_eq!(laplace, Err(Error::Interrupted));
    let parts = random_parts(key.task(0), 10, &[1, 1], 1, &Now);
    assert_eq!(parts, Err(Error::Interrupted));
}

fn laplace_law(scale: f64, reach: i64) -> Vec<f64> {
    let a = (-1.0 / scale).exp();
    (-reach..=reach)
        .map(|k| (1.0 - a) / (1.0 + a) * a.powi(k.unsigned_abs() as i32))
        .collect()
}

// Proof: private_selection, "Samplers"
#[test]
fn discrete_laplace_has_its_law() {
    let key = Key::from_seed(7);
    for (task, (t, s)) in [(1, 5), (1, 2), (1, 1), (3, 1), (10, 1), (7, 3), (22, 7)]
        .into_iter()
        .enumerate()
    {
        let values = discrete_laplace(key.task(task as u32), 200_000, (t, s), 2, &Never).unwrap();
        let scale = t as f64 / s as f64;
        let reach = (scale * 40.0) as i64 + 2;
        let mut counts = vec![0; 2 * reach as usize + 1];
        for value in values {
            assert!(value.abs() <= reach, "{value}");
            counts[(value + reach) as usize] += 1;
        }
        assert!(fits(&counts, &laplace_law(scale, reach)), "{t}/{s}");
        assert!(!fits(&counts, &laplace_law(1.05 * scale, reach)), "{t}/{s}");
    }
}

#[test]
fn discrete_laplace_takes_extreme_scales() {
    let key = Key::from_seed(8);
    let draw = |t, s| discrete_laplace(key.task(0), 100, (t, s), 1, &Never);
    let most = 1 << 50;
    assert!(draw(1, most).unwrap().iter().all(|x| *x == 0));
    let wide = draw(most, 1).unwrap();
    // |x| / scale exceeds 60 with probability e^-60.
    assert!(wide.iter().all(|x| x.unsigned_abs() < 60 << 50));
    assert!(wide.iter().any(|x| x.unsigned_abs() > 1 << 45));
    for (t, s) in [(0, 1), (1, 0), (most + 1, 1), (1, most + 1)] {
        assert!(draw(t, s).is_err());
    }
    assert_eq!(
        discrete_laplace(key.task(1), 50_000, (5, 2), 1, &Never),
        discrete_laplace(key.task(1), 50_000, (5, 2), 4, &Never)
    );
}

// Proof: private_selection, "Samplers"
#[test]
fn parts_have_their_probabilities() {
    let key = Key::from_seed(9);
    let weights = [3, 0, 1, 4, 0];
    let parts = random_parts(key.task(0), 200_000, &weights, 1, &Never).unwrap();
    let mut counts = [0; 5];
    for part in &parts {
        counts[*part as usize] += 1;
    }
    assert_eq!((counts[1], counts[4]), (0, 0));
    assert!(fits(&counts, &[0.375, 0.0, 0.125, 0.5, 0.0]));
    assert!(!fits(&counts, &[0.365, 0.0, 0.135, 0.5, 0.0]));
    let again = random_parts(key.task(0), 200_000, &weights, 3, &Never).unwrap();
    assert_eq!(parts, again);
    for weights in [&[][..], &[0, 0], &[1, -1], &[i64::MAX, 1]] {
        let error = random_parts(key.task(0), 3, weights, 1, &Never);
        assert!(matches!(
            error,
            Err(Error::InvalidArgument {
                name: "weights",
                ..
            })
        ));
    }
}
