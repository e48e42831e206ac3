//! Descent over shards of the records: what merges exactly, against the whole.

use super::number;
use dpsvm_core::descent::bounds::clipped_sum_distance;
use dpsvm_core::descent::clipping::Clip;
use dpsvm_core::descent::optimizer::{Optimizer, Schedule, State};
use dpsvm_core::descent::settings::{Arithmetic, DescentSettings};
use dpsvm_core::descent::streams::{Batches, DescentStreams};
use dpsvm_core::loss::smooth::SmoothLoss;
use dpsvm_core::noise::{Key, poisson_batch};
use dpsvm_core::records::persons::Owners;
use dpsvm_core::records::store::{Centre, ROW_GRID, RecordRows, Records};
use dpsvm_core::records::sums::gram_values;
use dpsvm_core::rows::sparse::SparseRows;
use dpsvm_core::runtime::interrupt::Never;
use dpsvm_core::{Error, Result};

const GRID: f64 = 1.0 / (1u64 << 40) as f64;

/// One data set: rows on the grid, of norm at most 1 as they are effective, and labels.
struct Table {
    rows: Vec<Vec<f32>>,
    label: Vec<u32>,
    columns: usize,
    classes: usize,
    /// For sparse rows only.
    centre: Option<Vec<f64>>,
}

impl Table {
    fn new(n: usize, columns: usize, classes: usize, centred: bool) -> Self {
        let mut state = 9;
        let mut rows = Vec::new();
        for _ in 0..n {
            let row: Vec<f64> = (0..columns)
                .map(|_| (number(&mut state) - 0.5) * f64::from(number(&mut state) < 0.4))
                .collect();
            let norm = row.iter().map(|x| x * x).sum::<f64>().sqrt().max(1e-9) * 1.000_001;
            let entry = |x: &f64| ((x / norm / ROW_GRID).trunc() * ROW_GRID) as f32;
            rows.push(row.iter().map(entry).collect());
        }
        let label = (0..n).map(|_| (number(&mut state) * classes as f64) as u32);
        let point = |j| f64::from(j % 7 - 3) / 128.0;
        Self {
            rows,
            label: label.collect(),
            columns,
            classes,
            centre: centred.then(|| (0..columns as i32).map(point).collect()),
        }
    }

    fn centre_of(&self, rows: &[Vec<f32>]) -> Option<Centre> {
        let point = self.centre.clone()?;
        let factor = rows.iter().map(|row| {
            let parts = row.iter().zip(&point);
            let square: f64 = parts.map(|(x, m)| (f64::from(*x) - m).powi(2)).sum();
            (0.999_999 / square.sqrt().max(1.0 / 16.0)) as f32
        });
        Some(Centre {
            factor: factor.collect(),
            point,
        })
    }

    /// The records of a range, as dense or as sparse rows.
    fn records(&self, range: std::ops::Range<usize>, dense: bool) -> Records {
        let rows = &self.rows[range.clone()];
        let stored = if dense {
            RecordRows::Dense {
                value: rows.concat(),
            }
        } else {
            let (mut value, mut index, mut start) = (Vec::new(), Vec::new(), vec![0]);
            for row in rows {
                let entries = row.iter().enumerate().filter(|(_, x)| **x != 0.0);
                for (j, x) in entries {
                    value.push(*x);
                    index.push(j as u32);
                }
                start.push(value.len());
            }
            RecordRows::Sparse(SparseRows::new(value, index, start))
        };
        Records {
            rows: stored,
            label: self.label[range].to_vec(),
            columns: self.columns,
            centre: if dense { None } else { self.centre_of(rows) },
            norm: vec![1.0; rows.len()],
            n_classes: self.classes,
            owners: Owners::default(),
        }
    }

    /// Some of the records.
    fn chosen(&self, records: &[usize], dense: bool) -> Records {
        let chosen = Self {
            rows: records.iter().map(|i| self.rows[*i].clone()).collect(),
            label: records.iter().map(|i| self.label[*i]).collect(),
            centre: self.centre.clone(),
            ..*self
        };
        chosen.records(0..records.len(), dense)
    }

    /// `shards` consecutive shards of unequal sizes, one of them empty from three on.
    fn shards(&self, shards: usize, dense: bool) -> Vec<Records> {
        let n = self.rows.len();
        let cut = |at: usize| match at {
            0 => 0,
            _ if at >= shards => n,
            2 if shards > 2 => n / shards + 3,
            _ => (n * at / shards + 3).min(n),
        };
        let first = |at: usize| {
            if at == 1 && shards > 2 {
                cut(2)
            } else {
                cut(at)
            }
        };
        (0..shards)
            .map(|at| self.records(first(at)..first(at + 1).max(first(at)), dense))
            .collect()
    }
}

fn settings(scores: usize, d: usize, arithmetic: Arithmetic) -> Result<DescentSettings> {
    let name = if scores == 1 {
        "huber"
    } else {
        "softmax_margin"
    };
    Ok(DescentSettings {
        loss: SmoothLoss::new(name, scores, 0.5, 1.0)?,
        features: d,
        clip: Clip::new(0.4, 0.9, 0.3),
        noise: DescentStreams::kind(2.0, Some(GRID)),
        divisor: 4.0,
        regularization: 0.01,
        optimizer: Optimizer::Gradient {
            momentum: 0.0,
            nesterov: false,
        },
        rate: 0.5,
        schedule: Schedule::Constant,
        average_from: None,
        radius: (arithmetic == Arithmetic::Double).then_some(50.0),
        arithmetic,
        exact_sums: true,
    })
}

const STEPS: u32 = 4;

/// The whole in one process.
fn whole(at: &DescentSettings, records: &Records, key: &Key, rate: f64) -> Result<State> {
    let mut state = at.start().unwrap();
    let streams = streams(at, key, rate)?;
    at.run(&mut state, records, &streams, 0..STEPS, 1, &Never)?;
    Ok(state)
}

fn streams<'k>(at: &DescentSettings, key: &'k Key, rate: f64) -> Result<DescentStreams<'k>> {
    let tasks = [key.task(0), key.task(1), key.task(2)];
    DescentStreams::new(tasks, rate, (2.0, Some(GRID)), (STEPS, at.weights()))
}

/// The same over shards: batches from one key, noise from another.
fn sharded(
    at: &DescentSettings,
    shards: &[Records],
    (batches, noise): (&Key, &Key),
    (rate, threads): (f64, usize),
) -> Result<State> {
    let mut state = at.start().unwrap();
    let streams = streams(at, noise, rate)?;
    for step in 0..STEPS {
        let mut total = vec![0; at.weights()];
        // Backwards: the order of merging changes nothing.
        for (number, records) in shards.iter().enumerate().rev() {
            let own = Batches::of_shard(batches, number as u32, rate)?;
            let part = at.partial(&state.weights, records, (&own, step), threads, &Never)?;
            total.iter_mut().zip(part).for_each(|(t, p)| *t += p);
        }
        at.advance(&mut state, &total, &streams, step)?;
    }
    Ok(state)
}

// Proof: gradient_perturbation, "Clipped sums and their rounding"
#[test]
fn full_batches_have_the_same_bits_for_any_sharding() -> Result<()> {
    for (scores, classes) in [(1, 2), (3, 3), (11, 11)] {
        for (dense, centred) in [(true, false), (false, false), (false, true)] {
            for arithmetic in [Arithmetic::Single, Arithmetic::Double] {
                let table = Table::new(333, 21, classes, centred);
                let mut at = settings(scores, 21, arithmetic)?;
                let key = Key::from_seed(11);
                let one = whole(&at, &table.records(0..333, dense), &key, 1.0)?;
                assert!(one.weights.iter().all(|w| *w != 0.0));
                for n in [1, 2, 3, 7] {
                    let shards = table.shards(n, dense);
                    let sizes: usize = shards.iter().map(Records::len).sum();
                    assert_eq!(sizes, 333);
                    let state = sharded(&at, &shards, (&key, &key), (1.0, 1))?;
                    assert_eq!(state, one, "{scores} {dense} {centred} {arithmetic:?} {n}");
                }
                if !dense {
                    // Sparse rows are summed exactly in any case.
                    at.exact_sums = false;
                    assert_eq!(whole(&at, &table.records(0..333, dense), &key, 1.0)?, one);
                }
            }
        }
    }
    Ok(())
}

#[test]
fn one_shard_with_the_same_streams_is_the_run() -> Result<()> {
    for dense in [true, false] {
        let table = Table::new(400, 15, 3, false);
        let records = [table.records(0..400, dense)];
        let at = settings(3, 15, Arithmetic::Single)?;
        // Shard 0 draws from task 0, where the run has its batches.
        let key = Key::from_seed(3);
        let one = whole(&at, &records[0], &key, 0.2)?;
        assert_eq!(sharded(&at, &records, (&key, &key), (0.2, 1))?, one);
        // Another key: other batches.
        let other = Key::from_seed(4);
        assert_ne!(sharded(&at, &records, (&other, &key), (0.2, 1))?, one);
    }
    Ok(())
}

/// The batches of the shards, put together by hand, in one process.
// Proof: gradient_perturbation, "Clipped sums and their rounding"
#[test]
fn sampled_shards_are_the_whole_with_their_batches() -> Result<()> {
    let table = Table::new(300, 12, 3, false);
    let (key, rate) = (Key::from_seed(8), 0.3);
    let at = settings(3, 12, Arithmetic::Single)?;
    let noise = streams(&at, &key, rate)?;
    for dense in [true, false] {
        let shards = table.shards(3, dense);
        let mut one = at.start().unwrap();
        for step in 0..STEPS {
            let (mut batch, mut first) = (Vec::new(), 0);
            for (number, shard) in shards.iter().enumerate() {
                let mut own = Vec::new();
                Batches::of_shard(&key, number as u32, rate)?.fill(step, shard.len(), &mut own);
                batch.extend(own.iter().map(|i| *i as usize + first));
                first += shard.len();
            }
            assert!(!batch.is_empty() && batch.len() < 200);
            let all = Batches::of_shard(&key, 0, 1.0)?;
            let part = at.partial(
                &one.weights,
                &table.chosen(&batch, dense),
                (&all, step),
                1,
                &Never,
            )?;
            at.advance(&mut one, &part, &noise, step)?;
        }
        let mut state = at.start().unwrap();
        for step in 0..STEPS {
            let mut total = vec![0; at.weights()];
            for (number, records) in shards.iter().enumerate() {
                let own = Batches::of_shard(&key, number as u32, rate)?;
                let part = at.partial(&state.weights, records, (&own, step), 1, &Never)?;
                total.iter_mut().zip(part).for_each(|(t, p)| *t += p);
            }
            at.advance(&mut state, &total, &noise, step)?;
        }
        assert_eq!(state, one);
    }
    Ok(())
}

#[test]
fn parts_are_functions_of_their_arguments() -> Result<()> {
    let table = Table::new(5000, 60, 5, false);
    let at = settings(5, 60, Arithmetic::Single)?;
    let weights = vec![0.25; at.weights()];
    let key = Key::from_seed(2);
    for dense in [true, false] {
        let records = table.records(0..5000, dense);
        for rate in [1.0, 0.4] {
            let own = Batches::of_shard(&key, 6, rate)?;
            let part =
                |step, threads| at.partial(&weights, &records, (&own, step), threads, &Never);
            let once = part(3, 1)?;
            assert!(once.iter().any(|u| *u != 0));
            assert_eq!(part(3, 1)?, once);
            assert_eq!(part(3, 3)?, once);
            assert_eq!(part(4, 1)? == once, rate == 1.0);
            let other = Batches::of_shard(&key, 7, rate)?;
            let theirs = at.partial(&weights, &records, (&other, 3), 1, &Never)?;
            assert_eq!(theirs == once, rate == 1.0);
        }
    }
    Ok(())
}

/// Exact sums stay within the distance that the leaves were charged for, and are near them.
// Proof: gradient_perturbation, "Clipped sums and their rounding"
#[test]
fn exact_sums_are_near_those_of_leaves() -> Result<()> {
    let table = Table::new(700, 30, 4, false);
    let mut at = settings(4, 30, Arithmetic::Single)?;
    at.noise = DescentStreams::kind(0.0, None);
    (at.divisor, at.rate, at.regularization) = (1.0, 1.0, 0.0);
    let key = Key::from_seed(1);
    let sum = |exact, n| -> Result<Vec<f64>> {
        let mut at = at;
        at.exact_sums = exact;
        let tasks = [key.task(0), key.task(1), key.task(2)];
        let streams = DescentStreams::new(tasks, 1.0, (0.0, None), (1, at.weights()))?;
        let mut state = at.start().unwrap();
        at.run(
            &mut state,
            &table.records(0..n, true),
            &streams,
            0..1,
            1,
            &Never,
        )?;
        Ok(state.weights)
    };
    let distance = |a: &[f64], b: &[f64]| {
        let square: f64 = a.iter().zip(b).map(|(a, b)| (a - b) * (a - b)).sum();
        square.sqrt()
    };
    let (exact, leaves) = (sum(true, 700)?, sum(false, 700)?);
    let far = distance(&exact, &leaves);
    // Truncated coefficients: at most a grid step for each class and record, at norm 1.05 or less.
    let step = 0.5 / 1_048_576.0;
    assert!(
        far > 0.0 && far <= 700.0 * (2.0 * 1.05 * step + 2.7e-4 * 0.4),
        "{far:e}"
    );
    let one = distance(&exact, &sum(true, 699)?);
    assert!(one > 0.05 && one <= clipped_sum_distance(0.4, at.weights(), None)?);
    Ok(())
}

#[test]
fn sums_of_outer_products_merge() -> Result<()> {
    for (dense, centred) in [(true, false), (false, false), (false, true)] {
        let table = Table::new(900, 20, 2, centred);
        let whole = table.records(0..900, dense).gram(1, &Never)?;
        for n in [1, 2, 3, 7] {
            let mut total = vec![0; 400];
            for shard in table.shards(n, dense) {
                let part = shard.gram_units(1, &Never)?;
                total.iter_mut().zip(part).for_each(|(t, p)| *t += p);
            }
            assert_eq!(gram_values(&total).unwrap(), whole);
        }
    }
    Ok(())
}

/// Shards and steps join independently: chi-square of the numbers of joint members of pairs.
// Proof: gradient_perturbation, "Clipped sums and their rounding"
#[test]
fn batches_of_shards_are_independent() -> Result<()> {
    let (key, n, rate, rounds) = (Key::from_seed(77), 40_000, 0.25, 12);
    let batch = |shard: u32, step: u32| -> Result<Vec<bool>> {
        let own = Batches::of_shard(&key, shard, rate)?;
        let mut members = Vec::new();
        own.fill(step, n, &mut members);
        let mut joined = vec![false; n];
        for i in members {
            joined[i as usize] = true;
        }
        Ok(joined)
    };
    let statistic = |a: &[bool], b: &[bool]| {
        let mut counts = [0.0_f64; 4];
        for (a, b) in a.iter().zip(b) {
            counts[2 * usize::from(*a) + usize::from(*b)] += 1.0;
        }
        let (q, n) = (rate, n as f64);
        let law = [(1.0 - q) * (1.0 - q), (1.0 - q) * q, q * (1.0 - q), q * q];
        let parts = counts.iter().zip(law);
        parts
            .map(|(c, p)| (c - n * p).powi(2) / (n * p))
            .sum::<f64>()
    };
    let (mut shards, mut steps) = (0.0, 0.0);
    for round in 0..rounds {
        let own = batch(round, 5)?;
        shards += statistic(&own, &batch(round + 100, 5)?);
        steps += statistic(&own, &batch(round, 6)?);
        // The control: a batch is not independent of itself.
        assert!(statistic(&own, &batch(round, 5)?) > 1000.0);
    }
    // 36 degrees of freedom: more than 36 + 2 sqrt(36 x) + 2 x has probability at most exp(-x)
    // (Laurent and Massart 2000), 4e-7 for x = 14.8, twice.
    let limit = 36.0 + 2.0 * (36.0_f64 * 14.8).sqrt() + 2.0 * 14.8;
    assert!(shards < limit && steps < limit, "{shards} {steps}");
    Ok(())
}

#[test]
fn the_streams_of_a_key_are_those_of_its_tasks() -> Result<()> {
    let (key, rate) = (Key::from_seed(5), 0.5);
    let own = Batches::of_shard(&key, 9, rate)?;
    let mut batch = Vec::new();
    own.fill(2, 50, &mut batch);
    let mut same = Vec::new();
    let rate = dpsvm_core::noise::Rate::new(rate)?;
    poisson_batch(&mut key.task(9).stream(2), &rate, 50, &mut same);
    assert_eq!(batch, same);
    let bytes = key.task(1).new_key();
    assert_ne!(bytes, key.task(2).new_key());
    let copy = Key::from_bytes(&bytes);
    assert_eq!(
        copy.task(0).first_word(),
        Key::from_bytes(&bytes).task(0).first_word()
    );
    assert_ne!(copy.task(0).first_word(), key.task(1).first_word());
    Ok(())
}

#[test]
fn what_does_not_fit_is_refused() -> Result<()> {
    let table = Table::new(5, 4, 3, false);
    let records = table.records(0..5, true);
    let key = Key::from_seed(1);
    let own = Batches::of_shard(&key, 0, 1.0)?;
    let at = settings(3, 4, Arithmetic::Single)?;
    let invalid = |outcome: Result<Vec<i128>>| {
        assert!(matches!(outcome, Err(Error::InvalidArgument { .. })));
    };
    invalid(at.partial(&[0.0; 3], &records, (&own, 0), 1, &Never));
    invalid(at.partial(&[f64::NAN; 15], &records, (&own, 0), 1, &Never));
    invalid(settings(3, 5, Arithmetic::Single)?.partial(
        &[0.0; 18],
        &records,
        (&own, 0),
        1,
        &Never,
    ));
    assert!(
        at.partial(&[0.0; 15], &records, (&own, 0), 1, &Never)
            .is_ok()
    );
    let mut state = at.start().unwrap();
    let noise = streams(&at, &key, 1.0)?;
    assert!(at.advance(&mut state, &[0; 14], &noise, 0).is_err());
    assert_eq!(state, at.start().unwrap());
    Ok(())
}
