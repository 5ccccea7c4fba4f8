// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the NPU made of a product.

use std::ops::Range;

use half::f16;
use npu_matmul::reference::{self, Expected};
use npu_matmul::{Engine, Error, Output, OutputRows, PackedWeights, Results};

use crate::data::ProductOperands;
use crate::shape::ProductShape;

/// The NPU's result.
#[derive(Clone, Debug)]
pub(crate) enum ProductResult {
    Integers(Vec<i32>),
    Floats(Vec<f32>),
    /// Sums of FP16 operands, rounded to binary16.
    Halves(Vec<f16>),
}

impl ProductResult {
    /// The elements of such a product.
    pub(crate) const fn output(operands: &ProductOperands, results: Results) -> Output {
        match (operands, results) {
            (ProductOperands::Integers { .. }, _) => Output::I32,
            (ProductOperands::Floats { .. }, Results::Sums)
            | (ProductOperands::Quantised { .. }, _) => Output::F32,
            (ProductOperands::Floats { .. }, Results::Halves) => Output::F16,
        }
    }

    /// Room for `len` elements, filled with what hardly any product gives, so
    /// that an element that nobody wrote is seen.
    pub(crate) fn unwritten(operands: &ProductOperands, results: Results, len: usize) -> Self {
        match Self::output(operands, results) {
            Output::I32 => Self::Integers(vec![i32::MIN; len]),
            Output::F32 => Self::Floats(vec![f32::NAN; len]),
            Output::F16 => Self::Halves(vec![f16::NAN; len]),
        }
    }

    /// Multiplies `m` rows on the NPU.
    pub(crate) fn multiply(
        &mut self,
        engine: &Engine,
        weights: &PackedWeights,
        m: usize,
        operands: &ProductOperands,
    ) -> Result<(), Error> {
        let c: OutputRows<'_> = match self {
            Self::Integers(c) => c.into(),
            Self::Floats(c) => c.into(),
            Self::Halves(c) => c.into(),
        };
        let gemm = engine.prepare(weights, m, c.output())?;
        gemm.run(operands.activations(), c)
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
        operands: &ProductOperands,
        shape: ProductShape,
        k_tiles: usize,
    ) -> usize {
        let ProductShape { k, n, .. } = shape;
        match (self, other, operands) {
            (Self::Integers(one), Self::Integers(other), _) => one
                .iter()
                .zip(other)
                .filter(|(one, other)| one != other)
                .count(),
            (Self::Floats(one), Self::Floats(other), ProductOperands::Floats { a, b }) => {
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
            (Self::Halves(one), Self::Halves(other), ProductOperands::Floats { a, b }) => {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_of_two_plans_may_differ_by_their_tolerances() {
        let shape = ProductShape { m: 1, k: 2, n: 2 };
        let halves = |values: &[f32]| values.iter().copied().map(f16::from_f32).collect();
        let floats = ProductOperands::Floats {
            a: halves(&[3.0, 4.0]),
            b: halves(&[1.0, 0.0, 0.0, 2.0]),
        };
        let one = ProductResult::Floats(vec![3.0, 8.0]);
        let against = |other: Vec<f32>, k_tiles| {
            one.contradictions(&ProductResult::Floats(other), &floats, shape, k_tiles)
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
        let integers = ProductOperands::Integers {
            a: vec![1, 1],
            b: vec![1, 1, 1, 1],
        };
        let (one, other) = (vec![2, 2], vec![2, 3]);
        let (one, other) = (ProductResult::Integers(one), ProductResult::Integers(other));
        assert_eq!(one.contradictions(&one, &integers, shape, 1), 0);
        assert_eq!(one.contradictions(&other, &integers, shape, 9), 1);
    }

    #[test]
    fn halves_may_differ_by_one_more_rounding() {
        let halves =
            |values: &[f32]| -> Vec<f16> { values.iter().copied().map(f16::from_f32).collect() };
        let shape = ProductShape { m: 1, k: 1, n: 2 };
        let floats = ProductOperands::Floats {
            a: halves(&[1.0]),
            b: halves(&[2048.0, 1.0]),
        };
        let against = |one: [f32; 2], other: [f32; 2]| {
            let (one, other) = (ProductResult::Halves(halves(&one)), halves(&other));
            one.contradictions(&ProductResult::Halves(other), &floats, shape, 1)
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
}
