//! The staircase above the half-normal density, and the comparisons with the density.

use dpsvm_core::noise::Key;
use dpsvm_core::noise::half_normal::{Cell, Height, Shipped, Staircase, below_density, below_edge};
use rand::{Rng, RngExt};

/// `exp((j/32)^2 / 2)` lies between these two, in units of `2^-64`: the exponential series with
/// positive terms, rounded down and up.
fn growth(j: usize) -> (u128, u128) {
    let a = (j * j) as u128;
    let (mut low, mut high) = (1u128 << 64, 1u128 << 64);
    let (mut low_term, mut high_term) = (low, high);
    // The exponent is below 9, so from term 60 on each is below 1/6 of the last.
    for n in 1..60 {
        low_term = low_term * a / (2048 * n);
        high_term = (high_term * a).div_ceil(2048 * n);
        low += low_term;
        high += high_term;
    }
    (low, high + high_term)
}

/// Whether `pieces` units lie under the density at the left end of cell `j`, for certain.
fn lies_under(pieces: u64, j: usize) -> bool {
    u128::from(pieces * Shipped::UNIT) * growth(j).1 <= 1 << (64 + Shipped::UNIT_BITS)
}

/// Whether `pieces` units reach the density at the left end of cell `j`, for certain.
fn reaches(pieces: u64, j: usize) -> bool {
    u128::from(pieces * Shipped::UNIT) * growth(j).0 >= 1 << (64 + Shipped::UNIT_BITS)
}

fn is_right(cell: &Cell, j: usize) -> bool {
    lies_under(cell.sure, j + 1) && reaches(cell.sure + cell.edge, j)
}

/// The density falls, so its ends bound it over a cell.
// Proof: grid_gaussian
#[test]
fn the_staircase_encloses_the_density() {
    for (j, cell) in Shipped::CELL_TABLE.iter().enumerate() {
        assert!(is_right(cell, j), "{j}: {cell:?}");
        // And as closely as pieces of this height can: one more or less is wrong everywhere.
        let heavier = Cell {
            sure: cell.sure + 1,
            ..*cell
        };
        let lighter = Cell {
            edge: cell.edge - 1,
            ..*cell
        };
        assert!(!is_right(&heavier, j) && !is_right(&lighter, j), "{j}");
    }
}

// Proof: grid_gaussian
#[test]
fn weights_one_percent_off_are_wrong() {
    for (j, cell) in Shipped::CELL_TABLE.iter().enumerate() {
        let cover = cell.sure + cell.edge;
        let more = cell.sure + cell.sure.div_ceil(100).max(1);
        let less = cover - cover.div_ceil(100);
        assert!(!lies_under(more, j + 1) && !reaches(less, j), "{j}");
    }
}

// Proof: grid_gaussian
#[test]
fn densities_are_within_their_bound() {
    for (j, cell) in Shipped::CELL_TABLE.iter().enumerate() {
        let (low, high) = growth(j);
        let value = u128::from(cell.density);
        assert!((value - (1 << 11)) * high <= 1 << 127, "{j}");
        assert!((value + (1 << 11)) * low >= 1 << 127, "{j}");
        // One part in a million more is seen.
        assert!((value + (value >> 20) - (1 << 11)) * low > 1 << 127, "{j}");
    }
}

// Proof: grid_gaussian
#[test]
fn slots_are_the_pieces() {
    let mut counts = [0; 256];
    for code in Shipped::SLOTS {
        counts[usize::from(*code)] += 1;
    }
    for (j, cell) in Shipped::CELL_TABLE.iter().enumerate() {
        let sure = if j < Shipped::SURE_CELLS {
            counts[j]
        } else {
            0
        };
        assert_eq!(
            (sure, counts[Shipped::SURE_CELLS + j]),
            (cell.sure, cell.edge)
        );
    }
    assert_eq!(counts[usize::from(Shipped::TAIL)], 1);
    assert_eq!(counts.iter().sum::<u64>(), Shipped::SLOTS.len() as u64);
    assert_eq!((Shipped::CELLS, Shipped::SLOTS.len()), (129, 1 << 13));
    // Piece, sign and place are all of a word.
    assert_eq!(Shipped::SLOT_BITS + 1 + Shipped::CELL_BITS, u64::BITS);
}

/// Part 0 is high enough at its left end, and over a part the density at least halves, as the
/// height does: `exp(-(129/32) / 4) <= 1/2`.
// Proof: grid_gaussian
#[test]
fn the_tail_is_covered() {
    let height = Height::tail::<Shipped>(0);
    assert_eq!((height.base, height.span), (0, 1));
    assert!(u128::from(Shipped::UNIT) * growth(Shipped::CELLS).0 >= 1 << (64 + height.shift));
    let mut halves = 0.0;
    let mut term = 1.0;
    for n in 1..20 {
        halves += term;
        term *= Shipped::CELLS as f64 / 128.0 / f64::from(n);
    }
    assert!(halves > 2.7 && halves < 2.8);
    // Area: probability 2^-13 of the tail's piece, of which part i takes 2^-(i + 1).
    let piece = Shipped::UNIT as f64 / 2f64.powi(20) / 32.0;
    for i in 0..50 {
        let area = Shipped::UNIT as f64 / 2f64.powi(Height::tail::<Shipped>(i).shift as i32) / 4.0;
        assert_eq!(area, piece / 2f64.powi(i as i32 + 1));
    }
}

/// Place in 1/32, strip (base, span, shift), then the height `v` at which the strip meets the density
/// there: 64 bits, and the digits that follow (from 150 decimal places of `exp`).
type Crossing = (u64, (u64, u64, u32), u64, [u32; 6]);

const CROSSINGS: [Crossing; 5] = [
    (
        32,
        (0, 1, 12),
        0x7959_8261_3155_c5d6,
        [
            0x28b4_a42f,
            0xa080_0c0a,
            0x4481_5783,
            0xfbd2_e63e,
            0xdbef_b6ce,
            0x53b9_abf6,
        ],
    ),
    (
        48,
        (64, 1, 20),
        0xf42b_3bed_f71b_abd3,
        [
            0xd155_89cc,
            0x1f52_44b8,
            0x76e1_1efb,
            0x5430_ea7f,
            0x82f1_d13f,
            0xaf04_274e,
        ],
    ),
    (
        129,
        (0, 1, 24),
        0xf27d_0828_a601_cf6a,
        [
            0xb8ad_3a20,
            0xbec0_db55,
            0x7adb_d352,
            0x8fde_57e1,
            0x8394_07de,
            0x9ae2_a6be,
        ],
    ),
    (
        1,
        (199, 2, 20),
        0x7cae_79fb_dd8c_2a08,
        [
            0x8f57_38c3,
            0x5c87_262a,
            0x996f_62dc,
            0xe2ca_3b10,
            0x065e_3448,
            0x3e5c_2ca3,
        ],
    ),
    (
        449,
        (0, 1, 64),
        0x0000_0000_0000_0000,
        [
            0x0000_0031,
            0x7763_e902,
            0x9ef0_1a39,
            0xd31f_9282,
            0xbe3c_1c1d,
            0x4de7_a8f9,
        ],
    ),
];

/// Digits of the place are all `place`; those of the height are `digits`, then `after`.
fn compare(crossing: &Crossing, v: u64, place: u32, digits: &[u32], after: u32) -> (bool, usize) {
    let (x, (base, span, shift), ..) = *crossing;
    let height = Height { base, span, shift };
    let mut read = 0;
    let next = || {
        read += 1;
        // They are read in turns, the place first.
        if read % 2 == 1 {
            return place;
        }
        digits.get(read / 2 - 1).copied().unwrap_or(after)
    };
    let x = u128::from(x) << Shipped::CELL_BITS;
    let mut place_digits = Vec::new();
    let below = below_density::<Shipped>(x, &mut place_digits, height, v, next);
    assert!(place_digits.iter().all(|digit| *digit == place));
    assert_eq!(read, 2 * place_digits.len());
    (below, read / 2)
}

// Proof: grid_gaussian
#[test]
fn the_exact_comparison_knows_the_digits_of_the_density() {
    for crossing in &CROSSINGS {
        let (_, _, v, digits) = crossing;
        for n in 0..6 {
            for (change, expected) in [(-1, true), (1, false)] {
                let mut near = *digits;
                near[n] = digits[n].wrapping_add_signed(change);
                let after = if change == 1 { 0 } else { u32::MAX };
                let (below, read) = compare(crossing, *v, 0, &near[..=n], after);
                assert_eq!(below, expected, "{crossing:?} {n}");
                assert!(read > n, "{read} {n}");
            }
        }
        // To the right of the crossing the density is smaller.
        let (below, _) = compare(crossing, *v, 1 << 16, digits, 0);
        assert!(!below, "{crossing:?}");
    }
}

// Proof: grid_gaussian
#[test]
fn the_exact_comparison_reads_no_digit_in_vain() {
    for crossing in &CROSSINGS[..4] {
        for (v, expected) in [
            (crossing.2 - (1 << 40), true),
            (crossing.2 + (1 << 40), false),
        ] {
            assert_eq!(compare(crossing, v, 0, &[], 0), (expected, 0));
        }
    }
}

/// Heights at all distances from the density: where the first comparison answers, it answers as the
/// exact one does, and far from the density it always answers.
// Proof: grid_gaussian
#[test]
fn the_two_comparisons_agree() {
    let mut rng = Key::from_seed(31).task(0).stream(0);
    let (mut answered, mut open) = (0, 0);
    for i in 0..4000 {
        let j = i % Shipped::CELLS;
        let cell = &Shipped::CELL_TABLE[j];
        let offset = rng.next_u64() >> (64 - Shipped::CELL_BITS);
        let x = (j as u64) << Shipped::CELL_BITS | offset;
        let place = x as f64 / 2f64.powi(Shipped::POSITION_BITS as i32);
        let pieces = (-place * place / 2.0).exp() * 2f64.powi(20) / Shipped::UNIT as f64;
        let crossing = (pieces - cell.sure as f64) / cell.edge as f64;
        let distance = (rng.next_u64() >> rng.random_range(0..60)) as i64;
        let v = ((crossing * 2f64.powi(64)) as u64).wrapping_add_signed(distance);
        let exact = below_density::<Shipped>(
            x.into(),
            &mut Vec::new(),
            Height::edge::<Shipped>(cell),
            v,
            || rng.next_u32(),
        );
        if let Some(below) = below_edge::<Shipped>(j, offset, v) {
            assert_eq!(below, exact, "{j} {offset:x} {v:x}");
            answered += 1;
        } else {
            // The margin is 2^-50 of at least 2^-8, seen with 53 bits.
            assert!(distance.unsigned_abs() < 1 << 24, "{j} {distance}");
            open += 1;
        }
    }
    assert!(answered > 2000 && open > 500, "{answered} {open}");
}
