//! From exact sums to noisy ones: the only place where noise meets data.

use crate::descent::exact_sum::{ExactSum, MAX_ROUNDED, ROUNDING};
use crate::records::store::ROW_GRID;

/// Layout of the sums, one for each score and column, the intercept's column last.
pub struct Places<'p> {
    /// Numbers of scores and of columns, the intercept included.
    pub shape: (usize, usize),
    /// Distances of the sums of neighbouring scores, and of neighbouring columns.
    pub strides: (usize, usize),
    /// Place of the first score's intercept, where those lie apart.
    pub intercepts: Option<usize>,
    /// The centre with the place of the first sum of coefficients, where rows have one.
    pub centre: Option<(&'p [f64], usize)>,
}

impl Places<'_> {
    /// Place of a sum.
    fn of(&self, score: usize, column: usize) -> usize {
        match self.intercepts {
            Some(first) if column + 1 == self.shape.1 => first + score,
            _ => score * self.strides.0 + column * self.strides.1,
        }
    }
}

/// Kind of numbers of the noise.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum NoiseKind {
    /// Whole multiples of a power of two.
    Grid(f64),
    /// Real numbers.
    Float,
    /// No noise: for baselines and tests.
    None,
}

/// Noise for one step, one number a weight.
#[derive(Debug, Clone, Copy)]
pub enum Noise<'n> {
    /// Whole multiples of this power of two.
    Grid(f64, &'n [i64]),
    /// Real numbers.
    Float(&'n [f64]),
    /// None, and no rounding.
    None,
}

/// `noisy = sum + noise`, sums rounded once to the grid of the noise.
pub fn add_noise(sum: &ExactSum, places: &Places<'_>, noise: Noise<'_>, noisy: &mut [f64]) {
    if let (None, Some((small, bound))) = (places.centre, sum.doubles()) {
        match noise {
            Noise::Grid(grid, steps) if sum.unit() <= grid && bound <= MAX_ROUNDED * grid => {
                let inverse = 1.0 / grid;
                for_each(places, (small, steps), noisy, |sum, steps| {
                    let rounded = (sum * inverse + ROUNDING) - ROUNDING;
                    // Both are integers far below 2^53.
                    (rounded + steps as f64) * grid
                });
                return;
            }
            Noise::Float(values) => {
                for_each(places, (small, values), noisy, |sum, noise| sum + noise);
                return;
            }
            Noise::None => {
                // Takes no memory.
                let none = vec![(); noisy.len()];
                for_each(places, (small, &none), noisy, |sum, ()| sum);
                return;
            }
            Noise::Grid(..) => {}
        }
    }
    let noisy_sum = noisy_sum(sum.unit(), noise);
    for_each_exact(sum, places, |at, units| noisy[at] = noisy_sum(units, at));
}

/// Returns a function of a sum in units of `unit`, and its place: the sum, rounded once to the grid
/// of the noise, plus the noise of that place.
pub fn noisy_sum(unit: f64, noise: Noise<'_>) -> impl Fn(i128, usize) -> f64 {
    let shift = match noise {
        Noise::Grid(grid, _) => exponent(unit) - exponent(grid),
        Noise::Float(_) | Noise::None => 0,
    };
    move |units, at| match noise {
        Noise::Grid(grid, steps) => near(rescaled(units, shift) + i128::from(steps[at])) * grid,
        Noise::Float(values) => near(units) * unit + values[at],
        Noise::None => near(units) * unit,
    }
}

/// The nearest double; of most sums without a call.
#[inline(always)]
fn near(whole: i128) -> f64 {
    i64::try_from(whole).map_or_else(|_| whole as f64, |short| short as f64)
}

/// Columns whose weights of all scores are met one after the other: they stay in the first-level
/// cache, whatever the layout.
pub const COLUMNS_TOGETHER: usize = 64;

/// `noisy = value(sum, noise)`, weight after weight.
#[inline(always)]
fn for_each<N: Copy>(
    places: &Places<'_>,
    (sums, noise): (&[f64], &[N]),
    noisy: &mut [f64],
    value: impl Fn(f64, N) -> f64,
) {
    let (scores, columns) = places.shape;
    let together = columns - usize::from(places.intercepts.is_some());
    for first in (0..together).step_by(COLUMNS_TOGETHER) {
        let count = COLUMNS_TOGETHER.min(together - first);
        for k in 0..scores {
            let own = k * columns + first..k * columns + first + count;
            let own = noisy[own.clone()].iter_mut().zip(&noise[own]);
            let sums = sums[places.of(k, first)..].iter();
            // Neighbours are met in vectors.
            if places.strides.1 == 1 {
                own.zip(sums).for_each(|((y, z), s)| *y = value(*s, *z));
            } else {
                let sums = sums.step_by(places.strides.1);
                own.zip(sums).for_each(|((y, z), s)| *y = value(*s, *z));
            }
        }
    }
    for k in 0..scores {
        for j in together..columns {
            let at = k * columns + j;
            noisy[at] = value(sums[places.of(k, j)], noise[at]);
        }
    }
}

/// Every sum in units, the centre's part subtracted.
pub fn for_each_exact(sum: &ExactSum, places: &Places<'_>, mut take: impl FnMut(usize, i128)) {
    let (scores, columns) = places.shape;
    for first in (0..columns).step_by(COLUMNS_TOGETHER) {
        let part = first..columns.min(first + COLUMNS_TOGETHER);
        for k in 0..scores {
            // Coefficients are multiples of `unit / ROW_GRID` and were scaled down, the centre is one
            // of `ROW_GRID`.
            let coefficients = places
                .centre
                .map(|(point, first)| (point, sum.integer(first + k)));
            for j in part.clone() {
                let mut units = sum.integer(places.of(k, j));
                if let Some((point, coefficients)) = coefficients
                    && let Some(m) = point.get(j)
                {
                    units -= coefficients * i128::from((m / ROW_GRID) as i64);
                }
                take(k * columns + j, units);
            }
        }
    }
}

/// Exponent of a power of two.
fn exponent(power: f64) -> i32 {
    libm::frexp(power).1 - 1
}

/// `units * 2^shift`, rounded to nearest where that is no integer, from the middle to even: what
/// doubles do, so that a sum has the same bits whether it was kept in doubles or in integers.
fn rescaled(units: i128, shift: i32) -> i128 {
    if shift >= 0 {
        units << shift.min(60)
    } else {
        let down = (-shift).min(120);
        let odd = (units >> down) & 1;
        (units + (1 << (down - 1)) - 1 + odd) >> down
    }
}

#[cfg(test)]
mod tests {
    use super::rescaled;

    // Proof: gradient_perturbation, "Clipped sums and their rounding"
    #[test]
    fn rescaling_rounds_to_nearest() {
        assert_eq!(rescaled(5, 3), 40);
        for units in -44_i32..=44 {
            let exact = (f64::from(units) / 8.0).round_ties_even();
            assert_eq!(rescaled(i128::from(units), -3) as f64, exact);
        }
    }
}
