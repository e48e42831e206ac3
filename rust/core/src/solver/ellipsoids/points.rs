//! The objective in svec coordinates: gradients, subgradients with an error bound, products with
//! the Hessian.

use crate::error::Result;
use crate::numeric::{ROUNDOFF, gamma};
use crate::runtime::interrupt::Interrupt;
use crate::runtime::memory::{mapped, with_capacity, zeros};
use crate::solver::ellipsoids::cone::{Cone, Split};
use crate::solver::ellipsoids::lifted::{Lifted, Work, share_state};
use crate::solver::ellipsoids::records::{Gradient, Hessian, Targets};
use crate::solver::smooth::newton_parts::norm;

/// The problem, its working memory and how often it was used.
pub struct Objective<'p> {
    /// Rows.
    pub lifted: &'p Lifted,
    /// Loss and targets.
    pub targets: &'p Targets,
    /// The feasible set.
    pub cone: Cone,
    /// lambda.
    pub regularization: f64,
    /// B.
    pub linear: &'p [f64],
    /// Bound of the subgradient's norm to reach: a distance of `target / regularization`.
    pub target: f64,
    double: Vec<Work<f64>>,
    single: Vec<Work<f32>>,
    /// Passes over the records for a gradient.
    pub gradients: u64,
    /// Passes over the records for a product with the Hessian.
    pub products: u64,
    interrupt: &'p dyn Interrupt,
}

/// `Z = W + N` with W (almost) positive semidefinite and N (almost) in the normal cone there.
pub struct EllipsoidPoint {
    /// The matrices, one for each ellipsoid.
    pub parts: Vec<Split>,
    /// W.
    pub weights: Vec<f64>,
    /// N.
    pub normal: Vec<f64>,
    /// `grad F(W) + lambda N`.
    pub residual: Vec<f64>,
    /// Its norm.
    pub norm: f64,
    /// Bound of how far the residual is from a subgradient at an exactly feasible point.
    pub error: f64,
    /// Distance of W from that point.
    pub offset: f64,
}

impl EllipsoidPoint {
    /// Bound of the distance of W from the minimiser, times `regularization`.
    pub fn bound(&self, regularization: f64) -> f64 {
        (self.norm + self.error + regularization * self.offset) * (1.0 + 1e-12)
    }
}

impl<'p> Objective<'p> {
    /// Takes working memory.
    ///
    /// # Errors
    /// No memory.
    pub fn new(
        lifted: &'p Lifted,
        targets: &'p Targets,
        cone: Cone,
        (regularization, target): (f64, f64),
        linear: &'p [f64],
        interrupt: &'p dyn Interrupt,
    ) -> Result<Self> {
        let states = targets.loss.scores;
        Ok(Self {
            double: lifted.workspace(states)?,
            single: lifted.workspace(states)?,
            lifted,
            targets,
            cone,
            regularization,
            linear,
            target,
            gradients: 0,
            products: 0,
            interrupt,
        })
    }

    /// Largest curvature that F can have.
    pub fn most_curvature(&self) -> f64 {
        let records = self.lifted.records as f64;
        (self.regularization + records * self.targets.loss.curvature()) * (1.0 + 1e-12)
    }

    /// Splits Z; negative parts are multiplied by `stretch`.
    ///
    /// # Errors
    /// An interrupt.
    pub fn split(&self, z: &[f64], stretch: f64) -> Result<Option<Vec<Split>>> {
        self.cone
            .split(z, stretch, self.lifted.pool(), self.interrupt)
    }

    /// `grad F(phi)`, the norm of its data's part and the sum of the records' norms.
    ///
    /// # Errors
    /// An interrupt.
    pub fn gradient(&mut self, phi: &[f64]) -> Result<(Vec<f64>, f64, f64)> {
        let mut total = zeros(phi.len())?;
        let map = (self.targets, &Gradient(self.targets));
        let work = &mut self.double;
        let sizes = (self.lifted).sweep(phi, map, work, &mut total, self.interrupt)?;
        self.gradients += 1;
        let data_norm = norm(&total);
        for ((g, w), b) in total.iter_mut().zip(phi).zip(self.linear) {
            *g = (*g + self.regularization * w) + b;
        }
        Ok((total, data_norm, sizes))
    }

    /// The point of a split matrix.
    ///
    /// # Errors
    /// An interrupt.
    pub fn point(&mut self, parts: Vec<Split>) -> Result<EllipsoidPoint> {
        let mut weights = with_capacity(self.linear.len())?;
        let mut normal = with_capacity(self.linear.len())?;
        for part in &parts {
            weights.extend_from_slice(&part.positive);
            normal.extend_from_slice(&part.negative);
        }
        let (mut residual, data_norm, sizes) = self.gradient(&weights)?;
        for (r, n) in residual.iter_mut().zip(&normal) {
            *r += self.regularization * n;
        }
        let offset = 1.001 * together(parts.iter().map(|part| part.positive_error));
        let outside = 1.001 * together(parts.iter().map(|part| part.negative_error));
        let rounding = self.rounding(norm(&weights), norm(&normal), data_norm, sizes);
        let length = residual.len() as f64;
        Ok(EllipsoidPoint {
            norm: norm(&residual) * (1.0 + 1e-12 + length * ROUNDOFF),
            error: 1.001
                * (rounding + self.most_curvature() * offset + self.regularization * outside),
            offset,
            parts,
            weights,
            normal,
            residual,
        })
    }

    /// Bound of the rounding error of a computed residual, in norm.
    fn rounding(&self, weights: f64, normal: f64, data_norm: f64, sizes: f64) -> f64 {
        // Three roundings of a lifted entry on top of a score's sum and a gradient's sum.
        let scores = 1.001 * gamma(self.lifted.size as f64 + 6.0) * weights;
        let loss = &self.targets.loss;
        let records = self.lifted.records as f64 * loss.gradient_error(scores, 1.001 * weights);
        // One more for the factor of a record.
        let sums = gamma(self.lifted.sum_depth() + 7.0) * sizes;
        let multiplied = self.regularization * (weights + normal);
        let rest = 4.0 * ROUNDOFF * (data_norm + multiplied + norm(self.linear));
        // The bounds themselves are computed: a thousandth covers all of that.
        1.001 * (records + sums + rest)
    }

    /// Prepares [`Self::product`] for the point whose gradient was computed last.
    pub fn fix_curvature(&mut self) {
        share_state(&self.double, &mut self.single);
    }

    /// Product of the loss's Hessian with `direction`, to single precision.
    ///
    /// # Errors
    /// An interrupt.
    pub fn product(&mut self, direction: &[f64]) -> Result<Vec<f64>> {
        let mut image = zeros(direction.len())?;
        let top = direction.iter().fold(0.0f64, |top, x| top.max(x.abs()));
        if !(top > 0.0 && top.is_finite()) {
            return Ok(image);
        }
        // Scaled into the range of single precision by a power of two.
        let exponent = libm::frexp(top).1;
        let (down, up) = (libm::ldexp(1.0, -exponent), libm::ldexp(1.0, exponent));
        let narrow = mapped(direction, |x| (x * down) as f32)?;
        let map = (self.targets, &Hessian(self.targets));
        let work = &mut self.single;
        (self.lifted).sweep(&narrow, map, work, &mut image, self.interrupt)?;
        self.products += 1;
        for x in &mut image {
            *x *= up;
        }
        Ok(image)
    }
}

/// Norm of parts with these norms.
fn together(norms: impl Iterator<Item = f64>) -> f64 {
    norms.map(|x| x * x).sum::<f64>().sqrt()
}
