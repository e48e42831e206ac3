//! Public features of images: histograms of the directions of their edges, over cells.
//!
//! At each pixel, with differences `dx = I(x+1) - I(x-1)` and `dy` (pixels at the border stand for
//! those beyond it), `m = sqrt(dx^2 + dy^2)` and the direction `k` of `K`,
//!
//! `e_k = m max(0, (dx cos(2 pi k/K) + dy sin(2 pi k/K)) / m)^8`,
//!
//! smooth in the direction and about as wide as the distance of two of eight. It is shared among the
//! nearest cells in proportion to the nearness of their middles, along either side. The sums of a
//! cell, of all channels, are divided by their own total and a tenth of the mean one of the cells:
//! faint edges tell as much as strong ones. Features are the square roots of these shares over their
//! total, in the order (channel, row of cells, column of cells, direction): norm 1, or zeros for an
//! image of one value. Each image is mapped by itself.
//!
//! Dropped: shares between the two nearest directions need an arc tangent for each pixel and were as
//! accurate; blocks of cells normalised by themselves took four times the features; totals of a
//! cell's neighbours beside its own, and more cells or directions, were less accurate for few rows.

use crate::error::{Result, require};
use crate::rows::view::{Columns, Rows, Values, either};
use crate::runtime::interrupt::Interrupt;
use crate::runtime::memory::{collected, matrix, zeros};
use crate::runtime::tasks::{LOOK_WORK, each_row_part};
use crate::simd::{Kernel, Real, Simd, dispatch};
use std::ops::{Add, Div, Mul, Sub};

/// Larger sides, and more cells or directions, are refused: products stay far below the integers.
pub const LARGEST_SIDE: usize = 1 << 12;

/// Increase of every cell's total, as a share of their mean.
const COMMON_SHARE: f64 = 0.1;

/// Format of images, and settings of their features.
#[derive(Debug, Clone, Copy)]
pub struct ImageSettings {
    /// Height, width and number of channels; a row holds them in this order, the last one fastest.
    pub shape: [usize; 3],
    /// Cells along height and width.
    pub cells: [usize; 2],
    /// Number of directions.
    pub directions: usize,
}

impl ImageSettings {
    /// Refuses settings without a meaning.
    ///
    /// # Errors
    /// A length of 0 or above 2^12; more cells than pixels along a side.
    pub fn check(&self) -> Result<()> {
        let named = [
            ("shape", &self.shape[..]),
            ("cells", &self.cells[..]),
            ("n_orientations", &[self.directions]),
        ];
        for (name, lengths) in named {
            let message = format_args!("got {lengths:?}, expected 1 to {LARGEST_SIDE}");
            let right = lengths.iter().all(|l| (1..=LARGEST_SIDE).contains(l));
            require(right, name, message)?;
        }
        let message = format_args!(
            "got {:?}, expected at most the sides of an image",
            self.cells
        );
        let right = self.cells[0] <= self.shape[0] && self.cells[1] <= self.shape[1];
        require(right, "cells", message)
    }

    /// Pixels of all channels: entries of a row.
    pub fn inputs(&self) -> usize {
        self.shape.iter().product()
    }

    /// Features of an image.
    pub fn outputs(&self) -> usize {
        self.shape[2] * self.cells[0] * self.cells[1] * self.directions
    }

    /// Multiplications for an image, about.
    fn work(&self) -> usize {
        self.inputs().saturating_mul(12 * self.directions + 16)
    }
}

/// A precision in which images are treated.
pub trait Tone:
    Real
    + PartialOrd
    + Add<Output = Self>
    + Sub<Output = Self>
    + Mul<Output = Self>
    + Div<Output = Self>
{
}

impl Tone for f32 {}
impl Tone for f64 {}

/// For each pixel along a side its nearest cells, and how near: two, or one and a nearness of 0.
fn nearest<T: Tone>(side: usize, cells: usize) -> Result<Vec<[(usize, T); 2]>> {
    collected((0..side).map(|pixel| {
        let place = (pixel as f64 + 0.5) * cells as f64 / side as f64 - 0.5;
        let below = place.floor();
        let share = |cell: f64, nearness: f64| {
            let inside = cell >= 0.0 && cell < cells as f64;
            let nearness = if inside { nearness } else { 0.0 };
            let cell = cell.clamp(0.0, (cells - 1) as f64) as usize;
            (cell, T::near(nearness))
        };
        [
            share(below, 1.0 - (place - below)),
            share(below + 1.0, place - below),
        ]
    }))
}

/// Settings and the constants that follow from them.
struct Prepared<T> {
    settings: ImageSettings,
    /// Cosine and sine of each direction.
    directions: Vec<(T, T)>,
    rows: Vec<[(usize, T); 2]>,
    columns: Vec<[(usize, T); 2]>,
}

impl<T: Tone> Prepared<T> {
    fn new(settings: ImageSettings) -> Result<Self> {
        settings.check()?;
        let turn = 2.0 * std::f64::consts::PI / settings.directions as f64;
        let directions = collected((0..settings.directions).map(|k| {
            let angle = turn * k as f64;
            (T::near(libm::cos(angle)), T::near(libm::sin(angle)))
        }))?;
        Ok(Self {
            settings,
            directions,
            rows: nearest(settings.shape[0], settings.cells[0])?,
            columns: nearest(settings.shape[1], settings.cells[1])?,
        })
    }
}

/// Writes the features of every row into `out`, row after row.
///
/// # Errors
/// Settings without a meaning; rows of another length; room for another number of features; values
/// not finite; threads out of range; no memory; an interrupt.
pub fn oriented_gradients<T: Tone>(
    settings: ImageSettings,
    rows: &Rows<'_>,
    out: &mut [T],
    n_threads: usize,
    interrupt: &dyn Interrupt,
) -> Result<()> {
    let prepared = Prepared::new(settings)?;
    let outputs = settings.outputs();
    rows.check_map(settings.inputs(), outputs, out.len())?;
    let cost = (settings.work(), n_threads);
    each_row_part((out, outputs), cost, interrupt, |first, out, interrupt| {
        dispatch(Images {
            prepared: &prepared,
            rows,
            first,
            out,
            interrupt,
        })
    })
}

/// Some consecutive images.
struct Images<'p, 'a, T> {
    prepared: &'p Prepared<T>,
    rows: &'p Rows<'a>,
    first: usize,
    out: &'p mut [T],
    interrupt: &'p dyn Interrupt,
}

impl<T: Tone> Kernel for Images<'_, '_, T> {
    type Output = Result<()>;

    #[inline(always)]
    fn run<S: Simd>(self, _simd: S) -> Result<()> {
        let settings = self.prepared.settings;
        let [_, width, _] = settings.shape;
        let mut pixels = zeros(settings.inputs())?;
        let mut scratch = CellScratch::new(&settings)?;
        for (i, out) in (self.first..).zip(self.out.chunks_exact_mut(settings.outputs())) {
            let (values, columns) = self.rows.stored(i);
            either!(values, Values::F64 | Values::F32, (x) => {
                planes(x, columns, &settings, &mut pixels)?;
            });
            let size = settings.shape[0] * width;
            let cells = out.len() / settings.shape[2];
            for (plane, out) in pixels.chunks_exact(size).zip(out.chunks_exact_mut(cells)) {
                histograms(self.prepared, plane, &mut scratch, out, self.interrupt)?;
            }
            even_cells(out, &settings, &mut scratch.totals);
            unit_roots(out);
        }
        Ok(())
    }
}

/// The channels of an image one after the other, over its largest entry.
#[inline(always)]
fn planes<T: Tone, V: Copy + Into<f64>>(
    values: &[V],
    columns: Columns<'_>,
    settings: &ImageSettings,
    pixels: &mut [T],
) -> Result<()> {
    let (mut largest, mut poison) = (0.0_f64, 0.0_f64);
    for v in values {
        let x: f64 = (*v).into();
        largest = largest.max(x.abs());
        poison += x * 0.0;
    }
    require(poison == 0.0, "X", "contains NaN or infinity")?;
    let unit = if largest > 0.0 { largest } else { 1.0 };
    let (size, channels) = (settings.shape[0] * settings.shape[1], settings.shape[2]);
    if !matches!(columns, Columns::All) {
        pixels.fill(T::default());
    }
    columns.each(values, |column, v| {
        let place = match channels {
            1 => column,
            _ => column % channels * size + column / channels,
        };
        pixels[place] = T::near(v.into() / unit);
    });
    Ok(())
}

/// Room for one row of pixels, and for its sums over rows of cells.
struct CellScratch<T> {
    /// `dx / m`, `dy / m`, m, and what one direction has of it.
    lines: [Vec<T>; 4],
    /// For each row of cells and each direction, sums over rows of pixels.
    sums: Vec<T>,
    /// For each cell, the sum over channels and directions.
    totals: Vec<T>,
}

impl<T: Tone> CellScratch<T> {
    fn new(settings: &ImageSettings) -> Result<Self> {
        let width = settings.shape[1];
        let line = || zeros(width);
        Ok(Self {
            lines: [line()?, line()?, line()?, line()?],
            sums: matrix(settings.cells[0] * settings.directions, width)?,
            totals: zeros(settings.cells[0] * settings.cells[1])?,
        })
    }
}

/// The sums of one channel, in the order (row of cells, column of cells, direction).
#[inline(always)]
fn histograms<T: Tone>(
    prepared: &Prepared<T>,
    plane: &[T],
    scratch: &mut CellScratch<T>,
    out: &mut [T],
    interrupt: &dyn Interrupt,
) -> Result<()> {
    let ImageSettings {
        shape: [height, width, _],
        cells,
        directions,
    } = prepared.settings;
    let CellScratch {
        lines: [dx, dy, sizes, edges],
        sums,
        ..
    } = scratch;
    sums.fill(T::default());
    let lines = (LOOK_WORK / (width * (12 * directions + 16))).max(1);
    for (y, near) in prepared.rows.iter().enumerate() {
        if y % lines == lines - 1 {
            interrupt.check()?;
        }
        let line = &plane[y * width..][..width];
        let above = &plane[y.saturating_sub(1) * width..][..width];
        let below = &plane[(y + 1).min(height - 1) * width..][..width];
        differences(line, (above, below), (dx, dy, sizes));
        for (k, direction) in prepared.directions.iter().enumerate() {
            along(*direction, (dx, dy, sizes), edges);
            for (cell, nearness) in near {
                if *nearness == T::default() {
                    continue;
                }
                let sums = &mut sums[(cell * directions + k) * width..][..width];
                for (sum, edge) in sums.iter_mut().zip(&*edges) {
                    *sum = *sum + *nearness * *edge;
                }
            }
        }
    }
    out.fill(T::default());
    for (at, sums) in sums.chunks_exact(width).enumerate() {
        if at % lines == lines - 1 {
            interrupt.check()?;
        }
        let (row, k) = (at / directions, at % directions);
        let out = &mut out[row * cells[1] * directions..][..cells[1] * directions];
        for (sum, near) in sums.iter().zip(&prepared.columns) {
            for (cell, nearness) in near {
                let out = &mut out[cell * directions + k];
                *out = *out + *nearness * *sum;
            }
        }
    }
    Ok(())
}

/// Unit vectors of the differences along a row of pixels, and their lengths.
#[inline(always)]
fn differences<T: Tone>(
    line: &[T],
    (above, below): (&[T], &[T]),
    (dx, dy, sizes): (&mut [T], &mut [T], &mut [T]),
) {
    let width = line.len();
    for (d, pair) in dx[1..].iter_mut().zip(line.windows(3)) {
        *d = pair[2] - pair[0];
    }
    dx[0] = line[1.min(width - 1)] - line[0];
    dx[width - 1] = line[width - 1] - line[width.saturating_sub(2)];
    for ((d, above), below) in dy.iter_mut().zip(above).zip(below) {
        *d = *below - *above;
    }
    let one = T::near(1.0);
    for ((dx, dy), size) in dx.iter_mut().zip(dy).zip(sizes) {
        let length = (*dx * *dx + *dy * *dy).root();
        let inverse = if length > T::default() {
            one / length
        } else {
            T::default()
        };
        (*dx, *dy, *size) = (*dx * inverse, *dy * inverse, length);
    }
}

/// Strength of the edges in a row of pixels in one direction.
#[inline(always)]
fn along<T: Tone>((cos, sin): (T, T), (dx, dy, sizes): (&[T], &[T], &[T]), edges: &mut [T]) {
    for (((edge, dx), dy), size) in edges.iter_mut().zip(dx).zip(dy).zip(sizes) {
        let share = *dx * cos + *dy * sin;
        let share = if share > T::default() {
            share
        } else {
            T::default()
        };
        let second = share * share;
        let fourth = second * second;
        *edge = *size * (fourth * fourth);
    }
}

/// Shares in the sum, and of each cell of about its own; zeros stay zeros.
#[inline(always)]
fn even_cells<T: Tone>(out: &mut [T], settings: &ImageSettings, totals: &mut [T]) {
    let total = sum(out);
    if total == T::default() {
        return;
    }
    let cells = totals.len();
    totals.fill(T::near(COMMON_SHARE / cells as f64));
    for x in out.iter_mut() {
        *x = *x / total;
    }
    for (at, sums) in out.chunks_exact(settings.directions).enumerate() {
        totals[at % cells] = totals[at % cells] + sum(sums);
    }
    for (at, x) in out.iter_mut().enumerate() {
        *x = *x / totals[at / settings.directions % cells];
    }
}

/// Square roots of the shares in the sum: norm 1; zeros stay zeros.
#[inline(always)]
fn unit_roots<T: Tone>(out: &mut [T]) {
    let total = sum(out);
    if total > T::default() {
        for x in out {
            *x = (*x / total).root();
        }
    }
}

/// The sum of all.
#[inline(always)]
fn sum<T: Tone>(values: &[T]) -> T {
    values.iter().fold(T::default(), |sum, x| sum + *x)
}
