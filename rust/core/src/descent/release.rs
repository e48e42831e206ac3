//! From exact sums to noisy ones: the only place where noise meets data.

use crate::descent::exact_sum::{ExactSum, MOST_ROUNDED, ROUNDING};
use crate::records::store::ROW_GRID;

/// Where the sums lie: `position(score, column)`, the intercept's column last.
pub struct Places<'p, F> {
    /// Numbers of scores and of columns, the intercept included.
    pub shape: (usize, usize),
    /// Place of a sum.
    pub position: F,
    /// The centre with the place of the first sum of coefficients, where rows have one.
    pub centre: Option<(&'p [f64], usize)>,
}

/// What kind of numbers the noise is.
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
pub fn add_noise<F: Fn(usize, usize) -> usize>(
    sum: &ExactSum,
    places: &Places<'_, F>,
    noise: Noise<'_>,
    noisy: &mut [f64],
) {
    if let (None, Some((small, bound))) = (places.centre, sum.doubles()) {
        match noise {
            Noise::Grid(grid, steps) if sum.unit() <= grid && bound <= MOST_ROUNDED * grid => {
                let inverse = 1.0 / grid;
                for_each(places, noisy, |at, place| {
                    let rounded = (small[place] * inverse + ROUNDING) - ROUNDING;
                    // Both are integers far below 2^53.
                    (rounded + steps[at] as f64) * grid
                });
                return;
            }
            Noise::Float(values) => {
                for_each(places, noisy, |at, place| small[place] + values[at]);
                return;
            }
            Noise::None => {
                for_each(places, noisy, |_, place| small[place]);
                return;
            }
            Noise::Grid(..) => {}
        }
    }
    let noisy_sum = noisy_sum(sum.unit(), noise);
    for_each_exact(sum, places, |at, units| noisy[at] = noisy_sum(units, at));
}

/// What makes of a sum, in units of `unit`, that sum, rounded once to the grid of the noise, and the
/// noise of its place.
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
    i64::try_from(whole).map_or(whole as f64, |short| short as f64)
}

/// Columns whose weights of all scores are met one after the other: they stay in the first-level
/// cache, whatever the layout.
pub const COLUMNS_TOGETHER: usize = 64;

#[inline(always)]
fn for_each<F: Fn(usize, usize) -> usize>(
    places: &Places<'_, F>,
    noisy: &mut [f64],
    value: impl Fn(usize, usize) -> f64,
) {
    let (scores, columns) = places.shape;
    for first in (0..columns).step_by(COLUMNS_TOGETHER) {
        let part = first..columns.min(first + COLUMNS_TOGETHER);
        for k in 0..scores {
            for j in part.clone() {
                let at = k * columns + j;
                noisy[at] = value(at, (places.position)(k, j));
            }
        }
    }
}

/// Every sum in units, the centre's part subtracted.
pub fn for_each_exact<F: Fn(usize, usize) -> usize>(
    sum: &ExactSum,
    places: &Places<'_, F>,
    mut take: impl FnMut(usize, i128),
) {
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
                let mut units = sum.integer((places.position)(k, j));
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
        assert_eq!(rescaled(40, -3), 5);
        assert_eq!(rescaled(43, -3), 5);
        assert_eq!(rescaled(44, -3), 6);
        assert_eq!(rescaled(36, -3), 4);
        assert_eq!(rescaled(-44, -3), -6);
        assert_eq!(rescaled(-36, -3), -4);
        for units in -40_i32..=40 {
            let exact = (f64::from(units) / 8.0).round_ties_even();
            assert_eq!(rescaled(i128::from(units), -3) as f64, exact);
        }
        assert_eq!(rescaled(-43, -3), -5);
    }
}
