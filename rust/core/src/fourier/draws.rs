//! Random directions and lengths, the same from the same seed on every machine.
//!
//! Normal numbers come from the polar method with the logarithm of `libm`, not from the system's
//! mathematical library, whose last bits differ.

use crate::error::Result;
use crate::noise::Stream;
use crate::noise::stream::Key;
use crate::runtime::memory::with_capacity;
use crate::simd::dot;
use rand::Rng;

/// Standard normal numbers from one stream.
pub(super) struct Normals {
    stream: Stream,
    spare: Option<f64>,
}

impl Normals {
    /// Numbers of part `step` of task `task` of a public seed.
    pub(super) fn new(seed: u64, task: u32, step: u32) -> Self {
        Self {
            stream: Key::from_public_seed(seed).task(task).stream(step),
            spare: None,
        }
    }

    /// Uniform on (-1, 1), multiples of `2^-52`.
    fn uniform(&mut self) -> f64 {
        let bits = (self.stream.next_u64() >> 11) as f64;
        2.0 * bits / (1_u64 << 53) as f64 - 1.0
    }

    /// The next number (Marsaglia and Bray 1964).
    pub(super) fn next(&mut self) -> f64 {
        if let Some(z) = self.spare.take() {
            return z;
        }
        loop {
            let (u, v) = (self.uniform(), self.uniform());
            let square = u * u + v * v;
            if square > 0.0 && square < 1.0 {
                let factor = (-2.0 * libm::log(square) / square).sqrt();
                self.spare = Some(v * factor);
                return u * factor;
            }
        }
    }

    /// Fills `values`.
    pub(super) fn fill(&mut self, values: &mut [f64]) {
        for value in values {
            *value = self.next();
        }
    }

    /// The length of a vector of `d` such numbers.
    pub(super) fn length(&mut self, d: usize) -> f64 {
        let mut square = 0.0;
        for _ in 0..d {
            let z = self.next();
            square += z * z;
        }
        square.sqrt()
    }

    /// Standard Cauchy: a quotient of two normal numbers.
    pub(super) fn cauchy(&mut self) -> f64 {
        loop {
            let (x, y) = (self.next(), self.next());
            if y != 0.0 {
                return x / y;
            }
        }
    }

    /// `n` independent signs, 1 or -1.
    ///
    /// # Errors
    /// No memory.
    pub(super) fn signs(&mut self, n: usize) -> Result<Vec<f64>> {
        let mut signs = with_capacity(n)?;
        while signs.len() < n {
            let word = self.stream.next_u32();
            let some = (n - signs.len()).min(32);
            signs.extend((0..some).map(|bit| if word >> bit & 1 == 1 { -1.0 } else { 1.0 }));
        }
        Ok(signs)
    }
}

/// Overwrites the rows of `block`, of length `d`, at most d of them, with orthonormal ones, uniformly
/// distributed: Gaussian rows, each made orthogonal to those before, twice because once loses digits.
pub(super) fn orthonormal(normals: &mut Normals, d: usize, block: &mut [f64]) {
    let rows = block.len() / d.max(1);
    for at in 0..rows {
        let (before, rest) = block.split_at_mut(at * d);
        let row = &mut rest[..d];
        normals.fill(row);
        for _ in 0..2 {
            for other in before.chunks_exact(d) {
                let share = dot(row, other);
                row.iter_mut().zip(other).for_each(|(x, o)| *x -= share * o);
            }
        }
        let length = dot(row, row).sqrt();
        // Never 0: the row was Gaussian in a space of at least one dimension more.
        scale(row, 1.0 / length);
    }
}

/// `row <- factor row`.
pub(super) fn scale(row: &mut [f64], factor: f64) {
    for x in row {
        *x *= factor;
    }
}

#[cfg(test)]
mod tests {
    use super::{Normals, orthonormal};
    use crate::simd::dot;

    #[test]
    fn rows_are_orthonormal() {
        for d in [1, 2, 5, 40] {
            let mut block = vec![0.0; d * d];
            orthonormal(&mut Normals::new(7, 0, 0), d, &mut block);
            for (i, a) in block.chunks_exact(d).enumerate() {
                for (j, b) in block.chunks_exact(d).enumerate() {
                    let exact = if i == j { 1.0 } else { 0.0 };
                    assert!((dot(a, b) - exact).abs() < 1e-13);
                }
            }
        }
    }

    #[test]
    fn moments_of_the_draws() {
        let mut normals = Normals::new(1, 2, 3);
        let n = 100_000;
        let (mut mean, mut square, mut fourth) = (0.0, 0.0, 0.0);
        for _ in 0..n {
            let z = normals.next();
            mean += z;
            square += z * z;
            fourth += z * z * z * z;
        }
        let n = f64::from(n);
        // Five standard deviations: a false alarm in two million runs, and the seed is fixed.
        assert!((mean / n).abs() < 5.0 / n.sqrt());
        assert!((square / n - 1.0).abs() < 5.0 * (2.0 / n).sqrt());
        assert!((fourth / n - 3.0).abs() < 5.0 * (96.0 / n).sqrt());
        let signs = normals.signs(100).unwrap_or_default();
        assert_eq!(signs.len(), 100);
        assert!(signs.iter().all(|s| s.abs() == 1.0));
        let inside = (0..1000).filter(|_| normals.cauchy().abs() < 1.0).count();
        assert!((inside as f64 - 500.0).abs() < 5.0 * 250.0_f64.sqrt());
    }
}
