// SPDX-License-Identifier: MIT OR Apache-2.0
//! `GGML_ROCKET_VERIFY=N`: verifies every Nth matmul or attention node. The CPU computes it again
//! in floats.
//!
//! Weights are read in place with their current data, so that changes since they were packed show.
//! For weights that the CPU has rearranged, the bytes of the model file are kept beside the packed
//! weights while this is on.

use std::num::NonZeroU64;
use std::sync::atomic::{AtomicU64, Ordering};

use npu_matmul::run_parallel;
use rayon::prelude::*;
use zerocopy::IntoBytes;

use crate::ggml::tensor_data::TensorMatrix;
use crate::ggml::types::HostFormat;
use crate::weights::memory;

/// Decides which matmuls are verified.
#[derive(Debug, Default)]
pub(crate) struct Verification {
    every: Option<NonZeroU64>,
    nodes: AtomicU64,
}

impl Verification {
    pub(crate) fn new(every: Option<NonZeroU64>) -> Self {
        Self {
            every,
            nodes: AtomicU64::new(0),
        }
    }

    /// Whether any are verified.
    pub(crate) fn is_on(&self) -> bool {
        self.every.is_some()
    }

    /// Counts a matmul or attention node. Returns the sum for its errors, if it is verified; the
    /// first one is.
    pub(crate) fn next_node(&self) -> Option<OutputErrors> {
        let every = self.every?;
        // A counter only: no other data is published through it.
        let number = self.nodes.fetch_add(1, Ordering::Relaxed);
        number
            .is_multiple_of(every.get())
            .then(OutputErrors::default)
    }
}

/// A weight matrix in the format of the model file.
#[derive(Debug)]
pub(crate) struct OriginalWeights {
    format: HostFormat,
    k: usize,
    row_bytes: usize,
    rows: usize,
    /// The bytes of the rows, in words, so that rows are as aligned as they were.
    words: Vec<u64>,
}

impl OriginalWeights {
    /// Copies `matrix`; `None` if it has no rows, or not enough memory is left.
    pub(crate) fn of(matrix: &TensorMatrix<'_>) -> Option<Self> {
        let row_bytes = matrix.rows.first()?.len();
        let rows = matrix.rows.len();
        let bytes = row_bytes.checked_mul(rows)?;
        let len = bytes.div_ceil(size_of::<u64>());
        let mut words: Vec<u64> = memory::zeroed(len).ok()?;
        for (to, from) in words
            .as_mut_bytes()
            .chunks_exact_mut(row_bytes.max(1))
            .zip(&matrix.rows)
        {
            to.copy_from_slice(from);
        }
        Some(Self {
            format: matrix.format,
            k: matrix.k,
            row_bytes,
            rows,
            words,
        })
    }

    /// The matrix that was copied.
    pub(crate) fn matrix(&self) -> TensorMatrix<'_> {
        let rows = self.words.as_bytes().chunks_exact(self.row_bytes.max(1));
        TensorMatrix {
            format: self.format,
            k: self.k,
            rows: rows.take(self.rows).collect(),
            dense: None,
        }
    }
}

/// Sums of squares over outputs.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct OutputErrors {
    pub(crate) differences: f64,
    /// Sum of the squares of the CPU's outputs.
    pub(crate) outputs: f64,
}

impl OutputErrors {
    /// Adds one output, with its exact value by the CPU. A value that is not finite counts no
    /// error.
    pub(crate) fn add_output(&mut self, exact: f64, out: f32) {
        if exact.is_finite() {
            self.differences += (f64::from(out) - exact).powi(2);
            self.outputs += exact.powi(2);
        }
    }

    /// Adds the outputs `out` of rows of activations times `weights`.
    pub(crate) fn add(&mut self, weights: &TensorMatrix<'_>, activations: &[f32], out: &[f32]) {
        let (k, n) = (weights.k, weights.rows.len());
        let column_errors = |column: usize| {
            let mut row = vec![0.0; k];
            weights.format.decode(weights.rows[column], &mut row);
            let mut errors = Self::default();
            for (activations, out) in activations.chunks_exact(k).zip(out.chunks_exact(n)) {
                let products = activations.iter().zip(&row);
                let exact: f64 = products.map(|(a, b)| f64::from(*a) * f64::from(*b)).sum();
                errors.add_output(exact, out[column]);
            }
            errors
        };
        let sum = |a: Self, b: Self| Self {
            differences: a.differences + b.differences,
            outputs: a.outputs + b.outputs,
        };
        let all = (0..n).into_par_iter().map(column_errors);
        *self = sum(*self, run_parallel(|| all.reduce(Self::default, sum)));
    }

    /// The normalised mean square error: the part of the outputs' energy that is error. NaN if an
    /// output is NaN; 0 if there is no error.
    pub(crate) fn nmse(&self) -> f64 {
        if self.differences == 0.0 {
            return 0.0;
        }
        self.differences / self.outputs
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ggml::abi::type_id;
    use crate::ggml::types::tests::format;

    fn original(weights: &[f32], k: usize) -> OriginalWeights {
        let rows = weights.chunks_exact(k).map(IntoBytes::as_bytes);
        OriginalWeights::of(&TensorMatrix {
            format: format(type_id::F32),
            k,
            rows: rows.collect(),
            dense: None,
        })
        .unwrap()
    }

    #[test]
    fn every_nth_matmul_from_the_first_on() {
        let due = |every, count| {
            let verify = Verification::new(NonZeroU64::new(every));
            assert_eq!(verify.is_on(), every > 0);
            let checked = |_| verify.next_node().is_some();
            (0..count).map(checked).collect::<Vec<_>>()
        };
        assert_eq!(due(0, 3), [false; 3]);
        assert_eq!(due(1, 3), [true; 3]);
        assert_eq!(due(3, 5), [true, false, false, true, false]);
    }

    #[test]
    fn an_error_is_a_part_of_the_energy() {
        let weights = original(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0], 3);
        let weights = weights.matrix();
        let activations = [1.0, 0.0, -1.0, 0.5, 0.5, 0.5];
        let exact = [-2.0, -2.0, 3.0, 7.5];
        let mut errors = OutputErrors::default();
        let mut add = |out: [f32; 4]| {
            errors.add(&weights, &activations, &out);
            errors.nmse()
        };
        assert_eq!(add(exact), 0.0);
        let mut off = exact;
        off[3] += 0.5;
        let energy: f64 = exact.iter().map(|x| f64::from(x * x)).sum();
        assert_eq!(add(off), 0.25 / (2.0 * energy));
        assert!(add([f32::NAN; 4]).is_nan());
        // What is no number on the CPU has no error.
        let mut errors = OutputErrors::default();
        errors.add(&weights, &[f32::INFINITY; 3], &[f32::NAN; 2]);
        assert_eq!((errors, errors.nmse()), (OutputErrors::default(), 0.0));
    }
}
