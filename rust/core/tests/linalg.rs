//! Eigen-decompositions: residuals, orthonormality, order, signs, and what is refused; products of
//! rows: the order of their sums.

use dpsvm_core::Error;
use dpsvm_core::linalg::{SymmetricEigen, row_products, symmetric_eigen};
use dpsvm_core::runtime::interrupt::{Interrupt, Never};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// A symmetric matrix with entries uniform in (-1, 1).
fn random(dimension: usize, seed: u64) -> Vec<f64> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let mut matrix = vec![0.0; dimension * dimension];
    for i in 0..dimension {
        for j in 0..=i {
            let entry = rng.random_range(-1.0..1.0);
            matrix[i * dimension + j] = entry;
            matrix[j * dimension + i] = entry;
        }
    }
    matrix
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(x, y)| x * y).sum()
}

fn frobenius(matrix: &[f64]) -> f64 {
    dot(matrix, matrix).sqrt()
}

/// Largest residual and largest deviation from orthonormality, over `f64::EPSILON` and, for the
/// first, the norm of the matrix.
fn errors(matrix: &[f64], values: &[f64], vectors: &[f64]) -> (f64, f64) {
    let dimension = matrix.len().isqrt();
    let (mut residual, mut skew) = (0.0f64, 0.0f64);
    for (i, (value, vector)) in values.iter().zip(vectors.chunks(dimension)).enumerate() {
        let moved = matrix.chunks(dimension).map(|row| dot(row, vector));
        let squares = moved.zip(vector).map(|(m, v)| (m - value * v).powi(2));
        residual = residual.max(squares.sum::<f64>().sqrt());
        for (j, other) in vectors.chunks(dimension).enumerate() {
            let expected = f64::from(u8::from(i == j));
            skew = skew.max((dot(vector, other) - expected).abs());
        }
    }
    let norm = frobenius(matrix).max(f64::MIN_POSITIVE);
    (residual / norm / f64::EPSILON, skew / f64::EPSILON)
}

fn decomposed(matrix: &[f64]) -> (Vec<f64>, Vec<f64>) {
    let dimension = matrix.len().isqrt();
    symmetric_eigen(matrix, dimension, dimension, &Never).expect("a symmetric matrix")
}

fn check(matrix: &[f64]) -> (Vec<f64>, Vec<f64>) {
    let dimension = matrix.len().isqrt();
    let (values, vectors) = decomposed(matrix);
    let (residual, skew) = errors(matrix, &values, &vectors);
    let bound = 8.0 * (dimension as f64).sqrt() + 8.0;
    assert!(residual < bound && skew < bound, "{residual} {skew}");
    assert!(values.is_sorted_by(|a, b| a >= b));
    for vector in vectors.chunks(dimension) {
        let largest = vector.iter().copied().fold(0.0f64, |best: f64, entry| {
            if entry.abs() > best.abs() {
                entry
            } else {
                best
            }
        });
        assert!(largest > 0.0);
    }
    (values, vectors)
}

#[test]
fn random_matrices_of_many_sizes() {
    for dimension in [1, 2, 3, 4, 5, 8, 17, 31, 32, 33, 64, 100, 130, 257] {
        let matrix = random(dimension, dimension as u64);
        let (values, _) = check(&matrix);
        let trace: f64 = (0..dimension).map(|i| matrix[i * dimension + i]).sum();
        let tolerance = 1e-14 * dimension as f64 * frobenius(&matrix);
        assert!((values.iter().sum::<f64>() - trace).abs() <= tolerance);
    }
}

#[test]
fn a_number_is_its_own_eigenvalue() {
    for number in [-3.0, 0.0, 5e-324, 1e300] {
        assert_eq!(decomposed(&[number]), (vec![number], vec![1.0]));
    }
}

#[test]
fn repeated_eigenvalues_have_orthonormal_vectors() {
    let dimension = 60;
    let mut identity = vec![0.0; dimension * dimension];
    (0..dimension).for_each(|i| identity[i * dimension + i] = 2.5);
    let (values, _) = check(&identity);
    assert!(values.iter().all(|value| *value == 2.5));
    check(&vec![0.0; dimension * dimension]);
    // Rank one: the value d once, and 0 many times.
    let (values, vectors) = check(&vec![1.0; dimension * dimension]);
    assert!((values[0] - dimension as f64).abs() < 1e-12);
    assert!(values[1..].iter().all(|value| value.abs() < 1e-12));
    let entry = 1.0 / (dimension as f64).sqrt();
    assert!(
        vectors[..dimension]
            .iter()
            .all(|v| (v - entry).abs() < 1e-14)
    );
    // A reflection I - 2 u u^T: 1 many times, and -1 once.
    let u = &random(dimension, 3)[..dimension];
    let scale = 2.0 / dot(u, u);
    let mut reflection = vec![0.0; dimension * dimension];
    for i in 0..dimension {
        for j in 0..dimension {
            reflection[i * dimension + j] = f64::from(u8::from(i == j)) - scale * (u[i] * u[j]);
        }
    }
    let (values, _) = check(&reflection);
    assert!((values[dimension - 1] + 1.0).abs() < 1e-13);
    assert!(
        values[..dimension - 1]
            .iter()
            .all(|v| (v - 1.0).abs() < 1e-13)
    );
}

#[test]
fn clustered_and_graded_spectra() {
    let dimension = 70;
    for ratio in [1e-1, 1.0 - 1e-12] {
        let (_, basis) = decomposed(&random(dimension, 9));
        let mut matrix = vec![0.0; dimension * dimension];
        for (k, vector) in basis.chunks(dimension).enumerate() {
            let value = f64::powi(ratio, k as i32);
            for i in 0..dimension {
                for j in 0..dimension {
                    matrix[i * dimension + j] += value * (vector[i] * vector[j]);
                }
            }
        }
        let (values, _) = check(&matrix);
        assert!((values[0] - 1.0).abs() < 1e-12);
    }
}

#[test]
fn the_scale_of_the_entries_does_not_matter() {
    let matrix = random(40, 5);
    let (values, vectors) = decomposed(&matrix);
    for exponent in [-900, -400, 400, 900] {
        let factor = libm::ldexp(1.0, exponent);
        let scaled: Vec<f64> = matrix.iter().map(|entry| entry * factor).collect();
        let (got, basis) = decomposed(&scaled);
        for (a, b) in values.iter().zip(&got) {
            assert!((a - b / factor).abs() < 1e-13);
        }
        assert!(
            vectors
                .iter()
                .zip(&basis)
                .all(|(a, b)| (a - b).abs() < 1e-10)
        );
    }
    let tiny = vec![5e-324; 9];
    let (values, _) = decomposed(&tiny);
    assert_eq!(values, [1.5e-323, 0.0, 0.0]);
}

#[test]
fn memory_is_reused_without_traces() {
    let (first, second) = (random(37, 1), random(37, 2));
    let mut eigen = SymmetricEigen::new(37).expect("memory");
    let mut once = Vec::new();
    for matrix in [&first, &second, &first] {
        eigen.decompose(matrix).expect("a symmetric matrix");
        let (values, vectors) = decomposed(matrix);
        assert_eq!(eigen.values(), values);
        for i in 0..eigen.dimension() {
            assert_eq!(eigen.vector(i), &vectors[i * 37..][..37]);
        }
        once.push(values);
    }
    assert_eq!(once[0], once[2]);
    assert_ne!(once[0], once[1]);
}

#[test]
fn the_same_bits_on_any_thread() {
    let matrix = random(150, 8);
    let expected = decomposed(&matrix);
    let others: Vec<_> = (0..4)
        .map(|shift| {
            let matrix = matrix.clone();
            std::thread::spawn(move || {
                // The copy lies elsewhere, at another alignment.
                let mut moved = vec![0.0; shift];
                moved.extend(matrix);
                decomposed(&moved[shift..])
            })
        })
        .collect();
    for other in others {
        assert!(other.join().expect("no panic") == expected);
    }
}

#[test]
fn fewer_components_are_the_first_ones() {
    let matrix = random(25, 4);
    let (values, vectors) = decomposed(&matrix);
    let (few, basis) = symmetric_eigen(&matrix, 25, 3, &Never).expect("a symmetric matrix");
    assert_eq!(few, values[..3]);
    assert_eq!(basis, vectors[..75]);
}

#[test]
fn what_is_refused() {
    let refused = |matrix: &[f64], dimension, k| {
        symmetric_eigen(matrix, dimension, k, &Never)
            .expect_err("refused")
            .to_string()
    };
    let matrix = [1.0, 0.0, 0.0, 1.0];
    assert!(refused(&matrix, 2, 0).starts_with("n_components: got 0, expected 1 to 2"));
    assert!(refused(&matrix, 2, 3).starts_with("n_components: got 3"));
    assert!(refused(&matrix, 3, 1).starts_with("matrix: expected 3 rows"));
    assert!(refused(&[1.0, 2.0, 3.0, 1.0], 2, 1).contains("not symmetric"));
    for odd in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
        assert!(refused(&[1.0, odd, odd, 1.0], 2, 1).contains("not finite"));
        assert!(refused(&[1.0, odd, 0.0, 1.0], 2, 1).contains("not symmetric"));
    }
    assert!(refused(&[f64::MAX; 9], 3, 1).contains("overflow"));
    assert!(SymmetricEigen::new(0).is_err());
}

// Proof: private_pca
#[test]
fn a_row_times_a_matrix_is_summed_in_one_order() {
    let mut rng = ChaCha8Rng::seed_from_u64(6);
    for (n, inner, outputs) in [(1, 1, 1), (300, 130, 37), (65, 40, 500), (200, 7, 1)] {
        let mut draw =
            |len| -> Vec<f64> { (0..len).map(|_| rng.random_range(-1.0..1.0)).collect() };
        let (rows, matrix) = (draw(n * inner), draw(inner * outputs));
        let expected: Vec<f64> = (0..n * outputs)
            .map(|at| {
                let (i, j) = (at / outputs, at % outputs);
                (0..inner).fold(0.0, |sum, k| {
                    sum + rows[i * inner + k] * matrix[k * outputs + j]
                })
            })
            .collect();
        let one = row_products(&rows, &matrix, inner, 1, &Never).expect("lengths fit");
        for (product, expected) in one.iter().zip(&expected) {
            assert!((product - expected).abs() <= 1e-15 * inner as f64);
        }
        let three = row_products(&rows, &matrix, inner, 3, &Never).expect("lengths fit");
        assert!(one == three);
        for i in [0, n / 2, n - 1] {
            let row = &rows[i * inner..][..inner];
            let alone = row_products(row, &matrix, inner, 1, &Never).expect("lengths fit");
            assert!(alone == one[i * outputs..][..outputs]);
        }
    }
}

#[test]
fn products_of_wrong_sizes_are_refused() {
    for (rows, matrix, inner) in [(3, 4, 2), (4, 3, 2), (4, 4, 0)] {
        let (rows, matrix) = (vec![1.0; rows], vec![1.0; matrix]);
        assert!(row_products(&rows, &matrix, inner, 1, &Never).is_err());
    }
    assert!(row_products(&[1.0], &[1.0], 1, 0, &Never).is_err());
    let none = row_products(&[], &[1.0, 2.0], 2, 1, &Never);
    assert_eq!(none, Ok(vec![]));
}

struct Always;

impl Interrupt for Always {
    fn stopped(&self) -> bool {
        true
    }
}

fn identity(dimension: usize) -> Vec<f64> {
    let mut matrix = vec![0.0; dimension * dimension];
    (0..dimension).for_each(|i| matrix[i * dimension + i] = 1.0);
    matrix
}

#[test]
fn a_small_stack_is_enough_for_a_caller() {
    let caller = std::thread::Builder::new().stack_size(64 << 10);
    let worker = caller.spawn(|| symmetric_eigen(&identity(40), 40, 3, &Never));
    let found = worker.expect("a thread").join().expect("no overflow");
    assert_eq!(found.expect("a symmetric matrix").0, [1.0; 3]);
}

#[test]
fn a_caller_does_not_wait_for_what_it_no_longer_wants() {
    let matrix = identity(1500);
    let begun = std::time::Instant::now();
    let result = symmetric_eigen(&matrix, 1500, 1500, &Always);
    assert_eq!(result.unwrap_err(), Error::Interrupted);
    assert!(begun.elapsed().as_secs() < 5);
}
