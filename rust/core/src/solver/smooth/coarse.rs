//! A preconditioner of sparse rows: the most frequent columns together, one vector for all others.
//!
//! A column met by few rows hardly moves the Hessian away from `lambda I`, and a scale is enough for it.
//! The few large eigenvalues come from the frequent columns and, where entries have one sign, from the
//! sum of all others. On the span of these the Hessian is inverted, with the curvature that all rows
//! have at weights of 0: so it is factored once, for all scores and steps.

use crate::error::Result;
use crate::linalg::cholesky::Cholesky;
use crate::rows::shuffled::Store;
use crate::runtime::interrupt::{Interrupt, poll};
use crate::runtime::memory::{collected, matrix, zeros};
use crate::simd::Real;
use crate::solver::smooth::newton_parts::norm;

/// Columns that are met together. More hardly saves products on text.
const FREQUENT: usize = 64;
/// Rows that the matrix is added up over: one in so many, and how many at least. They lie in random order.
const ROW_SHARE: usize = 8;
const MIN_ROWS: usize = 1 << 12;
/// Entries of a column on average from which this pays; and the share of the curvature that columns are
/// scaled by alone: it falls as the weights grow.
const MIN_ENTRIES: usize = 8;
const CURVATURE_SHARE: f64 = 0.5;
/// Scale of a column at least: it must not vanish in single precision.
const MIN_SCALE: f64 = 1e-20;
/// Curvature of a column over lambda up to which the matrix is safe from rounding.
const MAX_RATIO: f64 = 1e12;

/// Sums over the entries of a column.
#[derive(Debug, Clone, Copy, Default)]
pub struct ColumnSums {
    /// Sum of the entries.
    pub entries: f32,
    /// Sum of their squares.
    pub squares: f32,
}

/// `diag(scale)` outside the span, the inverse on it; both in units of 1 over lambda.
#[derive(Default)]
pub struct CoarseInverse {
    /// By place; 0 for columns that the inverse covers completely.
    scale: Vec<f64>,
    /// The vector of the other columns, of norm 1, by place; 1 for each frequent column.
    shares: Vec<f64>,
    frequent: usize,
    factor: Option<Cholesky>,
}

impl CoarseInverse {
    /// For columns by place, the most frequent first; `relative` is the curvature of a row over lambda.
    ///
    /// # Errors
    /// An interrupt, no memory.
    pub fn new(
        (store, n): (&Store<'_>, usize),
        sums: &[ColumnSums],
        relative: f64,
        interrupt: &dyn Interrupt,
    ) -> Result<Self> {
        let pays = !sums.is_empty() && n * store.touched(1) >= MIN_ENTRIES * sums.len();
        let relative = if pays { 1.0 } else { CURVATURE_SHARE } * relative;
        let scale = |sums: &ColumnSums| (1.0 + relative * f64::from(sums.squares)).recip();
        let mut scale = collected(sums.iter().map(|sums| scale(sums).max(MIN_SCALE)))?;
        let frequent = FREQUENT.min(sums.len());
        let mut shares =
            collected((sums.iter().zip(&scale)).map(|(s, x)| f64::from(s.entries) * x))?;
        let (own, others) = shares.split_at_mut(frequent);
        own.fill(1.0);
        let length = norm(others).max(f64::MIN_POSITIVE);
        for x in others {
            *x /= length;
        }
        let size = frequent + 1;
        let mut gram = matrix::<f64>(size, size)?;
        let rows = usize::from(pays) * n.min(MIN_ROWS.max(n / ROW_SHARE));
        let share = relative * n as f64 / rows.max(1) as f64;
        let mut buffer = store.buffer()?;
        let mut met = zeros::<(u32, f64)>(size)?;
        for at in 0..rows {
            poll(at, interrupt)?;
            let row = store.row(at, &mut buffer);
            let (mut known, mut rest) = (0, 0.0);
            for (place, x) in row.index.iter().zip(row.value) {
                let (x, own) = (f64::from(*x), (*place as usize) < frequent);
                rest += f64::from(u8::from(!own)) * x * shares[*place as usize];
                // Written in any case: a branch would be mispredicted.
                met[known] = (*place, x);
                known += usize::from(own);
            }
            met[known] = (frequent as u32, rest);
            for (i, (own, x)) in met[..=known].iter().enumerate() {
                let weight = share * x;
                for (other, y) in &met[..=i] {
                    let (low, high) = (*own.min(other) as usize, *own.max(other) as usize);
                    gram[low * size + high] += weight * y;
                }
            }
        }
        (0..size).for_each(|i| gram[i * (size + 1)] += 1.0);
        let safe = pays && scale.iter().all(|x| x * MAX_RATIO > 1.0);
        let factor = Cholesky::new(gram, size)?.filter(|_| safe);
        if factor.is_some() {
            scale[..frequent].fill(0.0);
        }
        Ok(Self {
            scale,
            shares,
            frequent,
            factor,
        })
    }

    /// Meets lines of `scores` numbers, in place.
    ///
    /// # Errors
    /// No memory.
    pub fn apply<T: Real>(&self, scores: usize, lines: &mut [T]) -> Result<()> {
        let size = self.frequent + 1;
        let mut solved = matrix::<f64>(size, scores)?;
        let part = |at: usize| at.min(self.frequent) * scores..(at.min(self.frequent) + 1) * scores;
        if let Some(factor) = &self.factor {
            for (at, (line, share)) in lines.chunks_exact(scores).zip(&self.shares).enumerate() {
                let sums = solved[part(at)].iter_mut().zip(line);
                sums.for_each(|(sum, x)| *sum += share * x.wide());
            }
            for score in 0..scores {
                let mut own = collected((0..size).map(|at| solved[at * scores + score]))?;
                factor.solve(&mut own)?;
                let places = solved[score..].iter_mut().step_by(scores);
                places.zip(&own).for_each(|(place, x)| *place = *x);
            }
        }
        let known = self.shares.iter().zip(&self.scale).enumerate();
        for (line, (at, (share, scale))) in lines.chunks_exact_mut(scores).zip(known) {
            for (x, solved) in line.iter_mut().zip(&solved[part(at)]) {
                *x = T::near(x.wide() * scale + share * solved);
            }
        }
        Ok(())
    }
}
