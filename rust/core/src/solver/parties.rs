//! Many small problems in one call: every party's records are neighbouring rows of one matrix.
//!
//! One thread solves a problem from beginning to end, several of them side by side, so that results
//! do not depend on the number of threads. A problem's result is a function of its own rows, labels and numbers.

use crate::error::{Result, require};
use crate::rows::view::Rows;
use crate::runtime::interrupt::Interrupt;
use crate::runtime::memory::{collected, mapped};
use crate::runtime::tasks::each_problem;
use crate::solver::Fits;
use crate::solver::crammer_singer;
use crate::solver::projected_sgd;
use crate::solver::smooth::SmoothSettings;
use crate::solver::smooth::erm;
use std::ops::Range;

/// The parties' rows and labels.
#[derive(Debug, Clone)]
pub struct Parties<'a> {
    rows: Rows<'a>,
    labels: &'a [i64],
    ranges: Vec<Range<usize>>,
}

impl<'a> Parties<'a> {
    /// Party `i` has the rows from `offsets[i]` to before `offsets[i + 1]`.
    ///
    /// # Errors
    /// Rows that are not dense; labels that are not one for each row; offsets that do not rise from 0 to
    /// the number of rows.
    pub fn new(rows: Rows<'a>, labels: &'a [i64], offsets: &[i64]) -> Result<Self> {
        require(rows.is_dense(), "X", "expected a dense matrix")?;
        let message = "its length is not the number of rows of X";
        require(labels.len() == rows.n_rows(), "y", message)?;
        let ends = mapped(offsets, |o| usize::try_from(*o).unwrap_or(usize::MAX))?;
        let all = ends.first() == Some(&0) && ends.last() == Some(&rows.n_rows());
        let message = "expected numbers that rise from 0 to n_rows";
        require(all && ends.is_sorted(), "offsets", message)?;
        Ok(Self {
            rows,
            labels,
            ranges: collected(ends.windows(2).map(|ends| ends[0]..ends[1]))?,
        })
    }

    /// Number of parties.
    pub fn len(&self) -> usize {
        self.ranges.len()
    }

    /// True without parties.
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// `solve(party, rows, labels)` for every party, weights of `scores` rows each.
    fn each(
        &self,
        (scores, threads): (usize, usize),
        interrupt: &dyn Interrupt,
        solve: impl Fn(usize, Rows<'a>, &[i64], &dyn Interrupt) -> Result<Option<Vec<f64>>> + Sync,
    ) -> Result<Fits> {
        let size = scores.saturating_mul(self.rows.n_columns());
        let shape = (self.len(), size);
        let (weights, certified) = each_problem(shape, threads, interrupt, |i, interrupt| {
            let range = self.ranges[i].clone();
            let labels = &self.labels[range.clone()];
            // Checked when the parties were made.
            let Some(rows) = self.rows.dense_part(range) else {
                return Ok((None, false));
            };
            let found = solve(i, rows, labels, interrupt)?;
            let certified = found.is_some();
            Ok((found, certified))
        })?;
        Ok(Fits { weights, certified })
    }

    /// Refuses numbers that are not one for each party.
    fn check(&self, name: &'static str, numbers: &[f64]) -> Result<()> {
        let message = "expected one number for each party";
        require(numbers.len() == self.len(), name, message)
    }
}

/// Minimisers of smooth losses; `numbers` are each party's regularization and gradient tolerance,
/// in place of those in `settings`.
///
/// # Errors
/// As [`erm::solve`]; numbers that are not one for each party.
pub fn smooth(
    parties: &Parties<'_>,
    settings: &SmoothSettings,
    (regularizations, gradient_tols): (&[f64], &[f64]),
    interrupt: &dyn Interrupt,
) -> Result<Fits> {
    parties.check("regularizations", regularizations)?;
    parties.check("gradient_tols", gradient_tols)?;
    let numbers = (settings.loss.scores, settings.threads);
    parties.each(numbers, interrupt, |i, rows, labels, interrupt| {
        let own = SmoothSettings {
            regularization: regularizations[i],
            gradient_tol: gradient_tols[i],
            threads: 1,
            ..*settings
        };
        Ok(erm::solve_few_rows(rows, labels, &own, interrupt)?.weights)
    })
}

/// Crammer-Singer minimisers with the bits of single ones; `numbers` are each party's C and radius,
/// in place of those in `settings`.
///
/// # Errors
/// As [`crammer_singer::solve`]; numbers that are not one for each party.
pub fn crammer_singer(
    parties: &Parties<'_>,
    settings: &crammer_singer::CrammerSingerSettings,
    (costs, radii): (&[f64], &[f64]),
    interrupt: &dyn Interrupt,
) -> Result<Fits> {
    parties.check("C", costs)?;
    parties.check("radius", radii)?;
    let numbers = (settings.classes, settings.threads);
    parties.each(numbers, interrupt, |i, rows, labels, interrupt| {
        let own = crammer_singer::CrammerSingerSettings {
            cost: costs[i],
            radius: radii[i],
            threads: 1,
            ..*settings
        };
        Ok(crammer_singer::solve(rows, (labels, &[]), &own, interrupt)?.weights)
    })
}

/// Projected descents with the bits of single ones; each party's regularization and, where it has
/// fewer records than a batch, the number of its records take the place of those in `settings`.
///
/// # Errors
/// As [`projected_sgd::solve`], which wants a record of every party; numbers that are not one for
/// each party.
pub fn descents(
    parties: &Parties<'_>,
    settings: &projected_sgd::SgdSettings,
    regularizations: &[f64],
    threads: usize,
    interrupt: &dyn Interrupt,
) -> Result<Vec<f64>> {
    parties.check("regularizations", regularizations)?;
    let numbers = (settings.loss.scores, threads);
    let found = parties.each(numbers, interrupt, |i, rows, labels, interrupt| {
        let own = projected_sgd::SgdSettings {
            regularization: regularizations[i],
            batch: settings.batch.min(rows.n_rows()),
            ..*settings
        };
        let by_themselves = projected_sgd::Ownership::default();
        let found = projected_sgd::solve(rows, labels, by_themselves, &own, interrupt)?;
        Ok(Some(found.weights))
    })?;
    Ok(found.weights)
}
