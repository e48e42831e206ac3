//! The rejection under the half-normal density with so few bits that every case is tried: this very
//! source, at the sizes of small staircases. What is right is computed in doubles, and no case is so
//! close that their rounding would count.
//!
//! No height equals a density, so `<` and `<=` do not differ between the two.

use dpsvm_core::noise::GridScale;
use dpsvm_core::noise::first_look::Spare;
use dpsvm_core::noise::grid_sampler::{finish, look, point, tail_point};
use dpsvm_core::noise::half_normal::{
    Cell, Height, Shipped, Staircase, below_density, below_edge, cells, density, exp_minus, slots,
    wide_density,
};
use dpsvm_core::noise::natural::Natural;
use rand::TryRng;
use std::convert::Infallible;

/// What is wrong with a staircase: the tests must see each of these.
mod slip {
    pub const NONE: u32 = 0;
    /// The first comparison believes that nothing rounds.
    pub const NO_MARGIN: u32 = 1;
    /// So does the exact one.
    pub const NO_WIDE_ERROR: u32 = 2;
    /// Cells have the density of the cell after them.
    pub const NEXT_DENSITY: u32 = 3;
    /// One piece belongs to the next cell.
    pub const WRONG_PIECE: u32 = 4;
    /// The series ends too early.
    pub const SHORT_SERIES: u32 = 5;
    /// A piece of the edge of the first cell belongs to the second.
    pub const LOW_EDGE: u32 = 6;
    /// Parts of the tail are twice as wide as their heights are made for.
    pub const WIDE_PARTS: u32 = 7;
}

/// The bound of the proof page for [`density`].
const fn density_error<S: Staircase>() -> u64 {
    5 << S::SQUARINGS
}

/// The bound of the proof page for [`below_edge`]: density, ratio, product, fall, height.
const fn margin<S: Staircase>() -> u64 {
    let fall = (61 << (S::WORD_BITS - 2 - S::POSITION_BITS)) / 100 + 1;
    S::DENSITY_ERROR / 2 + 2 + 1 + fall + 2
}

const fn with_slip<const N: usize>(mut table: [Cell; N], slip: u32) -> [Cell; N] {
    let mut j = 0;
    while slip == slip::NEXT_DENSITY && j + 1 < N {
        table[j].density = table[j + 1].density;
        j += 1;
    }
    if slip == slip::LOW_EDGE {
        table[0].edge -= 1;
        table[1].edge += 1;
    }
    table
}

const fn pieces_with_slip<const N: usize>(mut slots: [u8; N], slip: u32) -> [u8; N] {
    if slip == slip::WRONG_PIECE {
        slots[0] += 1;
    }
    slots
}

macro_rules! staircase {
    (
        $name:ident: $cells:literal cells of 2^-$width:literal, $pieces:literal pieces of
        $unit:literal / 2^$unit_bits:literal, parts of 2^$part:literal cells,
        positions of $cell_bits:literal bits, words of $word_bits:literal,
        $squarings:literal squarings
    ) => {
        #[derive(Debug)]
        struct $name<const SLIP: u32 = { slip::NONE }>;

        impl<const SLIP: u32> Staircase for $name<SLIP> {
            const CELL_TABLE: &'static [Cell] = &with_slip(cells::<Self, $cells>(), SLIP);
            const SLOTS: &'static [u8] = &pieces_with_slip(slots::<Self, $pieces>(), SLIP);
            const WIDTH_BITS: u32 = $width;
            const CELL_BITS: u32 = $cell_bits;
            const PART_BITS: u32 = $part + (SLIP == slip::WIDE_PARTS) as u32;
            const LIMIT: u32 = 4;
            const UNIT: u64 = $unit;
            const UNIT_BITS: u32 = $unit_bits;
            const WORD_BITS: u32 = $word_bits;
            const TERMS: usize = if SLIP == slip::SHORT_SERIES { 1 } else { 8 };
            const SQUARINGS: u32 = $squarings;
            const DENSITY_ERROR: u64 = density_error::<Self>();
            const MARGIN: u64 = if SLIP == slip::NO_MARGIN {
                0
            } else {
                margin::<Self>()
            };
            const PRECISION: usize = 20;
            const HALVINGS: usize = 5;
            const WIDE_ERROR_BITS: usize = if SLIP == slip::NO_WIDE_ERROR {
                0
            } else {
                Self::HALVINGS + 3
            };
        }
    };
}

staircase!(Coarse: 10 cells of 2^-2, 32 pieces of 29 / 2^7, parts of 2^1 cells,
    positions of 5 bits, words of 11, 3 squarings);
staircase!(Middle: 22 cells of 2^-3, 32 pieces of 35 / 2^6, parts of 2^2 cells,
    positions of 4 bits, words of 13, 3 squarings);
staircase!(Fine: 27 cells of 2^-3, 64 pieces of 15 / 2^6, parts of 2^1 cells,
    positions of 4 bits, words of 14, 4 squarings);

/// More than all roundings of the doubles below.
const DOUBT: f64 = 1e-12;

fn power(bits: u32) -> f64 {
    libm::ldexp(1.0, bits as i32)
}

/// The density at a position.
fn curve<S: Staircase>(x: u64) -> f64 {
    let x = x as f64 / power(S::POSITION_BITS);
    libm::exp(-0.5 * x * x)
}

/// The height of the lower end of a strip with these pieces below it, `v` units further up.
fn height<S: Staircase>(base: u64, span: u64, v: u64) -> f64 {
    let pieces = base as f64 + span as f64 * v as f64 / power(S::WORD_BITS);
    pieces * S::UNIT as f64 / power(S::UNIT_BITS)
}

/// Whether a box wholly below (or, for false, wholly above) the density is what it is said to be.
fn is_so(below: bool, heights: [f64; 2], densities: [f64; 2]) -> bool {
    if below {
        heights[1] < densities[1] - DOUBT
    } else {
        heights[0] > densities[0] + DOUBT
    }
}

#[derive(Debug, Default, PartialEq, Eq)]
struct Tally {
    cases: usize,
    open: usize,
    wrong: usize,
    needless: usize,
}

impl Tally {
    fn right(cases: usize, open: usize) -> Self {
        Self {
            cases,
            open,
            ..Self::default()
        }
    }
}

/// Answers of `decide` for every cell, offset and height that `asked` picks. An open one is needless
/// where the density is more than `reach` off.
fn edges<S: Staircase>(
    reach: f64,
    asked: impl Fn(usize, u64, u64) -> bool,
    mut decide: impl FnMut(usize, u64, u64) -> Option<bool>,
) -> Tally {
    let mut tally = Tally::default();
    for (j, cell) in S::CELL_TABLE.iter().enumerate() {
        for offset in 0..1 << S::CELL_BITS {
            let x = ((j as u64) << S::CELL_BITS) + offset;
            let densities = [curve::<S>(x), curve::<S>(x + 1)];
            for v in 0..1 << S::WORD_BITS {
                if !asked(j, offset, v) {
                    continue;
                }
                let heights = [v, v + 1].map(|v| height::<S>(cell.sure, cell.edge, v));
                tally.cases += 1;
                if let Some(below) = decide(j, offset, v) {
                    tally.wrong += usize::from(!is_so(below, heights, densities));
                } else {
                    tally.open += 1;
                    let far =
                        heights[0] > densities[0] + reach || heights[1] < densities[1] - reach;
                    tally.needless += usize::from(far);
                }
            }
        }
    }
    tally
}

/// The largest exponent that the series meets, in its units.
fn largest_exponent<S: Staircase>() -> u64 {
    let width = 1.0 / power(S::WIDTH_BITS);
    let end = S::CELLS as f64 * width;
    let edge = width * (2.0 * end - width) / 2.0;
    let table = end * end / 2.0 / power(S::SQUARINGS);
    (edge.max(table) * power(S::WORD_BITS)) as u64
}

/// Numbers whose exponential is off by its bound or more: of the series, and of the density.
fn wrong_exponentials<S: Staircase>() -> [usize; 2] {
    let unit = power(S::WORD_BITS - 1);
    let off = |value: u64, exponent: f64| (value as f64 - unit * libm::exp(-exponent)).abs();
    let series = |r: &u64| off(exp_minus::<S>(*r), *r as f64 / power(S::WORD_BITS)) >= 3.0;
    let table = |y: &u64| {
        let exponent = *y as f64 / power(S::WORD_BITS - S::SQUARINGS);
        off(density::<S>(*y), exponent) >= S::DENSITY_ERROR as f64
    };
    let end = S::CELLS as f64 / power(S::WIDTH_BITS);
    let largest = (end * end / 2.0 * power(S::WORD_BITS - S::SQUARINGS)) as u64;
    [
        (0..=largest_exponent::<S>()).filter(series).count(),
        (0..=largest).filter(table).count(),
    ]
}

/// Positions below the limit where the exact density is off by more than its bound, with no further
/// digit and with one.
fn wrong_wide_densities<S: Staircase>() -> usize {
    let natural = |x: f64| Natural::from_digits(x as u128, &[]);
    let wrong = |x: u64, digits: &[u32]| {
        let value = wide_density::<S>(&Natural::from_digits(x.into(), digits), digits.len());
        let unit = power(S::PRECISION as u32 + 32 * digits.len() as u32);
        let fraction = digits.first().map_or(0.0, |digit| f64::from(*digit));
        let x = (x as f64 + fraction / power(32)) / power(S::POSITION_BITS);
        let (exact, error) = (
            unit * libm::exp(-0.5 * x * x),
            power(S::WIDE_ERROR_BITS as u32),
        );
        value < natural((exact - error).ceil().max(0.0)) || value > natural((exact + error).floor())
    };
    let positions = 0..u64::from(S::LIMIT) << S::POSITION_BITS;
    let digits: [&[u32]; 4] = [&[], &[0], &[1 << 31], &[u32::MAX]];
    positions
        .flat_map(|x| digits.map(|digits| wrong(x, digits)))
        .filter(|wrong| *wrong)
        .count()
}

// Proof: grid_gaussian
#[test]
fn exponentials_of_all_small_numbers_are_within_their_bounds() {
    assert_eq!(wrong_exponentials::<Coarse>(), [0, 0]);
    assert_eq!(wrong_exponentials::<Middle>(), [0, 0]);
    assert_eq!(wrong_exponentials::<Fine>(), [0, 0]);
    let [series, table] = wrong_exponentials::<Middle<{ slip::SHORT_SERIES }>>();
    assert!(series > 1000 && table > 100, "{series} {table}");
    assert_eq!(wrong_wide_densities::<Coarse>(), 0);
    assert!(wrong_wide_densities::<Coarse<{ slip::NO_WIDE_ERROR }>>() > 100);
}

/// The bounds of the shipped sizes are at least those of the proof, which small sizes have exactly.
// Proof: grid_gaussian
#[test]
fn shipped_bounds_follow_the_same_formulas() {
    assert!(Shipped::DENSITY_ERROR >= density_error::<Shipped>());
    assert!(Shipped::MARGIN >= margin::<Shipped>());
    assert_eq!(Shipped::WIDE_ERROR_BITS, Shipped::HALVINGS + 3);
}

fn first_comparison<S: Staircase>() -> Tally {
    let reach = 2.0 * S::MARGIN as f64 / power(S::WORD_BITS - 2);
    edges::<S>(reach, |_, _, _| true, below_edge::<S>)
}

// Proof: grid_gaussian
#[test]
fn the_first_comparison_is_right_for_all_small_edges() {
    for (tally, cases, open) in [
        (first_comparison::<Coarse>(), 10 << (5 + 11), 201_400),
        (first_comparison::<Middle>(), 22 << (4 + 13), 173_612),
        (first_comparison::<Fine>(), 27 << (4 + 14), 829_349),
    ] {
        assert_eq!(tally, Tally::right(cases, open));
    }
    assert!(first_comparison::<Coarse<{ slip::NO_MARGIN }>>().wrong > 100);
    assert!(first_comparison::<Middle<{ slip::NO_MARGIN }>>().wrong > 100);
    assert!(first_comparison::<Coarse<{ slip::NEXT_DENSITY }>>().wrong > 1000);
}

/// The exact comparison of a box, and whether it needs digits. Where it does, it is asked for all four
/// corners of the box, which digits that are all least or all largest come to.
fn exactly<S: Staircase>(x: u64, strip: Height, v: u64) -> (Option<bool>, bool) {
    let ask = |ends: [u32; 2]| {
        let (mut digits, mut read) = (Vec::new(), 0);
        let below = below_density::<S>(x.into(), &mut digits, strip, v, || {
            read += 1;
            // The place and the height in turns.
            ends[(read + 1) % 2]
        });
        // One of each is enough: no corner is that close to the density.
        assert!(read == 2 * digits.len() && digits.len() <= 1);
        (below, read > 0)
    };
    let (below, open) = ask([0, 0]);
    if !open {
        return (Some(below), true);
    }
    let corners = [[0, 0], [0, u32::MAX], [u32::MAX, 0], [u32::MAX; 2]];
    let right = corners.iter().all(|ends| {
        let [x, v] = [(x, ends[0]), (v, ends[1])].map(|(least, end)| least + u64::from(end > 0));
        let height = height::<S>(strip.base, strip.span, v);
        let (height, density) = (height / power(strip.shift - S::UNIT_BITS), curve::<S>(x));
        assert!((height - density).abs() > DOUBT);
        ask(*ends).0 == (height < density)
    });
    (None, right)
}

/// Every box of the edges that `asked` picks.
fn exact_comparison<S: Staircase>(asked: impl Fn(usize, u64, u64) -> bool) -> (Tally, usize) {
    // Both errors, the fall of the density, and what heights are rounded by.
    let units = power(S::WIDE_ERROR_BITS as u32 + 1) + 4.0;
    let reach = units / power(S::PRECISION as u32) + 1.0 / power(S::POSITION_BITS);
    let mut wrong_corners = 0;
    let tally = edges::<S>(reach, asked, |j, offset, v| {
        let x = ((j as u64) << S::CELL_BITS) + offset;
        let strip = Height::edge::<S>(&S::CELL_TABLE[j]);
        let (answer, right) = exactly::<S>(x, strip, v);
        wrong_corners += usize::from(!right);
        answer
    });
    (tally, wrong_corners)
}

// Proof: grid_gaussian
// Proof: discrete_gaussian
#[test]
fn the_exact_comparison_is_right_for_all_small_edges() {
    let all = exact_comparison::<Coarse>(|_, _, _| true);
    assert_eq!(all, (Tally::right(10 << (5 + 11), 15_938), 0));
    // What the first comparison leaves open at other sizes.
    let left_open = |j, offset, v| below_edge::<Middle>(j, offset, v).is_none();
    let settled = exact_comparison::<Middle>(left_open);
    assert_eq!(settled, (Tally::right(173_612, 43_127), 0));

    let slipped = exact_comparison::<Coarse<{ slip::NO_WIDE_ERROR }>>;
    let (tally, wrong_corners) = slipped(|_, _, _| true);
    assert!(tally.wrong + wrong_corners > 0, "{tally:?}");
}

/// Words of a script, then one word for ever.
struct Script<'a> {
    words: &'a [u64],
    rest: u64,
}

impl TryRng for Script<'_> {
    type Error = Infallible;

    fn try_next_u32(&mut self) -> Result<u32, Infallible> {
        unreachable!()
    }

    fn try_next_u64(&mut self) -> Result<u64, Infallible> {
        let Some((first, others)) = self.words.split_first() else {
            return Ok(self.rest);
        };
        self.words = others;
        Ok(*first)
    }

    fn try_fill_bytes(&mut self, bytes: &mut [u8]) -> Result<(), Infallible> {
        for word in bytes.chunks_mut(8) {
            word.copy_from_slice(&self.try_next_u64()?.to_le_bytes());
        }
        Ok(())
    }
}

/// A word that begins with these bits.
fn word(value: u64, bits: u32) -> u64 {
    value << (u64::BITS - bits)
}

/// The number of heights `v` of a strip (`base` pieces below it, `span` high) with which a point at `x`
/// is accepted: with all further digits 0 it is the corner at the lower left, so those count for which
/// that lies under the density; with the largest digits it is the corner at the upper right.
fn accepted_heights<S: Staircase>(x: u64, base: f64, span: f64, digits: u64) -> u64 {
    let piece = S::UNIT as f64 / power(S::UNIT_BITS);
    let end = power(S::WORD_BITS);
    let units = |x| (curve::<S>(x) / piece - base) / span * end;
    let top = if digits == 0 { units(x) } else { units(x + 1) };
    assert!((top - top.round()).abs() > 1e-8);
    // The strip reaches from below the density to above it.
    assert!(top > -1e-8 && top < end);
    if digits == 0 {
        top.ceil() as u64
    } else {
        top.floor() as u64
    }
}

/// How often every position of the cells is accepted, over all words and heights; sure pieces count as
/// often as there are heights.
fn points<S: Staircase>(digits: u64) -> Vec<u64> {
    let mut counts = vec![0; S::CELLS << S::CELL_BITS];
    for (slot, code) in S::SLOTS.iter().enumerate() {
        if *code == S::TAIL {
            continue;
        }
        for offset in 0..1 << S::CELL_BITS {
            let first = (slot as u64) << (S::CELL_BITS + 1) | offset;
            let sure = usize::from(*code) < S::SURE_CELLS;
            let heights = if sure { 1 } else { 1 << S::WORD_BITS };
            for v in 0..heights {
                let mut script = Script {
                    words: &[word(v, S::WORD_BITS)],
                    rest: digits,
                };
                // The sign changes nothing.
                let sign = (offset ^ v) & 1;
                let first = first | sign << S::CELL_BITS;
                if let Some(point) = point::<S, _>(first, &mut Spare::new(&mut script)) {
                    counts[point.x as usize] += (1 << S::WORD_BITS) / heights;
                    assert!(!sure || point.digits.is_empty());
                }
            }
        }
    }
    counts
}

/// Positions that are not accepted as often as the density says.
fn wrong_points<S: Staircase, Right: Staircase>(digits: u64) -> usize {
    let counts = points::<S>(digits).into_iter().enumerate();
    let wrong = |(x, count): &(usize, u64)| {
        let cell = &Right::CELL_TABLE[x >> S::CELL_BITS];
        let (sure, edge) = (cell.sure, cell.edge);
        let heights = accepted_heights::<S>(*x as u64, sure as f64, edge as f64, digits);
        *count != (sure << S::WORD_BITS) + edge * heights
    };
    counts.filter(wrong).count()
}

// Proof: grid_gaussian
#[test]
fn every_small_position_is_accepted_as_often_as_its_density_says() {
    for digits in [0, u64::MAX] {
        assert_eq!(wrong_points::<Coarse, Coarse>(digits), 0);
    }
    assert!(wrong_points::<Coarse<{ slip::WRONG_PIECE }>, Coarse>(0) >= 64);
    assert!(wrong_points::<Coarse<{ slip::LOW_EDGE }>, Coarse>(0) >= 32);
    assert!(wrong_points::<Coarse<{ slip::NO_MARGIN }>, Coarse>(0) >= 32);
}

/// Positions of the tail that are not accepted as often as the density says, when part `k` stands for
/// `2^-(k + 1)` of a piece that is spread over its width.
fn wrong_tail_points<S: Staircase, Right: Staircase>(digits: u64) -> (usize, usize) {
    let place_bits = Right::CELL_BITS + Right::PART_BITS;
    let limit = u64::from(Right::LIMIT) << Right::POSITION_BITS;
    let mut x = (S::CELLS as u64) << S::CELL_BITS;
    let last = (1 << (S::SLOT_BITS + 1 + S::CELL_BITS)) - 1;
    let (mut wrong, mut positions) = (0, 0);
    for part in 0..Right::LIMIT << (Right::WIDTH_BITS - Right::PART_BITS) {
        for place in 0..1 << place_bits {
            let accepted = (0..1 << S::WORD_BITS).filter(|v| {
                let mut script = Script {
                    words: &[
                        (1 << part) - 1,
                        word(place, place_bits),
                        word(*v, S::WORD_BITS),
                    ],
                    rest: digits,
                };
                let point = point::<S, _>(last, &mut Spare::new(&mut script));
                point.is_some_and(|point| {
                    wrong += usize::from(point.x != x.into());
                    true
                })
            });
            let accepted = accepted.count() as u64;
            let right = if x < limit {
                let span = 1.0 / power(Right::PART_BITS + part + 1);
                accepted_heights::<S>(x, 0.0, span, digits)
            } else {
                0
            };
            wrong += usize::from(accepted != right);
            positions += 1;
            x += 1;
            if x > limit + 4 {
                return (wrong, positions);
            }
        }
    }
    (wrong, positions)
}

// Proof: grid_gaussian
#[test]
fn every_small_position_of_the_tail_is_accepted_as_often_as_its_density_says() {
    for digits in [0, u64::MAX] {
        let (wrong, positions) = wrong_tail_points::<Coarse, Coarse>(digits);
        assert_eq!((wrong, positions), (0, (3 << 6) + 5));
    }
    assert!(wrong_tail_points::<Coarse<{ slip::WIDE_PARTS }>, Coarse>(0).0 > 100);
    // Parts beyond all are refused.
    let mut script = Script {
        words: &[],
        rest: u64::MAX,
    };
    assert!(tail_point::<Coarse, _>(&mut Spare::new(&mut script)).is_none());
}

/// `floor(mantissa x / 2^bits + 1/2)` at the least and the largest number that begins with `x`.
fn rounded(scale: GridScale, x: u64, position_bits: u32) -> [i64; 2] {
    let bits = scale.shift + position_bits;
    let half = 1 << (bits - 1);
    let least = (scale.mantissa * x + half) >> bits;
    // Just below the next number, and never at it.
    let largest = (scale.mantissa * (x + 1) + half - 1) >> bits;
    [least, largest].map(|m| m as i64)
}

/// A first word of the sampler, and the piece and position that it chooses.
struct First {
    word: u64,
    code: u8,
    x: u64,
    sign: i64,
}

/// All words that choose a piece of the cells.
fn first_words<S: Staircase>() -> impl Iterator<Item = First> {
    let words = 0..1_u64 << (S::SLOT_BITS + 1 + S::CELL_BITS);
    let all = words.map(|word| {
        let code = S::SLOTS[(word >> (S::CELL_BITS + 1)) as usize];
        let sure = usize::from(code) < S::SURE_CELLS;
        let j = usize::from(code) - if sure { 0 } else { S::SURE_CELLS };
        let offset = word & ((1 << S::CELL_BITS) - 1);
        First {
            word,
            code,
            x: ((j as u64) << S::CELL_BITS) + offset,
            sign: 1 - 2 * (word >> S::CELL_BITS & 1) as i64,
        }
    });
    all.filter(|first| first.code != S::TAIL)
}

/// Words that the first look answers wrongly, or decides or leaves open in error.
fn wrong_looks<S: Staircase, Right: Staircase>(scale: GridScale) -> usize {
    let wrong = |first: &First| {
        let code = S::SLOTS[(first.word >> (S::CELL_BITS + 1)) as usize];
        let (value, open) = look::<S>(&scale, code, first.word);
        let decided = open == 0;
        let ends = rounded(scale, first.x, S::POSITION_BITS);
        let sure = usize::from(first.code) < Right::SURE_CELLS;
        decided != (sure && ends[0] == ends[1]) || decided && value != first.sign * ends[0]
    };
    first_words::<Right>().filter(wrong).count()
}

/// Words after which a draw is not the position's, rounded: with all digits of it least, and largest.
fn wrong_draws<S: Staircase, Right: Staircase>(scale: GridScale) -> usize {
    let draw = |first: &First, words: &[u64], rest: u64| {
        let mut script = Script { words, rest };
        finish::<S, _>(&scale, first.word, &mut Spare::new(&mut script))
    };
    let mut wrong = 0;
    for first in first_words::<Right>() {
        let ends = rounded(scale, first.x, S::POSITION_BITS);
        for (digits, end) in [(0, first.sign * ends[0]), (u64::MAX, first.sign * ends[1])] {
            if usize::from(first.code) < Right::SURE_CELLS {
                wrong += usize::from(draw(&first, &[], digits) != end);
                continue;
            }
            let cell = &Right::CELL_TABLE[(first.x >> S::CELL_BITS) as usize];
            let (base, span) = (cell.sure as f64, cell.edge as f64);
            // The density cuts this box: the comparison reads a digit of the position, which stays.
            let v = accepted_heights::<S>(first.x, base, span, u64::MAX);
            let words = [word(v, S::WORD_BITS), digits, 0];
            wrong += usize::from(draw(&first, &words, !digits) != end);
            if v > 1 << (S::WORD_BITS - 2) {
                // This one lies so far below that no digit is read before the rounding.
                wrong += usize::from(draw(&first, &[0], digits) != end);
            }
            if v < 3 << (S::WORD_BITS - 2) {
                // A height that is refused: the draw begins again, with a sure piece of cell 0.
                let offset = first.x & ((1 << S::CELL_BITS) - 1);
                let next = word(offset, S::CELL_BITS + S::SLOT_BITS + 1);
                let ends = rounded(scale, offset, S::POSITION_BITS);
                let end = ends[usize::from(digits > 0)];
                wrong += usize::from(draw(&first, &[u64::MAX, next], digits) != end);
            }
        }
    }
    wrong
}

// Proof: grid_gaussian
#[test]
fn every_small_word_is_rounded_as_its_position() {
    type Slipped = Coarse<{ slip::WRONG_PIECE }>;
    let mut slipped = [0, 0];
    for mantissa in 1..20 {
        for shift in 3..9 {
            // Both 2^3 times larger: a shift is at least 6.
            let scale = GridScale {
                mantissa: mantissa << 3,
                shift: shift + 3,
            };
            assert_eq!(wrong_looks::<Coarse, Coarse>(scale), 0, "{scale:?}");
            assert_eq!(wrong_draws::<Coarse, Coarse>(scale), 0, "{scale:?}");
            if mantissa == 19 {
                slipped[0] += wrong_looks::<Slipped, Coarse>(scale);
                slipped[1] += wrong_draws::<Slipped, Coarse>(scale);
            }
        }
    }
    assert!(slipped.iter().all(|wrong| *wrong > 20), "{slipped:?}");
    // The tail is never decided at first sight.
    let scale = GridScale {
        mantissa: 1,
        shift: 8,
    };
    let last = (1 << (Coarse::<0>::SLOT_BITS + 1 + Coarse::<0>::CELL_BITS)) - 1;
    assert_eq!(look::<Coarse>(&scale, Coarse::<0>::TAIL, last).1, 1);
}
