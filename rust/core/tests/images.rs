//! Histograms of directions of edges against the formula, in every form of the rows.

use dpsvm_core::Error;
use dpsvm_core::images::{ImageSettings, oriented_gradients};
use dpsvm_core::rows::view::{CsrIndex, Layout, RowBounds, Rows, Values};
use dpsvm_core::runtime::interrupt::{Interrupt, Never};
use std::cell::Cell;

const SHAPES: [ImageSettings; 5] = [
    settings([8, 11, 1], [4, 3], 8),
    settings([5, 4, 3], [2, 4], 5),
    settings([1, 6, 1], [1, 3], 8),
    settings([6, 1, 2], [6, 1], 1),
    settings([1, 1, 1], [1, 1], 2),
];

const fn settings(shape: [usize; 3], cells: [usize; 2], directions: usize) -> ImageSettings {
    ImageSettings {
        shape,
        cells,
        directions,
    }
}

fn images(n: usize, settings: &ImageSettings) -> Vec<f64> {
    let mut state = 5_u64;
    let mut number = || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 60) as f64 - 4.0
    };
    (0..n * settings.inputs()).map(|_| number()).collect()
}

fn features(x: &[f64], n: usize, settings: ImageSettings, threads: usize) -> Vec<f64> {
    let shape = (n, settings.inputs());
    let rows = Rows::new(Values::F64(x), Layout::Dense, shape, RowBounds::FREE).unwrap();
    let mut out = vec![-1.0; n * settings.outputs()];
    oriented_gradients(settings, &rows, &mut out, threads, &Never).unwrap();
    out
}

/// The formula, a pixel and a cell at a time.
fn plain(image: &[f64], settings: ImageSettings) -> Vec<f64> {
    let ImageSettings {
        shape: [height, width, channels],
        cells,
        directions,
    } = settings;
    let nearness = |pixel: usize, cell: usize, side: usize, cells: usize| {
        let place = (pixel as f64 + 0.5) * cells as f64 / side as f64 - 0.5;
        (1.0 - (place - cell as f64).abs()).max(0.0)
    };
    let mut sums = Vec::new();
    for channel in 0..channels {
        let at = |y: usize, x: usize| image[(y * width + x) * channels + channel];
        for row in 0..cells[0] {
            for column in 0..cells[1] {
                for k in 0..directions {
                    let angle = 2.0 * std::f64::consts::PI * k as f64 / directions as f64;
                    let mut sum = 0.0;
                    for y in 0..height {
                        for x in 0..width {
                            let dx = at(y, (x + 1).min(width - 1)) - at(y, x.saturating_sub(1));
                            let dy = at((y + 1).min(height - 1), x) - at(y.saturating_sub(1), x);
                            let size = dx.hypot(dy);
                            if size > 0.0 {
                                let share = (dx * angle.cos() + dy * angle.sin()) / size;
                                sum += size
                                    * share.max(0.0).powi(8)
                                    * nearness(y, row, height, cells[0])
                                    * nearness(x, column, width, cells[1]);
                            }
                        }
                    }
                    sums.push(sum);
                }
            }
        }
    }
    let n_cells = cells[0] * cells[1];
    let mean = sums.iter().sum::<f64>() / n_cells as f64;
    let own = |cell: usize| -> f64 {
        let of_channel = |channel| &sums[(channel * n_cells + cell) * directions..][..directions];
        (0..channels).flat_map(of_channel).sum()
    };
    let mut shares = Vec::new();
    for (at, sum) in sums.iter().enumerate() {
        let cell = at / directions % n_cells;
        shares.push(sum / (own(cell) + 0.1 * mean).max(f64::MIN_POSITIVE));
    }
    let total: f64 = shares.iter().sum();
    let total = if total > 0.0 { total } else { 1.0 };
    shares.into_iter().map(|x| (x / total).sqrt()).collect()
}

#[test]
fn features_are_those_of_the_formula() {
    for settings in SHAPES {
        let x = images(7, &settings);
        let found = features(&x, 7, settings, 1);
        let expected = x.chunks(settings.inputs()).flat_map(|i| plain(i, settings));
        for (found, expected) in found.iter().zip(expected) {
            assert!((found - expected).abs() < 1e-7);
        }
    }
}

#[test]
fn threads_precisions_and_sparse_rows_give_the_same() {
    let settings = SHAPES[1];
    let (n, d) = (3000, settings.inputs());
    let mut x = images(n, &settings);
    for x in &mut x {
        *x = x.max(0.0);
    }
    let whole = features(&x, n, settings, 1);
    assert_eq!(whole, features(&x, n, settings, 4));
    assert_eq!(
        whole[..settings.outputs()],
        features(&x[..d], 1, settings, 1)
    );
    let (mut data, mut columns, mut starts) = (Vec::new(), Vec::new(), vec![0_i32]);
    for image in x.chunks(d) {
        for (column, value) in (0_i32..).zip(image).filter(|(_, value)| **value != 0.0) {
            data.push(*value as f32);
            columns.push(column);
        }
        starts.push(data.len() as i32);
    }
    let csr = Layout::Csr(CsrIndex::I32(&columns, &starts));
    let rows = Rows::new(Values::F32(&data), csr, (n, d), RowBounds::FREE).unwrap();
    let mut sparse = vec![0.0_f64; whole.len()];
    oriented_gradients(settings, &rows, &mut sparse, 2, &Never).unwrap();
    assert_eq!(whole, sparse);
    let mut single = vec![0.0_f32; whole.len()];
    oriented_gradients(settings, &rows, &mut single, 1, &Never).unwrap();
    for (single, whole) in single.iter().zip(&whole) {
        assert!((f64::from(*single) - whole).abs() < 1e-4);
    }
}

#[test]
fn any_finite_image_has_features_of_norm_one_or_none() {
    let settings = SHAPES[0];
    for unit in [1e-320, 1e-30, 1.0, 1e30, 1e307] {
        let x: Vec<f64> = images(3, &settings).iter().map(|x| x * unit).collect();
        for features in features(&x, 3, settings, 1).chunks(settings.outputs()) {
            let square: f64 = features.iter().map(|x| x * x).sum();
            assert!((square - 1.0).abs() < 1e-12);
        }
        let flat = vec![unit; settings.inputs()];
        assert!(features(&flat, 1, settings, 1).iter().all(|x| *x == 0.0));
    }
}

struct Always;

impl Interrupt for Always {
    fn stopped(&self) -> bool {
        true
    }
}

/// Stops at its second look.
struct Second(Cell<bool>);

impl Interrupt for Second {
    fn stopped(&self) -> bool {
        self.0.replace(true)
    }
}

#[test]
fn one_large_image_is_interrupted_between_its_rows() {
    let settings = settings([64, 4096, 1], [1, 1], 256);
    let x = vec![0.0; settings.inputs()];
    let shape = (1, settings.inputs());
    let rows = Rows::new(Values::F64(&x), Layout::Dense, shape, RowBounds::FREE).unwrap();
    let mut out = vec![0.0_f32; settings.outputs()];
    for threads in [1, 2] {
        let second = Second(Cell::new(false));
        let stopped = oriented_gradients(settings, &rows, &mut out, threads, &second);
        assert!(matches!(stopped, Err(Error::Interrupted)));
    }
}

#[test]
fn what_is_wrong_is_refused() {
    let wrong = [
        settings([0, 8, 1], [1, 1], 8),
        settings([8, 8, 1], [9, 1], 8),
        settings([8, 8, 1], [1, 1], 0),
        settings([1 << 13, 8, 1], [1, 1], 8),
    ];
    for settings in wrong {
        assert!(settings.check().is_err());
    }
    let settings = SHAPES[0];
    let mut x = images(2, &settings);
    let shape = (2, settings.inputs());
    let found = |x: &[f64], settings: ImageSettings, room: usize, interrupt: &dyn Interrupt| {
        let rows = Rows::new(Values::F64(x), Layout::Dense, shape, RowBounds::FREE).unwrap();
        let mut out = vec![0.0; room];
        oriented_gradients(settings, &rows, &mut out, 1, interrupt)
    };
    let room = 2 * settings.outputs();
    assert!(found(&x, settings, room, &Never).is_ok());
    assert!(found(&x, settings, room - 1, &Never).is_err());
    assert!(found(&x, SHAPES[1], room, &Never).is_err());
    let stopped = found(&x, settings, room, &Always);
    assert!(matches!(stopped, Err(Error::Interrupted)));
    x[3] = f64::NAN;
    assert!(found(&x, settings, room, &Never).is_err());
    x[3] = f64::INFINITY;
    assert!(found(&x, settings, room, &Never).is_err());
}
