// SPDX-License-Identifier: MIT OR Apache-2.0
//! The expected result of a matmul, and differences from it.

use std::ops::Range;

use npu_matmul::quantise::quantise_rows;
use npu_matmul::reference::{self, Expected};
use npu_matmul::run_parallel;
use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use crate::base::shape::MatmulShape;
use crate::matmul::data::MatmulOperands;
use crate::matmul::engine_run::MatmulResult;

const SHOWN: usize = 8;

/// The CPU's result: a value with a tolerance for each element. Integers have no tolerance.
#[derive(Clone, Debug)]
pub(crate) struct CpuResult(Vec<Expected>);

#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct WrongElement {
    pub(crate) row: usize,
    pub(crate) column: usize,
    /// As text, since JSON has neither NaN nor infinity.
    pub(crate) got: String,
    pub(crate) expected: String,
    /// None if the element must be exact.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) tolerance: Option<f64>,
}

/// The number of elements that differ from the CPU's result, and the first of them.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub(crate) struct ResultComparison {
    pub(crate) elements: usize,
    pub(crate) different: usize,
    pub(crate) first: Vec<WrongElement>,
}

impl CpuResult {
    /// Multiplies on the CPU with the reference code, one band of rows per thread. `k_tiles`:
    /// number of K tiles of the NPU's plan.
    pub(crate) fn compute(shape: MatmulShape, operands: &MatmulOperands, k_tiles: usize) -> Self {
        let MatmulShape { m, k, n } = shape;
        Self(run_parallel(|| {
            let band = m.div_ceil(rayon::current_num_threads()).max(1);
            let band_rows = |start: usize| {
                let rows = start..m.min(start + band);
                Self::of_rows(rows, n, k, operands, k_tiles).0
            };
            let starts = (0..m).into_par_iter().step_by(band);
            starts.flat_map_iter(band_rows).collect()
        }))
    }

    /// Exact sums, below 2^24 if they are compared with floats.
    pub(crate) fn exact(sums: Vec<i32>) -> Self {
        let exact = |sum| Expected {
            value: f64::from(sum),
            tolerance: 0.0,
        };
        Self(sums.into_iter().map(exact).collect())
    }

    /// The result of some of the rows.
    pub(crate) fn of_rows(
        rows: Range<usize>,
        n: usize,
        k: usize,
        operands: &MatmulOperands,
        k_tiles: usize,
    ) -> Self {
        let (m, a_range) = (rows.len(), rows.start * k..rows.end * k);
        match operands {
            MatmulOperands::Integers([a, b]) => {
                Self::exact(reference::multiply_i32(m, n, k, &a[a_range], b))
            }
            MatmulOperands::Floats([a, b]) => {
                Self(reference::multiply_f64(m, n, k, &a[a_range], b, k_tiles))
            }
            MatmulOperands::Quantised([a, b]) => Self(quantised(m, n, k, &a[a_range], b)),
        }
    }

    /// The first of the given rows that differs from the CPU's.
    pub(crate) fn wrong_row(
        matmul: &MatmulResult,
        MatmulShape { k, n, .. }: MatmulShape,
        operands: &MatmulOperands,
        k_tiles: usize,
        rows: impl IntoIterator<Item = usize>,
    ) -> Option<usize> {
        rows.into_iter().find(|&row| {
            let part = row..row + 1;
            let want = Self::of_rows(part.clone(), n, k, operands, k_tiles);
            want.compare(&matmul.rows(part, n), n).different > 0
        })
    }

    /// Compares a result of `n` columns with the expected one.
    pub(crate) fn compare(&self, matmul: &MatmulResult, n: usize) -> ResultComparison {
        match matmul {
            MatmulResult::Integers(got) => self.compare_all(n, got),
            MatmulResult::Floats(got) => self.compare_all(n, got),
        }
    }

    fn compare_all<G: Copy + Into<f64> + ToString>(&self, n: usize, got: &[G]) -> ResultComparison {
        let mut comparison = ResultComparison {
            elements: self.0.len(),
            // Elements that are missing on either side are wrong.
            different: self.0.len().abs_diff(got.len()),
            first: Vec::new(),
        };
        for (at, (want, got)) in self.0.iter().zip(got).enumerate() {
            // Not "greater than": a NaN must not pass.
            if ((*got).into() - want.value).abs() <= want.tolerance {
                continue;
            }
            comparison.different += 1;
            if comparison.first.len() < SHOWN {
                comparison.first.push(WrongElement {
                    row: at / n,
                    column: at % n,
                    got: got.to_string(),
                    expected: want.value.to_string(),
                    tolerance: Some(want.tolerance).filter(|most| *most > 0.0),
                });
            }
        }
        comparison
    }
}

/// The expected result of floats quantised to INT8, with a scale for each row.
fn quantised(m: usize, n: usize, k: usize, a: &[f32], b: &[f32]) -> Vec<Expected> {
    let ((a, a_scales), (b, b_scales)) = (quantise_rows(a, k), quantise_rows(b, k));
    let sums = reference::multiply_i32(m, n, k, &a, &b);
    let expected = |(at, sum): (usize, i32)| {
        let scale = f64::from(a_scales[at / n]) * f64::from(b_scales[at % n]);
        let value = f64::from(sum) * scale;
        Expected {
            value,
            tolerance: value.abs() * DEQUANTISED,
        }
    };
    sums.into_iter().enumerate().map(expected).collect()
}

/// Tolerance of a scaled sum, relative: the sum becomes binary32 and is multiplied by two
/// numbers; each step rounds by half an ulp.
const DEQUANTISED: f64 = 4.0 / (1 << 24) as f64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_are_found_and_placed() {
        let want = CpuResult::exact((0..12).collect());
        let compare = |got| want.compare(&MatmulResult::Integers(got), 4);
        let mut got: Vec<i32> = (0..12).collect();
        assert_eq!(compare(got.clone()).different, 0);
        got[6] = -1;
        got[11] = -2;
        let found = compare(got);
        assert_eq!(found.different, 2);
        assert_eq!((found.first[0].row, found.first[0].column), (1, 2));
        let last = &found.first[1];
        assert_eq!((&*last.got, &*last.expected), ("-2", "11"));
        assert_eq!(last.tolerance, None);
        let all_wrong = compare(vec![-5; 12]);
        assert_eq!((all_wrong.different, all_wrong.first.len()), (12, SHOWN));
        assert_eq!(compare(vec![0]).different, 11);
    }

    #[test]
    fn each_type_has_its_tolerance_and_nan_never_passes() {
        let within = |value, count| {
            let tolerance = 0.25;
            CpuResult(vec![Expected { value, tolerance }; count])
        };
        let exact = |sums: &[i32]| CpuResult::exact(sums.to_vec());
        let floats = |values: &[f32]| MatmulResult::Floats(values.to_vec());
        for (want, got, wrong) in [
            (exact(&[3, 4, 5]), floats(&[3.0, f32::NAN, 5.5]), "NaN 5.5"),
            (
                within(1.0, 4),
                floats(&[0.75, 1.25, 1.5, f32::NAN]),
                "1.5 NaN",
            ),
        ] {
            let found = want.compare(&got, 4).first;
            let found: Vec<&str> = found.iter().map(|one| &*one.got).collect();
            assert_eq!(found.join(" "), wrong, "{got:?}");
        }
    }

    #[test]
    fn quantised_matmuls_are_integers_with_scales() {
        // Scales of 1 and 2, from largest magnitudes of 127 and 254.
        let operands = MatmulOperands::Quantised([vec![127.0, 3.0], vec![254.0, 2.0, -254.0, 0.0]]);
        let want = CpuResult::of_rows(0..1, 2, 2, &operands, 1);
        let exact = vec![127.0 * 254.0 + 6.0, -127.0 * 254.0];
        let compare = |got: Vec<f32>| want.compare(&MatmulResult::Floats(got), 2).different;
        assert_eq!(compare(exact.clone()), 0);
        assert_eq!(compare(vec![exact[0] + 2.0, exact[1]]), 1);
    }

    #[test]
    fn bands_join_in_order() {
        for m in [1, 2, 3, 100] {
            let (a, b) = ((0..m as i8).collect(), vec![1]);
            let shape = MatmulShape { m, k: 1, n: 1 };
            let computed = CpuResult::compute(shape, &MatmulOperands::Integers([a, b]), 1);
            let rows = MatmulResult::Integers((0..m as i32).collect());
            assert_eq!(computed.compare(&rows, 1).different, 0);
        }
    }
}
