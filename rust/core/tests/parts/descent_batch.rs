//! When sums of sparse rows leave the doubles.

use crate::descent::batch::{Batch, SparseSummation, Summation};
use crate::descent::bounds::coefficient_grid;
use crate::descent::clipping::Clip;
use crate::descent::passes::{Rule, View};
use crate::descent::settings::Arithmetic;
use crate::error::Result;
use crate::loss::smooth::SmoothLoss;
use crate::records::persons::Owners;
use crate::records::store::{ROW_GRID, RecordRows, Records};
use crate::rows::sparse::SparseRows;
use crate::runtime::interrupt::Never;

const ROWS: usize = 8_000;

/// Whether the sum of a pass over rows of norm `length`, with the same clip, had to move to the
/// integers; the rows are seen from a centre as close, or from none.
fn moved(length: f64, centred: bool) -> Result<bool> {
    let length = (length / ROW_GRID).trunc() * ROW_GRID;
    let value = vec![length as f32; ROWS];
    let index = (0..ROWS as u32).map(|i| i % 40).collect();
    let mut records = Records {
        rows: RecordRows::Sparse(SparseRows::new(value, index, (0..=ROWS).collect())),
        label: (0..ROWS as u32).map(|i| i % 3).collect(),
        columns: 40,
        centre: None,
        norm: vec![length as f32; ROWS],
        n_classes: 3,
        owners: Owners::default(),
    };
    if centred {
        records.centre(&[0.1 * length; 40], 1, &Never)?;
    }
    let rule = Rule {
        loss: SmoothLoss::new("softmax_margin", 3, 1.0, 0.0)?,
        clip: Clip::new(length, 1.0, 0.0),
        coefficient_grid: coefficient_grid(length, Arithmetic::Single),
    };
    let plan = SparseSummation {
        records: &records,
        products: None,
        blocks: None,
        rule,
    };
    let (mut batch, mut view) = (Batch::default(), View::default());
    batch.take_all(&records)?;
    Summation::<f32>::view(&plan, &[0.0; 120], &mut view)?;
    let mut worker = Summation::<f32>::worker(&plan)?;
    worker.part = 0..ROWS;
    plan.pass(&batch, &view, &mut worker)?;
    Ok(worker.sum.doubles().is_none())
}

/// The sum is booked by what enters it for a class, `q x`, and not by `q`, which is longer for short
/// rows, nor by whole contributions: every pass over all weights to make room would cost more than
/// the records.
#[test]
fn short_rows_need_no_more_room_than_long_ones() -> Result<()> {
    for length in [1.0, 1e-2, 1e-4] {
        for centred in [false, true] {
            assert!(!moved(length, centred)?, "{length} {centred}");
        }
    }
    Ok(())
}
