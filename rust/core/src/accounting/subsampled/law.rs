//! Privacy losses on a grid: laws that dominate the true ones.
//!
//! Between two neighbours of the grid, mass is split so that both laws of the pair keep their
//! mass ("connect the dots": the curve of the result interpolates the true one linearly in
//! `exp(epsilon)`). All masses are rounded up; `docs/proofs/accountant.md`, "Connect the dots".

use crate::Result;
use crate::accounting::subsampled::pair::{Pair, ULP};
use crate::runtime::interrupt::{Interrupt, poll};
use crate::runtime::memory;

/// Nodes in (0, 1) and weights of Gauss-Legendre quadrature, 3 and 6 points.
const COARSE: [[f64; 2]; 3] = [
    [0.112_701_665_379_258_31, 0.277_777_777_777_777_8],
    [0.5, 0.444_444_444_444_444_4],
    [0.887_298_334_620_741_7, 0.277_777_777_777_777_8],
];
const FINE: [[f64; 2]; 6] = [
    [0.033_765_242_898_423_99, 0.085_662_246_189_585_17],
    [0.169_395_306_766_867_74, 0.180_380_786_524_069_3],
    [0.380_690_406_958_401_55, 0.233_956_967_286_345_52],
    [0.619_309_593_041_598_5, 0.233_956_967_286_345_52],
    [0.830_604_693_233_132_3, 0.180_380_786_524_069_3],
    [0.966_234_757_101_576, 0.085_662_246_189_585_17],
];

/// A share of the largest width of a piece below which three nodes are enough.
const COARSE_SHARE: f64 = 0.02;

/// Largest part of one mass lost to underflow.
const LOST: f64 = 1e-300;

/// The law of a privacy loss on multiples of `step`, under the pair's first law.
#[derive(Debug, Clone)]
pub(super) struct GridLaw {
    pub(super) step: f64,
    /// The loss of `mass[i]` is `(first + i) step`.
    pub(super) first: i64,
    pub(super) mass: Vec<f64>,
    /// Mass whose loss is infinite.
    pub(super) infinite: f64,
    /// The true grid point lies at most this far above the nominal one.
    pub(super) drift: f64,
}

impl GridLaw {
    /// Loss of `mass[i]`.
    pub(super) fn loss(&self, i: usize) -> f64 {
        (self.first + i as i64) as f64 * self.step
    }
}

/// The same mass as atoms: natural logarithms of masses, and losses.
#[derive(Debug, Clone, Default)]
pub(super) struct Atoms {
    pub(super) log_mass: Vec<f64>,
    pub(super) loss: Vec<f64>,
    pub(super) infinite: f64,
}

impl Atoms {
    /// Largest and smallest loss.
    pub(super) fn span(&self) -> (f64, f64) {
        let least = self.loss.iter().copied().fold(f64::INFINITY, f64::min);
        let most = self.loss.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        (least, most)
    }

    /// Masses times `exp(tilt loss)` over the largest one, whose logarithm is returned with their sum.
    pub(super) fn tilted(&self, tilt: f64, weights: &mut Vec<f64>) -> (f64, f64) {
        let logs = self.log_mass.iter().zip(&self.loss);
        weights.clear();
        weights.extend(logs.map(|(mass, loss)| mass + tilt * loss));
        let largest = weights.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        for weight in &mut *weights {
            *weight = libm::exp(*weight - largest);
        }
        (largest, weights.iter().sum())
    }

    /// Everything is revealed with this probability, nothing otherwise.
    pub(super) fn revealing(probability: f64) -> Self {
        Self {
            log_mass: vec![libm::log1p(-probability).max(-750.0)],
            loss: vec![0.0],
            infinite: probability,
        }
    }

    /// Upper bound on `delta` at `epsilon`.
    pub(super) fn delta(&self, epsilon: f64) -> f64 {
        let mut sum = 0.0;
        for (&log_mass, &loss) in self.log_mass.iter().zip(&self.loss) {
            if loss > epsilon {
                let p = libm::exp(log_mass) * (1.0 + ULP * (8.0 + log_mass.abs()));
                sum += p * -libm::expm1(epsilon - loss);
            }
        }
        let rounding = ULP * (8.0 + self.loss.len() as f64);
        (sum * (1.0 + rounding) + self.infinite * (1.0 + rounding)).min(1.0)
    }

    /// The atoms split between the neighbours of the grid.
    pub(super) fn on_grid(&self, step: f64) -> Result<GridLaw> {
        let (least, most) = self.span();
        let first = (least / step).floor() as i64 - 1;
        let last = (most / step).ceil() as i64 + 1;
        let mut mass = memory::zeros::<f64>((last - first + 1) as usize)?;
        let width = libm::expm1(step);
        for (&log_mass, &loss) in self.log_mass.iter().zip(&self.loss) {
            let index = (loss / step).floor() as i64;
            let over = (loss - index as f64 * step).clamp(0.0, step);
            let share = (libm::expm1(over) / width).min(1.0);
            let p = libm::exp(log_mass) * (1.0 + ULP * (16.0 + log_mass.abs()));
            let at = (index - first) as usize;
            mass[at] += p * libm::exp(-over) * (1.0 - share) * (1.0 + 8.0 * ULP);
            mass[at + 1] += p * libm::exp(step - over) * share * (1.0 + 8.0 * ULP);
        }
        let drift = 4.0 * ULP * least.abs().max(most.abs());
        for value in &mut mass {
            *value *= 1.0 + 2.0 * drift + 4.0 * ULP * self.loss.len() as f64;
        }
        Ok(GridLaw {
            step,
            first,
            mass,
            infinite: self.infinite,
            drift,
        })
    }
}

/// A law in both directions of the relation.
#[derive(Debug, Clone)]
pub(super) struct Directions {
    pub(super) forward: GridLaw,
    /// `None`: the same as `forward`.
    pub(super) backward: Option<GridLaw>,
}

impl Directions {
    pub(super) fn one(&self, reversed: bool) -> &GridLaw {
        match &self.backward {
            Some(law) if reversed => law,
            _ => &self.forward,
        }
    }
}

/// Masses of one cell that go to its left and to its right end.
#[derive(Clone, Copy, Default)]
struct Split {
    left: f64,
    right: f64,
}

/// A cell that needs more pieces than this is cut off where the law ends.
const LONG: f64 = 64.0;

/// The part of a cell that is integrated, and a bound on the first law's mass in the rest of it.
///
/// What lies in the rest may go to both ends: under the first law it belongs to one of them, under
/// the second to the other, and there it weighs no more, because the ratio of the two is at least
/// that of the left end.
fn inside(pair: &Pair, left: f64, right: f64, ends: (f64, f64)) -> (f64, f64, f64) {
    let far = left.abs().max(right.abs());
    if right - left <= LONG * pair.piece(far) {
        return (left, right, 0.0);
    }
    let (start, end) = (left.max(ends.0), right.min(ends.1));
    let below = if start > left {
        pair.below(start).0
    } else {
        0.0
    };
    let above = if end < right { pair.above(end).0 } else { 0.0 };
    (start, end.max(start), below + above)
}

/// Calls `visit(offset, weight)` on quadrature nodes of `[0, width]`, offsets from `start`.
fn nodes(pair: &Pair, start: f64, width: f64, mut visit: impl FnMut(f64, f64)) {
    let far = start.abs().max((start + width).abs());
    let limit = pair.piece(far);
    if width <= COARSE_SHARE * limit {
        for [node, weight] in COARSE {
            visit(width * node, width * weight);
        }
        return;
    }
    let pieces = (width / limit).ceil().max(1.0);
    let piece = width / pieces;
    for index in 0..pieces as usize {
        let offset = index as f64 * piece;
        for [node, weight] in FINE {
            visit(offset + piece * node, piece * weight);
        }
    }
}

/// Mass of the cell between two positions; the law lies between `ends` but for its tails.
fn split(pair: &Pair, left: f64, right: f64, ends: (f64, f64)) -> Split {
    let width = right - left;
    if width <= 0.0 {
        return Split::default();
    }
    let (start, end, rest) = inside(pair, left, right, ends);
    let ahead = start - left;
    let places = (pair.place(left), pair.place(right));
    let whole = places.0.rise(&places.1, pair.scaled(width));
    let mut sum = Split::default();
    if whole <= 0.0 {
        // No double between the ends' ratios: all mass moves right.
        sum.right = pair.first_density(left).max(pair.first_density(right)) * width;
    } else {
        let mut all = 0.0;
        nodes(pair, start, end - start, |offset, weight| {
            let u = start + offset;
            let p = weight * pair.first_density(u);
            let here = pair.place(u);
            let done = places.0.rise(&here, pair.scaled(ahead + offset));
            let left_over = here.rise(&places.1, pair.scaled(width - ahead - offset));
            sum.left += p * left_over;
            sum.right += p * done / (1.0 + done);
            all += p;
        });
        sum.left /= whole;
        sum.right *= (1.0 + whole) / whole;
        if end - start < width {
            // Distances to a far end are known to roundoffs of the whole cell.
            sum.left += rest + 16.0 * ULP * all;
            sum.right += rest + 16.0 * ULP * all;
        }
    }
    let error = if whole > 0.0 && end - start < width {
        let far = left.abs().max(right.abs());
        pair.error_of_cut(start, end, far)
    } else {
        pair.error(left).max(pair.error(right))
    };
    sum.left *= 1.0 + error;
    sum.right *= 1.0 + error;
    sum
}

/// Mass of the cell up to `right` whose left end is a loss `left` that is not reached.
fn split_open(pair: &Pair, left: f64, right: f64, ends: (f64, f64)) -> Split {
    let (rate, rest, top) = pair.mixture(right);
    // 1 - q - exp(left), at least 0, and what its rounding is relative to.
    let least = libm::exp(left);
    let (gap, size) = if least < 0.5 * rest {
        (rest - least, rest)
    } else {
        ((-(rate + libm::expm1(left))).max(0.0), rate)
    };
    let reach = rate * libm::exp(top);
    let (highest, whole) = (rest + reach, gap + reach);
    let (mut sum, mut all) = (Split::default(), 0.0);
    let start = ends.0.min(right);
    let (_, end, beyond) = inside(pair, start, right, ends);
    nodes(pair, start, end - start, |offset, weight| {
        let u = start + offset;
        let p = weight * pair.first_density(u);
        let here = rate * libm::exp(pair.mixture(u).2);
        let ratio = rest + here;
        let to_go = pair.scaled(right - start - offset);
        sum.left += p * reach * -libm::expm1(-to_go) / whole * least / ratio;
        sum.right += p * (gap + here) / whole * highest / ratio;
        all += p;
    });
    let error = if end < right {
        pair.error_of_cut(start, end, right)
    } else {
        pair.error(start).max(pair.error(right))
    };
    let spread = 16.0 * ULP * (size / whole) * all * (highest / rest) + beyond;
    sum.left = (sum.left + spread) * (1.0 + error);
    sum.right = (sum.right + spread) * (1.0 + error);
    sum
}

/// The grid points of a pair and where they lie.
struct Grid {
    step: f64,
    first: i64,
    positions: Vec<f64>,
    drift: f64,
}

impl Grid {
    fn new(pair: &Pair, step: f64, first: i64, last: i64) -> Result<Self> {
        let mut drift = 0.0_f64;
        let mut positions = memory::with_capacity((last - first + 1) as usize)?;
        for index in first..=last {
            let loss = index as f64 * step;
            let u = pair.position(loss);
            drift = drift.max(pair.drift(loss, u));
            positions.push(u);
        }
        // Rounding must not turn two points around.
        for index in 1..positions.len() {
            positions[index] = positions[index].max(positions[index - 1]);
        }
        Ok(Self {
            step,
            first,
            positions,
            drift,
        })
    }

    /// Masses from the grid point `first` on, with what may have underflowed on top of `infinite`.
    fn law(&self, first: i64, mass: Vec<f64>, infinite: f64) -> GridLaw {
        GridLaw {
            step: self.step,
            first,
            mass,
            infinite: infinite + LOST * self.positions.len() as f64,
            drift: self.drift,
        }
    }
}

/// Both directions of one step on the grid; about `tail` of the mass may become infinite.
///
/// `step` has at most 26 significant bits, so that its multiples are exact.
pub(super) fn discretise(
    pair: &Pair,
    step: f64,
    tail: f64,
    interrupt: &dyn Interrupt,
) -> Result<Directions> {
    let (low, top) = pair.ends(tail);
    let last = (pair.loss(top) / step).ceil() as i64;
    let last = last.max(1);
    let natural = (pair.least_loss() / step).floor();
    let cut = (pair.loss(low) / step).floor();
    let first = if pair.replace { 0.0 } else { natural.max(cut) } as i64;
    let grid = Grid::new(pair, step, first, last)?;
    let n = grid.positions.len();
    let mut mass = memory::zeros::<f64>(n)?;
    for index in 0..n - 1 {
        poll(index, interrupt)?;
        let (left, right) = (grid.positions[index], grid.positions[index + 1]);
        let part = if right == f64::NEG_INFINITY {
            Split::default()
        } else if left == f64::NEG_INFINITY {
            let loss = (first + index as i64) as f64 * step;
            split_open(pair, loss, right, (low, top))
        } else {
            split(pair, left, right, (low, top))
        };
        mass[index] += part.left;
        mass[index + 1] += part.right;
    }
    if pair.replace {
        return mirrored(pair, &grid, &mass);
    }
    with_ends(pair, &grid, mass, low)
}

/// Adds what lies beyond the grid, in each direction to the side that is safe.
fn with_ends(pair: &Pair, grid: &Grid, mut mass: Vec<f64>, low: f64) -> Result<Directions> {
    let n = grid.positions.len();
    let grow = 1.0 + 4.0 * grid.drift + 8.0 * ULP;
    let mut reverse = memory::collected(mass.iter().enumerate().rev().map(|(i, p)| {
        let loss = (grid.first + i as i64) as f64 * grid.step;
        p * libm::exp(-loss) * grow
    }))?;
    for p in &mut mass {
        *p *= grow;
    }
    let (first_above, second_above) = pair.above(grid.positions[n - 1]);
    mass[n - 1] += first_above;
    reverse[0] += second_above;
    let open = grid.positions.iter().position(|&u| u > f64::NEG_INFINITY);
    let finite = open.unwrap_or(n - 1);
    let edge = if finite == 0 {
        grid.positions[0]
    } else {
        low.min(grid.positions[finite])
    };
    let (first_below, second_below) = pair.below(edge);
    mass[finite] += first_below;
    let mut infinite = 0.0;
    if finite == 0 {
        infinite = second_below;
    }
    reverse[n - finite.max(1)] += second_below;
    let last = grid.first + n as i64 - 1;
    Ok(Directions {
        forward: grid.law(grid.first, mass, first_above),
        backward: Some(grid.law(-last, reverse, infinite)),
    })
}

/// Both halves of the law of a pair that turns into itself when its laws change places, from the
/// masses at losses of at least 0.
fn mirrored(pair: &Pair, grid: &Grid, half: &[f64]) -> Result<Directions> {
    let n = half.len();
    let grow = 1.0 + 4.0 * grid.drift + 8.0 * ULP;
    let mut mass = memory::zeros::<f64>(2 * n - 1)?;
    for (index, p) in half.iter().enumerate() {
        let loss = index as f64 * grid.step;
        mass[n - 1 + index] += p * grow;
        mass[n - 1 - index] += p * libm::exp(-loss) * grow;
    }
    let (first_above, second_above) = pair.above(grid.positions[n - 1]);
    mass[2 * n - 2] += first_above;
    mass[0] += second_above;
    Ok(Directions {
        forward: grid.law(1 - n as i64, mass, first_above),
        backward: None,
    })
}

/// Upper bound on `delta` of a `replace_one` pair at `epsilon >= 0`, without a grid.
///
/// The integral of the first density times `1 - X(threshold) / X(u)` above the threshold.
pub(super) fn hockey_stick(pair: &Pair, epsilon: f64) -> f64 {
    let at = pair.position(epsilon);
    // So far to the left that the loss there is at most epsilon.
    let lowered = at - 16.0 * ULP * (at.abs() + pair.shift());
    let place = pair.place(lowered);
    let (_, top) = pair.ends(1e-300);
    let mut sum = 0.0;
    let mut done = 0.0;
    let mut far = pair.above(lowered).0;
    let mut largest_error = pair.error(lowered);
    while lowered + done < top && far > 1e-17 * sum {
        let width = pair.piece(lowered + done);
        for [node, weight] in FINE {
            let offset = done + width * node;
            let u = lowered + offset;
            let rise = place.rise(&pair.place(u), pair.scaled(offset));
            sum += weight * width * pair.first_density(u) * rise / (1.0 + rise);
        }
        done += width;
        far = pair.above(lowered + done).0;
        largest_error = largest_error.max(pair.error(lowered + done));
    }
    ((sum * (1.0 + largest_error) + far) * (1.0 + 8.0 * ULP)).min(1.0)
}
