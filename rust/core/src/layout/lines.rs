//! A sparse matrix times a dense one: `out[r] = sum of value[e] b[index[e]]` over the entries of line r.
//!
//! With the rows as lines and the weights as `b` these are scores; with the columns as lines and the
//! rows' coefficients as `b` they are sums over rows, each written once. Lines of `b` lie one after
//! the other: a vector that begins in one may end in the next, whose
//! numbers are left out of the result, so [`SPARE`] numbers must follow the last line.

use crate::linalg::gemm::Product;
use crate::simd::{Real, Simd};

/// Numbers that are read past the last line of `b`, at most.
pub const SPARE: usize = 16;
/// Sums kept apart, to break the dependency of one addition on the last.
const CHAINS: usize = 4;
/// The same where a line is wide, for want of registers.
const FEW_CHAINS: usize = 2;

/// Bound on the number of roundings that a term of a sum over `entries` goes through.
pub fn depth(entries: usize) -> f64 {
    // A product, a chain, at most three entries left over and two levels that add the chains.
    (entries / FEW_CHAINS + CHAINS + 4) as f64
}

/// `sum of value[e] b[index[e]]`, into `out`, whose length is that of a line.
#[inline(always)]
pub fn weighted_sum<S: Simd, T: Product>(
    simd: S,
    (index, value): (&[u32], &[f32]),
    b: &[T],
    out: &mut [T],
) {
    if let [out] = out {
        *out = dot(index, value, b);
        return;
    }
    let (stride, lanes) = (out.len(), T::lanes::<S>());
    let mut first = 0;
    while first < stride {
        let vectors = (stride - first).div_ceil(lanes);
        let at = (stride, first);
        match vectors {
            1 => part::<S, T, 1, CHAINS>(simd, (index, value), b, at, out),
            2 => part::<S, T, 2, CHAINS>(simd, (index, value), b, at, out),
            3 => part::<S, T, 3, FEW_CHAINS>(simd, (index, value), b, at, out),
            _ => part::<S, T, 4, FEW_CHAINS>(simd, (index, value), b, at, out),
        }
        first += vectors.min(4) * lanes;
    }
}

/// `V` vectors of the result, from number `first` on.
#[inline(always)]
fn part<S: Simd, T: Real, const V: usize, const C: usize>(
    simd: S,
    (index, value): (&[u32], &[f32]),
    b: &[T],
    (stride, first): (usize, usize),
    out: &mut [T],
) {
    let lanes = T::lanes::<S>();
    let mut sums = [[T::splat(simd, T::default()); V]; C];
    let add = |sums: &mut [T::Vector<S>; V], index: u32, value: f32| {
        let line = &b[index as usize * stride + first..][..V * lanes];
        let x = T::splat(simd, T::near(f64::from(value)));
        for (sum, b) in sums.iter_mut().zip(T::vectors::<S>(line).0) {
            *sum = T::fma(simd, x, *b, *sum);
        }
    };
    let (indices, index_rest) = index.as_chunks::<C>();
    let (values, value_rest) = value.as_chunks::<C>();
    for (index, value) in indices.iter().zip(values) {
        for chain in 0..C {
            add(&mut sums[chain], index[chain], value[chain]);
        }
    }
    for (chain, (index, value)) in index_rest.iter().zip(value_rest).enumerate() {
        add(&mut sums[chain], *index, *value);
    }
    let mut width = C;
    while width > 1 {
        width /= 2;
        for chain in 0..width {
            for v in 0..V {
                sums[chain][v] = T::add(simd, sums[chain][v], sums[chain + width][v]);
            }
        }
    }
    for v in 0..V {
        let out = &mut out[first + v * lanes..];
        if out.len() < lanes {
            T::store_part(simd, out, sums[0][v]);
        } else {
            T::vectors_mut::<S>(out).0[0] = sums[0][v];
        }
    }
}

/// The same for lines of one number.
#[inline(always)]
fn dot<T: Product>(index: &[u32], value: &[f32], b: &[T]) -> T {
    let mut sums = [T::default(); CHAINS];
    let near = |x: f32| T::near(f64::from(x));
    let (indices, index_rest) = index.as_chunks::<CHAINS>();
    let (values, value_rest) = value.as_chunks::<CHAINS>();
    for (index, value) in indices.iter().zip(values) {
        for chain in 0..CHAINS {
            sums[chain] = sums[chain].plus_product(near(value[chain]), b[index[chain] as usize]);
        }
    }
    for (chain, (index, value)) in index_rest.iter().zip(value_rest).enumerate() {
        sums[chain] = sums[chain].plus_product(near(*value), b[*index as usize]);
    }
    sums[0].plus(sums[1]).plus(sums[2].plus(sums[3]))
}

#[cfg(test)]
mod tests {
    use super::{SPARE, weighted_sum};
    use crate::linalg::gemm::Product;
    use crate::simd::{Kernel, Simd, dispatch};

    struct Once<'a, T>((&'a [u32], &'a [f32]), &'a [T], &'a mut [T]);

    impl<T: Product> Kernel for Once<'_, T> {
        type Output = ();
        #[inline(always)]
        fn run<S: Simd>(self, simd: S) {
            weighted_sum(simd, self.0, self.1, self.2);
        }
    }

    /// Small whole numbers are added without rounding: any order gives the same sum.
    fn agrees<T: Product>(classes: usize, entries: usize) {
        let (lines, stride) = (40, classes);
        let mut b = vec![T::near(f64::NAN); lines * stride + SPARE];
        for (at, b) in b[..lines * stride].iter_mut().enumerate() {
            *b = T::near(((at * 7) % 23) as f64 - 11.0);
        }
        let index: Vec<u32> = (0..entries).map(|e| (e * 13 % lines) as u32).collect();
        let value: Vec<f32> = (0..entries).map(|e| (e % 5) as f32 - 2.0).collect();
        let mut out = vec![T::near(0.5); stride];
        dispatch(Once((&index, &value), &b, &mut out));
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
        }
    }
}
