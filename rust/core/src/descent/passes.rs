//! Common parts of passes over dense and sparse rows: the rule, the weights as read, scratch space.

use crate::descent::clipping::Clip;
use crate::descent::exact_leaf::Tile;
use crate::descent::gradients::{Lanes, Members, one_by_one, single};
use crate::descent::leaves::LEAF;
use crate::error::Result;
use crate::linalg::gemm::Product;
use crate::loss::smooth::SmoothLoss;
use crate::records::lift::LiftRoom;
use crate::records::store::Records;
use crate::runtime::memory::resize;
use std::ops::Range;

/// Single or double precision of the scores and of sums within a leaf.
pub trait Precision: Product {
    /// Turns the scores of a leaf into the coefficients of its contributions.
    #[inline(always)]
    fn gradients(
        rule: &Rule,
        members: Members<'_>,
        scores: &mut [[Self; LEAF]],
        room: (&mut [Self], &mut [f32]),
    ) {
        one_by_one(rule, members, scores, room);
    }
}

impl Precision for f32 {
    #[inline(always)]
    fn gradients(
        rule: &Rule,
        members: Members<'_>,
        scores: &mut [[Self; LEAF]],
        room: (&mut [Self], &mut [f32]),
    ) {
        single(rule, members, scores, room);
    }
}

impl Precision for f64 {}

/// Public numbers of a pass.
#[derive(Debug, Clone, Copy)]
pub struct Rule {
    /// The loss.
    pub loss: SmoothLoss,
    /// Bound on contributions.
    pub clip: Clip,
    /// Coefficients of sparse rows are multiples of this.
    pub coefficient_grid: f64,
}

impl Rule {
    /// Columns of the weights of rows with so many.
    #[inline(always)]
    pub fn columns(&self, features: usize) -> usize {
        features + usize::from(self.clip.intercept > 0.0)
    }
}

/// The weights as a pass reads them.
#[derive(Debug, Clone, Default)]
pub struct View<T> {
    /// `rho W` in the layout of the rows, without intercepts.
    pub w: Vec<T>,
    /// `rho s W` of the intercept, one a score.
    pub bias: Vec<T>,
    /// `rho W m` for the centre `m`, one a score.
    pub shift: Vec<T>,
}

/// Room for one leaf.
#[derive(Debug, Clone, Default)]
pub struct LeafScratch<T> {
    /// [`LEAF`] scores a class.
    pub(super) scores: Vec<T>,
    pub(super) label: Vec<u32>,
    pub(super) norm: Vec<f32>,
    pub(super) weight: Vec<f32>,
    pub(super) row: Vec<T>,
    pub(super) state: Vec<f32>,
    pub(super) rows: Vec<T>,
    pub(super) lifted: Vec<f32>,
    pub(super) lift: LiftRoom,
    /// Coefficients of the entries of rows, and of their intercepts: [`LEAF`] a class.
    pub(super) coefficient: Vec<f64>,
    pub(super) constant: Vec<f64>,
    /// Coefficients of the entries of one row, and zeros.
    pub(super) own_row: Vec<f64>,
    pub(super) tile: Tile,
    /// Sum of one person.
    pub(super) person: Vec<f64>,
    /// Coefficients of a person's rows, a line a class.
    pub(super) own: Vec<f64>,
    /// Factor of the coefficients of each row of a leaf, and another one for its entries.
    pub(super) factor: Vec<f64>,
    pub(super) stretch: Vec<f64>,
    /// The first `distinct` entries of `touched` are its columns so far. `place` maps a column to its
    /// index there plus `base`; a smaller value marks a new column. `slot` has the indices for one row.
    pub(super) touched: Vec<u32>,
    pub(super) distinct: usize,
    pub(super) base: u32,
    pub(super) place: Vec<u32>,
    pub(super) slot: Vec<u32>,
    /// Coefficients of the rows of a block, and what all add to the sums behind those of columns.
    pub(super) block: Vec<f64>,
    pub(super) ends: Vec<f64>,
    /// Bound on what they add to one sum.
    pub(super) booked: f64,
}

impl<T: Precision> LeafScratch<T> {
    /// Forgets the columns of all persons.
    pub(super) fn forget(&mut self) {
        self.place.fill(0);
        (self.base, self.distinct) = (1, 0);
    }

    /// Turns the scores of `members` into coefficients.
    #[inline(always)]
    pub(super) fn gradients(
        &mut self,
        rule: &Rule,
        records: &Records,
        members: impl Iterator<Item = usize> + Clone,
    ) -> Result<()> {
        let k = rule.loss.scores;
        let len = k.max(self.row.len());
        resize(&mut self.row, len)?;
        resize(&mut self.state, k)?;
        self.label.clear();
        self.norm.clear();
        self.weight.clear();
        self.label.extend(members.clone().map(|i| records.label[i]));
        self.norm.extend(members.clone().map(|i| records.norm[i]));
        if records.weighted() {
            self.weight.extend(members.map(|i| records.weight(i)));
        }
        self.norm.resize(LEAF, 1.0);
        let norm: &Lanes = self.norm.first_chunk().unwrap_or(&[1.0; LEAF]);
        let members = Members {
            label: &self.label,
            norm,
        };
        let scores = self.scores.as_chunks_mut().0;
        let room = (&mut self.row[..k], &mut self.state[..k]);
        T::gradients(rule, members, scores, room);
        // After the clip of a row, before that of a person: no product is longer than its factor.
        for line in scores.iter_mut() {
            for (c, weight) in line.iter_mut().zip(&self.weight) {
                *c = T::near(c.wide() * f64::from(*weight));
            }
        }
        Ok(())
    }
}

/// Rows of one person in a group.
pub(super) struct PersonPart {
    pub(super) person: usize,
    pub(super) rows: Range<usize>,
    /// Whether these are its last ones.
    pub(super) last: bool,
}

/// Rows of persons in groups of at most [`LEAF`]. Where a person is cut depends on its own number of
/// rows alone.
pub(super) struct Groups<'g> {
    records: &'g Records,
    persons: &'g [u32],
    /// Rows taken of the first of them.
    taken: usize,
    pub(super) members: Vec<u32>,
    pub(super) parts: Vec<PersonPart>,
}

impl<'g> Groups<'g> {
    pub(super) fn new(records: &'g Records, persons: &'g [u32]) -> Self {
        Self {
            records,
            persons,
            taken: 0,
            members: Vec::with_capacity(LEAF),
            parts: Vec::with_capacity(LEAF),
        }
    }

    /// Makes the next group, if there is one.
    pub(super) fn advance(&mut self) -> bool {
        self.members.clear();
        self.parts.clear();
        while let Some((person, others)) = self.persons.split_first() {
            let rows = self.records.person(*person as usize);
            let (first, before) = (rows.start + self.taken, self.members.len());
            if before > 0 && rows.end - first > LEAF - before {
                break;
            }
            let end = rows.end.min(first + LEAF);
            self.members.extend((first..end).map(|i| i as u32));
            let last = end == rows.end;
            self.parts.push(PersonPart {
                person: *person as usize,
                rows: before..self.members.len(),
                last,
            });
            if !last {
                self.taken += LEAF;
                break;
            }
            self.taken = 0;
            self.persons = others;
        }
        !self.members.is_empty()
    }
}

/// `x`, cut off beyond `most` and truncated to a multiple of `step`, a power of two.
#[inline(always)]
pub(super) fn truncated(x: f64, most: f64, (step, inverse): (f64, f64)) -> f64 {
    let short = if x > most { most } else { x };
    let short = if short < -most { -most } else { short };
    (short * inverse).trunc() * step
}
