//! Workers round to nearest, whatever the thread that starts their pool does.
#![cfg(target_arch = "x86_64")]

use dpsvm_core::runtime::threads::pool;
use std::arch::asm;
use std::hint::black_box;

/// To nearest, subnormal numbers kept, no traps.
const USUAL: u32 = 0x1f80;
/// Rounds up.
const UP: u32 = 0x4000;
/// Flushes subnormal results and operands to 0.
const FLUSH: u32 = 0x8040;

fn set(state: u32) {
    // SAFETY: between the two calls only the computations below run, behind black boxes.
    unsafe { asm!("ldmxcsr [{}]", in(reg) &raw const state, options(nostack, readonly)) };
}

/// What a sum and a product come to: 1 and the smallest number but one in the usual arithmetic.
fn computed() -> (f64, u64) {
    let sum = black_box(1.0) + black_box(2f64.powi(-60));
    let product = black_box(f64::MIN_POSITIVE) * black_box(2f64.powi(-51));
    (sum, product.to_bits())
}

#[test]
fn workers_do_not_inherit_another_rounding() {
    let usual = (1.0, 2);
    assert_eq!(computed(), usual);
    // Pools of sizes that no other test starts.
    for (threads, state) in [(5, USUAL | UP), (6, USUAL | FLUSH)] {
        set(state);
        let changed = computed();
        let pool = pool(threads);
        set(USUAL);
        assert_ne!(
            changed, usual,
            "the control: this thread did compute otherwise"
        );
        let workers = pool.unwrap().broadcast(|_| computed());
        assert_eq!(workers.len(), threads);
        assert!(workers.iter().all(|worker| *worker == usual));
    }
}
