// SPDX-License-Identifier: MIT OR Apache-2.0
//! Activations as quantised weights want them.

use std::fmt;
use std::sync::Arc;

use npu_kernels::quantise::{quantise_scaled, row_scale};
use rayon::prelude::*;

use super::{Kept, Quantised};
use crate::engine::matrix;
use crate::error::Error;
use crate::quantise::Operands;
use crate::quantise::rotate::Rotation;
use crate::times::Section;
use crate::weights::Weights;

/// Quantised rows of A, for all weights that take them so: of the same depth,
/// bits, groups of K and rotation, and without outlier columns.
///
/// Made by [`Weights::quantise_activations`], used by
/// [`Engine::multiply_activations`](crate::Engine::multiply_activations) and
/// [`Batch::multiply_activations`](crate::Batch::multiply_activations): the
/// query, key and value of a layer quantise their input once.
pub struct QuantisedActivations {
    /// M x K.
    pub(super) integers: Vec<i8>,
    /// All groups of K of a row, then those of the next.
    pub(super) scales: Vec<f32>,
    pub(super) m: usize,
    k: usize,
    operands: Operands,
    group: usize,
    rotation: Option<Arc<Rotation>>,
}

impl Weights {
    /// Quantises `a`, `m x k`, for these weights and others like them.
    ///
    /// # Errors
    /// A wrong length, and [`Error::WrongWeights`] if these are not quantised or
    /// have outlier columns, which belong to the weights or to the call.
    pub fn quantise_activations(&self, m: usize, a: &[f32]) -> Result<QuantisedActivations, Error> {
        let quantised = self.quantised_alone()?;
        matrix("A", a, m, self.k())?;
        Ok(QuantisedActivations::new(self, quantised, a, &[]))
    }

    /// What they are if nothing of them is kept in FP16.
    fn quantised_alone(&self) -> Result<&Quantised, Error> {
        match self.quantised() {
            Some(quantised) if matches!(quantised.outliers, Kept::Nothing) => Ok(quantised),
            Some(_) => Err(Error::WrongWeights {
                expected: "quantised, without outlier columns",
                actual: "quantised, with outlier columns",
            }),
            None => Err(Error::wrong_weights("quantised", self)),
        }
    }

    /// The same for activations that were quantised for other weights.
    pub(super) fn quantised_for(
        &self,
        activations: &QuantisedActivations,
    ) -> Result<&Quantised, Error> {
        let quantised = self.quantised_alone()?;
        let alike = activations.k == self.k()
            && activations.operands == quantised.operands
            && activations.group == quantised.group
            && activations.rotation == quantised.rotation;
        alike.then_some(quantised).ok_or(Error::WrongActivations)
    }
}

impl QuantisedActivations {
    /// Rotates and quantises all columns but some, which become zeros.
    pub(super) fn new(
        weights: &Weights,
        quantised: &Quantised,
        a: &[f32],
        without: &[usize],
    ) -> Self {
        let k = weights.k();
        let groups = k.div_ceil(quantised.group);
        let m = a.len() / k;
        let mut integers = vec![0; a.len()];
        let mut scales = vec![0.0; m * groups];
        let start = || (weights.clock().stopwatch(Section::Pack), Vec::new());
        let as_they_are = without.is_empty() && quantised.rotation.is_none();
        weights.workers().run(|| {
            integers
                .par_chunks_mut(k)
                .zip(scales.par_chunks_mut(groups))
                .zip(a.par_chunks(k))
                .for_each_init(start, |(_, scratch), ((out, scales), row)| {
                    let row = if as_they_are {
                        row
                    } else {
                        scratch.clear();
                        scratch.extend_from_slice(row);
                        for &column in without {
                            scratch[column] = 0.0;
                        }
                        if let Some(rotation) = &quantised.rotation {
                            rotation.apply(scratch);
                        }
                        &scratch[..]
                    };
                    quantise_groups(row, quantised, scales, out);
                });
        });
        Self {
            integers,
            scales,
            m,
            k,
            operands: quantised.operands,
            group: quantised.group,
            rotation: quantised.rotation.clone(),
        }
    }

    /// Rows.
    #[must_use]
    pub const fn rows(&self) -> usize {
        self.m
    }
}

impl fmt::Debug for QuantisedActivations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QuantisedActivations")
            .field("m", &self.m)
            .field("k", &self.k)
            .field("operands", &self.operands)
            .finish_non_exhaustive()
    }
}

fn quantise_groups(row: &[f32], quantised: &Quantised, scales: &mut [f32], out: &mut [i8]) {
    let limit = quantised.operands.activation_max();
    let groups = row
        .chunks(quantised.group)
        .zip(out.chunks_mut(quantised.group));
    for (scale, (row, out)) in scales.iter_mut().zip(groups) {
        *scale = row_scale(row, limit);
        quantise_scaled(row, *scale, limit, out);
    }
}
