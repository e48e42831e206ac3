//! Run-time choice of instruction set, and vectors over either precision.
//!
//! Wheels are built for the baseline processor. A hot loop is written once as a [`Kernel`] over
//! an abstract vector type and compiled for each level that `pulp` knows; the level is chosen
//! when the kernel runs. (Plain loops over arrays were tried first: the compiler turned the
//! reductions into scalar code and lost a factor of two on dense rows.)

use crate::error::Result;
use crate::runtime::memory::reserve;
pub use pulp::Simd;
use pulp::WithSimd;

/// A loop nest compiled once for each instruction set.
///
/// `run` and all that it calls in its hot part must be `#[inline(always)]`, or they are compiled
/// for the baseline.
pub trait Kernel {
    /// Result of the kernel.
    type Output;
    /// Does the work.
    fn run<S: Simd>(self, simd: S) -> Self::Output;
}

struct Adapter<K>(K);

impl<K: Kernel> WithSimd for Adapter<K> {
    type Output = K::Output;

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) -> K::Output {
        self.0.run(simd)
    }
}

/// Runs `kernel` with the best instruction set of this processor.
#[inline]
pub(crate) fn dispatch<K: Kernel>(kernel: K) -> K::Output {
    pulp::Arch::new().dispatch(Adapter(kernel))
}

/// [`dispatch`] with vectors of 256 bits at most: of lines of a few numbers fewer lie in two lines of the cache.
#[inline]
pub(crate) fn dispatch_narrow<K: Kernel>(kernel: K) -> K::Output {
    #[cfg(target_arch = "x86_64")]
    if let Some(simd) = pulp::x86::V3::try_new() {
        return <pulp::x86::V3 as Simd>::vectorize(simd, Adapter(kernel));
    }
    dispatch(kernel)
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

struct Lanes;

impl Kernel for Lanes {
    type Output = usize;

    #[inline(always)]
    fn run<S: Simd>(self, _simd: S) -> usize {
        S::F32_LANES
    }
}

/// Numbers in single precision of a vector of [`dispatch`].
pub fn level_lanes() -> usize {
    dispatch(Lanes)
}

/// f32 or f64, and vectors of it.
pub trait Real: Copy + Send + Sync + Default + PartialEq + Into<f64> + 'static {
    /// A vector at level `S`.
    type Vector<S: Simd>: Copy;
    /// Nearest value of this type.
    fn near(x: f64) -> Self;
    /// Exact to double precision.
    fn wide(self) -> f64;
    /// `x` in this precision (exact); `buffer` holds it where it has to be converted.
    ///
    /// # Errors
    /// No memory.
    fn of_slice<'a>(x: &'a [f32], buffer: &'a mut Vec<Self>) -> Result<&'a [Self]>;
    /// All lanes equal.
    fn splat<S: Simd>(simd: S, x: Self) -> Self::Vector<S>;
    /// Whole vectors of a slice, and what is left.
    fn vectors<S: Simd>(x: &[Self]) -> (&[Self::Vector<S>], &[Self]);
    /// Whole vectors of a slice, and what is left.
    fn vectors_mut<S: Simd>(x: &mut [Self]) -> (&mut [Self::Vector<S>], &mut [Self]);
    /// The first lanes from `x`, the rest zero.
    fn load_part<S: Simd>(simd: S, x: &[Self]) -> Self::Vector<S>;
    /// The first lanes to `x`.
    fn store_part<S: Simd>(simd: S, x: &mut [Self], vector: Self::Vector<S>);
    /// `a * b + c`, fused where the processor has the instruction.
    fn fma<S: Simd>(
        simd: S,
        a: Self::Vector<S>,
        b: Self::Vector<S>,
        c: Self::Vector<S>,
    ) -> Self::Vector<S>;
    /// Lane by lane.
    fn add<S: Simd>(simd: S, a: Self::Vector<S>, b: Self::Vector<S>) -> Self::Vector<S>;
    /// Lane by lane.
    fn sub<S: Simd>(simd: S, a: Self::Vector<S>, b: Self::Vector<S>) -> Self::Vector<S>;
    /// Lane by lane.
    fn mul<S: Simd>(simd: S, a: Self::Vector<S>, b: Self::Vector<S>) -> Self::Vector<S>;
    /// One sum, rounded once: double precision has more than twice the digits of single.
    #[must_use]
    #[inline(always)]
    fn plus(self, other: Self) -> Self {
        Self::near(self.wide() + other.wide())
    }
    /// One difference.
    #[must_use]
    #[inline(always)]
    fn minus(self, other: Self) -> Self {
        Self::near(self.wide() - other.wide())
    }
    /// One product.
    #[must_use]
    #[inline(always)]
    fn times(self, other: Self) -> Self {
        Self::near(self.wide() * other.wide())
    }
    /// The square root.
    #[must_use]
    fn root(self) -> Self;
    /// Sum of the lanes.
    fn sum<S: Simd>(simd: S, x: Self::Vector<S>) -> Self;
    /// Numbers in a vector.
    fn lanes<S: Simd>() -> usize {
        size_of::<Self::Vector<S>>() / size_of::<Self>()
    }
}

macro_rules! real {
    ($t:ident, $vector:ident, $splat:ident, $as:ident, $as_mut:ident, $load:ident, $store:ident,
     $fma:ident, $add:ident, $sub:ident, $mul:ident, $sum:ident, |$x:ident, $buffer:ident| $convert:expr) => {
        impl Real for $t {
            type Vector<S: Simd> = S::$vector;
            #[inline(always)]
            fn near(x: f64) -> Self {
                x as $t
            }
            #[inline(always)]
            fn wide(self) -> f64 {
                self.into()
            }
            #[inline(always)]
            fn root(self) -> Self {
                self.sqrt()
            }
            #[inline(always)]
            fn of_slice<'a>($x: &'a [f32], $buffer: &'a mut Vec<Self>) -> Result<&'a [Self]> {
                $convert
            }
            #[inline(always)]
            fn splat<S: Simd>(simd: S, x: Self) -> S::$vector {
                simd.$splat(x)
            }
            #[inline(always)]
            fn vectors<S: Simd>(x: &[Self]) -> (&[S::$vector], &[Self]) {
                S::$as(x)
            }
            #[inline(always)]
            fn vectors_mut<S: Simd>(x: &mut [Self]) -> (&mut [S::$vector], &mut [Self]) {
                S::$as_mut(x)
            }
            #[inline(always)]
            fn load_part<S: Simd>(simd: S, x: &[Self]) -> S::$vector {
                simd.$load(x)
            }
            #[inline(always)]
            fn store_part<S: Simd>(simd: S, x: &mut [Self], vector: S::$vector) {
                simd.$store(x, vector);
            }
            #[inline(always)]
            fn fma<S: Simd>(simd: S, a: S::$vector, b: S::$vector, c: S::$vector) -> S::$vector {
                simd.$fma(a, b, c)
            }
            #[inline(always)]
            fn add<S: Simd>(simd: S, a: S::$vector, b: S::$vector) -> S::$vector {
                simd.$add(a, b)
            }
            #[inline(always)]
            fn sub<S: Simd>(simd: S, a: S::$vector, b: S::$vector) -> S::$vector {
                simd.$sub(a, b)
            }
            #[inline(always)]
            fn mul<S: Simd>(simd: S, a: S::$vector, b: S::$vector) -> S::$vector {
                simd.$mul(a, b)
            }
            #[inline(always)]
            fn sum<S: Simd>(simd: S, x: S::$vector) -> Self {
                simd.$sum(x)
            }
        }
    };
}

real!(
    f32,
    f32s,
    splat_f32s,
    as_simd_f32s,
    as_mut_simd_f32s,
    partial_load_f32s,
    partial_store_f32s,
    mul_add_e_f32s,
    add_f32s,
    sub_f32s,
    mul_f32s,
    reduce_sum_f32s,
    |x, _buffer| Ok(x)
);
real!(
    f64,
    f64s,
    splat_f64s,
    as_simd_f64s,
    as_mut_simd_f64s,
    partial_load_f64s,
    partial_store_f64s,
    mul_add_e_f64s,
    add_f64s,
    sub_f64s,
    mul_f64s,
    reduce_sum_f64s,
    |x, buffer| {
        buffer.clear();
        reserve(buffer, x.len())?;
        buffer.extend(x.iter().map(|x| f64::from(*x)));
        Ok(buffer)
    }
);

/// Bytes of a cache line, and of rows that are worth asking for.
#[cfg(target_arch = "x86_64")]
const LINE: usize = 64;
#[cfg(target_arch = "x86_64")]
const MAX_PREFETCHED: usize = 64 * LINE;

/// Asks for the beginning of `x` to be brought near; changes nothing else.
#[inline(always)]
pub(crate) fn prefetch<T>(x: &[T]) {
    #[cfg(target_arch = "x86_64")]
    prefetch_to::<T, { std::arch::x86_64::_MM_HINT_T0 }>(x);
    #[cfg(not(target_arch = "x86_64"))]
    let _ = x;
}

/// [`prefetch`] of what is read later: not into the first-level cache.
#[inline(always)]
pub(crate) fn prefetch_early<T>(x: &[T]) {
    #[cfg(target_arch = "x86_64")]
    prefetch_to::<T, { std::arch::x86_64::_MM_HINT_T1 }>(x);
    #[cfg(not(target_arch = "x86_64"))]
    let _ = x;
}

#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn prefetch_to<T, const HINT: i32>(x: &[T]) {
    let bytes = size_of_val(x).min(MAX_PREFETCHED);
    let start = x.as_ptr().cast::<i8>();
    for offset in (0..bytes).step_by(LINE) {
        // SAFETY: the address lies within the slice, and a prefetch reads nothing.
        unsafe { std::arch::x86_64::_mm_prefetch::<HINT>(start.add(offset)) };
    }
    // A slice that begins in the middle of a line ends in one more.
    if let Some(last) = bytes.checked_sub(1) {
        // SAFETY: as above.
        unsafe { std::arch::x86_64::_mm_prefetch::<HINT>(start.add(last)) };
    }
}

/// `y += a x`.
#[inline(always)]
pub(crate) fn add_scaled<S: Simd, T: Real>(simd: S, y: &mut [T], a: T, x: &[T]) {
    let scale = T::splat(simd, a);
    let x = &x[..y.len()];
    let (y, y_rest) = T::vectors_mut::<S>(y);
    let (x, x_rest) = T::vectors::<S>(x);
    for (y, x) in y.iter_mut().zip(x) {
        *y = T::fma(simd, scale, *x, *y);
    }
    if !y_rest.is_empty() {
        let x = T::load_part(simd, x_rest);
        let sum = T::fma(simd, scale, x, T::load_part(simd, y_rest));
        T::store_part(simd, y_rest, sum);
    }
}

/// Sums that [`dot`] keeps apart.
const LANES: usize = 8;

/// Inner product, in sums kept apart so that the loop runs in vectors.
pub(crate) fn dot<T: Real>(a: &[T], b: &[T]) -> f64 {
    let (a, a_rest) = a.as_chunks::<LANES>();
    let (b, b_rest) = b.as_chunks::<LANES>();
    let mut sums = [0.0; LANES];
    for (a, b) in a.iter().zip(b) {
        for chain in 0..LANES {
            sums[chain] += a[chain].wide() * b[chain].wide();
        }
    }
    let rest: f64 = (a_rest.iter().zip(b_rest))
        .map(|(a, b)| a.wide() * b.wide())
        .sum();
    sums.iter().sum::<f64>() + rest
}

/// The sum of `term` over pairs of entries, sixteen of them at a time for the compiler to vectorise.
///
/// Callers sum whole numbers, so that no order of the terms rounds.
#[inline(always)]
pub(crate) fn lane_sum<A, B>(a: &[A], b: &mut [B], term: impl Fn(&A, &mut B) -> f64) -> f64 {
    let mut lanes = [0.0_f64; 16];
    let (a_chunks, a_rest) = a.as_chunks::<16>();
    let (b_chunks, b_rest) = b.as_chunks_mut::<16>();
    for (a, b) in a_chunks.iter().zip(b_chunks) {
        for lane in 0..16 {
            lanes[lane] += term(&a[lane], &mut b[lane]);
        }
    }
    let rest: f64 = a_rest.iter().zip(b_rest).map(|(a, b)| term(a, b)).sum();
    rest + lanes.iter().sum::<f64>()
}
