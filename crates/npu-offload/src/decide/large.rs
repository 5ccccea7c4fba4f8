// SPDX-License-Identifier: MIT OR Apache-2.0
//! Times of matmuls with large weights, from those with fewer rows of the same length.

/// Most elements, and longest rows, of weights whose matmuls are modelled task by task: those of
/// most models. A model of all tasks of the largest takes up to a second, and the time of more rows
/// of weights grows evenly.
const MODELLED: [usize; 2] = [1 << 29, 1 << 16];

/// Most elements of the weights that are modelled in place of larger ones.
const SMALLER_ELEMENTS: usize = 1 << 26;

/// Returns the numbers of rows whose times are modelled for weights of `n x k`: only `n`, or two
/// smaller numbers.
pub(crate) fn modelled_rows([n, k]: [usize; 2]) -> Vec<usize> {
    let [elements, row] = MODELLED;
    let mut modelled = n;
    if k > row || n.saturating_mul(k) > elements {
        while modelled > 2 && modelled.saturating_mul(k) > SMALLER_ELEMENTS {
            modelled = modelled.div_ceil(2);
        }
    }
    if modelled == n {
        vec![n]
    } else {
        vec![modelled.div_ceil(2), modelled]
    }
}

/// Returns the value at `n` of the straight line through two points, or the only point's value.
pub(crate) fn extended(points: &[(usize, u64)], n: usize) -> Option<u64> {
    match *points {
        [(_, value)] => Some(value),
        [(n0, value0), (n1, value1)] if n0 < n1 && n1 <= n => {
            let slope = u128::from(value1.saturating_sub(value0));
            let more = slope.saturating_mul((n - n1) as u128) / (n1 - n0) as u128;
            u64::try_from(more.saturating_add(value1.into())).ok()
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_fewer_rows_are_extended() {
        for (size, rows) in [
            ([262_144, 2048], vec![262_144]),
            ([262_145, 2048], vec![8193, 16_385]),
            ([32, 1 << 17], vec![32]),
            ([1024, 1 << 17], vec![256, 512]),
            ([3, usize::MAX], vec![1, 2]),
            ([1, usize::MAX], vec![1]),
            ([0, 0], vec![0]),
        ] {
            assert_eq!(modelled_rows(size), rows, "{size:?}");
        }
        let points = [(2, 10), (4, 16)];
        assert_eq!(extended(&points[..1], 9), Some(10));
        assert_eq!(extended(&points, 7), Some(25));
        // A time never falls with more rows.
        assert_eq!(extended(&[(2, 10), (4, 9)], 100), Some(9));
        assert_eq!(extended(&[(1, 0), (2, u64::MAX)], usize::MAX), None);
    }
}
