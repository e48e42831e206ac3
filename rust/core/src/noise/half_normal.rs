//! Rejection under the half-normal density, exactly.
//!
//! The area under a staircase above `exp(-x^2 / 2)` is cut into 8192 pieces of equal area, each
//! `1/32` wide. Most pieces lie wholly under the density: a point there is taken without a look at
//! its height. The pieces at the edge of the staircase, about 4 of 100, compare the height of the
//! point with the density: first with 62 bits and an error bound, then, where that leaves it open,
//! with as many digits as it takes. One piece stands for everything beyond the last cell. The
//! argument is the project's page `docs/proofs/grid_gaussian.md`.

use crate::noise::natural::Natural;

/// The sizes of a staircase and of the numbers that are compared with it.
///
/// [`Shipped`] draws. Tests run the same source with so few bits that every case can be tried.
pub trait Staircase {
    /// The cells, from 0 outwards.
    const CELL_TABLE: &'static [Cell];
    /// The code of each piece.
    const SLOTS: &'static [u8];
    /// Cells are `2^-WIDTH_BITS` wide.
    const WIDTH_BITS: u32;
    /// Bits of a position within a cell.
    const CELL_BITS: u32;
    /// A part of the tail is as wide as `2^PART_BITS` cells.
    const PART_BITS: u32;
    /// Numbers from here on are drawn again.
    const LIMIT: u32;
    /// Height of a piece, in units of `2^-UNIT_BITS`.
    const UNIT: u64;
    /// See [`Self::UNIT`].
    const UNIT_BITS: u32;
    /// Bits of a height when it is first compared, and of the fixed-point numbers of that comparison.
    const WORD_BITS: u32;
    /// Terms of the exponential series after the first, at most 11.
    const TERMS: usize;
    /// Squarings that bring an exponent into the reach of the series.
    const SQUARINGS: u32;
    /// More than the error of [`density`].
    const DENSITY_ERROR: u64;
    /// Sum of the error bounds of [`below_edge`], in units of `2^(2 - WORD_BITS)`.
    const MARGIN: u64;
    /// Bits of the comparison with no further digits.
    const PRECISION: usize;
    /// Halvings after which any exponent below `LIMIT^2 / 2` is below 1/2.
    const HALVINGS: usize;
    /// The error of [`wide_density`] is at most `2^WIDE_ERROR_BITS` of its units.
    const WIDE_ERROR_BITS: usize;

    /// Bits of a word that choose the piece.
    const SLOT_BITS: u32 = Self::SLOTS.len().ilog2();
    /// Number of cells.
    const CELLS: usize = Self::CELL_TABLE.len();
    /// Positions count in units of `2^-POSITION_BITS`.
    const POSITION_BITS: u32 = Self::WIDTH_BITS + Self::CELL_BITS;
    /// Cells that have sure pieces: they come first.
    const SURE_CELLS: usize = sure_cells(Self::CELL_TABLE);
    /// The code of the tail; codes below [`Self::SURE_CELLS`] are sure pieces of the cell of that
    /// number, the others edge pieces of cell `code - SURE_CELLS`.
    const TAIL: u8 = (Self::SURE_CELLS + Self::CELLS) as u8;
}

/// The staircase of all draws: its 129 cells end at 129/32 = 4.03125, and its pieces are of the
/// smallest height for which 8192 are enough.
#[derive(Debug, Clone, Copy)]
pub struct Shipped;

impl Staircase for Shipped {
    const CELL_TABLE: &'static [Cell] = &cells::<Self, 129>();
    const SLOTS: &'static [u8] = &slots::<Self, 8192>();
    const WIDTH_BITS: u32 = 5;
    const CELL_BITS: u32 = 50;
    const PART_BITS: u32 = 3;
    const LIMIT: u32 = 1024;
    const UNIT: u64 = 5241;
    const UNIT_BITS: u32 = 20;
    const WORD_BITS: u32 = 64;
    const TERMS: usize = 11;
    const SQUARINGS: u32 = 8;
    const DENSITY_ERROR: u64 = 1 << 11;
    const MARGIN: u64 = 1 << 12;
    const PRECISION: usize = 96;
    const HALVINGS: usize = 20;
    const WIDE_ERROR_BITS: usize = Self::HALVINGS + 3;
}

/// One cell of the staircase.
#[derive(Debug, Clone, Copy)]
pub struct Cell {
    /// Pieces wholly under the density.
    pub sure: u64,
    /// Pieces above those; `sure + edge` of them cover the density.
    pub edge: u64,
    /// The density at the left end in units of `2^(1 - WORD_BITS)`, less than `DENSITY_ERROR` off.
    pub density: u64,
}

const fn sure_cells(table: &[Cell]) -> usize {
    let mut n = 0;
    while n < table.len() && table[n].sure > 0 {
        n += 1;
    }
    n
}

/// `1/n!` in units of `2^-63`, rounded down.
const INVERSE_FACTORIALS: [u64; 12] = {
    let mut table = [1 << 63; 12];
    let mut n = 1;
    while n < table.len() {
        table[n] = table[n - 1] / n as u64;
        n += 1;
    }
    table
};

/// `exp(-r)` for `r` well below 1 (1/7 in [`Shipped`]) in units of `2^-WORD_BITS`, in units of
/// `2^(1 - WORD_BITS)`, less than 3 off.
///
/// By pairs of terms, and pairs of pairs: these do not wait for each other.
#[inline]
pub(crate) const fn exp_minus<S: Staircase>(r: u64) -> u64 {
    let square = product::<S>(r, r);
    let fourth = product::<S>(square, square);
    let last = four_terms::<S>(8, r, square);
    let rest = four_terms::<S>(4, r, square) + product::<S>(fourth, last);
    four_terms::<S>(0, r, square) + product::<S>(fourth, rest)
}

/// `a b`, one of them in units of `2^-WORD_BITS`, in those of the other, rounded down.
const fn product<S: Staircase>(a: u64, b: u64) -> u64 {
    ((a as u128 * b as u128) >> S::WORD_BITS) as u64
}

/// The terms `n` to `n + 3` of `exp(-r)`, divided by `r^n`, for an even `n`.
const fn four_terms<S: Staircase>(n: usize, r: u64, square: u64) -> u64 {
    let (first, second) = (two_terms::<S>(n, r), two_terms::<S>(n + 2, r));
    first + product::<S>(square, second)
}

const fn two_terms<S: Staircase>(n: usize, r: u64) -> u64 {
    inverse_factorial::<S>(n) - product::<S>(r, inverse_factorial::<S>(n + 1))
}

const fn inverse_factorial<S: Staircase>(n: usize) -> u64 {
    if n > S::TERMS {
        return 0;
    }
    INVERSE_FACTORIALS[n] >> (64 - S::WORD_BITS)
}

/// `exp(-y)` for `y` in units of `2^(SQUARINGS - WORD_BITS)`, in units of `2^(1 - WORD_BITS)`: the
/// squarings of `exp(-y / 2^SQUARINGS)`.
pub(crate) const fn density<S: Staircase>(y: u64) -> u64 {
    let mut value = exp_minus::<S>(y);
    let mut i = 0;
    while i < S::SQUARINGS {
        value = ((value as u128 * value as u128) >> (S::WORD_BITS - 1)) as u64;
        i += 1;
    }
    value
}

/// Half the square of the left end of cell `j`, as [`density`] takes it.
const fn half_square<S: Staircase>(j: usize) -> u64 {
    ((j * j) as u64) << (S::WORD_BITS - S::SQUARINGS - 2 * S::WIDTH_BITS - 1)
}

/// The `N` cells of a staircase.
pub(crate) const fn cells<S: Staircase, const N: usize>() -> [Cell; N] {
    let unit = S::UNIT << (S::WORD_BITS - 1 - S::UNIT_BITS);
    let mut table = [Cell {
        sure: 0,
        edge: 0,
        density: 0,
    }; N];
    let mut left = density::<S>(0);
    let mut j = 0;
    while j < N {
        let right = density::<S>(half_square::<S>(j + 1));
        let sure = right.saturating_sub(S::DENSITY_ERROR) / unit;
        let cover = (left + S::DENSITY_ERROR).div_ceil(unit);
        table[j] = Cell {
            sure,
            edge: cover - sure,
            density: left,
        };
        left = right;
        j += 1;
    }
    table
}

/// The codes of the `N` pieces of a staircase.
pub(crate) const fn slots<S: Staircase, const N: usize>() -> [u8; N] {
    let mut slots = [S::TAIL; N];
    let mut at = 0;
    let mut j = 0;
    while j < S::CELLS {
        let Cell { sure, edge, .. } = S::CELL_TABLE[j];
        let mut piece = 0;
        while piece < sure + edge {
            let code = if piece < sure { j } else { S::SURE_CELLS + j };
            slots[at] = code as u8;
            at += 1;
            piece += 1;
        }
        j += 1;
    }
    // The tail has exactly one piece: its height below depends on it.
    assert!(at + 1 == slots.len());
    slots
}

/// The height `(base + span v) UNIT / 2^shift` of a point, with `v` uniform in [0, 1).
#[derive(Debug, Clone, Copy)]
pub struct Height {
    /// Pieces below the point's strip.
    pub base: u64,
    /// Pieces of the strip.
    pub span: u64,
    /// [`Staircase::UNIT_BITS`] in the cells.
    pub shift: u32,
}

impl Height {
    /// The strip of the edge pieces of a cell.
    pub fn edge<S: Staircase>(cell: &Cell) -> Self {
        Self {
            base: cell.sure,
            span: cell.edge,
            shift: S::UNIT_BITS,
        }
    }

    /// The strip above part `i` of the tail, which begins `i` parts beyond the last cell.
    ///
    /// Part `i` has probability `2^-(i + 1)`, so the one piece of the tail, as large as any other
    /// and `2^PART_BITS` times as wide, is `2^-(PART_BITS + 1)` times as high above part 0 and half
    /// as high above each next one.
    pub fn tail<S: Staircase>(i: u32) -> Self {
        Self {
            base: 0,
            span: 1,
            shift: S::UNIT_BITS + S::PART_BITS + 1 + i,
        }
    }
}

/// Whether a point of the edge of cell `j` lies under the density, when 64 bits of its height tell.
///
/// Its distance from the left end of the cell is `offset` to `offset + 1` units of
/// `2^-POSITION_BITS`, its height [`Height::edge`] with `v` from `height` to `height + 1` units of
/// `2^-WORD_BITS`.
#[inline]
pub fn below_edge<S: Staircase>(j: usize, offset: u64, height: u64) -> Option<bool> {
    let cell = &S::CELL_TABLE[j];
    // With a the left end and d the offset, x^2/2 = a^2/2 + d (2a + d)/2.
    let twice = ((2 * j as u64) << S::CELL_BITS) + offset;
    let square = u128::from(offset) * u128::from(twice);
    let exponent = square >> (2 * S::POSITION_BITS + 1 - S::WORD_BITS);
    let ratio = exp_minus::<S>(exponent as u64);
    let density = ((u128::from(cell.density) * u128::from(ratio)) >> S::WORD_BITS) as u64;
    let base = (cell.sure * S::UNIT) << (S::WORD_BITS - 2 - S::UNIT_BITS);
    let part = (u128::from(cell.edge * S::UNIT) * u128::from(height)) >> (S::UNIT_BITS + 2);
    let height = base + part as u64;
    if height.abs_diff(density) < S::MARGIN {
        return None;
    }
    Some(height < density)
}

/// Whether a point lies under the density, with as many digits as it takes.
///
/// Like [`below_density_of`], with all digits that follow from `digit`.
#[cold]
pub fn below_density<S: Staircase>(
    x: u128,
    x_digits: &mut Vec<u32>,
    height: Height,
    v: u64,
    mut digit: impl FnMut() -> u32,
) -> bool {
    below_density_of::<S>(x, x_digits, height, v, |x, v| {
        x.push(digit());
        v.push(digit());
    })
}

/// Whether a point lies under the density, with as many digits as it takes.
///
/// The point is at `x` to `x + 1` units of `2^-POSITION_BITS`, below `LIMIT`, its height `height`
/// with `v` from `v` to `v + 1` units of `2^-WORD_BITS`. `extend` appends the next digit of each, in
/// base `2^32`, first that of `x`, to `x_digits` (empty at first), which belongs to the position from
/// then on.
#[cold]
pub fn below_density_of<S: Staircase>(
    x: u128,
    x_digits: &mut Vec<u32>,
    height: Height,
    v: u64,
    mut extend: impl FnMut(&mut Vec<u32>, &mut Vec<u32>),
) -> bool {
    let mut v_digits = Vec::new();
    // If the strip is 2^-i high, the first comparison that can decide has i more bits.
    let mut n = height.shift as usize / 32;
    loop {
        while x_digits.len() < n {
            extend(x_digits, &mut v_digits);
        }
        let density = wide_density::<S>(&Natural::from_digits(x, x_digits), n);
        let base = Natural::from_digits(u128::from(height.base) << S::WORD_BITS, &vec![0; n]);
        let v = Natural::from_digits(v.into(), &v_digits);
        let span = Natural::from_digits(height.span.into(), &[]);
        // In the units of the density.
        let unit = u128::from(S::UNIT) << (S::PRECISION - S::WORD_BITS as usize);
        let scale = Natural::from_digits(unit, &[]);
        let scaled = |h: &Natural| h.times(&scale).shifted_down(height.shift as usize);
        let low = scaled(&base.plus(&span.times(&v)));
        let high = low.plus(&scaled(&span)).plus(&Natural::power_of_two(1));
        let error = Natural::power_of_two(S::WIDE_ERROR_BITS);
        // The density falls by less than one unit of x over the unknown rest of x.
        let fall = Natural::power_of_two(S::PRECISION - S::POSITION_BITS as usize);
        if high <= density.minus(&error.plus(&fall)) {
            return true;
        }
        if low >= density.plus(&error) {
            return false;
        }
        n += 1;
    }
}

/// `exp(-x^2 / 2)` for `x` in units of `2^-(POSITION_BITS + 32 n)`, in units of `2^-(PRECISION + 32
/// n)`, at most `2^WIDE_ERROR_BITS` off.
pub(crate) fn wide_density<S: Staircase>(x: &Natural, n: usize) -> Natural {
    let precision = S::PRECISION + 32 * n;
    let one = Natural::power_of_two(precision);
    let from_units = 2 * (S::POSITION_BITS as usize + 32 * n) + 1 + S::HALVINGS;
    let r = x.times(x).shifted_down(from_units - precision);
    let mut sum = one.clone();
    for k in (1..=precision as u32 / 4).rev() {
        sum = one.minus(&r.times(&sum).shifted_down(precision).divided(k));
    }
    for _ in 0..S::HALVINGS {
        sum = sum.times(&sum).shifted_down(precision);
    }
    sum
}
