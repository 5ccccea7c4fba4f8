// SPDX-License-Identifier: MIT OR Apache-2.0
//! The expected result of a matmul, and differences from it.

use std::num::NonZeroUsize;
use std::ops::Range;
use std::thread;

use half::f16;
use npu_matmul::quantise::quantise_rows;
use npu_matmul::reference::{self, Expected};
use serde::{Deserialize, Serialize};

use crate::data::MatmulOperands;
use crate::matmul::MatmulResult;
use crate::shape::MatmulShape;

/// Most differing elements that a report shows.
const SHOWN: usize = 8;

/// The CPU's result.
#[derive(Clone, Debug)]
pub(crate) enum CpuResult {
    /// Sums that must be equal: exactly, or rounded to the result's type.
    Integers(Vec<i32>),
    /// Sums, each with a tolerance.
    Floats(Vec<Expected>),
}

/// An element that differs.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct WrongElement {
    pub(crate) row: usize,
    pub(crate) column: usize,
    /// As text, since JSON has neither NaN nor infinity.
    pub(crate) got: String,
    pub(crate) expected: String,
    /// Tolerance of floats.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) tolerance: Option<f64>,
}

/// The number of elements that differ from the CPU's result, and the first of them.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub(crate) struct ResultComparison {
    pub(crate) elements: usize,
    pub(crate) different: usize,
    /// The first few of them.
    pub(crate) first: Vec<WrongElement>,
}

impl CpuResult {
    /// Multiplies on the CPU with the reference code, one band of rows per thread. `k_tiles`:
    /// number of K tiles of the NPU's plan.
    pub(crate) fn compute(shape: MatmulShape, operands: &MatmulOperands, k_tiles: usize) -> Self {
        let MatmulShape { m, k, n } = shape;
        let bands = by_bands(m, |from, to| {
            vec![Self::of_rows(from..to, n, k, operands, k_tiles)]
        });
        let mut bands = bands.into_iter();
        let mut all = bands.next().unwrap_or(Self::Integers(Vec::new()));
        bands.for_each(|band| all.append(band));
        all
    }

    /// The result of some of the rows.
    pub(crate) fn of_rows(
        rows: Range<usize>,
        n: usize,
        k: usize,
        operands: &MatmulOperands,
        k_tiles: usize,
    ) -> Self {
        let (m, of_a) = (rows.len(), rows.start * k..rows.end * k);
        match operands {
            MatmulOperands::Integers { a, b } => {
                Self::Integers(reference::multiply_i32(m, n, k, &a[of_a], b))
            }
            MatmulOperands::Floats { a, b } => {
                Self::Floats(reference::multiply_f64(m, n, k, &a[of_a], b, k_tiles))
            }
            MatmulOperands::Quantised { a, b } => Self::Floats(quantised(m, n, k, &a[of_a], b)),
        }
    }

    /// Appends later rows of the same matmul.
    fn append(&mut self, later: Self) {
        match (self, later) {
            (Self::Integers(all), Self::Integers(more)) => all.extend(more),
            (Self::Floats(all), Self::Floats(more)) => all.extend(more),
            // Rows of one matmul have the same type.
            _ => {}
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
        match (self, matmul) {
            (Self::Integers(want), MatmulResult::Integers(got)) => exact(n, want, got, |sum| sum),
            (Self::Integers(want), MatmulResult::Floats(got)) => {
                exact(n, want, got, |sum| sum as f32)
            }
            (Self::Integers(want), MatmulResult::Halves(got)) => {
                exact(n, want, got, |sum| f16::from_f32(sum as f32))
            }
            (Self::Floats(want), MatmulResult::Floats(got)) => {
                compare(n, want, got, |want, got| {
                    // Not "greater than": a NaN must not pass.
                    let close = (f64::from(*got) - want.value).abs() <= want.tolerance;
                    (!close).then(|| texts(want, got))
                })
            }
            (Self::Floats(want), MatmulResult::Halves(got)) => {
                compare(n, want, got, |want, got| {
                    (!want.allows_half(*got)).then(|| texts(want, got))
                })
            }
            // Both come from the same precision; otherwise all elements are wrong.
            _ => ResultComparison {
                elements: self.len(),
                different: self.len(),
                first: Vec::new(),
            },
        }
    }

    fn len(&self) -> usize {
        match self {
            Self::Integers(x) => x.len(),
            Self::Floats(x) => x.len(),
        }
    }
}

/// Compares with exact sums: a result must equal `rounded` of its sum.
fn exact<G: PartialEq + ToString>(
    n: usize,
    want: &[i32],
    got: &[G],
    rounded: impl Fn(i32) -> G,
) -> ResultComparison {
    compare(n, want, got, |want, got| {
        let is_right = rounded(*want) == *got;
        (!is_right).then(|| (want.to_string(), got.to_string(), None))
    })
}

fn texts(want: &Expected, got: &impl ToString) -> Texts {
    let value = want.value.to_string();
    (value, got.to_string(), Some(want.tolerance))
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

/// Runs `rows(from, to)` for bands of `0..m` on all CPUs, and joins the results in order.
fn by_bands<T: Send>(m: usize, rows: impl Fn(usize, usize) -> Vec<T> + Sync) -> Vec<T> {
    let threads = thread::available_parallelism().map_or(1, NonZeroUsize::get);
    let band = m.div_ceil(threads).max(1);
    let mut parts: Vec<Vec<T>> = Vec::new();
    parts.resize_with(m.div_ceil(band), Vec::new);
    let band_of = |index: usize| rows(index * band, ((index + 1) * band).min(m));
    let mut not_started = Vec::new();
    thread::scope(|scope| {
        for (index, part) in parts.iter_mut().enumerate() {
            let band_of = &band_of;
            let work = move || *part = band_of(index);
            if thread::Builder::new().spawn_scoped(scope, work).is_err() {
                not_started.push(index);
            }
        }
    });
    // Runs here if the system starts no thread.
    for index in not_started {
        parts[index] = band_of(index);
    }
    parts.into_iter().flatten().collect()
}

type Texts = (String, String, Option<f64>);

fn compare<W, G>(
    n: usize,
    want: &[W],
    got: &[G],
    differ: impl Fn(&W, &G) -> Option<Texts>,
) -> ResultComparison {
    let mut comparison = ResultComparison {
        elements: want.len(),
        // Elements that are missing on either side are wrong.
        different: want.len().abs_diff(got.len()),
        first: Vec::new(),
    };
    for (at, (want, got)) in want.iter().zip(got).enumerate() {
        let Some((expected, got, tolerance)) = differ(want, got) else {
            continue;
        };
        comparison.different += 1;
        if comparison.first.len() < SHOWN {
            comparison.first.push(WrongElement {
                row: at / n,
                column: at % n,
                got,
                expected,
                tolerance,
            });
        }
    }
    comparison
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_are_found_and_placed() {
        let want = CpuResult::Integers((0..12).collect());
        let mut got: Vec<i32> = (0..12).collect();
        assert_eq!(
            want.compare(&MatmulResult::Integers(got.clone()), 4)
                .different,
            0
        );
        got[6] = -1;
        got[11] = -2;
        let found = want.compare(&MatmulResult::Integers(got), 4);
        assert_eq!(found.different, 2);
        assert_eq!((found.first[0].row, found.first[0].column), (1, 2));
        assert_eq!(
            (
                found.first[1].got.as_str(),
                found.first[1].expected.as_str()
            ),
            ("-2", "11")
        );
        let all_wrong = want.compare(&MatmulResult::Integers(vec![-5; 12]), 4);
        assert_eq!((all_wrong.different, all_wrong.first.len()), (12, SHOWN));
    }

    #[test]
    fn sums_of_whole_numbers_are_exact_in_every_type() {
        let wrong = |want: &[i32], matmul| {
            CpuResult::Integers(want.to_vec())
                .compare(&matmul, 3)
                .different
        };
        let matmul = MatmulResult::Floats(vec![3.0, f32::NAN, 5.5]);
        assert_eq!(wrong(&[3, 4, 5], matmul), 2);
        // 2049 rounds to its even neighbour.
        let matmul = MatmulResult::Halves([2048.0, 2.0].map(f16::from_f32).to_vec());
        assert_eq!(wrong(&[2049, 3], matmul), 1);
    }

    #[test]
    fn floats_have_a_tolerance_and_nan_never_passes() {
        let expected = Expected {
            value: 1.0,
            tolerance: 0.25,
        };
        let want = CpuResult::Floats(vec![expected; 4]);
        let got = MatmulResult::Floats(vec![0.75, 1.25, 1.5, f32::NAN]);
        let found = want.compare(&got, 4);
        assert_eq!(found.different, 2);
        assert_eq!(found.first[1].got, "NaN");
    }

    #[test]
    fn halves_have_one_more_rounding() {
        let halves =
            |values: &[f32]| -> Vec<f16> { values.iter().copied().map(f16::from_f32).collect() };
        let expected = Expected {
            value: 2049.0,
            tolerance: 0.25,
        };
        let want = CpuResult::Floats(vec![expected; 4]);
        // Numbers of binary16 are 2 apart there.
        let got = MatmulResult::Halves(halves(&[2048.0, 2050.0, 2052.0, f32::NAN]));
        assert_eq!(want.compare(&got, 4).different, 2);
    }

    #[test]
    fn quantised_matmuls_are_integers_with_scales() {
        // Scales of 1 and 2, from largest magnitudes of 127 and 254.
        let operands = MatmulOperands::Quantised {
            a: vec![127.0, 3.0],
            b: vec![254.0, 2.0, -254.0, 0.0],
        };
        let want = CpuResult::of_rows(0..1, 2, 2, &operands, 1);
        let exact = vec![127.0 * 254.0 + 6.0, -127.0 * 254.0];
        let compare = |got: Vec<f32>| want.compare(&MatmulResult::Floats(got), 2).different;
        assert_eq!(compare(exact.clone()), 0);
        assert_eq!(compare(vec![exact[0] + 2.0, exact[1]]), 1);
    }

    #[test]
    fn bands_join_in_order() {
        for m in [1, 2, 3, 100] {
            let joined = by_bands(m, |from, to| (from..to).collect());
            assert_eq!(joined, (0..m).collect::<Vec<_>>());
        }
    }
}
