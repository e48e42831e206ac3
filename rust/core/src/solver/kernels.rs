//! The two inner loops that every pass is made of, in two weight layouts.
//!
//! - scores: `s_k = <w_k, u>` for all classes of one row;
//! - update: `w_k += a_k u`.
//!
//! [`Panels`] keeps the weights feature-major, `[feature][class]`, with the classes padded to the
//! vector width: a sparse row touches whole vectors, with no horizontal sum and no gather.
//! [`ClassMajor`] keeps one row of weights a class: best for dense rows, since an update touches
//! only the classes whose coefficient moved.
//!
//! Arithmetic is in `T` (f32 while far from the optimum, f64 for anything a certificate rests
//! on); the order of additions depends on the row alone.

use crate::rows::Row;

/// f32 or f64.
pub trait Real:
    Copy + Send + Sync + Default + PartialEq + std::ops::Add<Output = Self> + std::ops::Mul<Output = Self>
{
    /// Exact from single precision.
    fn of(x: f32) -> Self;
    /// Nearest value of this type.
    fn near(x: f64) -> Self;
    /// Exact to double precision.
    fn wide(self) -> f64;
    /// `self * b + c`, fused where the processor has the instruction.
    fn fma<const FMA: bool>(self, b: Self, c: Self) -> Self;
}

macro_rules! real {
    ($t:ty) => {
        impl Real for $t {
            #[inline(always)]
            fn of(x: f32) -> Self {
                x.into()
            }
            #[inline(always)]
            fn near(x: f64) -> Self {
                x as $t
            }
            #[inline(always)]
            fn wide(self) -> f64 {
                self.into()
            }
            #[inline(always)]
            fn fma<const FMA: bool>(self, b: Self, c: Self) -> Self {
                if FMA { self.mul_add(b, c) } else { self * b + c }
            }
        }
    };
}
real!(f32);
real!(f64);

/// A way to lay out K weight vectors of `columns` entries.
pub trait WeightLayout: Copy + Send + Sync {
    /// Numbers stored for all classes.
    fn stored(&self) -> usize;
    /// Length of a score buffer (classes, padded).
    fn padded_classes(&self) -> usize;
    /// Where weight `(class, column)` is stored.
    fn position(&self, class: usize, column: usize) -> usize;
    /// `scores[k] = <w_k, row>`; padding is written with zeros.
    fn scores<const FMA: bool, T: Real>(&self, row: Row<'_>, w: &[T], scores: &mut [T]);
    /// `w_k += coefficient[k] * row`; padding of `coefficient` must be zero.
    fn update<const FMA: bool, T: Real>(&self, row: Row<'_>, w: &mut [T], coefficient: &[T]);
    /// Bound on the number of roundings that a term of one score goes through.
    fn score_depth(&self, row_length: usize) -> f64;
}

/// Feature-major panels of `P` classes.
#[derive(Debug, Clone, Copy)]
pub struct Panels<const P: usize> {
    columns: usize,
    panels: usize,
}

impl<const P: usize> Panels<P> {
    /// Layout for `classes` x `columns`.
    pub fn new(classes: usize, columns: usize) -> Self {
        Self {
            columns,
            panels: classes.div_ceil(P),
        }
    }
}

/// Rows summed apart, to break the dependency of one addition on the last.
const CHAINS: usize = 4;

impl<const P: usize> WeightLayout for Panels<P> {
    fn stored(&self) -> usize {
        self.panels * P * self.columns
    }

    fn padded_classes(&self) -> usize {
        self.panels * P
    }

    #[inline(always)]
    fn position(&self, class: usize, column: usize) -> usize {
        (class / P * self.columns + column) * P + class % P
    }

    #[inline(always)]
    fn scores<const FMA: bool, T: Real>(&self, row: Row<'_>, w: &[T], scores: &mut [T]) {
        for (panel, out) in scores.chunks_exact_mut(P).enumerate().take(self.panels) {
            let w = &w[panel * self.columns * P..][..self.columns * P];
            let (w, _) = w.as_chunks::<P>();
            let mut sums = [[T::default(); P]; CHAINS];
            let index = row.index.chunks_exact(CHAINS);
            let value = row.value.chunks_exact(CHAINS);
            let rest = index.remainder().iter().zip(value.remainder());
            for (index, value) in index.zip(value) {
                for chain in 0..CHAINS {
                    let weights = &w[index[chain] as usize];
                    let x = T::of(value[chain]);
                    for k in 0..P {
                        sums[chain][k] = x.fma::<FMA>(weights[k], sums[chain][k]);
                    }
                }
            }
            for (index, value) in rest {
                let weights = &w[*index as usize];
                let x = T::of(*value);
                for k in 0..P {
                    sums[0][k] = x.fma::<FMA>(weights[k], sums[0][k]);
                }
            }
            for k in 0..P {
                out[k] = (sums[0][k] + sums[1][k]) + (sums[2][k] + sums[3][k]);
            }
        }
    }

    #[inline(always)]
    fn update<const FMA: bool, T: Real>(&self, row: Row<'_>, w: &mut [T], coefficient: &[T]) {
        for (panel, a) in coefficient.chunks_exact(P).enumerate().take(self.panels) {
            if a.iter().all(|a| *a == T::default()) {
                continue;
            }
            let mut fixed = [T::default(); P];
            fixed.copy_from_slice(a);
            let w = &mut w[panel * self.columns * P..][..self.columns * P];
            let (w, _) = w.as_chunks_mut::<P>();
            for (index, value) in row.index.iter().zip(row.value) {
                let weights = &mut w[*index as usize];
                let x = T::of(*value);
                for k in 0..P {
                    weights[k] = x.fma::<FMA>(fixed[k], weights[k]);
                }
            }
        }
    }

    fn score_depth(&self, row_length: usize) -> f64 {
        (row_length / CHAINS + 2 * CHAINS) as f64
    }
}

/// One row of weights a class, for dense rows.
#[derive(Debug, Clone, Copy)]
pub struct ClassMajor {
    columns: usize,
    classes: usize,
}

impl ClassMajor {
    /// Layout for `classes` x `columns`.
    pub fn new(classes: usize, columns: usize) -> Self {
        Self { columns, classes }
    }
}

/// Entries of a row multiplied together.
const LANES: usize = 16;
/// Classes scored together, so that the row is loaded once for all of them.
const TILE: usize = 4;

/// Scores of `N` classes whose weights lie one after the other in `w`.
#[inline(always)]
fn dense_tile<const FMA: bool, const N: usize, T: Real>(x: &[f32], w: &[T], out: &mut [T]) {
    let columns = x.len();
    let mut sums = [[T::default(); LANES]; N];
    let whole = columns / LANES * LANES;
    let mut at = 0;
    while at < whole {
        let mut entries = [T::default(); LANES];
        for (entry, x) in entries.iter_mut().zip(&x[at..at + LANES]) {
            *entry = T::of(*x);
        }
        for class in 0..N {
            let weights = &w[class * columns + at..][..LANES];
            for lane in 0..LANES {
                sums[class][lane] = entries[lane].fma::<FMA>(weights[lane], sums[class][lane]);
            }
        }
        at += LANES;
    }
    for class in 0..N {
        let mut lanes = sums[class];
        for (lane, x) in x[whole..].iter().enumerate() {
            lanes[lane] = T::of(*x).fma::<FMA>(w[class * columns + whole + lane], lanes[lane]);
        }
        let mut width = LANES / 2;
        while width > 0 {
            for lane in 0..width {
                lanes[lane] = lanes[lane] + lanes[lane + width];
            }
            width /= 2;
        }
        out[class] = lanes[0];
    }
}

impl WeightLayout for ClassMajor {
    fn stored(&self) -> usize {
        self.classes * self.columns
    }

    fn padded_classes(&self) -> usize {
        self.classes
    }

    #[inline(always)]
    fn position(&self, class: usize, column: usize) -> usize {
        class * self.columns + column
    }

    #[inline(always)]
    fn scores<const FMA: bool, T: Real>(&self, row: Row<'_>, w: &[T], scores: &mut [T]) {
        let x = &row.value[..self.columns];
        let mut class = 0;
        while class + TILE <= self.classes {
            let w = &w[class * self.columns..][..TILE * self.columns];
            dense_tile::<FMA, TILE, T>(x, w, &mut scores[class..class + TILE]);
            class += TILE;
        }
        while class < self.classes {
            let w = &w[class * self.columns..][..self.columns];
            dense_tile::<FMA, 1, T>(x, w, &mut scores[class..=class]);
            class += 1;
        }
    }

    #[inline(always)]
    fn update<const FMA: bool, T: Real>(&self, row: Row<'_>, w: &mut [T], coefficient: &[T]) {
        let x = &row.value[..self.columns];
        for (class, a) in coefficient.iter().enumerate().take(self.classes) {
            if *a != T::default() {
                let w = &mut w[class * self.columns..][..self.columns];
                for (w, x) in w.iter_mut().zip(x) {
                    *w = T::of(*x).fma::<FMA>(*a, *w);
                }
            }
        }
    }

    fn score_depth(&self, row_length: usize) -> f64 {
        (row_length / LANES + 8) as f64
    }
}
