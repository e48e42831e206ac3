//! Arrays that the user's data size are asked for in a way that may fail: large allocations of a
//! computation are refused in turn, and it ends with an error or without that memory. One that is asked
//! for in the usual way ends the test program.

use super::number;
use super::records::PLAIN;
use dpsvm_core::descent::clipping::Clip;
use dpsvm_core::descent::optimizer::{Optimizer, Schedule};
use dpsvm_core::descent::settings::{Arithmetic, DescentSettings};
use dpsvm_core::descent::streams::DescentStreams;
use dpsvm_core::fourier::transform::transform;
use dpsvm_core::fourier::{Centre, Family, FourierMap, FourierSettings, Structure};
use dpsvm_core::linalg::row_products;
use dpsvm_core::loss::smooth::SmoothLoss;
use dpsvm_core::noise::Key;
use dpsvm_core::records::store::Records;
use dpsvm_core::rows::view::{CsrIndex, Layout, RowBounds, Rows, Values};
use dpsvm_core::runtime::interrupt::Never;
use dpsvm_core::solver::crammer_singer::{self, CrammerSingerSettings};
use dpsvm_core::solver::ellipsoids::{self, EllipsoidSettings};
use dpsvm_core::solver::projected_sgd::{self, Average, Ownership, Projection, SgdSettings};
use dpsvm_core::solver::smooth::{self, SmoothSettings};
use dpsvm_core::{Error, Result};
use std::alloc::{GlobalAlloc, Layout as Place, System};
use std::cell::Cell;
use std::sync::Arc;

/// Bytes from which an allocation counts as large.
const LARGE: usize = 8192;

thread_local! {
    /// Large allocations that this thread may make until one is refused.
    static LEFT: Cell<Option<usize>> = const { Cell::new(None) };
}

struct Refusing;

#[global_allocator]
static ALLOCATOR: Refusing = Refusing;

/// Not what is aligned to cache lines: blocks of a bounded size for the crate gemm, and the matrices
/// that the crate faer asks for in a way that may fail.
fn refused(bytes: usize, align: usize) -> bool {
    let left = LEFT.get().filter(|_| bytes >= LARGE && align < 64);
    if let Some(left) = left {
        LEFT.set(left.checked_sub(1));
    }
    left == Some(0)
}

// SAFETY: all memory comes from and goes to the system's allocator; a null pointer is a lack of it.
unsafe impl GlobalAlloc for Refusing {
    unsafe fn alloc(&self, place: Place) -> *mut u8 {
        if refused(place.size(), place.align()) {
            return std::ptr::null_mut();
        }
        // SAFETY: as the caller promises.
        unsafe { System.alloc(place) }
    }

    unsafe fn dealloc(&self, start: *mut u8, place: Place) {
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(start, place) }
    }

    unsafe fn realloc(&self, start: *mut u8, place: Place, size: usize) -> *mut u8 {
        if refused(size, place.align()) {
            return std::ptr::null_mut();
        }
        // SAFETY: as the caller promises.
        unsafe { System.realloc(start, place, size) }
    }
}

/// Repeats `work` with another large allocation refused each time, the first ones one by one. Returns
/// whether there were any.
fn each_refusal<T>(name: &str, work: impl Fn() -> Result<T>) -> bool {
    let mut at = 0;
    loop {
        LEFT.set(Some(at));
        let found = work().map(drop);
        let all_made = LEFT.take().is_some();
        let expected =
            found.is_ok() || (!all_made && matches!(found, Err(Error::OutOfMemory { .. })));
        assert!(expected, "{name}: number {at}, {found:?}");
        if all_made {
            return at > 0;
        }
        at += 1 + at / 4;
    }
}

const BOUNDS: RowBounds = RowBounds {
    data_norm: 1.0,
    intercept: 0.5,
};

/// Rows with labels, dense or with few entries each.
struct Data {
    value: Vec<f64>,
    index: Vec<i32>,
    start: Vec<i32>,
    label: Vec<i64>,
    classes: usize,
    columns: usize,
}

impl Data {
    fn new(n: usize, columns: usize, entries: Option<usize>) -> Self {
        let each = entries.unwrap_or(columns);
        let mut state = 5_u64;
        let value: Vec<f64> = (0..n * each).map(|_| number(&mut state) - 0.5).collect();
        let stride = columns / each;
        Self {
            label: (0..n)
                .map(|i| i64::from(value[i * each] > 0.0) + i64::from(value[i * each] > 0.3))
                .collect(),
            classes: 3,
            value,
            index: (0..n * each)
                .map(|at| (at % each * stride + at / each % stride) as i32)
                .collect(),
            start: if entries.is_some() {
                (0..=n).map(|i| (i * each) as i32).collect()
            } else {
                Vec::new()
            },
            columns,
        }
    }

    fn rows(&self, bounds: RowBounds) -> Rows<'_> {
        let layout = if self.start.is_empty() {
            Layout::Dense
        } else {
            Layout::Csr(CsrIndex::I32(&self.index, &self.start))
        };
        let shape = (self.label.len(), self.columns);
        Rows::new(Values::F64(&self.value), layout, shape, bounds).unwrap()
    }

    /// Many rows, many columns, both with few entries, and many classes.
    fn all() -> [Self; 5] {
        let many = |entries| Self {
            classes: 1100,
            ..Self::new(40, 12, entries)
        };
        [
            Self::new(1500, 12, None),
            Self::new(40, 1500, None),
            Self::new(1500, 1500, Some(6)),
            many(None),
            many(Some(6)),
        ]
    }

    fn records(&self) -> Result<Records> {
        let rows = self.rows(RowBounds {
            intercept: 0.0,
            ..BOUNDS
        });
        Records::new(&rows, &PLAIN, &self.label, self.classes, 1, &Never)
    }
}

#[test]
fn solvers_lack_memory_with_an_error() {
    let mut refused = false;
    for data in Data::all() {
        let rows = data.rows(BOUNDS);
        let labels = (&*data.label, &[][..]);
        for scores in [1, data.classes] {
            let name = if scores == 1 {
                "softplus"
            } else {
                "softmax_margin"
            };
            let loss = SmoothLoss::new(name, scores, 1.0, 1.0).unwrap();
            let settings = SmoothSettings {
                loss,
                regularization: 1.0,
                gradient_tol: 1e-3,
                max_steps: None,
                seed: 1,
                threads: 1,
                low_memory: false,
            };
            let two: Vec<i64> = data.label.iter().map(|y| *y.min(&1)).collect();
            let labels = if scores == 1 {
                (&*two, &[][..])
            } else {
                labels
            };
            refused |= each_refusal("smooth", || {
                smooth::solve(rows, labels, None, &settings, &Never)
            });
            let settings = SgdSettings {
                loss,
                epochs: 1,
                batch: 10,
                most_rows: 1,
                regularization: 0.1,
                radius: 10.0,
                projection: Projection::Joint,
                average: Average::Uniform,
                seed: 1,
                low_memory: false,
            };
            refused |= each_refusal("projected SGD", || {
                projected_sgd::solve(rows, labels.0, Ownership::default(), &settings, &Never)
            });
        }
        let settings = CrammerSingerSettings {
            classes: data.classes,
            cost: 0.1,
            radius: 1e-3,
            max_passes: None,
            seed: 1,
            threads: 1,
            low_memory: false,
        };
        refused |= each_refusal("Crammer-Singer", || {
            crammer_singer::solve(rows, labels, &settings, &Never)
        });
    }
    assert!(refused);
}

#[test]
fn ellipsoids_and_products_lack_memory_with_an_error() {
    let mut refused = false;
    let data = Data::new(1500, 12, None);
    let settings = EllipsoidSettings {
        loss: "softmax_margin",
        classes: 3,
        ellipsoids: 1,
        smoothing: 1.0,
        margin: 1.0,
        regularization: 10.0,
        data_norm: 1.0,
        psd: true,
        gradient_tol: 1e-2,
        max_passes: None,
        threads: 1,
    };
    let linear = vec![0.0; 3 * 13 * 14 / 2];
    refused |= each_refusal("ellipsoids", || {
        let x = Values::F64(&data.value);
        ellipsoids::solve(
            x,
            (1500, 12),
            (&data.label, &[]),
            &linear,
            &settings,
            &Never,
        )
    });
    let matrix = vec![0.5; 12 * 100];
    refused |= each_refusal("products", || {
        row_products(&data.value, &matrix, 12, 1, &Never)
    });
    assert!(refused);
}

#[test]
fn records_and_descents_lack_memory_with_an_error() {
    let mut refused = false;
    let key = Key::from_seed(3);
    for data in Data::all() {
        refused |= each_refusal("records", || data.records());
        let point = vec![0.01; data.columns];
        refused |= each_refusal("a centre", || data.records()?.centre(&point, 1, &Never));
        let small = data.columns < 100 || data.label.len() < 100;
        if small {
            let matrix = vec![0.1; data.columns * 20];
            refused |= each_refusal("a transform", || {
                data.records()?.transform(&matrix, 20, 1, &Never)
            });
        }
        let settings = DescentSettings {
            loss: SmoothLoss::new("softmax_margin", data.classes, 1.0, 1.0).unwrap(),
            features: data.columns,
            clip: Clip::new(0.5, 1.0, 0.5),
            noise: DescentStreams::kind(0.0, None),
            divisor: 10.0,
            regularization: 0.01,
            optimizer: Optimizer::Gradient {
                momentum: 0.5,
                nesterov: false,
            },
            rate: 0.5,
            schedule: Schedule::Constant,
            average_from: Some(0),
            radius: None,
            arithmetic: Arithmetic::Single,
            exact_sums: false,
        };
        for rate in [0.5, 1.0] {
            refused |= each_refusal("a descent", || {
                let records = data.records()?;
                let tasks = [key.task(0), key.task(1), key.task(2)];
                let streams =
                    DescentStreams::new(tasks, rate, (0.0, None), (2, settings.weights()))?;
                let mut state = settings.start()?;
                settings.run(&mut state, &records, &streams, 0..2, 1, &Never)
            });
        }
    }
    assert!(refused);
}

#[test]
fn features_lack_memory_with_an_error() {
    let mut refused = false;
    for structure in [
        Structure::Independent,
        Structure::Orthogonal,
        Structure::Fast,
    ] {
        let settings = FourierSettings {
            features: 12,
            components: 200,
            gamma: 1.0,
            family: Family::Gaussian,
            structure,
            centre: Centre::Sphere,
            seed: 1,
        };
        let data = Data::new(100, 12, None);
        let rows = data.rows(RowBounds::FREE);
        refused |= each_refusal("features", || {
            let map = FourierMap::new(settings)?;
            let mut out = vec![0.0; 0];
            out.try_reserve_exact(100 * 400)
                .map_err(|_| Error::OutOfMemory { bytes: 0 })?;
            out.resize(100 * 400, 0.0);
            transform(&map, map.double()?, &rows, &mut out, 1, &Never)
        });
        for stored in [true, false] {
            refused |= each_refusal("lifted records", || {
                let map = Arc::new(FourierMap::new(settings)?);
                let mut records = data.records()?;
                records.lift(&map, stored, 1, &Never)?;
                if stored {
                    records.gram(1, &Never)?;
                }
                Ok(())
            });
        }
    }
    assert!(refused);
}
