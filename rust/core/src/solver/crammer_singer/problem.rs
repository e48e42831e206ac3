//! The Crammer-Singer problem in the units of the solver.
//!
//! Primal, with `u_i` the row of record i (norm at most 1) and `V` the weights:
//!
//! ```text
//! P(V) = 1/2 ||V||_F^2 + C sum_i max_k (1[k != y_i] + <v_k - v_{y_i}, u_i>)
//! ```
//!
//! A row may have a weight of at most 1: then its C is that times the weight, here and below.
//!
//! Dual, over one point `c_i` of the simplex `{c >= 0, sum_k c_k = C}` for each row, with
//! `V(c) = sum_i (C e_{y_i} - c_i) u_i^T`:
//!
//! ```text
//! D(c) = -1/2 ||V(c)||_F^2 + sum_i (C - c_{i,y_i})        and        max D = min P.
//! ```
//!
//! With `G_ik = <v_k, u_i> - 1[k = y_i]` (margins shifted by one, so that nothing is rounded
//! against 1 when C is tiny) the duality gap at `V = V(c)` is a sum of non-negative terms:
//!
//! ```text
//! P(V(c)) - D(c) = sum_i sum_k c_ik (max_l G_il - G_ik).
//! ```
//!
//! Crammer and Singer, JMLR 2 (2001); the dual in the variables `alpha_i = C e_{y_i} - c_i` is that
//! of Keerthi et al., KDD 2008.
//!
//! | here | paper |
//! |---|---|
//! | `weights` V | M, w |
//! | `dual` c | C e_y - alpha |
//! | `cost` | C |
//! | `gradient` G | g |

use crate::error::{Result, require};
use crate::rows::clip::sum_of_squares;
use crate::rows::labels::{check_labels, check_weights};
use crate::rows::shuffled::Store;
use crate::rows::view::Rows;
use crate::runtime::interrupt::Interrupt;
use crate::runtime::memory::{collected, mapped, matrix};
use crate::runtime::threads::{PARALLEL_ENTRIES, pool_above};
use crate::simd::{Kernel, Simd, dispatch};
use rayon::ThreadPool;
use std::sync::Arc;

/// Settings of the solver; plain public numbers.
#[derive(Debug, Clone, Copy)]
pub struct CrammerSingerSettings {
    /// Number of classes, at least 2.
    pub classes: usize,
    /// C of the objective, in the user's units.
    pub cost: f64,
    /// Distance to the minimiser that must be certified, in the user's units.
    pub radius: f64,
    /// Most passes over the data; `None` runs until certified.
    pub max_passes: Option<u64>,
    /// Public seed of the order in which rows are visited.
    pub seed: u64,
    /// Threads; the result does not depend on it.
    pub threads: usize,
    /// Keep no working copy of the rows.
    pub low_memory: bool,
}

/// A problem ready to be solved.
pub struct Problem<'a> {
    /// Rows in the solver's order.
    pub store: Store<'a>,
    /// Class of each row.
    pub label: Vec<u32>,
    /// `||u_i||^2`, rounded.
    pub square: Vec<f64>,
    /// Number of classes.
    pub classes: usize,
    /// Multiplications of the scores of a row, on average.
    pub touched: usize,
    /// Entries of a row, the intercept included.
    pub columns: usize,
    /// C in the solver's units: `C 4^e`.
    pub cost: f64,
    /// C of each row, times its weight; nothing where all weights are 1.
    pub costs: Vec<f64>,
    /// Radius in the solver's units: `radius 2^e`.
    pub radius: f64,
    /// Weights in the user's units are the solver's times this, a power of two.
    pub unscale: f64,
    /// Pool for the parallel passes; `None` for one thread or a small problem.
    pub pool: Option<Arc<ThreadPool>>,
}

impl<'a> Problem<'a> {
    /// Checks the settings, then reads the rows.
    ///
    /// # Errors
    /// Settings out of range, labels out of range, values not finite, no memory, interrupt.
    pub fn new(
        rows: Rows<'a>,
        (labels, weights): (&[i64], &[f64]),
        settings: &CrammerSingerSettings,
        interrupt: &dyn Interrupt,
    ) -> Result<Self> {
        let (cost, radius, unscale) = scaled(&rows, settings)?;
        let classes = settings.classes;
        check_labels(labels, rows.n_rows(), classes)?;
        check_weights(weights, rows.n_rows())?;
        let columns = rows.n_columns();
        let entries = rows.n_rows().saturating_mul(columns);
        let pool = pool_above(settings.threads, entries, PARALLEL_ENTRIES)?;
        let (seed, low_memory) = (settings.seed, settings.low_memory);
        let (store, order) =
            Store::new(rows, classes, seed, low_memory, pool.as_deref(), interrupt)?;
        let label = mapped(&order, |i| labels[*i as usize] as u32)?;
        let mut square = dispatch(Squares {
            store: &store,
            rows: order.len(),
        })?;
        let own = if weights.is_empty() { &[][..] } else { &order };
        let costs = mapped(own, |i| cost * weights[*i as usize])?;
        // A row without weight adds as little as one of zeros.
        for (square, cost) in square.iter_mut().zip(&costs) {
            *square = if *cost == 0.0 { 0.0 } else { *square };
        }
        Ok(Self {
            touched: store.touched(classes),
            store,
            label,
            square,
            classes,
            columns,
            cost,
            costs,
            radius,
            unscale,
            pool,
        })
    }

    /// C of a row.
    #[inline(always)]
    pub fn cost_of(&self, row: usize) -> f64 {
        self.costs.get(row).copied().unwrap_or(self.cost)
    }

    /// Number of rows.
    pub fn len(&self) -> usize {
        self.label.len()
    }

    /// The dual start: V = 0, every row at the vertex of its own class. A row of zeros never
    /// moves V and is optimal at any other vertex.
    ///
    /// # Errors
    /// No memory.
    pub fn start(&self) -> Result<Vec<f64>> {
        let mut dual = matrix(self.len(), self.classes)?;
        for (i, row) in dual.chunks_exact_mut(self.classes).enumerate() {
            let own = self.label[i] as usize;
            let class = if self.square[i] > 0.0 {
                own
            } else {
                (own + 1) % self.classes
            };
            row[class] = self.cost_of(i);
        }
        Ok(dual)
    }
}

/// `||u_i||^2` of every row.
struct Squares<'p, 'a> {
    store: &'p Store<'a>,
    rows: usize,
}

impl Kernel for Squares<'_, '_> {
    type Output = Result<Vec<f64>>;

    #[inline(always)]
    fn run<S: Simd>(self, _simd: S) -> Result<Vec<f64>> {
        let mut buffer = self.store.buffer()?;
        let square = |at| sum_of_squares(self.store.row(at, &mut buffer).value, 1.0);
        collected((0..self.rows).map(square))
    }
}

/// Cost, radius and unscaling in the solver's units; powers of two, so exact.
fn scaled(rows: &Rows<'_>, settings: &CrammerSingerSettings) -> Result<(f64, f64, f64)> {
    let accepted = 1e-100..=1e100;
    let exponent = rows.bounds().exponent();
    let cost = libm::ldexp(settings.cost, 2 * exponent);
    let radius = libm::ldexp(settings.radius, exponent);
    let right = (2..=u32::MAX as usize).contains(&settings.classes);
    require(right, "classes", "expected at least 2")?;
    let message = "C and C * data_norm^2 must lie between 1e-100 and 1e100";
    let right = accepted.contains(&settings.cost) && accepted.contains(&cost);
    require(right, "C", message)?;
    // Below a millionth of C the certificate would ask for more than double precision can tell.
    let message = "too small to be certified in double precision";
    require(radius >= 1e-7 * cost && radius.is_finite(), "tol", message)?;
    Ok((cost, radius, libm::ldexp(1.0, -exponent)))
}
