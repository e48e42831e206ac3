//! Lengths of Fourier transforms.

/// The least even product of a power of two and one of `odd` or 1 that is at least `least`.
pub(crate) fn transform_size(least: usize, odd: &[usize]) -> usize {
    let with = |odd: &usize| odd * least.div_ceil(*odd).next_power_of_two().max(2);
    odd.iter().map(with).fold(with(&1), usize::min)
}

#[cfg(test)]
mod tests {
    use super::transform_size;

    #[test]
    fn sizes_suffice() {
        for odd in [&[3, 9][..], &[3, 5, 9]] {
            for least in [0, 1, 2, 17, 48, 49, 1000, 9217, 1 << 20] {
                let size = transform_size(least, odd);
                assert!(size >= least && size.is_multiple_of(2) && size <= 2 * least.max(1));
            }
        }
        assert_eq!(transform_size(33, &[3, 5, 9]), 36);
        assert_eq!(transform_size(37, &[3, 9]), 48);
        assert_eq!(transform_size(37, &[5]), 40);
    }
}
