//! Lines of weights against plain sums, for every width and length.

use crate::layout::lines::{Lines, SPARE, weighted_sum};
use crate::layout::weights::WeightLayout;
use crate::rows::view::Row;
use crate::simd::{Kernel, Real, Simd, dispatch};

struct Update<'a, T>(Lines, Row<'a, T>, &'a mut [T], &'a [T]);

impl<T: Real> Kernel for Update<'_, T> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        self.0.update(simd, self.1, self.2, self.3);
    }
}

/// An update adds to the lines of the row's columns, and to nothing beside them.
fn updates<T: Real>(classes: usize) {
    let layout = Lines::new(classes, 5);
    let mut w: Vec<T> = (0..layout.stored()).map(|at| T::near(at as f64)).collect();
    let mut a = vec![T::default(); layout.padded_classes()];
    for (class, a) in a[..classes].iter_mut().enumerate() {
        *a = T::near(class as f64 + 1.0);
    }
    let row = Row {
        index: &[1, 4],
        value: &[T::near(2.0), T::near(-3.0)],
    };
    dispatch(Update(layout, row, &mut w, &a));
    for (column, x) in [0.0, 2.0, 0.0, 0.0, -3.0].into_iter().enumerate() {
        for class in 0..classes {
            let at = layout.position(class, column);
            assert_eq!(w[at].wide(), at as f64 + x * (class as f64 + 1.0));
        }
    }
    let spare = classes * 5..layout.stored();
    assert!(spare.into_iter().all(|at| w[at].wide() == at as f64));
}

struct Once<'a, T>(Row<'a>, &'a [T], &'a mut [T]);

impl<T: Real> Kernel for Once<'_, T> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        weighted_sum(simd, self.0, self.1, self.2);
    }
}

/// Small whole numbers are added without rounding: any order gives the same sum.
fn agrees<T: Real>(classes: usize, entries: usize) {
    let (lines, stride) = (40, classes);
    let mut b = vec![T::near(f64::NAN); lines * stride + SPARE];
    for (at, b) in b[..lines * stride].iter_mut().enumerate() {
        *b = T::near(((at * 7) % 23) as f64 - 11.0);
    }
    let index: Vec<u32> = (0..entries).map(|e| (e * 13 % lines) as u32).collect();
    let value: Vec<f32> = (0..entries).map(|e| (e % 5) as f32 - 2.0).collect();
    let mut out = vec![T::near(0.5); stride];
    let line = Row {
        index: &index,
        value: &value,
    };
    dispatch(Once(line, &b, &mut out));
    for class in 0..classes {
        let terms = index.iter().zip(&value);
        let exact: f64 = terms
            .map(|(j, x)| f64::from(*x) * b[*j as usize * stride + class].wide())
            .sum();
        assert_eq!(out[class].wide(), exact, "{classes} {entries} {class}");
    }
}

#[test]
fn every_width_and_length_adds_up() {
    for classes in (1..40).chain([64, 65, 130]) {
        for entries in [0, 1, 2, 3, 4, 5, 7, 8, 63] {
            agrees::<f32>(classes, entries);
            agrees::<f64>(classes, entries);
        }
        updates::<f32>(classes);
        updates::<f64>(classes);
    }
}
