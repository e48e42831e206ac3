//! Parts of the truncated Newton search: points, working memory, and plain vectors.

use crate::error::Result;
use crate::runtime::memory::zeros;
use crate::simd::{Real, dot};

/// A point, its gradient and a bound on its error.
pub struct NewtonPoint {
    /// The point.
    pub weights: Vec<f64>,
    /// The computed gradient.
    pub gradient: Vec<f64>,
    /// Norm of the computed gradient.
    pub norm: f64,
    /// Bound of the error of the computed gradient, in norm.
    pub error: f64,
    /// Sum of the norms of the rows' gradients in score space.
    pub sizes: f64,
}

/// Vectors of one run of conjugate gradients.
#[derive(Default)]
pub struct Room<T> {
    /// The solution.
    pub x: Vec<T>,
    /// Residual of the linear system.
    pub residual: Vec<T>,
    /// The direction.
    pub conjugate: Vec<T>,
    /// The Hessian's product with it.
    pub image: Vec<T>,
    /// The preconditioner's with the residual.
    pub preconditioned: Vec<T>,
}

impl<T: Real> Room<T> {
    /// For vectors of `n` numbers.
    ///
    /// # Errors
    /// No memory.
    pub fn new(n: usize) -> Result<Self> {
        Ok(Self {
            x: zeros(n)?,
            residual: zeros(n)?,
            conjugate: zeros(n)?,
            image: zeros(n)?,
            preconditioned: zeros(n)?,
        })
    }

    /// Moves the solution by `step` along the direction; returns the norm of the new residual.
    pub fn advance(&mut self, step: f64) -> f64 {
        let (step, back) = (T::near(step), T::near(-step));
        let (x, x_rest) = self.x.as_chunks_mut::<CHAINS>();
        let (residual, residual_rest) = self.residual.as_chunks_mut::<CHAINS>();
        let (conjugate, conjugate_rest) = self.conjugate.as_chunks::<CHAINS>();
        let (image, image_rest) = self.image.as_chunks::<CHAINS>();
        let mut sums = [0.0; CHAINS];
        for (((x, r), c), q) in x.iter_mut().zip(residual).zip(conjugate).zip(image) {
            for chain in 0..CHAINS {
                x[chain] = x[chain].plus(step.times(c[chain]));
                r[chain] = r[chain].plus(back.times(q[chain]));
                sums[chain] += r[chain].wide() * r[chain].wide();
            }
        }
        let mut rest = 0.0;
        let ends = x_rest.iter_mut().zip(residual_rest);
        for (((x, r), c), q) in ends.zip(conjugate_rest).zip(image_rest) {
            *x = x.plus(step.times(*c));
            *r = r.plus(back.times(*q));
            rest += r.wide() * r.wide();
        }
        (sums.iter().sum::<f64>() + rest).sqrt()
    }
}

/// Sums kept apart, so that the loop runs in vectors.
const CHAINS: usize = 8;

/// Euclidean norm.
pub fn norm<T: Real>(a: &[T]) -> f64 {
    dot(a, a).sqrt()
}

/// `y += a x`.
pub fn add(y: &mut [f64], a: f64, x: &[f64]) {
    for (y, x) in y.iter_mut().zip(x) {
        *y += a * x;
    }
}
