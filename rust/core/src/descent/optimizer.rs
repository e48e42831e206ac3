//! Update of the weights by the noisy gradient: plain arithmetic on released numbers.

use crate::error::Result;
use crate::runtime::memory::{copied, mapped, zeros};

/// Update rule of the weights.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Optimizer {
    /// `v = momentum v + g`; `W -= eta v`, or `W -= eta (g + momentum v)` after Nesterov.
    Gradient {
        /// In `[0, 1)`.
        momentum: f64,
        /// Whether to look ahead.
        nesterov: bool,
    },
    /// Kingma and Ba, ICLR 2015: moments with bias correction.
    Adam {
        /// Decay of the first moment, in `[0, 1)`.
        beta1: f64,
        /// Decay of the second moment, in `[0, 1)`.
        beta2: f64,
        /// Added to the square root of the second moment; with a correction, its least value.
        stabilizer: f64,
        /// Variance of the noise in one entry of the gradient, to be subtracted from the second
        /// moment (Tang, Shpilevskiy and Lecuyer, AAAI 2024); 0 for none.
        noise_variance: Option<f64>,
    },
}

/// Step sizes over time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Schedule {
    /// The same for every step.
    Constant,
    /// Divided by `t + 1`.
    Inverse,
    /// Falling to 0 at this step.
    Linear(u64),
}

impl Schedule {
    /// Factor of the step size at step `t`.
    pub fn factor(self, t: u64) -> f64 {
        match self {
            Self::Constant => 1.0,
            Self::Inverse => 1.0 / (t as f64 + 1.0),
            Self::Linear(horizon) => (1.0 - t as f64 / horizon as f64).max(0.0),
        }
    }
}

/// Weights with what the optimiser remembers. All of it is computed from noisy sums.
#[derive(Debug, Default, PartialEq)]
pub struct State {
    /// The weights after the last step.
    pub weights: Vec<f64>,
    /// Velocity, or first moment.
    pub first: Vec<f64>,
    /// Second moment; empty unless needed.
    pub second: Vec<f64>,
    /// Sum of the iterates that are averaged.
    pub sum: Vec<f64>,
    /// Number of iterates in the sum.
    pub averaged: u64,
    /// Steps taken.
    pub steps: u64,
}

impl State {
    /// Before the first step.
    ///
    /// # Errors
    /// No memory.
    pub fn new(len: usize, optimizer: Optimizer, averages: bool) -> Result<Self> {
        let remembers = !matches!(optimizer, Optimizer::Gradient { momentum: 0.0, .. });
        let adam = matches!(optimizer, Optimizer::Adam { .. });
        let room = |needed: bool| zeros(if needed { len } else { 0 });
        Ok(Self {
            weights: room(true)?,
            first: room(remembers)?,
            second: room(adam)?,
            sum: room(averages)?,
            averaged: 0,
            steps: 0,
        })
    }

    /// A copy.
    ///
    /// # Errors
    /// No memory.
    pub fn copy(&self) -> Result<Self> {
        Ok(Self {
            weights: copied(&self.weights)?,
            first: copied(&self.first)?,
            second: copied(&self.second)?,
            sum: copied(&self.sum)?,
            ..*self
        })
    }

    /// One step along `gradient`, which is overwritten.
    pub fn step(&mut self, optimizer: Optimizer, rate: f64, gradient: &mut [f64]) {
        match optimizer {
            Optimizer::Gradient { momentum, nesterov } => {
                if momentum > 0.0 {
                    for (v, g) in self.first.iter_mut().zip(gradient.iter_mut()) {
                        *v = momentum * *v + *g;
                        *g = if nesterov { *g + momentum * *v } else { *v };
                    }
                }
                for (w, g) in self.weights.iter_mut().zip(gradient) {
                    *w -= rate * *g;
                }
            }
            Optimizer::Adam {
                beta1,
                beta2,
                stabilizer,
                noise_variance,
            } => {
                let t = (self.steps + 1) as f64;
                let (unbias1, unbias2) = (1.0 - beta1.powf(t), 1.0 - beta2.powf(t));
                let moments = self.first.iter_mut().zip(&mut self.second);
                let all = moments.zip(gradient.iter()).zip(&mut self.weights);
                for (((m, v), g), w) in all {
                    *m = beta1 * *m + (1.0 - beta1) * g;
                    *v = beta2 * *v + (1.0 - beta2) * g * g;
                    let second = *v / unbias2;
                    let scale = match noise_variance {
                        Some(variance) => (second - variance).max(stabilizer * stabilizer).sqrt(),
                        None => second.sqrt() + stabilizer,
                    };
                    *w -= rate * (*m / unbias1) / scale;
                }
            }
        }
        self.steps += 1;
    }

    /// `W <- snap(keep W) - b noisy`, projected and snapped again: multiples of `step` throughout.
    ///
    /// `noisy` holds multiples of `step / b`, and `b` is a power of two, so that the difference is
    /// exact and the new weights are a function of the noisy numbers `keep W - b noisy` alone.
    pub fn snapped_step(
        &mut self,
        keep: f64,
        (b, step): (f64, f64),
        noisy: &[f64],
        radius: Option<f64>,
    ) {
        let inverse = 1.0 / step;
        let snap = |w: f64| (w * inverse).round() * step;
        for (w, g) in self.weights.iter_mut().zip(noisy) {
            *w = snap(keep * *w) - b * g;
        }
        if let Some(radius) = radius {
            self.project(radius);
            self.weights.iter_mut().for_each(|w| *w = snap(*w));
        }
        self.steps += 1;
    }

    /// Brings the weights back into the ball of this radius.
    pub fn project(&mut self, radius: f64) {
        let norm = self.weights.iter().map(|w| w * w).sum::<f64>().sqrt();
        if norm > radius {
            let factor = radius / norm;
            self.weights.iter_mut().for_each(|w| *w *= factor);
        }
    }

    /// Counts the present weights into the average.
    pub fn average(&mut self) {
        for (sum, w) in self.sum.iter_mut().zip(&self.weights) {
            *sum += w;
        }
        self.averaged += 1;
    }

    /// The average, or the last iterate if there is none.
    ///
    /// # Errors
    /// No memory.
    pub fn released(&self) -> Result<Vec<f64>> {
        if self.averaged == 0 {
            return copied(&self.weights);
        }
        let count = self.averaged as f64;
        mapped(&self.sum, |sum| sum / count)
    }
}
