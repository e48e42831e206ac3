//! Few rows of many entries, in coordinates of the space that they span.
//!
//! The minimiser lies in that space, so a problem of n rows has at most n unknowns a score. A pivoted
//! Cholesky factor of the Gram matrix gives the rows' coordinates; the search then runs on them, and
//! its result, taken back, is a start from which the full problem usually needs its certificate
//! only. Nothing here is relied on: the full problem's bound, rounding included, has the last word.

use crate::error::Result;
use crate::linalg::cholesky::pivoted;
use crate::linalg::gemm::Product;
use crate::rows::shuffled::Store;
use crate::runtime::interrupt::Interrupt;
use crate::runtime::memory::{copied, matrix, with_capacity};
use crate::solver::smooth::blocks::BlockPasses;
use crate::solver::smooth::newton_cg::NewtonSearch;
use crate::solver::smooth::problem::{Scaled, SmoothProblem, SmoothSettings};

/// Rows from which the Gram matrix costs more than it saves.
const MAX_ROWS: usize = 512;
/// Columns for each row from which coordinates pay.
const MIN_SHARE: usize = 2;
/// Entries of all rows at most: they are copied in double precision.
const MAX_ENTRIES: usize = 1 << 22;
/// Squared rests below this share of the longest row's are taken for rounding errors.
const MIN_PIVOT: f64 = 1e-10;
/// Share of the target that the search on coordinates leaves to their rounding.
const TARGET_SHARE: f64 = 0.5;

/// Rows `i` as `sum_t factor[i, t] e_t`, with orthonormal `e`; the pivots' part is triangular.
struct RowSpace {
    /// All entries, row after row.
    entries: Vec<f64>,
    /// `n x n`, of which the first `pivots.len()` columns are used.
    factor: Vec<f64>,
    /// Rows that were orthogonalised, in this order.
    pivots: Vec<usize>,
    columns: usize,
}

/// The minimiser over the rows' span in the units of the solver, score after score, columns as stored; nothing where
/// there are too many rows, or none that is not 0.
///
/// # Errors
/// No memory, an interrupt.
pub fn start(
    (store, order): (&Store<'_>, &[u32]),
    labels: &[i64],
    settings: &SmoothSettings,
    scaled: &Scaled,
    columns: usize,
    interrupt: &dyn Interrupt,
) -> Result<Option<Vec<f64>>> {
    let n = order.len();
    if n == 0 || n > MAX_ROWS || MIN_SHARE * n > columns || n * columns > MAX_ENTRIES {
        return Ok(None);
    }
    let space = RowSpace::new(store, n, columns)?;
    if space.pivots.is_empty() {
        return Ok(None);
    }
    let rank = space.pivots.len();
    let coordinates = Store::Dense {
        value: space.coordinates()?,
        columns: rank,
    };
    let scaled = Scaled {
        target: TARGET_SHARE * scaled.target,
        ..*scaled
    };
    let scores = settings.loss.scores;
    let passes = BlockPasses::new((&coordinates, &[]), None, n, (scores, rank))?;
    let rows = (order, labels, &[][..]);
    let problem = SmoothProblem::new(&passes, rows, None, &scaled, (rank, settings))?;
    let found =
        NewtonSearch::new(&problem, passes, &[], interrupt)?.run(None, settings.max_steps)?;
    found
        .weights
        .map(|weights| space.lift(&weights, scores))
        .transpose()
}

impl RowSpace {
    fn new(store: &Store<'_>, n: usize, columns: usize) -> Result<Self> {
        let mut entries = matrix(n, columns)?;
        let mut buffer = store.buffer()?;
        for (at, out) in entries.chunks_exact_mut(columns).enumerate() {
            store.row(at, &mut buffer).spread(out);
        }
        let mut gram = matrix(n, n)?;
        f64::times_transposed(&entries, &entries, &mut gram, (n, columns, n));
        let (factor, pivots) = pivoted(gram, n, MIN_PIVOT)?;
        Ok(Self {
            entries,
            factor,
            pivots,
            columns,
        })
    }

    /// The rows' coordinates, row after row.
    fn coordinates(&self) -> Result<Vec<f32>> {
        let (n, rank) = (self.entries.len() / self.columns, self.pivots.len());
        let mut coordinates = with_capacity(n * rank)?;
        for row in self.factor.chunks_exact(n) {
            coordinates.extend(row[..rank].iter().map(|x| *x as f32));
        }
        Ok(coordinates)
    }

    /// Weights of the coordinates as weights of the columns.
    ///
    /// The pivots are `P e` with `P` their triangular part, so `V e = (V P^-1) pivots`.
    fn lift(&self, weights: &[f64], scores: usize) -> Result<Vec<f64>> {
        let (rank, d) = (self.pivots.len(), self.columns);
        let n = self.entries.len() / d;
        let mut shares = matrix(rank, scores)?;
        let mut rows = with_capacity(rank * d)?;
        for pivot in &self.pivots {
            rows.extend_from_slice(&self.entries[pivot * d..][..d]);
        }
        for score in 0..scores {
            let mut rest = copied(&weights[score * rank..][..rank])?;
            for t in (0..rank).rev() {
                let line = &self.factor[self.pivots[t] * n..][..=t];
                let share = rest[t] / line[t];
                shares[t * scores + score] = share;
                for (rest, l) in rest.iter_mut().zip(&line[..t]) {
                    *rest -= share * l;
                }
            }
        }
        let mut lifted = matrix(scores, d)?;
        f64::add_transposed_times(&shares, &rows, &mut lifted, (rank, scores, d));
        Ok(lifted)
    }
}
