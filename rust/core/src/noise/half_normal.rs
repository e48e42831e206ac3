//! Rejection under the half-normal density, exactly.
//!
//! The area under a staircase above `exp(-x^2 / 2)` is cut into 8192 pieces of equal area, each
//! `1/32` wide and [`UNIT`] high. Most pieces lie wholly under the density: a point there is taken
//! without a look at its height. The pieces at the edge of the staircase, about 4 of 100, compare
//! the height of the point with the density: first with 62 bits and an error bound, then, where
//! that leaves it open, with as many digits as it takes. One piece stands for everything beyond the
//! last cell. The argument is the project's page `docs/proofs/grid_gaussian.md`.

use crate::noise::natural::Natural;

/// Bits of a word that choose the piece.
pub const SLOT_BITS: u32 = 13;

/// Cells are `2^-WIDTH_BITS` wide.
pub const WIDTH_BITS: u32 = 5;

/// Number of cells: they end at 129/32 = 4.03125.
pub const CELLS: usize = 129;

/// Bits of a position within a cell.
pub const CELL_BITS: u32 = 50;

/// Positions count in units of `2^-POSITION_BITS`.
pub const POSITION_BITS: u32 = WIDTH_BITS + CELL_BITS;

/// Height of a piece, in units of `2^-UNIT_BITS`: the smallest for which 8192 pieces are enough.
pub const UNIT: u64 = 5241;

/// See [`UNIT`].
pub const UNIT_BITS: u32 = 20;

/// One cell `[j, j + 1) / 32` of the staircase.
#[derive(Debug, Clone, Copy)]
pub struct Cell {
    /// Pieces wholly under the density.
    pub sure: u64,
    /// Pieces above those; `sure + edge` of them cover the density.
    pub edge: u64,
    /// The density at the left end in units of `2^-63`, at most `2^11` off.
    pub density: u64,
}

/// The cells, from 0 outwards.
pub static CELL_TABLE: [Cell; CELLS] = cells();

/// Cells that have sure pieces: they come first.
pub const SURE_CELLS: usize = {
    let table = cells();
    let mut n = 0;
    while n < CELLS && table[n].sure > 0 {
        n += 1;
    }
    n
};

/// The code of the tail; codes below [`SURE_CELLS`] are sure pieces of the cell of that number, the
/// others edge pieces of cell `code - SURE_CELLS`.
pub const TAIL: u8 = (SURE_CELLS + CELLS) as u8;

/// The code of each piece.
pub static SLOTS: [u8; 1 << SLOT_BITS] = slots();

/// Terms of the exponential series after the first.
const TERMS: usize = 11;

/// `1/n!` in units of `2^-63`, rounded down.
const INVERSE_FACTORIALS: [u64; TERMS + 1] = {
    let mut table = [1 << 63; TERMS + 1];
    let mut n = 1;
    while n <= TERMS {
        table[n] = table[n - 1] / n as u64;
        n += 1;
    }
    table
};

/// `exp(-r)` for `r < 1/7` in units of `2^-64`, in units of `2^-63`, less than 3 off.
#[inline]
const fn exp_minus(r: u64) -> u64 {
    let mut sum = INVERSE_FACTORIALS[TERMS];
    let mut n = TERMS;
    while n > 0 {
        n -= 1;
        sum = INVERSE_FACTORIALS[n] - ((r as u128 * sum as u128) >> 64) as u64;
    }
    sum
}

/// `exp(-y)` for `y` in units of `2^-56`, in units of `2^-63`: eight squarings of `exp(-y/256)`.
const fn density(y: u64) -> u64 {
    let mut value = exp_minus(y);
    let mut i = 0;
    while i < 8 {
        value = ((value as u128 * value as u128) >> 63) as u64;
        i += 1;
    }
    value
}

/// More than the error of [`density`].
const DENSITY_ERROR: u64 = 1 << 11;

/// `(j/32)^2 / 2` in units of `2^-56`.
const fn half_square(j: usize) -> u64 {
    ((j * j) as u64) << (56 - 2 * WIDTH_BITS - 1)
}

const fn cells() -> [Cell; CELLS] {
    let unit = UNIT << (63 - UNIT_BITS);
    let mut table = [Cell {
        sure: 0,
        edge: 0,
        density: 0,
    }; CELLS];
    let mut left = density(0);
    let mut j = 0;
    while j < CELLS {
        let right = density(half_square(j + 1));
        let sure = (right - DENSITY_ERROR) / unit;
        let cover = (left + DENSITY_ERROR).div_ceil(unit);
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

const fn slots() -> [u8; 1 << SLOT_BITS] {
    let table = cells();
    let mut slots = [TAIL; 1 << SLOT_BITS];
    let mut at = 0;
    let mut j = 0;
    while j < CELLS {
        let Cell { sure, edge, .. } = table[j];
        let mut piece = 0;
        while piece < sure + edge {
            let code = if piece < sure { j } else { SURE_CELLS + j };
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
    /// [`UNIT_BITS`] in the cells.
    pub shift: u32,
}

impl Height {
    /// The strip of the edge pieces of a cell.
    pub fn edge(cell: &Cell) -> Self {
        Self {
            base: cell.sure,
            span: cell.edge,
            shift: UNIT_BITS,
        }
    }

    /// The strip above part `i` of the tail, which lies from `(129 + 8 i) / 32` to `1/4` further.
    ///
    /// Part `i` has probability `2^-(i + 1)`, so the one piece of the tail, of area `UNIT / 2^25`,
    /// is `UNIT / 2^24` high above part 0 and half as high above each next one.
    pub fn tail(i: u32) -> Self {
        Self {
            base: 0,
            span: 1,
            shift: UNIT_BITS + WIDTH_BITS - 1 + i,
        }
    }
}

/// What the error bounds of [`below_edge`] add up to, in units of `2^-62`.
const MARGIN: u64 = 1 << 12;

/// Whether a point of the edge of cell `j` lies under the density, when 64 bits of its height tell.
///
/// Its distance from the left end of the cell is `offset` to `offset + 1` units of
/// `2^-POSITION_BITS`, its height [`Height::edge`] with `v` from `height` to `height + 1` units of
/// `2^-64`.
#[inline]
pub fn below_edge(j: usize, offset: u64, height: u64) -> Option<bool> {
    let cell = &CELL_TABLE[j];
    // With a the left end and d the offset, x^2/2 = a^2/2 + d (2a + d)/2.
    let twice = ((2 * j as u64) << CELL_BITS) + offset;
    let exponent = (u128::from(offset) * u128::from(twice)) >> (2 * POSITION_BITS + 1 - 64);
    let ratio = exp_minus(exponent as u64);
    let density = ((u128::from(cell.density) * u128::from(ratio)) >> 64) as u64;
    let base = (cell.sure * UNIT) << (62 - UNIT_BITS);
    let part = (u128::from(cell.edge * UNIT) * u128::from(height)) >> (64 + UNIT_BITS - 62);
    let height = base + part as u64;
    if height.abs_diff(density) < MARGIN {
        return None;
    }
    Some(height < density)
}

/// Halvings after which any exponent `x^2/2 < 2^19` is below 1/2.
const HALVINGS: usize = 20;

/// Whether a point lies under the density, with as many digits as it takes.
///
/// As [`below_density_of`], with all digits that follow from `digit`.
#[cold]
pub fn below_density(
    x: u128,
    x_digits: &mut Vec<u32>,
    height: Height,
    v: u64,
    mut digit: impl FnMut() -> u32,
) -> bool {
    below_density_of(x, x_digits, height, v, |x, v| {
        x.push(digit());
        v.push(digit());
    })
}

/// Whether a point lies under the density, with as many digits as it takes.
///
/// The point is at `x` to `x + 1` units of `2^-POSITION_BITS`, below 1024, its height `height` with
/// `v` from `v` to `v + 1` units of `2^-64`. `extend` appends the next digit of each, in base `2^32`,
/// first that of `x`, to `x_digits` (empty at first), which belongs to the position from then on.
#[cold]
pub fn below_density_of(
    x: u128,
    x_digits: &mut Vec<u32>,
    height: Height,
    v: u64,
    mut extend: impl FnMut(&mut Vec<u32>, &mut Vec<u32>),
) -> bool {
    let mut v_digits = Vec::new();
    // Where the strip is 2^-i high, the first comparison that can tell has i more bits.
    let mut n = height.shift as usize / 32;
    loop {
        while x_digits.len() < n {
            extend(x_digits, &mut v_digits);
        }
        let precision = 96 + 32 * n;
        let density = wide_density(&Natural::from_digits(x, x_digits), n);
        let base = Natural::from_digits(u128::from(height.base) << 64, &vec![0; n]);
        let v = Natural::from_digits(v.into(), &v_digits);
        let span = Natural::from_digits(height.span.into(), &[]);
        // In units of 2^-precision.
        let scale = Natural::from_digits(u128::from(UNIT) << 32, &[]);
        let scaled = |h: &Natural| h.times(&scale).shifted_down(height.shift as usize);
        let low = scaled(&base.plus(&span.times(&v)));
        let high = low.plus(&scaled(&span)).plus(&Natural::power_of_two(1));
        let error = Natural::power_of_two(HALVINGS + 3);
        // The density falls by less than one unit of x over the unknown rest of x.
        let fall = Natural::power_of_two(precision - POSITION_BITS as usize - 32 * n);
        if high <= density.minus(&error.plus(&fall)) {
            return true;
        }
        if low >= density.plus(&error) {
            return false;
        }
        n += 1;
    }
}

/// `exp(-x^2 / 2)` for `x` in units of `2^-(POSITION_BITS + 32 n)`, in units of `2^-(96 + 32 n)`, at
/// most `2^(HALVINGS + 3)` off.
fn wide_density(x: &Natural, n: usize) -> Natural {
    let precision = 96 + 32 * n;
    let one = Natural::power_of_two(precision);
    let from_units = 2 * (POSITION_BITS as usize + 32 * n) + 1 + HALVINGS;
    let r = x.times(x).shifted_down(from_units - precision);
    let mut sum = one.clone();
    for k in (1..=precision as u32 / 4).rev() {
        sum = one.minus(&r.times(&sum).shifted_down(precision).divided(k));
    }
    for _ in 0..HALVINGS {
        sum = sum.times(&sum).shifted_down(precision);
    }
    sum
}
