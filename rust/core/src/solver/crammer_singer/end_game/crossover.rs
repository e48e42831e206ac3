//! Fewer free coordinates without moving the weights.
//!
//! A step `s` of the duals that keeps every row's sum and solves `sum_i s_ik u_i = 0` for every
//! class leaves the weights where they are; the objective is linear along it, and only a bound
//! ends it. Such steps exist whenever more coordinates are free than the weights have entries, and
//! the Newton system finds them one at a time, at the price of a system over all coordinates each:
//! thousands of rows on a small lattice took hours. Here elimination finds many at once. Each is
//! followed, uphill, to the first bound, and the coordinate that vanished there is taken out of the
//! others. At the end no more coordinates are free than rows and entries of the weights together.
//!
//! This is the crossover from an inner point to a vertex of linear programming (Megiddo, ORSA J.
//! Computing 3 (1991)), on the face of the quadratic's equal weights.

use crate::error::Result;
use crate::runtime::interrupt::Interrupt;
use crate::runtime::memory::{copied, with_capacity, zeros};
use crate::solver::crammer_singer::problem::Problem;
use crate::solver::crammer_singer::simplex::settle;
use crate::solver::smooth::newton_parts::add;

/// Most entries of the weights: elimination costs their square for every free coordinate.
const LARGEST: usize = 400;
/// Steps up to which elimination takes moments.
const OVERFULL: usize = 2000;
/// Relative size below which an entry of an eliminated matrix, or of a step, counts as zero. Wrong
/// either way costs accuracy of the weights, which the caller computes afresh.
const ZERO: f64 = 1e-10;

/// Whether steps of `dual` (row-major) that move no weight are certain to exist and cheap to find.
pub fn is_worthwhile(problem: &Problem<'_>, dual: &[f64]) -> bool {
    let weights = problem.classes * problem.columns;
    weights <= LARGEST && all_steps(problem, dual) > weights
}

/// Whether there are so many such steps that finding them is slow.
pub fn is_overfull(problem: &Problem<'_>, dual: &[f64]) -> bool {
    all_steps(problem, dual) > OVERFULL.max(4 * problem.classes * problem.columns)
}

/// Independent steps that keep the rows' sums.
fn all_steps(problem: &Problem<'_>, dual: &[f64]) -> usize {
    dual.chunks_exact(problem.classes).map(own_steps).sum()
}

/// Independent steps among the positive entries of one row that keep its sum.
fn own_steps(c: &[f64]) -> usize {
    let free = c.iter().filter(|c| **c > 0.0).count();
    free.saturating_sub(1)
}

/// Moves `dual` (row-major, the rows `set` of the problem) until the free coordinates determine
/// the step that leaves the weights. `gradient` holds the derivative of the objective in each.
///
/// # Errors
/// Interrupt; no memory.
pub fn reduce(
    problem: &Problem<'_>,
    set: &[u32],
    dual: &mut [f64],
    gradient: &[f64],
    interrupt: &dyn Interrupt,
) -> Result<()> {
    let classes = problem.classes;
    let enough = 2 * classes * problem.columns;
    let (mut batch, mut steps) = (Vec::new(), 0);
    for i in 0..set.len() {
        let own = own_steps(&dual[i * classes..][..classes]);
        if own == 0 {
            continue;
        }
        batch.push(i);
        steps += own;
        if steps >= enough {
            empty(problem, set, &batch, dual, gradient, interrupt)?;
            let left = |i: &usize| own_steps(&dual[i * classes..][..classes]);
            batch.retain(|i| left(i) > 0);
            steps = batch.iter().map(left).sum();
        }
    }
    empty(problem, set, &batch, dual, gradient, interrupt)
}

/// Indices of the positive entries of row `i` in the duals.
fn free_entries(problem: &Problem<'_>, dual: &[f64], i: usize) -> impl Iterator<Item = usize> {
    let first = i * problem.classes;
    (first..first + problem.classes).filter(|at| dual[*at] > 0.0)
}

/// Follows every step of the free entries of the rows `batch` that moves no weight to a bound.
fn empty(
    problem: &Problem<'_>,
    set: &[u32],
    batch: &[usize],
    dual: &mut [f64],
    gradient: &[f64],
    interrupt: &dyn Interrupt,
) -> Result<()> {
    let count = |i: &usize| free_entries(problem, dual, *i).count();
    let most = batch.iter().map(count).sum();
    let mut entries: Vec<usize> = with_capacity(most)?;
    // Elementary steps: from a row's first free entry to another of its own.
    let mut moves: Vec<(usize, usize)> = with_capacity(most)?;
    let mut images: Vec<Vec<f64>> = with_capacity(most)?;
    for i in batch {
        let row = whole_row(problem, set[*i] as usize)?;
        let first = entries.len();
        entries.extend(free_entries(problem, dual, *i));
        let class = |at: usize| entries[at] % problem.classes;
        for at in first + 1..entries.len() {
            moves.push((first, at));
            images.push(image(problem, &row, class(first), class(at))?);
        }
    }
    let mut steps = null_steps(images, &moves, entries.len(), interrupt)?;
    while let Some(mut step) = steps.pop() {
        interrupt.check()?;
        let slope: f64 = step
            .iter()
            .zip(&entries)
            .map(|(s, entry)| s * gradient[*entry])
            .sum();
        if slope < 0.0 {
            for s in &mut step {
                *s = -*s;
            }
        }
        let Some(bound) = follow(&step, &entries, dual) else {
            continue;
        };
        for other in &mut steps {
            let ratio = other[bound] / step[bound];
            if ratio != 0.0 {
                add(other, -ratio, &step);
                other[bound] = 0.0;
            }
        }
    }
    for i in batch {
        let c = &mut dual[i * problem.classes..][..problem.classes];
        settle(c, problem.cost_of(set[*i] as usize));
    }
    Ok(())
}

/// Moves along `step` until the first entry reaches 0, and returns which.
fn follow(step: &[f64], entries: &[usize], dual: &mut [f64]) -> Option<usize> {
    let size = step.iter().fold(0.0, |size: f64, s| size.max(s.abs()));
    let mut first: Option<(usize, f64)> = None;
    for (at, (s, entry)) in step.iter().zip(entries).enumerate() {
        // An entry that hardly moves must not become a pivot.
        if *s < -ZERO * size {
            let length = -dual[*entry] / s;
            if first.is_none_or(|(_, least)| length < least) {
                first = Some((at, length));
            }
        }
    }
    let (bound, length) = first?;
    for (s, entry) in step.iter().zip(entries) {
        dual[*entry] = (dual[*entry] + length * s).max(0.0);
    }
    dual[entries[bound]] = 0.0;
    Some(bound)
}

/// All entries of a row.
fn whole_row(problem: &Problem<'_>, at: usize) -> Result<Vec<f64>> {
    let mut buffer = problem.store.buffer()?;
    let mut row = zeros(problem.columns)?;
    problem.store.row(at, &mut buffer).spread(&mut row);
    Ok(row)
}

/// Change of the weights if one unit of a row's dual moves from class `from` to class `to`.
fn image(problem: &Problem<'_>, row: &[f64], from: usize, to: usize) -> Result<Vec<f64>> {
    let columns = problem.columns;
    let mut image = zeros(problem.classes * columns)?;
    for (j, value) in row.iter().enumerate() {
        image[from * columns + j] = -value;
        image[to * columns + j] = *value;
    }
    Ok(image)
}

/// A basis of the combinations of elementary steps whose images cancel, each as a step of all
/// `n_entries` entries.
fn null_steps(
    mut images: Vec<Vec<f64>>,
    moves: &[(usize, usize)],
    n_entries: usize,
    interrupt: &dyn Interrupt,
) -> Result<Vec<Vec<f64>>> {
    let basis = eliminate(&mut images, interrupt)?;
    let mut basic = zeros::<bool>(moves.len())?;
    for (step, _) in &basis {
        basic[*step] = true;
    }
    let mut steps = with_capacity(images.len() - basis.len())?;
    for (free, image) in images.iter().enumerate().filter(|(at, _)| !basic[*at]) {
        let mut step = zeros(n_entries)?;
        let mut add = |at: usize, amount: f64| {
            let (from, to): (usize, usize) = moves[at];
            step[from] -= amount;
            step[to] += amount;
        };
        add(free, 1.0);
        for (at, row) in &basis {
            add(*at, -image[*row]);
        }
        steps.push(step);
    }
    Ok(steps)
}

/// Gauss-Jordan elimination with complete pivoting; `columns[j][i]` is entry (i, j). Afterwards
/// column j is the combination of the basic columns with the factors found in their pivots' rows.
/// Returns the basic columns with these rows.
fn eliminate(columns: &mut [Vec<f64>], interrupt: &dyn Interrupt) -> Result<Vec<(usize, usize)>> {
    let n_rows = columns.first().map_or(0, Vec::len);
    let mut basis: Vec<(usize, usize)> = with_capacity(n_rows.min(columns.len()))?;
    let mut row_used = zeros::<bool>(n_rows)?;
    let mut column_used = zeros::<bool>(columns.len())?;
    let mut first = 0.0;
    loop {
        interrupt.check()?;
        let (mut largest, mut pivot) = (0.0, (0, 0));
        for (j, column) in columns.iter().enumerate().filter(|(j, _)| !column_used[*j]) {
            for (i, value) in column.iter().enumerate() {
                if value.abs() > largest && !row_used[i] {
                    (largest, pivot) = (value.abs(), (j, i));
                }
            }
        }
        if basis.is_empty() {
            first = largest;
        }
        if largest <= ZERO * first {
            return Ok(basis);
        }
        let (at, row) = pivot;
        let scale = columns[at][row];
        let direction = copied(&columns[at])?;
        for (j, column) in columns.iter_mut().enumerate() {
            if j == at || column_used[j] || column[row] == 0.0 {
                continue;
            }
            let ratio = column[row] / scale;
            add(column, -ratio, &direction);
            column[row] = ratio;
        }
        row_used[row] = true;
        column_used[at] = true;
        basis.push((at, row));
    }
}

#[cfg(test)]
mod tests {
    use super::{eliminate, is_worthwhile, own_steps, reduce, whole_row};
    use crate::rows::view::{Layout, RowBounds, Rows, Values};
    use crate::runtime::interrupt::Never;
    use crate::solver::crammer_singer::problem::{CrammerSingerSettings, Problem};
    use rand::{RngExt, SeedableRng};
    use rand_chacha::ChaCha8Rng;

    const CLASSES: usize = 4;
    const COLUMNS: usize = 3;

    fn lattice(n: usize) -> Vec<f64> {
        let mut rng = ChaCha8Rng::seed_from_u64(5);
        (0..n * COLUMNS)
            .map(|_| f64::from(rng.random_range(0_u8..5)) / 8.0)
            .collect()
    }

    fn problem<'a>(x: &'a [f64], y: &[i64]) -> Problem<'a> {
        let bounds = RowBounds {
            data_norm: 1.0,
            intercept: 0.5,
        };
        let shape = (y.len(), COLUMNS);
        let rows = Rows::new(Values::F64(x), Layout::Dense, shape, bounds).unwrap();
        let settings = CrammerSingerSettings {
            classes: CLASSES,
            cost: 0.5,
            radius: 1e-3,
            max_passes: None,
            seed: 1,
            threads: 1,
            low_memory: false,
        };
        Problem::new(rows, (y, &[]), &settings, &Never).unwrap()
    }

    /// `sum_i c_ik u_i` of every class.
    fn sums(problem: &Problem<'_>, dual: &[f64]) -> Vec<f64> {
        let mut sums = vec![0.0; CLASSES * problem.columns];
        for (i, c) in dual.chunks_exact(CLASSES).enumerate() {
            let row = whole_row(problem, i).unwrap();
            for k in 0..CLASSES {
                for j in 0..problem.columns {
                    sums[k * problem.columns + j] += c[k] * row[j];
                }
            }
        }
        sums
    }

    #[test]
    fn weights_stay_and_few_coordinates_remain_free() {
        let x = lattice(90);
        let labels: Vec<i64> = (0..90).map(|i| i % CLASSES as i64).collect();
        let problem = problem(&x, &labels);
        let mut rng = ChaCha8Rng::seed_from_u64(6);
        let mut dual = Vec::new();
        for _ in 0..90 {
            let shares: Vec<f64> = (0..CLASSES).map(|_| rng.random::<f64>() + 0.01).collect();
            let sum: f64 = shares.iter().sum();
            dual.extend(shares.iter().map(|share| share * problem.cost / sum));
        }
        let gradient: Vec<f64> = (0..dual.len()).map(|_| rng.random::<f64>()).collect();
        let set: Vec<u32> = (0..90).collect();
        assert!(is_worthwhile(&problem, &dual));

        let before = dual.clone();
        reduce(&problem, &set, &mut dual, &gradient, &Never).unwrap();

        for (old, new) in sums(&problem, &before).iter().zip(sums(&problem, &dual)) {
            assert!((old - new).abs() < 1e-11 * problem.cost * 90.0);
        }
        for c in dual.chunks_exact(CLASSES) {
            assert!(c.iter().all(|c| *c >= 0.0));
            assert!((c.iter().sum::<f64>() - problem.cost).abs() < 1e-15);
        }
        let steps: usize = dual.chunks_exact(CLASSES).map(own_steps).sum();
        assert!(steps <= CLASSES * problem.columns, "{steps} steps remain");
        let gain: f64 = (0..dual.len())
            .map(|at| gradient[at] * (dual[at] - before[at]))
            .sum();
        assert!(gain > 0.1 * problem.cost, "gained {gain}");
        assert!(!is_worthwhile(&problem, &dual));
    }

    #[test]
    fn elimination_gives_every_column_by_the_basic_ones() {
        let mut rng = ChaCha8Rng::seed_from_u64(7);
        let mut number = || f64::from(rng.random_range(-4_i8..5));
        let factors: Vec<Vec<f64>> = (0..9).map(|_| (0..3).map(|_| number()).collect()).collect();
        let base: Vec<Vec<f64>> = (0..3).map(|_| (0..6).map(|_| number()).collect()).collect();
        let entry = |f: &[f64], i: usize| (0..3).map(|b| f[b] * base[b][i]).sum::<f64>();
        let column = |f: &Vec<f64>| (0..6).map(|i| entry(f, i)).collect::<Vec<_>>();
        let columns: Vec<Vec<f64>> = factors.iter().map(column).collect();
        let mut reduced = columns.clone();
        let basis = eliminate(&mut reduced, &Never).unwrap();
        assert_eq!(basis.len(), 3);
        for (j, column) in columns.iter().enumerate() {
            if basis.iter().any(|(basic, _)| *basic == j) {
                continue;
            }
            for i in 0..6 {
                let sum: f64 = basis
                    .iter()
                    .map(|(basic, row)| reduced[j][*row] * columns[*basic][i])
                    .sum();
                assert!((sum - column[i]).abs() < 1e-10);
            }
        }
    }
}
