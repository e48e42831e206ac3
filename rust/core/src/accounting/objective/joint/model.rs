//! The pathwise bound on the privacy loss as a function of one scalar.
//!
//! With `n = K - 1` competitors, `V = sup_q [<q, b> + theta (1 - |q|^2)]` over the simplex of the
//! competitors, and a free parameter `theta1`, the loss is at most `offset + psi(V)`. There are two
//! such bounds ([`Variant`]); both `psi` are convex, non-decreasing, at least `max(0, V)`, of
//! slope at most 1, and equal to `V` from `identity_from` on.
//! Proof: `docs/proofs/joint_bound.md`.

/// Parameters of the privacy loss of one record.
#[derive(Debug, Clone, Copy)]
pub(super) struct Setting {
    /// Row norm bound over noise deviation.
    pub t: f64,
    /// Squared row norm bound over regularisation and temperature: the curvature of a record
    /// is at most `kappa (diag p - p p^T)` in units of the regularisation.
    pub kappa: f64,
    /// Number of classes less one, at least 2.
    pub competitors: usize,
    /// Coefficient of `|p - e_y|^2`: `t^2 / 2`, or `t^2` where a record is replaced.
    pub quadratic: f64,
}

/// Treatment of the probability of the record's own class.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Variant {
    /// Its part of the determinant is kept as a logarithm.
    Logarithmic,
    /// The whole determinant is linearised at `theta1`.
    Linear,
}

/// One bound `loss <= offset + psi(V)`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Model {
    pub setting: Setting,
    variant: Variant,
    /// `(theta1 - quadratic)_+`, the coefficient of `1 - |q|^2` in `V`.
    pub theta: f64,
    /// Rounded up.
    pub offset: f64,
}

/// `max over 0 <= s <= limit of rank ln(1 + kappa s / rank) - slope s`, rounded up.
fn log_excess(rank: f64, limit: f64, kappa: f64, slope: f64) -> f64 {
    if slope >= kappa {
        return 0.0;
    }
    let at = (rank * (1.0 / slope - 1.0 / kappa)).min(limit);
    let gain = rank * libm::log1p(kappa * at / rank);
    let cost = slope * at;
    // Each of the two terms is good to a few roundoffs; a misplaced maximiser costs second order.
    (gain - cost + 8.0 * f64::EPSILON * (gain + cost)).max(0.0)
}

impl Model {
    /// `share` in `[0, 1]` places `theta1` between `min(quadratic, kappa)` and `kappa`.
    pub(super) fn new(setting: Setting, share: f64, variant: Variant) -> Self {
        let Setting {
            kappa, quadratic, ..
        } = setting;
        let n = setting.competitors as f64;
        let least = quadratic.min(kappa);
        let theta1 = if share >= 1.0 {
            kappa
        } else {
            least + (kappa - least) * share
        };
        let offset = match variant {
            Variant::Logarithmic => log_excess(n - 1.0, 1.0 - 1.0 / n, kappa, theta1),
            Variant::Linear => log_excess(n, n / (n + 1.0), kappa, theta1),
        };
        Self {
            setting,
            variant,
            theta: (theta1 - quadratic).max(0.0),
            offset,
        }
    }

    /// The bound for the record that comes in the place of this one: it has no curvature.
    pub(super) fn of_second_record(&self) -> Self {
        let plain = Setting {
            kappa: 0.0,
            ..self.setting
        };
        Self::new(plain, 1.0, Variant::Logarithmic)
    }

    /// `psi(V) = V` from here on.
    pub(super) fn identity_from(&self) -> f64 {
        match self.variant {
            Variant::Logarithmic => 2.0 * (self.setting.kappa - self.setting.quadratic).max(0.0),
            Variant::Linear => 2.0 * self.theta,
        }
    }

    /// `psi(value)`, rounded up by more than the rounding of the terms it is computed from.
    pub(super) fn psi(&self, value: f64) -> f64 {
        let end = self.identity_from();
        if value >= end {
            return value;
        }
        if value <= -end {
            return 0.0;
        }
        let slack = 1e-13 * end + 8.0 * f64::EPSILON * self.setting.kappa;
        match self.variant {
            Variant::Linear => {
                let sum = value + end;
                sum * sum / (4.0 * end) + slack
            }
            Variant::Logarithmic => self.logarithmic(value) + slack,
        }
    }

    /// `max over 0 < x <= 2g of ln(1 + kappa x) - quadratic x` at `g = u (1 - u)`, and its
    /// derivative by `u`. Concave in `u`: the maximum over `x` is concave and non-decreasing in
    /// `g`, and `g` is concave.
    fn own_class(&self, u: f64) -> (f64, f64) {
        let Setting {
            kappa, quadratic, ..
        } = self.setting;
        let x = 2.0 * u * (1.0 - u);
        let flat_from = 1.0 / quadratic - 1.0 / kappa;
        if x >= flat_from {
            return (libm::log1p(kappa * flat_from) - quadratic * flat_from, 0.0);
        }
        let slope = 2.0 * (1.0 - 2.0 * u) * (kappa / (1.0 + kappa * x) - quadratic);
        (libm::log1p(kappa * x) - quadratic * x, slope)
    }

    /// `sup over u of u value + l(u)` with `l` of [`Self::own_class`]: the tangent of `l` at any
    /// `u` gives an upper bound, and the best `u` is where its slope is `-value`.
    fn logarithmic(&self, value: f64) -> f64 {
        let (mut low, mut high) = (0.0, 1.0);
        for _ in 0..44 {
            let u = 0.5 * (low + high);
            if self.own_class(u).1 > -value {
                low = u;
            } else {
                high = u;
            }
        }
        let (height, slope) = self.own_class(high);
        height - high * slope + (value + slope).max(0.0)
    }

    /// Some `V` with `psi(V) <= level`, next to the largest; `level` lies in
    /// `(0, identity_from)`.
    pub(super) fn inverse(&self, level: f64) -> f64 {
        let end = self.identity_from();
        let (mut low, mut high) = (-end, level);
        for _ in 0..44 {
            let middle = 0.5 * (low + high);
            if self.psi(middle) <= level {
                low = middle;
            } else {
                high = middle;
            }
        }
        low
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    fn setting(t: f64, kappa: f64, competitors: usize) -> Setting {
        Setting {
            t,
            kappa,
            competitors,
            quadratic: 0.5 * t * t,
        }
    }

    // Proof: joint_bound
    #[test]
    fn psi_is_the_supremum_over_the_own_class() {
        for (t, kappa) in [(0.3, 0.5), (1.0, 4.0), (0.7, 0.3), (3.0, 20.0)] {
            let model = Model::new(setting(t, kappa, 4), 0.7, Variant::Logarithmic);
            for k in -20..30 {
                let value = 0.1 * f64::from(k) * kappa;
                let by_search = (0..=100_000)
                    .map(|j| {
                        let u = f64::from(j) / 1e5;
                        u * value + model.own_class(u).0
                    })
                    .fold(0.0, f64::max);
                let psi = model.psi(value);
                assert!(psi >= by_search, "{value}: {psi} below {by_search}");
                assert!(psi <= by_search + 1e-8 * (1.0 + kappa), "{value}: {psi}");
            }
        }
    }

    // Proof: joint_bound
    #[test]
    fn the_own_class_bound_is_above_every_spread_of_the_competitors() {
        // s = 1 + |q|^2 lies in [1 + 1/n, 2].
        for (t, kappa) in [(0.3, 0.5), (1.0, 4.0), (3.0, 20.0)] {
            let model = Model::new(setting(t, kappa, 4), 1.0, Variant::Logarithmic);
            for j in 0..=50 {
                let u = f64::from(j) / 50.0;
                let g = u * (1.0 - u);
                for s in [1.25, 1.4, 1.7, 2.0] {
                    let direct = libm::log1p(kappa * g * s) - 0.5 * t * t * g * s;
                    assert!(direct <= model.own_class(u).0 + 1e-14);
                }
            }
        }
    }

    // Proof: joint_bound
    #[test]
    fn the_offset_is_the_largest_gap_between_logarithm_and_line() {
        let gap = |rank: f64, s: f64, kappa: f64, slope: f64| {
            rank * libm::log1p(kappa * s / rank) - slope * s
        };
        for slope in [0.3, 0.7, 1.5, 1.99] {
            let best = (0..=9000)
                .map(|j| gap(3.0, f64::from(j) * 1e-4 * (5.0 / 6.0), 2.0, slope))
                .fold(0.0, f64::max);
            let found = log_excess(3.0, 0.75, 2.0, slope);
            assert!(found >= best && found <= best + 1e-7, "{slope}");
        }
        assert_eq!(log_excess(3.0, 0.75, 2.0, 2.0), 0.0);
    }

    /// `ln det(I + kappa (diag p - p p^T))`, by the matrix determinant lemma.
    fn log_determinant(p: &[f64], kappa: f64) -> f64 {
        let diagonal: f64 = p.iter().map(|x| libm::log1p(kappa * x)).sum();
        let share: f64 = p.iter().map(|x| kappa * x * x / (1.0 + kappa * x)).sum();
        diagonal + libm::log1p(-share)
    }

    /// `sup_q [<q, b> + theta (1 - |q|^2)]` by its dual.
    pub fn competitors_supremum(b: &[f64], theta: f64) -> f64 {
        if theta == 0.0 {
            return b.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        }
        let dual = |s: f64| {
            let squares = b.iter().map(|x| (x - s).max(0.0).powi(2));
            s + theta + squares.sum::<f64>() / (4.0 * theta)
        };
        let top = b.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let (mut low, mut high) = (top - 2.0 * theta, top);
        for _ in 0..80 {
            let (left, right) = (low + (high - low) / 3.0, high - (high - low) / 3.0);
            if dual(left) < dual(right) {
                high = right;
            } else {
                low = left;
            }
        }
        dual(0.5 * (low + high))
    }

    /// Points of the simplex with four corners: a grid.
    fn simplex(parts: u32) -> Vec<[f64; 4]> {
        let mut points = Vec::new();
        for a in 0..=parts {
            for b in 0..=parts - a {
                for c in 0..=parts - a - b {
                    let d = parts - a - b - c;
                    points.push([a, b, c, d].map(|k| f64::from(k) / f64::from(parts)));
                }
            }
        }
        points
    }

    // Proof: joint_bound
    #[test]
    fn both_variants_bound_the_pathwise_loss_and_are_close_somewhere() {
        let points = simplex(12);
        let mut tightest = f64::INFINITY;
        for (case, (t, kappa)) in [(0.2, 0.1), (0.5, 1.0), (1.0, 4.0), (0.3, 3.0), (2.5, 9.0)]
            .into_iter()
            .enumerate()
        {
            for draw in 0..60_u32 {
                let score = |k: u32| {
                    let hash = (draw * 4 + k + 1) * (7919 + case as u32) % 9973;
                    6.0 * f64::from(hash) / 9973.0 - 3.0
                };
                let own = score(0);
                let b: Vec<f64> = (1..4).map(|k| t * (score(k) - own) + t * t).collect();
                let loss = |p: &[f64; 4]| {
                    let linear: f64 = p[1..].iter().zip(&b).map(|(p, b)| p * b).sum();
                    let spread = 1.0 - p.iter().map(|x| x * x).sum::<f64>();
                    linear + log_determinant(p, kappa) - 0.5 * t * t * spread
                };
                let worst = points.iter().map(loss).fold(f64::NEG_INFINITY, f64::max);
                for share in [0.0, 0.3, 0.8, 1.0] {
                    for variant in [Variant::Logarithmic, Variant::Linear] {
                        let model = Model::new(setting(t, kappa, 3), share, variant);
                        let value = competitors_supremum(&b, model.theta);
                        let bound = model.offset + model.psi(value);
                        assert!(bound >= worst - 1e-12, "{t} {kappa} {share} {variant:?}");
                        tightest = tightest.min(bound - worst);
                    }
                }
            }
        }
        assert!(tightest < 1e-3, "{tightest}");
    }

    // Proof: joint_bound
    #[test]
    fn the_inverse_stays_below() {
        for variant in [Variant::Logarithmic, Variant::Linear] {
            let model = Model::new(setting(0.5, 2.0, 9), 0.8, variant);
            for part in 1..10 {
                let level = model.identity_from() * f64::from(part) / 10.0;
                let value = model.inverse(level);
                assert!(model.psi(value) <= level);
                assert!(model.psi(value + 1e-9) > level);
            }
        }
    }
}
