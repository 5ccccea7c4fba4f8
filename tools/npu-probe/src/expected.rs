// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the result should be, and where one differs.

use std::num::NonZeroUsize;
use std::ops::Range;
use std::thread;

use half::f16;
use npu_matmul::quantise::quantise_rows;
use npu_matmul::reference::{self, Expected};
use npu_matmul::{Engine, Error, Results, Weights};
use serde::Serialize;

use crate::bench::Shape;
use crate::data::Operands;
use crate::flags::SelfTest;

/// Most differing elements that a report shows.
const SHOWN: usize = 8;

/// The CPU's result.
#[derive(Clone, Debug)]
pub(crate) enum Reference {
    /// Exact.
    Integers(Vec<i32>),
    /// With a tolerance each.
    Floats(Vec<Expected>),
}

/// The NPU's result.
#[derive(Clone, Debug)]
pub(crate) enum Product {
    Integers(Vec<i32>),
    Floats(Vec<f32>),
    /// Of the same operands, rounded to binary16.
    Halves(Vec<f16>),
}

impl Product {
    /// Room for `len` elements, filled with what hardly any product gives, so
    /// that an element that nobody wrote is seen.
    pub(crate) fn unwritten(operands: &Operands, results: Results, len: usize) -> Self {
        match (operands, results) {
            (Operands::Integers { .. } | Operands::Split { .. }, _) => {
                Self::Integers(vec![i32::MIN; len])
            }
            (Operands::Floats { .. }, Results::Sums) | (Operands::Quantised { .. }, _) => {
                Self::Floats(vec![f32::NAN; len])
            }
            (Operands::Floats { .. }, Results::Halves) => Self::Halves(vec![f16::NAN; len]),
        }
    }

    /// Multiplies `m` rows on the NPU.
    pub(crate) fn multiply(
        &mut self,
        engine: &Engine,
        weights: &Weights,
        m: usize,
        operands: &Operands,
    ) -> Result<(), Error> {
        match (self, operands) {
            (Self::Integers(c), Operands::Integers { a, .. }) => {
                engine.multiply_i32(weights, m, a, c)
            }
            (Self::Floats(c), Operands::Floats { a, .. }) => engine.multiply_f32(weights, m, a, c),
            (Self::Integers(c), Operands::Split { a, .. }) => {
                engine.multiply_w4a8_i32(weights, m, a, c)
            }
            (Self::Floats(c), Operands::Quantised { a, .. }) => {
                engine.multiply_quantised(weights, m, a, c)
            }
            (Self::Halves(c), Operands::Floats { a, .. }) => engine.multiply_f16(weights, m, a, c),
            // Made for these operands.
            _ => Ok(()),
        }
    }

    /// How many elements of it and of `other`, the same product with another
    /// plan, cannot both be right: integers that differ, floats that are further
    /// apart than the tolerances of both, and the rounding to binary16. `k_tiles`
    /// are those of the plan that has more.
    ///
    /// The sum of |a*b|, on which a tolerance depends, is at most the product of
    /// the lengths of the two rows (Cauchy and Schwarz): that takes no product.
    pub(crate) fn contradictions(
        &self,
        other: &Self,
        operands: &Operands,
        shape: Shape,
        k_tiles: usize,
    ) -> usize {
        let Shape { k, n, .. } = shape;
        match (self, other, operands) {
            (Self::Integers(one), Self::Integers(other), _) => one
                .iter()
                .zip(other)
                .filter(|(one, other)| one != other)
                .count(),
            (Self::Floats(one), Self::Floats(other), Operands::Floats { a, b }) => {
                let most = magnitudes(a, b, k, n);
                let close = |at: usize, one: f64, other: f64| {
                    let each = |value| reference::tolerance(value, most(at), k_tiles);
                    // Not "greater than": a NaN must not pass.
                    (one - other).abs() <= each(one) + each(other)
                };
                let pairs = one.iter().zip(other).enumerate();
                pairs
                    .filter(|&(at, (&one, &other))| !close(at, one.into(), other.into()))
                    .count()
            }
            (Self::Halves(one), Self::Halves(other), Operands::Floats { a, b }) => {
                let most = magnitudes(a, b, k, n);
                let close = |at: usize, one: f16, other: f16| {
                    let each = |value: f16| reference::tolerance(value.into(), most(at), k_tiles);
                    // Before it was rounded, `one` was up to half an ulp from here.
                    let rounded = (f64::from(one).abs() * f64::from(f16::EPSILON))
                        .max(f16::MIN_POSITIVE_SUBNORMAL.into())
                        / 2.0;
                    let expected = Expected {
                        value: one.into(),
                        tolerance: each(one) + each(other) + rounded,
                    };
                    one == other || expected.allows_half(other)
                };
                let pairs = one.iter().zip(other).enumerate();
                pairs
                    .filter(|&(at, (&one, &other))| !close(at, one, other))
                    .count()
            }
            // Results of the same operands are of one kind.
            _ => self.len().max(other.len()),
        }
    }

    fn len(&self) -> usize {
        match self {
            Self::Integers(c) => c.len(),
            Self::Floats(c) => c.len(),
            Self::Halves(c) => c.len(),
        }
    }

    /// Some of its rows of `n` elements.
    pub(crate) fn rows(&self, rows: Range<usize>, n: usize) -> Self {
        let part = rows.start * n..rows.end * n;
        match self {
            Self::Integers(c) => Self::Integers(c[part].to_vec()),
            Self::Floats(c) => Self::Floats(c[part].to_vec()),
            Self::Halves(c) => Self::Halves(c[part].to_vec()),
        }
    }
}

/// At least the sum of |a*b| of an element of a product of `n` columns, by its
/// place.
fn magnitudes(a: &[f16], b: &[f16], k: usize, n: usize) -> impl Fn(usize) -> f64 {
    let (a, b) = (lengths(a, k), lengths(b, k));
    move |at| a[at / n] * b[at % n]
}

/// Lengths of rows of `k` elements, as vectors.
fn lengths(rows: &[f16], k: usize) -> Vec<f64> {
    let square = |x: &f16| x.to_f64().powi(2);
    let length = |row: &[f16]| row.iter().map(square).sum::<f64>().sqrt();
    rows.chunks(k).map(length).collect()
}

/// An element that differs.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Difference {
    pub(crate) row: usize,
    pub(crate) column: usize,
    /// Text, since JSON has no NaN and no infinity.
    pub(crate) got: String,
    pub(crate) expected: String,
    /// Floats: how far apart they may be.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) tolerance: Option<f64>,
}

/// How a result compares.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Comparison {
    /// Elements compared.
    pub(crate) elements: usize,
    /// Elements that differ.
    pub(crate) different: usize,
    /// The first few of them.
    pub(crate) first: Vec<Difference>,
}

impl Reference {
    /// Multiplies on the CPU: the oracle, a band of rows on each thread. The
    /// NPU's plan cuts K into `k_tiles`.
    pub(crate) fn compute(test: &SelfTest, operands: &Operands, k_tiles: usize) -> Self {
        let (n, k) = (test.n, test.k);
        let bands = by_bands(test.m, |from, to| {
            vec![Self::of_rows(from..to, n, k, operands, k_tiles)]
        });
        let mut bands = bands.into_iter();
        let mut all = bands.next().unwrap_or(Self::Integers(Vec::new()));
        bands.for_each(|band| all.append(band));
        all
    }

    /// The same of some rows.
    pub(crate) fn of_rows(
        rows: Range<usize>,
        n: usize,
        k: usize,
        operands: &Operands,
        k_tiles: usize,
    ) -> Self {
        let (m, of_a) = (rows.len(), rows.start * k..rows.end * k);
        match operands {
            Operands::Integers { a, b } | Operands::Split { a, b } => {
                Self::Integers(reference::multiply_i32(m, n, k, &a[of_a], b))
            }
            Operands::Floats { a, b } => {
                Self::Floats(reference::multiply_f64(m, n, k, &a[of_a], b, k_tiles))
            }
            Operands::Quantised { a, b } => Self::Floats(quantised(m, n, k, &a[of_a], b)),
        }
    }

    /// Puts later rows of the same product behind these.
    fn append(&mut self, later: Self) {
        match (self, later) {
            (Self::Integers(all), Self::Integers(more)) => all.extend(more),
            (Self::Floats(all), Self::Floats(more)) => all.extend(more),
            // Rows of one product are of one kind.
            _ => {}
        }
    }

    /// Compares a product of `n` columns with this.
    pub(crate) fn compare(&self, product: &Product, n: usize) -> Comparison {
        match (self, product) {
            (Self::Integers(want), Product::Integers(got)) => compare(n, want, got, |want, got| {
                (want != got).then(|| (want.to_string(), got.to_string(), None))
            }),
            (Self::Floats(want), Product::Floats(got)) => compare(n, want, got, |want, got| {
                // Not "greater than": a NaN must not pass.
                let close = (f64::from(*got) - want.value).abs() <= want.tolerance;
                let texts = || {
                    (
                        want.value.to_string(),
                        got.to_string(),
                        Some(want.tolerance),
                    )
                };
                (!close).then(texts)
            }),
            (Self::Floats(want), Product::Halves(got)) => compare(n, want, got, |want, got| {
                let texts = || {
                    (
                        want.value.to_string(),
                        got.to_string(),
                        Some(want.tolerance),
                    )
                };
                (!want.allows_half(*got)).then(texts)
            }),
            // Both come from the same precision; if not, nothing is right.
            _ => Comparison {
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

/// A product of floats that become INT8 with a scale for each row.
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

/// How far a sum with its scales may be off, as a share of it: the sum becomes
/// binary32, and is multiplied by two numbers, each time with half an ulp.
const DEQUANTISED: f64 = 4.0 / (1 << 24) as f64;

/// Runs `rows(from, to)` for bands of `0..m`, on all CPUs, and joins the
/// results in order.
fn by_bands<T: Send>(m: usize, rows: impl Fn(usize, usize) -> Vec<T> + Sync) -> Vec<T> {
    let threads = thread::available_parallelism().map_or(1, NonZeroUsize::get);
    let band = m.div_ceil(threads).max(1);
    let mut parts: Vec<Vec<T>> = Vec::new();
    parts.resize_with(m.div_ceil(band), Vec::new);
    thread::scope(|scope| {
        for (index, part) in parts.iter_mut().enumerate() {
            let rows = &rows;
            scope.spawn(move || *part = rows(index * band, ((index + 1) * band).min(m)));
        }
    });
    parts.into_iter().flatten().collect()
}

type Texts = (String, String, Option<f64>);

fn compare<W, G>(
    n: usize,
    want: &[W],
    got: &[G],
    differ: impl Fn(&W, &G) -> Option<Texts>,
) -> Comparison {
    let mut comparison = Comparison {
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
            comparison.first.push(Difference {
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
        let want = Reference::Integers((0..12).collect());
        let mut got: Vec<i32> = (0..12).collect();
        assert_eq!(
            want.compare(&Product::Integers(got.clone()), 4).different,
            0
        );
        got[6] = -1;
        got[11] = -2;
        let found = want.compare(&Product::Integers(got), 4);
        assert_eq!(found.different, 2);
        assert_eq!((found.first[0].row, found.first[0].column), (1, 2));
        assert_eq!(
            (
                found.first[1].got.as_str(),
                found.first[1].expected.as_str()
            ),
            ("-2", "11")
        );
        let all_wrong = want.compare(&Product::Integers(vec![-5; 12]), 4);
        assert_eq!((all_wrong.different, all_wrong.first.len()), (12, SHOWN));
    }

    #[test]
    fn floats_have_a_tolerance_and_nan_never_passes() {
        let expected = Expected {
            value: 1.0,
            tolerance: 0.25,
        };
        let want = Reference::Floats(vec![expected; 4]);
        let got = Product::Floats(vec![0.75, 1.25, 1.5, f32::NAN]);
        let found = want.compare(&got, 4);
        assert_eq!(found.different, 2);
        assert_eq!(found.first[1].got, "NaN");
    }

    #[test]
    fn results_of_two_plans_may_differ_by_their_tolerances() {
        let shape = Shape { m: 1, k: 2, n: 2 };
        let halves = |values: &[f32]| values.iter().copied().map(f16::from_f32).collect();
        let floats = Operands::Floats {
            a: halves(&[3.0, 4.0]),
            b: halves(&[1.0, 0.0, 0.0, 2.0]),
        };
        let one = Product::Floats(vec![3.0, 8.0]);
        let against = |other: Vec<f32>, k_tiles| {
            one.contradictions(&Product::Floats(other), &floats, shape, k_tiles)
        };
        // The second row of B has length 2, A's has 5: 10 * 2^-20 for each.
        let far = 8.0 + 2.5 * 10.0 * 0.5_f32.powi(20);
        assert_eq!(
            against(vec![3.0, 8.0 + 1.5 * 10.0 * 0.5_f32.powi(20)], 1),
            0
        );
        assert_eq!(against(vec![3.0, far], 1), 1);
        // 16 more K tiles allow as much again.
        assert_eq!(against(vec![3.0, far], 17), 0);
        assert_eq!(against(vec![f32::NAN, 8.0], 17), 1);
        let integers = Operands::Integers {
            a: vec![1, 1],
            b: vec![1, 1, 1, 1],
        };
        let (one, other) = (vec![2, 2], vec![2, 3]);
        let (one, other) = (Product::Integers(one), Product::Integers(other));
        assert_eq!(one.contradictions(&one, &integers, shape, 1), 0);
        assert_eq!(one.contradictions(&other, &integers, shape, 9), 1);
    }

    #[test]
    fn halves_may_differ_by_one_more_rounding() {
        let halves =
            |values: &[f32]| -> Vec<f16> { values.iter().copied().map(f16::from_f32).collect() };
        let expected = Expected {
            value: 2049.0,
            tolerance: 0.25,
        };
        let want = Reference::Floats(vec![expected; 4]);
        // Numbers of binary16 are 2 apart there.
        let got = Product::Halves(halves(&[2048.0, 2050.0, 2052.0, f32::NAN]));
        assert_eq!(want.compare(&got, 4).different, 2);

        let shape = Shape { m: 1, k: 1, n: 2 };
        let floats = Operands::Floats {
            a: halves(&[1.0]),
            b: halves(&[2048.0, 1.0]),
        };
        let against = |one: [f32; 2], other: [f32; 2]| {
            let (one, other) = (Product::Halves(halves(&one)), halves(&other));
            one.contradictions(&Product::Halves(other), &floats, shape, 1)
        };
        let infinite = [f32::INFINITY; 2];
        assert_eq!(against([2048.0, 1.0], [2050.0, 1.0]), 0);
        assert_eq!(against([2048.0, 1.0], [2052.0, 1.0]), 1);
        assert_eq!(against([2048.0, 1.0], [2048.0, 1.01]), 1);
        assert_eq!(against([2048.0, 1.0], [f32::NAN, 1.0]), 1);
        assert_eq!(
            (against(infinite, infinite), against(infinite, [0.0; 2])),
            (0, 2)
        );
    }

    #[test]
    fn quantised_products_are_integers_with_scales() {
        // Scales of 1 and 2: largest magnitudes of 127 and 254.
        let operands = Operands::Quantised {
            a: vec![127.0, 3.0],
            b: vec![254.0, 2.0, -254.0, 0.0],
        };
        let want = Reference::of_rows(0..1, 2, 2, &operands, 1);
        let exact = vec![127.0 * 254.0 + 6.0, -127.0 * 254.0];
        let compare = |got: Vec<f32>| want.compare(&Product::Floats(got), 2).different;
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
