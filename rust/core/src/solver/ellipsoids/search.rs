//! Semismooth Newton on the residual `R(Z) = grad F(P(Z)) + lambda (Z - P(Z))`, with accelerated
//! projected gradients where its steps fail.
//!
//! P is the projection on the cone. R vanishes exactly where P(Z) is the minimiser. With H the
//! Hessian of the loss and D the derivative of P at Z a step solves `(lambda + H D) s = -R(Z)`.
//! That operator is self-adjoint in the inner product `<a, D b>`, so conjugate gradients apply; in
//! the frame of the eigenvectors D is a diagonal.
//!
//! Each step accepted lowers `||R||` by a fixed factor. Where no length does, the accelerated
//! method of Nesterov for strongly convex functions runs until `||R||` is halved, which it does for
//! every convex problem.
//!
//! Qi and Sun, Math. Program. 58 (1993) (semismooth Newton); Nesterov, Introductory Lectures on
//! Convex Optimization (2004), section 2.2 (constant step, strong convexity).

use crate::error::Result;
use crate::runtime::memory::{collected, copied, filled, mapped, zeros};
use crate::simd::dot;
use crate::solver::ellipsoids::cone::Frame;
use crate::solver::ellipsoids::points::{EllipsoidPoint, Objective};
use crate::solver::smooth::newton_parts::add;

/// Largest relative residual of a Newton step.
const LOOSEST: f64 = 0.1;
/// Largest number of products of one Newton step.
const MAX_PRODUCTS: usize = 200;
/// Lengths of a Newton step that are tried.
const LENGTHS: [f64; 4] = [1.0, 0.5, 0.25, 0.125];
/// Share of the step's length by which the residual must shrink.
const DECREASE: f64 = 0.2;
/// Accelerated steps between two looks at the residual.
const LOOK_EVERY: u64 = 10;
/// Points that rounding may dominate before the search gives up.
const MAX_FLOOR_POINTS: u32 = 5;

/// The search.
pub struct ConeSearch<'o, 'p> {
    /// The problem.
    pub objective: &'o mut Objective<'p>,
    /// Passes over the records after which the search gives up.
    pub most_passes: u64,
}

impl ConeSearch<'_, '_> {
    /// Runs until the distance is certified, or cannot be. The last point, `None` where nothing finite
    /// was found, and whether its bound reaches the target.
    ///
    /// # Errors
    /// An interrupt, no memory.
    pub fn run(mut self) -> Result<(Option<EllipsoidPoint>, bool)> {
        let mut last = self.start()?;
        let mut floor_points = 0;
        while let Some(point) = last.take() {
            let certified = self.certified(&point);
            floor_points += u32::from(self.floored(&point));
            if certified || self.spent() || floor_points > MAX_FLOOR_POINTS {
                return Ok((Some(point), certified));
            }
            last = match self.newton(&point)? {
                Some(next) => Some(next),
                None => self.descend(&point)?,
            };
        }
        Ok((None, false))
    }

    fn certified(&self, point: &EllipsoidPoint) -> bool {
        point.bound(self.objective.regularization) <= self.objective.target
    }

    fn spent(&self) -> bool {
        self.objective.gradients + self.objective.products >= self.most_passes
    }

    /// Whether rounding dominates.
    fn floored(&self, point: &EllipsoidPoint) -> bool {
        let slack = point.error + self.objective.regularization * point.offset;
        point.norm <= 2.0 * slack
    }

    fn at(&mut self, z: &[f64], stretch: f64) -> Result<Option<EllipsoidPoint>> {
        let Some(parts) = self.objective.split(z, stretch)? else {
            return Ok(None);
        };
        let point = self.objective.point(parts)?;
        Ok(point.norm.is_finite().then_some(point))
    }

    /// The better one of 0 and the minimiser without data, `Z = -B / lambda`.
    fn start(&mut self) -> Result<Option<EllipsoidPoint>> {
        let shrink = -1.0 / self.objective.regularization;
        let free = mapped(self.objective.linear, |b| shrink * b)?;
        let free = self.at(&free, 1.0)?;
        if free.as_ref().is_some_and(|point| self.certified(point)) {
            return Ok(free);
        }
        let zero = self.at(&zeros(self.objective.linear.len())?, 1.0)?;
        let pick = match (&free, &zero) {
            (Some(free), Some(zero)) => free.norm < zero.norm,
            (free, _) => free.is_some(),
        };
        if pick {
            // The curvature in memory is that of the last point.
            let parts = free.map(|point| point.parts);
            return parts.map(|parts| self.objective.point(parts)).transpose();
        }
        Ok(zero)
    }

    /// A Newton step that lowers the residual, if any length does.
    fn newton(&mut self, point: &EllipsoidPoint) -> Result<Option<EllipsoidPoint>> {
        let step = self.direction(point)?;
        for length in LENGTHS {
            let mut z = copied(&point.weights)?;
            add(&mut z, 1.0, &point.normal);
            add(&mut z, length, &step);
            let Some(next) = self.at(&z, 1.0)? else {
                return Ok(None);
            };
            if self.certified(&next) || next.norm <= (1.0 - DECREASE * length) * point.norm {
                return Ok(Some(next));
            }
            if self.spent() {
                break;
            }
        }
        Ok(None)
    }

    /// Approximate solution of `(lambda + H D) s = -R`, by conjugate gradients in the frame of the
    /// eigenvectors. Where D vanishes the solution is known once the rest is: `s = r / lambda`.
    fn direction(&mut self, point: &EllipsoidPoint) -> Result<Vec<f64>> {
        self.objective.fix_curvature();
        let lambda = self.objective.regularization;
        let frames = Frames::of(point)?;
        let share = frames.shares(point.residual.len())?;
        let right = mapped(&point.residual, |r| -r)?;
        let mut residual = frames.enter(&right)?;
        let mut step = zeros(residual.len())?;
        // The relative residual at which the step counts as solved.
        let forcing = (0.3 * self.objective.target / point.norm).clamp(1e-4, LOOSEST);
        let goal = forcing * point.norm;
        let mut conjugate = copied(&residual)?;
        let mut moved = zeros(residual.len())?;
        weigh(&share, &residual, &mut moved);
        let mut energy = dot(&moved, &residual);
        for _ in 0..MAX_PRODUCTS {
            weigh(&share, &conjugate, &mut moved);
            let curved = self.objective.product(&frames.leave(&moved)?)?;
            let mut image = frames.enter(&curved)?;
            add(&mut image, lambda, &conjugate);
            let curvature = dot(&moved, &image);
            if !(curvature > 0.0 && energy > 0.0) {
                break;
            }
            let length = energy / curvature;
            add(&mut step, length, &conjugate);
            add(&mut residual, -length, &image);
            if open_norm(&residual, &share) <= goal || self.spent() {
                break;
            }
            weigh(&share, &residual, &mut moved);
            let next = dot(&moved, &residual);
            let keep = next / energy;
            energy = next;
            for (c, r) in conjugate.iter_mut().zip(&residual) {
                *c = r + keep * *c;
            }
        }
        for ((s, r), d) in step.iter_mut().zip(&residual).zip(&share) {
            if *d == 0.0 {
                *s += r / lambda;
            }
        }
        frames.leave(&step)
    }

    /// Accelerated projected gradients until the residual is halved.
    fn descend(&mut self, point: &EllipsoidPoint) -> Result<Option<EllipsoidPoint>> {
        let most = self.objective.most_curvature();
        let lambda = self.objective.regularization;
        let root = (lambda / most).sqrt();
        let momentum = (1.0 - root) / (1.0 + root);
        let mut last = copied(&point.weights)?;
        let mut ahead = copied(&last)?;
        for count in 1_u64.. {
            let (gradient, _, _) = self.objective.gradient(&ahead)?;
            add(&mut ahead, -1.0 / most, &gradient);
            let Some(parts) = self.objective.split(&ahead, most / lambda)? else {
                return Ok(None);
            };
            if count.is_multiple_of(LOOK_EVERY) || self.spent() {
                let next = self.objective.point(parts)?;
                let done = next.norm <= 0.5 * point.norm || self.floored(&next);
                if done || self.certified(&next) || self.spent() || !next.norm.is_finite() {
                    return Ok(next.norm.is_finite().then_some(next));
                }
                advance(&mut last, &mut ahead, &next.weights, momentum);
            } else {
                let size = last.len() / parts.len();
                for (part, at) in parts.iter().zip((0..).step_by(size)) {
                    let own = at..at + size;
                    let (last, ahead) = (&mut last[own.clone()], &mut ahead[own]);
                    advance(last, ahead, &part.positive, momentum);
                }
            }
        }
        Ok(None)
    }
}

/// `ahead = next + momentum (next - last)`, `last = next`.
fn advance(last: &mut [f64], ahead: &mut [f64], next: &[f64], momentum: f64) {
    for ((last, ahead), next) in last.iter_mut().zip(ahead).zip(next) {
        *ahead = next + momentum * (next - *last);
        *last = *next;
    }
}

/// `D a`.
fn weigh(share: &[f64], a: &[f64], out: &mut [f64]) {
    for ((out, share), a) in out.iter_mut().zip(share).zip(a) {
        *out = share * a;
    }
}

/// Norm of the residual where D does not vanish.
fn open_norm(residual: &[f64], share: &[f64]) -> f64 {
    let open = residual.iter().zip(share).filter(|(_, d)| **d > 0.0);
    open.map(|(r, _)| r * r).sum::<f64>().sqrt()
}

/// The frames of all ellipsoids; nothing is rotated without a cone.
struct Frames<'p>(Vec<Option<&'p Frame>>);

impl<'p> Frames<'p> {
    fn of(point: &'p EllipsoidPoint) -> Result<Self> {
        let frames = point.parts.iter().map(|part| part.frame.as_ref());
        Ok(Self(collected(frames)?))
    }

    fn shares(&self, len: usize) -> Result<Vec<f64>> {
        let mut shares = filled(len, 1.0)?;
        let parts = shares.chunks_exact_mut(len / self.0.len());
        for (part, frame) in parts.zip(&self.0) {
            if let Some(frame) = frame {
                part.copy_from_slice(&frame.share);
            }
        }
        Ok(shares)
    }

    fn rotated(
        &self,
        z: &[f64],
        rotate: impl Fn(&Frame, &[f64]) -> Result<Vec<f64>>,
    ) -> Result<Vec<f64>> {
        let mut all = copied(z)?;
        let parts = all.chunks_exact_mut(z.len() / self.0.len());
        for (part, frame) in parts.zip(&self.0) {
            if let Some(frame) = frame {
                part.copy_from_slice(&rotate(frame, part)?);
            }
        }
        Ok(all)
    }

    fn enter(&self, z: &[f64]) -> Result<Vec<f64>> {
        self.rotated(z, Frame::enter)
    }

    fn leave(&self, z: &[f64]) -> Result<Vec<f64>> {
        self.rotated(z, Frame::leave)
    }
}
