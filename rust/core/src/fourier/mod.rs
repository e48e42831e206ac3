//! Random Fourier features: `(cos <w_j, x> - e_j, sin <w_j, x>)_j`, scaled to norm 1.
//!
//! With frequencies `w_j` drawn from the spectrum of a kernel, the inner product of two such rows
//! (without the constants `e_j`) is an unbiased estimate of the kernel. Cosine and sine together make
//! the norm `sqrt D` exactly; the single cosine with a random phase does not.
//!
//! | family | kernel | `w_j` |
//! |---|---|---|
//! | Gaussian | `exp(-gamma ||x - x'||^2)` | normal, covariance `2 gamma I` |
//! | Laplacian | `exp(-gamma ||x - x'||_1)` | independent Cauchy entries of scale gamma |
//!
//! Everything is a function of public settings and of a public seed, and what comes out for a row is a
//! function of that row alone, to the last bit: see `docs/proofs/random_features.md`.
//!
//! Rahimi and Recht, NIPS 2007 (features); Yu, Suresh, Choromanski, Holtmann-Rice and Kumar, NIPS 2016
//! (orthogonal ones, and products of Hadamard matrices and signs, which cost `p log p` in place of
//! `p d`).

mod circle;
mod draws;
mod hadamard;
pub mod lift;
pub mod transform;

use crate::error::{Result, in_range, require};
use crate::fourier::circle::Phase;
use crate::fourier::draws::{Normals, orthonormal, scale};
use crate::fourier::hadamard::place;
use crate::fourier::lift::Prepared;
use crate::runtime::memory::{collected, mapped, matrix, with_capacity, zeros};
use std::sync::OnceLock;

/// The kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Family {
    /// `exp(-gamma ||x - x'||^2)`.
    Gaussian,
    /// `exp(-gamma ||x - x'||_1)`.
    Laplacian,
}

/// Dependence between frequencies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Structure {
    /// Not at all.
    Independent,
    /// Orthogonal in blocks of as many as there are columns, with the lengths of Gaussian vectors.
    Orthogonal,
    /// Rows of `H D H D H D` with permuted Hadamard matrices H and random signs D, of the next power
    /// of two, with the lengths of Gaussian vectors.
    Fast,
}

/// Constants subtracted from the cosines: about their mean over a public set of rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Centre {
    /// Nothing.
    Zero,
    /// The unit sphere: `exp(-||w||^2 / (2 d))`.
    Sphere,
    /// The unit ball: `exp(-||w||^2 / (2 (d + 2)))`.
    Ball,
}

/// Public numbers.
#[derive(Debug, Clone, Copy)]
pub struct FourierSettings {
    /// Columns of a row.
    pub features: usize,
    /// Number D of frequencies; a row gets twice as many entries.
    pub components: usize,
    /// Scale of the kernel.
    pub gamma: f64,
    /// The kernel.
    pub family: Family,
    /// Distribution of the frequencies.
    pub structure: Structure,
    /// Constants subtracted from the cosines.
    pub centre: Centre,
    /// The draw.
    pub seed: u64,
}

/// The streams' numbers: part of the meaning of a seed.
const DIRECTIONS: u32 = 0;
const LENGTHS: u32 = 1;

/// Larger settings would overflow somewhere.
const LARGEST_COUNT: usize = 1 << 28;

/// One block of a fast map: `lengths H D_2 H D_1 H D_0`.
#[derive(Debug)]
struct SignBlock<T = f64> {
    signs: [Vec<T>; 3],
    /// `||w_j||` over the length that the rows of the product have; only the frequencies that are
    /// used.
    scale: Vec<T>,
}

#[derive(Debug)]
enum Frequencies {
    /// `w_j` row after row.
    Dense(Vec<f64>),
    Fast(Vec<SignBlock>),
}

/// A drawn map, ready for both precisions.
#[derive(Debug)]
pub struct FourierMap {
    settings: FourierSettings,
    frequencies: Frequencies,
    /// `e_j`.
    constants: Vec<f64>,
    single: OnceLock<Prepared<f32>>,
    double: OnceLock<Prepared<f64>>,
}

impl FourierMap {
    /// Draws the frequencies.
    ///
    /// # Errors
    /// No features or components; gamma outside 1e-30..1e30; a structure for which the family has no
    /// draw; no memory.
    pub fn new(settings: FourierSettings) -> Result<Self> {
        let (features, components) = (settings.features, settings.components);
        for (name, value) in [("n_features", features), ("n_components", components)] {
            let message = format_args!("got {value}, expected 1 to {LARGEST_COUNT}");
            require((1..=LARGEST_COUNT).contains(&value), name, message)?;
        }
        in_range("gamma", settings.gamma, 1e-30..=1e30)?;
        let gaussian = settings.family == Family::Gaussian;
        let message = "expected independent for the laplacian kernel";
        let right = gaussian || settings.structure == Structure::Independent;
        require(right, "structure", message)?;
        let frequencies = match settings.structure {
            Structure::Independent => Frequencies::Dense(settings.independent()?),
            Structure::Orthogonal => Frequencies::Dense(settings.orthogonal()?),
            Structure::Fast => Frequencies::Fast(settings.fast()?),
        };
        let mut map = Self {
            settings,
            frequencies,
            constants: Vec::new(),
            single: OnceLock::new(),
            double: OnceLock::new(),
        };
        map.constants = map.public_means()?;
        Ok(map)
    }

    /// Settings of the map.
    pub fn settings(&self) -> &FourierSettings {
        &self.settings
    }

    /// Entries of a row of features.
    pub fn outputs(&self) -> usize {
        2 * self.settings.components
    }

    /// `e_j`: what is subtracted from the cosines.
    pub fn constants(&self) -> &[f64] {
        &self.constants
    }

    /// The frequencies, row after row.
    ///
    /// # Errors
    /// No memory.
    pub fn weights(&self) -> Result<Vec<f64>> {
        let FourierSettings {
            features,
            components,
            ..
        } = self.settings;
        let mut weights = matrix(components, features)?;
        match &self.frequencies {
            Frequencies::Dense(w) => weights.copy_from_slice(w),
            Frequencies::Fast(blocks) => {
                // Row j of the product is its transpose applied to a unit vector.
                let mut first = 0;
                for block in blocks {
                    for (j, scale) in block.scale.iter().enumerate() {
                        let row = block.row(j)?;
                        let out = &mut weights[(first + j) * features..][..features];
                        out.iter_mut().zip(row).for_each(|(w, x)| *w = scale * x);
                    }
                    first += block.scale.len();
                }
            }
        }
        Ok(weights)
    }

    /// The map in single precision.
    ///
    /// # Errors
    /// No memory.
    pub fn single(&self) -> Result<&Prepared<f32>> {
        prepared(&self.single, self)
    }

    /// The map in double precision.
    ///
    /// # Errors
    /// No memory.
    pub fn double(&self) -> Result<&Prepared<f64>> {
        prepared(&self.double, self)
    }

    /// Squared lengths of the frequencies.
    fn squares(&self) -> Result<Vec<f64>> {
        let square = |row: &[f64]| row.iter().map(|w| w * w).sum::<f64>();
        match &self.frequencies {
            Frequencies::Dense(w) => collected(w.chunks_exact(self.settings.features).map(square)),
            Frequencies::Fast(blocks) => {
                // Within a block of p coordinates rows have norm p^1.5 before scaling, of which a
                // share features/p falls on the coordinates that exist, on average.
                let d = self.settings.features as f64;
                let mut all = with_capacity(self.settings.components)?;
                for block in blocks {
                    let p = block.signs[0].len() as f64;
                    all.extend(block.scale.iter().map(|s| s * s * p * p * d));
                }
                Ok(all)
            }
        }
    }

    fn public_means(&self) -> Result<Vec<f64>> {
        let d = self.settings.features as f64;
        let spread = match self.settings.centre {
            Centre::Zero => return zeros(self.settings.components),
            Centre::Sphere => 2.0 * d,
            Centre::Ball => 2.0 * (d + 2.0),
        };
        let mean = |square: f64| libm::exp(-square / spread);
        mapped(&self.squares()?, |square| mean(*square))
    }
}

fn prepared<'m, T: Phase>(
    cell: &'m OnceLock<Prepared<T>>,
    map: &FourierMap,
) -> Result<&'m Prepared<T>> {
    if let Some(ready) = cell.get() {
        return Ok(ready);
    }
    let made = Prepared::new(map)?;
    Ok(cell.get_or_init(|| made))
}

impl SignBlock {
    /// Row j of `P H D_2 P H D_1 P H D_0`.
    fn row(&self, j: usize) -> Result<Vec<f64>> {
        // The transpose applied to a unit vector: H is symmetric, and P is its own inverse.
        let mut x = zeros(self.signs[0].len())?;
        x[j] = 1.0;
        for signs in self.signs.iter().rev() {
            permute(&mut x);
            plain_hadamard(&mut x);
            x.iter_mut().zip(signs).for_each(|(x, s)| *x *= s);
        }
        Ok(x)
    }
}

/// The permutation P of the fast transform, its own inverse.
fn permute(x: &mut [f64]) {
    let p = x.len();
    for i in 0..p {
        let other = place(p, i);
        if i < other {
            x.swap(i, other);
        }
    }
}

/// H without vectors: for the frequencies that users look at.
fn plain_hadamard(x: &mut [f64]) {
    let mut half = 1;
    while half < x.len() {
        for pair in x.chunks_exact_mut(2 * half) {
            let (a, b) = pair.split_at_mut(half);
            for (a, b) in a.iter_mut().zip(b) {
                (*a, *b) = (*a + *b, *a - *b);
            }
        }
        half *= 2;
    }
}

impl FourierSettings {
    /// Standard deviation of a frequency's entries.
    fn deviation(&self) -> f64 {
        (2.0 * self.gamma).sqrt()
    }

    fn independent(&self) -> Result<Vec<f64>> {
        let mut weights = matrix(self.components, self.features)?;
        let deviation = self.deviation();
        for (step, row) in (0..).zip(weights.chunks_exact_mut(self.features)) {
            let mut normals = Normals::new(self.seed, DIRECTIONS, step);
            match self.family {
                Family::Gaussian => {
                    normals.fill(row);
                    scale(row, deviation);
                }
                Family::Laplacian => row
                    .iter_mut()
                    .for_each(|w| *w = self.gamma * normals.cauchy()),
            }
        }
        Ok(weights)
    }

    fn orthogonal(&self) -> Result<Vec<f64>> {
        let d = self.features;
        let mut weights = matrix(self.components, d)?;
        for (step, block) in (0..).zip(weights.chunks_mut(d.saturating_mul(d))) {
            orthonormal(&mut Normals::new(self.seed, DIRECTIONS, step), d, block);
        }
        for (row, length) in weights.chunks_exact_mut(d).zip(self.lengths(d)) {
            scale(row, length);
        }
        Ok(weights)
    }

    fn fast(&self) -> Result<Vec<SignBlock>> {
        let p = self.features.next_power_of_two();
        let mut lengths = self.lengths(p);
        let blocks = self.components.div_ceil(p);
        let unit = (p as f64).powf(-1.5);
        (0..blocks)
            .map(|block| {
                let mut draws = Normals::new(self.seed, DIRECTIONS, block as u32);
                let used = p.min(self.components - block * p);
                let mut scale = with_capacity(used)?;
                scale.extend(lengths.by_ref().take(used).map(|l| l * unit));
                let signs = [draws.signs(p)?, draws.signs(p)?, draws.signs(p)?];
                Ok(SignBlock { signs, scale })
            })
            .collect()
    }

    /// Lengths of Gaussian vectors of `d` entries, one a frequency.
    fn lengths(&self, d: usize) -> impl Iterator<Item = f64> {
        let (seed, deviation) = (self.seed, self.deviation());
        (0..self.components as u32)
            .map(move |j| deviation * Normals::new(seed, LENGTHS, j).length(d))
    }
}
