// SPDX-License-Identifier: MIT OR Apache-2.0
//! The number of rows from which a matmul gains, as data: times in, rows out.

/// Numbers of rows that are compared, in order. An answer between two of them is the larger one,
/// which is late by a third at most, and a plan has whole groups of four rows anyway.
const STEPS: [usize; 17] = [
    2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512,
];

/// Fewest rows that are ever offloaded by calculation. One row is a token of a single sequence:
/// token generation stays on the CPU, whatever the modelled time.
pub const FEWEST_ROWS: usize = STEPS[0];

/// Tokens from which a batch is a prompt, as for ggml's scheduler: the calls of its layers follow
/// one another within the 50 ms after which a core is suspended.
pub(crate) const PROMPT_ROWS: usize = 32;

/// Most rows that are compared: llama.cpp's default for `-ub`, the rows of a graph. Weights that do
/// not gain with so many rows are never offloaded by calculation.
pub const MOST_ROWS: usize = STEPS[STEPS.len() - 1];

/// Returns the fewest rows from which a matmul takes no longer with the NPU than on the CPU, in
/// [`FEWEST_ROWS`]..=[`MOST_ROWS`]; `None` if even [`MOST_ROWS`] rows take longer. `npu_ps` is the
/// time with the NPU, or `None` if it is unknown; `cpu_ps` is the time of the CPU. Both have the
/// same unit.
pub(crate) fn fewest(
    npu_ps: impl Fn(usize) -> Option<u64>,
    cpu_ps: impl Fn(usize) -> u64,
) -> Option<usize> {
    let pays = |rows: usize| npu_ps(rows).is_some_and(|npu_ps| npu_ps <= cpu_ps(rows));
    // From the top: time jumps where a tile begins, and rows below a jump that loses do not count.
    let paying = STEPS.iter().rev().take_while(|rows| pays(**rows));
    paying.last().copied()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A time with a fixed part, and one that grows with the rows.
    fn affine(fixed: u64, row: u64) -> impl Fn(usize) -> Option<u64> {
        move |rows| Some(fixed + row * rows as u64)
    }

    fn rows(npu_ps: impl Fn(usize) -> Option<u64>, cpu_row_ps: u64) -> Option<usize> {
        fewest(npu_ps, |rows| cpu_row_ps.saturating_mul(rows as u64))
    }

    #[test]
    fn the_fixed_part_must_be_earned() {
        let most = MOST_ROWS as u64;
        for (fixed, row, cpu, expected) in [
            // 1000 + 10 m <= 110 m from m = 10 on; the next step is 12.
            (1000, 10, 110, Some(12)),
            // Equal times count: 1200 = 100 * 12.
            (1200, 10, 110, Some(12)),
            (1201, 10, 110, Some(16)),
            (0, 0, 1, Some(FEWEST_ROWS)),
            (most, 0, 1, Some(MOST_ROWS)),
            (most + 1, 0, 1, None),
            // A CPU that takes no time leaves nothing to the NPU.
            (1, 1, 0, None),
        ] {
            assert_eq!(rows(affine(fixed, row), cpu), expected, "{fixed} {row}");
        }
        assert_eq!(rows(|_| None, u64::MAX), None);
    }

    #[test]
    fn rows_below_some_that_do_not_pay_do_not_count() {
        let jump = |rows: usize| Some(if rows == 64 { 1_000_000 } else { 1 });
        assert_eq!(rows(jump, 100), Some(96));
    }

    proptest! {
        #![proptest_config(test_support::cases(256))]

        /// Neither a faster CPU nor a slower NPU lowers the answer.
        #[test]
        fn it_is_monotonic(
            fixed in 0..10_000_000_u64,
            row in 0..100_000_u64,
            cpu in 0..200_000_u64,
            more in 0..50_000_u64,
        ) {
            let rows = |npu_ps: &dyn Fn(usize) -> Option<u64>, cpu| {
                rows(npu_ps, cpu).unwrap_or(usize::MAX)
            };
            let here = rows(&affine(fixed, row), cpu);
            prop_assert!((FEWEST_ROWS..=MOST_ROWS).contains(&here) || here == usize::MAX);
            prop_assert!(rows(&affine(fixed, row), cpu + more) <= here);
            prop_assert!(rows(&affine(fixed + more, row), cpu) >= here);
            prop_assert!(rows(&affine(fixed, row + more), cpu) >= here);
        }
    }
}
