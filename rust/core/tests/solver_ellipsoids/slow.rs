//! Problems, and a slow solver of them that shares no code with the library.

use dpsvm_core::Error;
use dpsvm_core::rows::view::Values;
use dpsvm_core::runtime::interrupt::{Interrupt, Never};
use dpsvm_core::solver::ellipsoids::{EllipsoidSettings, EllipsoidSolution, solve};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// One problem with everything the slow solver needs.
#[derive(Clone)]
pub struct Case {
    pub n: usize,
    pub d: usize,
    pub x: Vec<f64>,
    pub target: Vec<i64>,
    pub linear: Vec<f64>,
    pub settings: EllipsoidSettings<'static>,
}

pub const SETTINGS: EllipsoidSettings<'static> = EllipsoidSettings {
    loss: "softmax_margin",
    classes: 3,
    ellipsoids: 1,
    smoothing: 0.5,
    margin: 1.0,
    regularization: 1.0,
    data_norm: 2.0,
    psd: true,
    gradient_tol: 1e-9,
    max_passes: None,
    threads: 1,
};

impl Case {
    /// Records on a grid that single precision holds exactly, inside the ball.
    pub fn new(n: usize, d: usize, noise: f64, settings: EllipsoidSettings<'static>) -> Self {
        let mut rng = ChaCha8Rng::seed_from_u64(n as u64 + 31 * d as u64);
        let mut number = || rng.random::<f64>() * 2.0 - 1.0;
        let count = settings.classes * settings.ellipsoids;
        let size = (d + 1) * (d + 2) / 2;
        let scale = 32.0 / (d as f64).sqrt();
        let x: Vec<f64> = (0..n * d)
            .map(|at| {
                let class = at / d % count;
                let centre = if at % d == class % d { 1.0 } else { -0.5 };
                ((number() + 0.6 * centre) * scale).round() / 32.0
            })
            .collect();
        Self {
            n,
            d,
            x,
            target: (0..n).map(|i| (i % count) as i64).collect(),
            linear: (0..count * size).map(|_| noise * number()).collect(),
            settings,
        }
    }

    pub fn solve(&self) -> EllipsoidSolution {
        self.with(&Never).unwrap()
    }

    pub fn with(&self, interrupt: &dyn Interrupt) -> Result<EllipsoidSolution, Error> {
        let shape = (self.n, self.d);
        let x = Values::F64(&self.x);
        let (target, linear) = ((&self.target[..], &[][..]), &self.linear);
        solve(x, shape, target, linear, &self.settings, interrupt)
    }

    pub fn count(&self) -> usize {
        self.settings.classes * self.settings.ellipsoids
    }

    /// Lifted rows by their definition.
    fn lifted(&self) -> Vec<Vec<f64>> {
        let square = self.settings.data_norm.powi(2) + 1.0;
        (self.x.chunks_exact(self.d))
            .map(|x| {
                let mut row = x.to_vec();
                row.push(1.0);
                let mut lift = Vec::new();
                for a in 0..row.len() {
                    for b in a..row.len() {
                        let factor = if a == b { 1.0 } else { 2.0f64.sqrt() };
                        lift.push(factor * row[a] * row[b] / square);
                    }
                }
                lift
            })
            .collect()
    }

    /// Gradient of F, class by class and record by record.
    pub fn gradient(&self, phi: &[f64]) -> Vec<f64> {
        let size = phi.len() / self.count();
        let settings = &self.settings;
        let scaled = phi.iter().map(|w| settings.regularization * w);
        let mut gradient: Vec<f64> = scaled.zip(&self.linear).map(|(w, b)| w + b).collect();
        for (u, own) in self.lifted().iter().zip(&self.target) {
            let own = *own as usize;
            let score = |j: usize| -> f64 {
                let phi = &phi[j * size..(j + 1) * size];
                -phi.iter().zip(u).map(|(w, u)| w * u).sum::<f64>()
            };
            let class = |j: usize| j / settings.ellipsoids;
            let rivals: Vec<usize> = (0..self.count())
                .filter(|j| class(*j) != class(own))
                .collect();
            let excess: Vec<f64> = (rivals.iter())
                .map(|j| settings.margin + score(*j) - score(own))
                .collect();
            let weights = rival_weights(settings, &excess);
            for (j, weight) in rivals.iter().zip(weights) {
                for (at, u) in u.iter().enumerate() {
                    gradient[j * size + at] -= weight * u;
                    gradient[own * size + at] += weight * u;
                }
            }
        }
        gradient
    }

    /// Plain projected gradients, run until they stand still.
    pub fn slow(&self, steps: usize) -> Vec<f64> {
        let settings = &self.settings;
        let scores = self.count() as f64;
        let curvature = scores * self.n as f64 / settings.smoothing;
        let most = settings.regularization + curvature;
        let mut phi = vec![0.0; self.linear.len()];
        for _ in 0..steps {
            let gradient = self.gradient(&phi);
            phi.iter_mut()
                .zip(&gradient)
                .for_each(|(w, g)| *w -= g / most);
            if settings.psd {
                for part in phi.chunks_exact_mut(self.linear.len() / self.count()) {
                    project(part, self.d + 1);
                }
            }
        }
        phi
    }
}

/// Derivatives of the losses in the excesses `m + s_k - s_y`.
fn rival_weights(settings: &EllipsoidSettings<'_>, excess: &[f64]) -> Vec<f64> {
    let tau = settings.smoothing;
    if settings.loss == "huber_ww" {
        return excess
            .iter()
            .map(|g| ((g + tau) / (2.0 * tau)).clamp(0.0, 1.0))
            .collect();
    }
    let top = excess.iter().fold(0.0f64, |top, g| top.max(*g));
    let weights: Vec<f64> = excess.iter().map(|g| ((g - top) / tau).exp()).collect();
    let total = (-top / tau).exp() + weights.iter().sum::<f64>();
    weights.iter().map(|w| w / total).collect()
}

/// The matrix of svec coordinates.
fn matrix(z: &[f64], order: usize) -> Vec<Vec<f64>> {
    let mut matrix = vec![vec![0.0; order]; order];
    let mut entries = z.iter();
    for a in 0..order {
        for b in a..order {
            let entry = entries.next().unwrap();
            let entry = if a == b {
                *entry
            } else {
                entry / 2.0f64.sqrt()
            };
            (matrix[a][b], matrix[b][a]) = (entry, entry);
        }
    }
    matrix
}

/// Eigenvalues and vectors by Jacobi's rotations.
pub fn eigen(z: &[f64], order: usize) -> Vec<(f64, Vec<f64>)> {
    let mut a = matrix(z, order);
    let mut v: Vec<Vec<f64>> = (0..order)
        .map(|i| (0..order).map(|j| f64::from(u8::from(i == j))).collect())
        .collect();
    for _ in 0..30 {
        for p in 0..order {
            for q in p + 1..order {
                let angle = 0.5 * (2.0 * a[p][q]).atan2(a[q][q] - a[p][p]);
                let (s, c) = angle.sin_cos();
                for k in 0..order {
                    let (x, y) = (a[p][k], a[q][k]);
                    (a[p][k], a[q][k]) = (c * x - s * y, s * x + c * y);
                    let (x, y) = (v[p][k], v[q][k]);
                    (v[p][k], v[q][k]) = (c * x - s * y, s * x + c * y);
                }
                for line in &mut a {
                    let (x, y) = (line[p], line[q]);
                    (line[p], line[q]) = (c * x - s * y, s * x + c * y);
                }
            }
        }
    }
    (0..order).map(|i| (a[i][i], v[i].clone())).collect()
}

pub fn project(z: &mut [f64], order: usize) {
    let parts = eigen(z, order);
    let mut at = 0;
    for a in 0..order {
        for b in a..order {
            let entry: f64 = parts.iter().map(|(l, v)| l.max(0.0) * v[a] * v[b]).sum();
            z[at] = if a == b { entry } else { 2.0f64.sqrt() * entry };
            at += 1;
        }
    }
}

pub fn distance(a: &[f64], b: &[f64]) -> f64 {
    a.iter()
        .zip(b)
        .map(|(a, b)| (a - b).powi(2))
        .sum::<f64>()
        .sqrt()
}
