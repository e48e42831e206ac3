//! Run-time choice of instruction set.
//!
//! Wheels are built for the baseline processor. A hot loop is written once as a [`Kernel`] of
//! plain Rust that the compiler vectorises, and compiled for each level below; the level is
//! chosen when the kernel runs. `FMA` tells a kernel whether fused multiply-add is one
//! instruction: without it `mul_add` would be a slow library call.

/// A loop nest compiled once for each instruction set.
///
/// `run` and all that it calls in its hot part must be `#[inline(always)]`, or they are compiled
/// for the baseline.
pub trait Kernel {
    /// What the kernel returns.
    type Output;
    /// Does the work.
    fn run<const FMA: bool>(self) -> Self::Output;
}

/// Runs `kernel` with the best instruction set of this processor.
#[inline]
pub fn dispatch<K: Kernel>(kernel: K) -> K::Output {
    #[cfg(target_arch = "x86_64")]
    {
        struct Fused<K>(K);
        impl<K: Kernel> pulp::NullaryFnOnce for Fused<K> {
            type Output = K::Output;
            #[inline(always)]
            fn call(self) -> K::Output {
                self.0.run::<true>()
            }
        }
        if let Some(v4) = pulp::x86::V4::try_new() {
            return v4.vectorize(Fused(kernel));
        }
        if let Some(v3) = pulp::x86::V3::try_new() {
            return v3.vectorize(Fused(kernel));
        }
        kernel.run::<false>()
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        // aarch64 has fused multiply-add and NEON in its baseline.
        if cfg!(target_arch = "aarch64") {
            kernel.run::<true>()
        } else {
            kernel.run::<false>()
        }
    }
}

/// Name of the instruction set that [`dispatch`] chooses here.
pub fn level_name() -> &'static str {
    #[cfg(target_arch = "x86_64")]
    {
        if pulp::x86::V4::try_new().is_some() {
            "x86-64-v4"
        } else if pulp::x86::V3::try_new().is_some() {
            "x86-64-v3"
        } else {
            "x86-64"
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        std::env::consts::ARCH
    }
}
