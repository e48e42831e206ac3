//! Rounding and subnormal mode of a thread: the same wherever we compute.

/// The registers that say how a thread rounds and what it does with subnormal numbers: on x86-64
/// MXCSR and, 32 bits higher, the control word of x87, with which libraries still compute norms.
pub type Control = u64;

/// The registers as every program starts: to nearest, with subnormal numbers, without traps.
pub const USUAL_ARITHMETIC: Control = if cfg!(target_arch = "x86_64") {
    0x037f_0000_1f80
} else {
    0
};

/// Sets the registers of this thread, to the usual or to what this returned before.
///
/// A library in the process may have changed it, and a new thread inherits the mode of the one that
/// starts it: bounds of rounding errors would not hold, and bits depend on the number of threads.
#[inline(never)]
pub fn exchange_arithmetic(next: Control) -> Control {
    #[cfg(target_arch = "x86_64")]
    {
        let (mut before, mut before_x87) = (0_u32, 0_u16);
        let (next, next_x87) = (next as u32, (next >> 32) as u16);
        // SAFETY: stores and loads control registers, without bits that the processor refuses.
        unsafe {
            std::arch::asm!("stmxcsr [{}]", in(reg) &raw mut before, options(nostack));
            std::arch::asm!("fnstcw [{}]", in(reg) &raw mut before_x87, options(nostack));
            std::arch::asm!("ldmxcsr [{}]", in(reg) &raw const next, options(nostack));
            std::arch::asm!("fldcw [{}]", in(reg) &raw const next_x87, options(nostack));
        }
        Control::from(before_x87) << 32 | Control::from(before)
    }
    #[cfg(target_arch = "aarch64")]
    {
        let before: Control;
        // SAFETY: reads and writes the control register, without bits that the processor lacks.
        unsafe {
            std::arch::asm!("mrs {}, fpcr", out(reg) before, options(nostack));
            std::arch::asm!("msr fpcr, {}", in(reg) next, options(nostack));
        }
        before
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    next
}

/// `work` in the usual arithmetic, on this thread, whose own is put back.
pub fn in_usual_arithmetic<T>(work: impl FnOnce() -> T) -> T {
    struct Restored(Control);
    impl Drop for Restored {
        fn drop(&mut self) {
            exchange_arithmetic(self.0);
        }
    }
    /// A call of its own, so that the compiler moves no arithmetic out of it.
    #[inline(never)]
    fn call<T>(work: impl FnOnce() -> T) -> T {
        work()
    }
    let _before = Restored(exchange_arithmetic(USUAL_ARITHMETIC));
    call(work)
}
