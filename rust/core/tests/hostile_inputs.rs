//! Inputs that nobody sends on purpose: matrices, owners and numbers of any kind are used or refused,
//! and what is used keeps its promises. A panic or an overflow fails here.
//!
//! `PROPTEST_CASES=100000 cargo test hostile` searches on; what it finds is kept in
//! `proptest-regressions/` and tried first ever after.

use dpsvm_core::accounting::gaussian;
use dpsvm_core::accounting::objective::{self, Jacobian, Law, Relation};
use dpsvm_core::accounting::subsampled::{self, Subsampled};
use dpsvm_core::records::map::RowMap;
use dpsvm_core::records::store::{ROW_GRID, RecordRows, Records};
use dpsvm_core::rows::view::{CsrIndex, Layout, RowBounds, Rows, Values};
use dpsvm_core::runtime::interrupt::{Interrupt, Never};
use proptest::prelude::*;
use proptest::test_runner::{FileFailurePersistence, RngSeed};
use std::time::{Duration, Instant};

/// Gives up after a while, as somebody at a keyboard would.
struct Patience(Instant);

impl Patience {
    fn new() -> Self {
        Self(Instant::now() + Duration::from_millis(300))
    }
}

impl Interrupt for Patience {
    fn stopped(&self) -> bool {
        Instant::now() > self.0
    }
}

fn config(cases: u32) -> ProptestConfig {
    let corpus = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/proptest-regressions/hostile_inputs.txt"
    );
    let usual = ProptestConfig::default();
    let searching = std::env::var_os("PROPTEST_CASES").is_some();
    ProptestConfig {
        cases: if searching { usual.cases } else { cases },
        rng_seed: if searching {
            RngSeed::Random
        } else {
            RngSeed::Fixed(1)
        },
        failure_persistence: Some(Box::new(FileFailurePersistence::Direct(corpus))),
        ..usual
    }
}

/// Usual numbers, the ends of the format, and any bits.
fn number() -> impl Strategy<Value = f64> {
    let ends = [0.0, -0.0, 1.0, 5e-324, 1e-300, 1e-20, 1e15, 1e300, f64::MAX];
    let odd = [
        f64::NAN,
        f64::INFINITY,
        f64::NEG_INFINITY,
        f64::MIN_POSITIVE,
    ];
    prop_oneof![
        6 => -2.0..2.0_f64,
        2 => proptest::sample::select([ends.as_slice(), &odd].concat()),
        1 => any::<u64>().prop_map(f64::from_bits),
    ]
}

/// Numbers that lie mostly where a parameter is accepted.
fn positive() -> impl Strategy<Value = f64> {
    prop_oneof![6 => (-40.0..40.0_f64).prop_map(f64::exp), 1 => number()]
}

/// Row pointers, indices and values that fit together, or nearly.
fn csr() -> impl Strategy<Value = (Vec<i64>, Vec<i64>, Vec<f64>, usize)> {
    let rows = prop::collection::vec(prop::collection::btree_map(0..9_i64, number(), 0..6), 0..9);
    let damage =
        prop_oneof![4 => Just(None), 1 => (0..3_usize, 0..40_usize, any::<i64>()).prop_map(Some)];
    (rows, damage, 0..10_usize).prop_map(|(rows, damage, columns)| {
        let (mut start, mut index, mut value) = (vec![0], Vec::new(), Vec::new());
        for row in &rows {
            index.extend(row.keys());
            value.extend(row.values());
            start.push(index.len() as i64);
        }
        if let Some((what, at, number)) = damage {
            let place = |len: usize| at % len.max(1);
            match what {
                0 => start
                    .iter_mut()
                    .skip(place(rows.len() + 1))
                    .take(1)
                    .for_each(|x| *x = number),
                1 => index.iter_mut().skip(at).take(1).for_each(|x| *x = number),
                _ => value.truncate(at),
            }
        }
        (start, index, value, columns)
    })
}

fn map(numbers: [f64; 5], unit: bool) -> RowMap<'static> {
    let [low, high, constant, data_norm, _] = numbers;
    RowMap {
        offset: None,
        scale: None,
        low,
        floor: None,
        high,
        constant,
        data_norm,
        unit,
    }
}

/// What every stored row promises: multiples of the grid, of norm at most 1.
fn check(records: &Records) -> std::result::Result<(), TestCaseError> {
    let norms: Vec<f64> = match &records.rows {
        RecordRows::Dense { value } => value.chunks(records.columns.max(1)).map(square).collect(),
        RecordRows::Sparse(rows) => {
            let each = (0..records.len()).map(|i| square(rows.row(i).value));
            each.collect()
        }
        RecordRows::Lifted(_) => Vec::new(),
    };
    prop_assert!(norms.len() == records.len() && norms.iter().all(|square| *square <= 1.0));
    Ok(())
}

/// Squared norm; infinite where an entry is no multiple of the grid.
fn square(row: &[f32]) -> f64 {
    let units = row.iter().map(|x| f64::from(*x) / ROW_GRID);
    units
        .map(|x| {
            if x.fract() == 0.0 {
                x * x
            } else {
                f64::INFINITY
            }
        })
        .sum::<f64>()
        * ROW_GRID
        * ROW_GRID
}

proptest! {
    #![proptest_config(config(400))]

    // Proof: auto_pipeline, "Exact sums"
    #[test]
    fn sparse_matrices_become_short_rows_or_are_refused(
        (start, index, value, columns) in csr(),
        numbers in prop_oneof![
            3 => prop::array::uniform5(positive()).prop_map(|[a, b, c, d, e]| [-a, b, c, d, e]),
            1 => prop::array::uniform5(number()),
        ],
        (unit, plain) in any::<(bool, bool)>(),
        several in prop::collection::vec(-1..9_i64, 0..4),
        weights in prop::collection::vec(prop_oneof![0.0..=1.0_f64, number()], 0..9),
    ) {
        let n = start.len() - 1;
        let bounds = RowBounds { data_norm: numbers[3], intercept: 0.0 };
        let short = |all: &[i64]| all.iter().map(|x| *x as i32).collect::<Vec<_>>();
        let (short_index, short_start) = (short(&index), short(&start));
        for layout in [CsrIndex::I64(&index, &start), CsrIndex::I32(&short_index, &short_start)] {
            let rows = Rows::new(Values::F64(&value), Layout::Csr(layout), (n, columns), bounds);
            let Ok(rows) = rows else { continue };
            let mut map = map(numbers, unit);
            if plain {
                (map.low, map.high, map.constant) = (f64::NEG_INFINITY, f64::INFINITY, 0.0);
            }
            let labels = vec![1; n];
            let Ok(mut records) = Records::new(&rows, &map, &labels, 2, 1, &Never) else { continue };
            check(&records)?;
            let _ = records.own(&several, &weights);
            let sums = records.sums(1, &Never).unwrap();
            prop_assert!(sums.iter().all(|x| x.abs() <= n as f64 && (x / ROW_GRID).fract() == 0.0));
            let point = vec![numbers[4]; records.columns];
            if records.centre(&point, 1, &Never).is_ok() {
                prop_assert!(records.norm.iter().all(|norm| (0.0..=1.0).contains(norm)));
            }
            let gram = records.gram(1, &Never).unwrap();
            prop_assert!(gram.iter().all(|x| x.abs() <= n as f64));
        }
    }

    // Proof: auto_pipeline, "Exact sums"
    #[test]
    fn dense_matrices_become_short_rows_or_are_refused(
        value in prop::collection::vec(number(), 0..40),
        columns in 0..6_usize,
        numbers in prop::array::uniform5(positive()),
        offset in prop::collection::vec(number(), 0..6),
        unit in any::<bool>(),
    ) {
        let n = value.len().checked_div(columns).unwrap_or(3);
        let bounds = RowBounds { data_norm: numbers[3], intercept: 0.0 };
        if let Ok(rows) = Rows::new(Values::F64(&value), Layout::Dense, (n, columns), bounds) {
            let mut map = map(numbers, unit);
            map.offset = (offset.len() == columns).then_some(&offset[..]);
            if let Ok(records) = Records::new(&rows, &map, &vec![0; n], 1, 1, &Never) {
                check(&records)?;
            }
        }
    }

    // Proof: analytic_gaussian, "Statement"
    #[test]
    fn the_gaussian_curve_is_a_probability_or_refuses(a in positive(), b in positive()) {
        for delta in [gaussian::delta(a, b), gaussian::log_delta(a, b).map(f64::exp)].into_iter().flatten() {
            prop_assert!((0.0..=1.0).contains(&delta));
        }
        for found in [gaussian::sigma(a, b), gaussian::epsilon(a, b)].into_iter().flatten() {
            prop_assert!(found >= 0.0 && !found.is_nan());
        }
        let delta = gaussian::sigma(a, b).and_then(|sigma| gaussian::delta(a, sigma));
        prop_assert!(!delta.is_ok_and(|delta| delta > b));
    }
}

proptest! {
    #![proptest_config(config(40))]

    #[test]
    fn sampled_steps_have_a_probability_or_are_refused(
        rate in prop_oneof![3 => 0.0..1.0_f64, 1 => number()],
        sigma in prop_oneof![3 => 0.3..20.0_f64, 1 => positive()],
        steps in prop_oneof![0..100_u64, any::<u64>()],
        (epsilon, replace_one) in (positive(), any::<bool>()),
    ) {
        let steps = Subsampled { noise_multiplier: sigma, sampling_rate: rate, n_steps: steps };
        let patience = Patience::new();
        if let Ok(delta) = subsampled::delta(steps, epsilon, replace_one, &patience) {
            prop_assert!((0.0..=1.0).contains(&delta));
        }
        if let Ok(epsilon) = subsampled::epsilon(steps, epsilon, replace_one, &patience) {
            prop_assert!(epsilon >= 0.0);
        }
    }

    #[test]
    fn laws_of_objectives_have_a_probability_or_refuse(
        (law, scores) in (0..4_usize, prop_oneof![0..8_usize, any::<usize>()]),
        numbers in prop::array::uniform3(positive()),
        replace_one in any::<bool>(),
    ) {
        let law = [
            Law::Softmax { classes: scores },
            Law::Logistic { scores },
            Law::Huber { scores },
            Law::WestonWatkins { classes: scores },
        ][law];
        let relation = if replace_one { Relation::ReplaceOne } else { Relation::AddRemove };
        let [epsilon, sigma, kappa] = numbers;
        if let Ok(delta) = objective::delta(law, relation, epsilon, sigma, Jacobian::Kappa(kappa), &Patience::new()) {
            prop_assert!((0.0..=1.0).contains(&delta));
        }
    }
}

/// Stops at the third question.
struct Third(std::cell::Cell<u32>);

impl Interrupt for Third {
    fn stopped(&self) -> bool {
        self.0.set(self.0.get() + 1);
        self.0.get() >= 3
    }
}

#[test]
fn a_check_of_sparse_rows_can_be_interrupted() {
    let starts = vec![0_i64; 1 << 20];
    let layout = Layout::Csr(CsrIndex::I64(&[], &starts));
    let shape = (starts.len() - 1, 3);
    let bounds = RowBounds::FREE;
    let rows = |interrupt: &dyn Interrupt| {
        Rows::watched(Values::F64(&[]), layout, shape, bounds, interrupt).map(|_| ())
    };
    assert!(rows(&Never).is_ok());
    let third = Third(std::cell::Cell::new(0));
    assert!(matches!(rows(&third), Err(dpsvm_core::Error::Interrupted)));
    // It ends there: nothing is asked again.
    assert_eq!(third.0.get(), 3);
}
