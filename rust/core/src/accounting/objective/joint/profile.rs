//! The bound at many values of epsilon at once.
//!
//! For one choice of the free parameter the law of `w + X` does not depend on epsilon, and it is
//! most of the work. A range of epsilons is cut into blocks; each block has the choice that is best
//! in its middle, one law, and points at which the payoffs are shifted copies of each other.

use crate::Result;
use crate::accounting::objective::joint::in_range;
use crate::accounting::objective::joint::integral::SumLaw;
use crate::accounting::objective::joint::model::Model;
use crate::accounting::objective::joint::payoff::{Nodes, Payoff};
use crate::accounting::objective::joint::search::{BoundSearch, Detail, LARGEST_SCALE, Problem};
use crate::runtime::interrupt::Interrupt;
use crate::runtime::memory::with_capacity;

/// Longest block, in units of `t` for each record, and most blocks; fewer from [`MANY`] classes on,
/// where a choice takes a tenth of a second.
const BLOCK: f64 = 1.5;
const BLOCKS: f64 = 12.0;
const FEW_BLOCKS: f64 = 6.0;
const MANY: usize = 3000;

/// Distances of points are multiples of this, in units of `t`: of the step of every grid.
const UNIT: f64 = 0.004;

/// Nodes that the curved part of `psi` is cut into, at the first point of a block.
const NODES: f64 = 384.0;

/// Longest distance, in steps of the grid, of points that share a table.
const MAX_STEPS: usize = 1 << 16;

/// Bounds below this are as good as it.
const NOTHING: f64 = 1e-300;

/// Levels of the points of a block: the first one, their distance over [`UNIT`] `t`, their number.
#[derive(Clone, Copy)]
struct Levels {
    first: f64,
    stride: usize,
    count: usize,
}

/// Expected payoffs of one record at these levels; `None` if no bound is known.
fn payoffs(
    search: &mut BoundSearch<'_>,
    model: &Model,
    levels: Levels,
    beta: f64,
) -> Result<Option<Vec<f64>>> {
    let t = model.setting.t;
    let scale = model.theta / t;
    if !(levels.first > 0.0 && scale <= LARGEST_SCALE) {
        return Ok(None);
    }
    let competitors = model.setting.competitors;
    let grid = Detail::Fine.grid(scale, competitors);
    let steps = UNIT / grid.step;
    if steps < 0.5 || (steps - steps.round()).abs() > 1e-9 {
        // The points would lie elsewhere.
        return Ok(None);
    }
    let stride = levels.stride * steps.round() as usize;
    let level = |k: usize| levels.first + (k * stride) as f64 * (grid.step * t);
    let payoff = |k: usize| Payoff::new(model, level(k), beta, grid.step);
    let (Some(near), Some(far)) = (payoff(0), payoff(levels.count - 1)) else {
        return Ok(None);
    };
    let law = SumLaw::new(search, [&near, &far], competitors, scale, grid)?;
    let end = model.identity_from();
    let curved = (0..levels.count).take_while(|&k| level(k) < end).count();
    let mut found = with_capacity(levels.count)?;
    if curved > 0 {
        let range = (end - model.inverse(levels.first)) / t;
        let nodes = Nodes::new(model, range, NODES, grid.step);
        let means = law.means(&near, &nodes);
        for k in 0..curved {
            search.interrupt.check()?;
            let payoff = Payoff::on_nodes(model, level(k), beta, grid.step, &nodes);
            found.push(law.bound(&payoff, payoff.over_nodes(&means)));
        }
    }
    let mut done = curved;
    while done < levels.count {
        search.interrupt.check()?;
        if found.last().is_some_and(|&last| last <= NOTHING) {
            // A bound at one epsilon holds at all larger ones.
            found.resize(levels.count, NOTHING);
            break;
        }
        let Some(first) = payoff(done) else {
            return Ok(None);
        };
        let size = (1 + MAX_STEPS / stride).min(levels.count - done);
        let most = (size - 1) * stride;
        let table = law.table(&first, most);
        for k in 0..size {
            let moved = k * stride;
            let mean = law.mean(&table[most - moved..]);
            found.push(law.bound(&first.moved(moved), mean));
        }
        done += size;
    }
    Ok(Some(found))
}

/// The bounds of a block whose choice is best for `middle`; `first` is the first epsilon.
fn block(
    search: &mut BoundSearch<'_>,
    problem: &Problem,
    first: f64,
    stride: usize,
    count: usize,
) -> Result<Vec<f64>> {
    let nothing = Ok(vec![1.0; count]);
    let (choice, value) = search.best(problem)?;
    if value >= 1.0 {
        return nothing;
    }
    let model = Model::new(problem.setting, choice.share, choice.variant);
    let level = (first - model.offset).next_down();
    let levels = |first| Levels {
        first,
        stride,
        count,
    };
    if !problem.replace_one {
        return Ok(payoffs(search, &model, levels(level), 1.0)?.unwrap_or(vec![1.0; count]));
    }
    let middle = problem.epsilon - model.offset;
    let Some(shift) = search.shift(&model, middle)? else {
        return nothing;
    };
    let second = model.of_second_record();
    let one = payoffs(search, &model, levels(0.5 * level + shift), 0.5)?;
    let other = payoffs(search, &second, levels(0.5 * level - shift), 0.5)?;
    let (Some(one), Some(other)) = (one, other) else {
        return nothing;
    };
    let sums = one.iter().zip(&other).map(|(a, b)| (a + b).min(1.0));
    Ok(sums.collect())
}

/// Upper bounds as by [`crate::accounting::objective::joint::delta`] at about `count` epsilons from `low` to `high`, both ends
/// covered: pairs of increasing epsilons and bounds.
///
/// # Arguments
/// * `low`, `high`, `count` - positive, increasing; at least 2.
/// * the others - as for [`crate::accounting::objective::joint::delta`].
///
/// # Errors
/// [`crate::Error::Interrupted`].
#[expect(
    clippy::too_many_arguments,
    reason = "a range in the place of one epsilon"
)]
pub fn profile(
    low: f64,
    high: f64,
    count: usize,
    t: f64,
    kappa: f64,
    classes: usize,
    replace_one: bool,
    interrupt: &dyn Interrupt,
) -> Result<Vec<(f64, f64)>> {
    if !(in_range(low, t, kappa, classes) && in_range(high, t, kappa, classes)) {
        return Ok(vec![(low, 1.0), (high, 1.0)]);
    }
    let records = if replace_one { 2.0 } else { 1.0 };
    let unit = UNIT * t * records;
    let stride = ((high - low) / (count as f64 * unit)).round().max(1.0) as usize;
    let step = stride as f64 * unit;
    let total = ((high - low) / step).ceil().max(1.0) as usize + 1;
    let most = if classes < MANY { BLOCKS } else { FEW_BLOCKS };
    let blocks = ((high - low) / (BLOCK * t * records)).ceil();
    let blocks = blocks.clamp(1.0, most);
    let length = (total as f64 / blocks).ceil() as usize;
    let mut search = BoundSearch::new(interrupt);
    let mut found = with_capacity(total)?;
    for start in (0..total).step_by(length) {
        let size = length.min(total - start);
        let first = low + start as f64 * step;
        let middle = first + 0.5 * (size - 1) as f64 * step;
        let problem = Problem::new(middle, t, kappa, classes, replace_one);
        let bounds = block(&mut search, &problem, first, stride, size)?;
        for (k, bound) in bounds.into_iter().enumerate() {
            let at = first + k as f64 * step;
            // A little beyond its place, so that no rounding puts it in front of it.
            found.push((at * (1.0 + 16.0 * f64::EPSILON), bound));
        }
    }
    Ok(found)
}
