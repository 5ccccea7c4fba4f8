// SPDX-License-Identifier: MIT OR Apache-2.0
//! Activations as quantised weights want them.

use std::fmt;
use std::sync::Arc;

use half::f16;
use npu_kernels::quantise::{quantise_scaled, row_scale};
use rayon::prelude::*;

use super::{OutlierStorage, Quantised, halves_of};
use crate::engine::matrix;
use crate::error::Error;
use crate::quantise::rotate::Rotation;
use crate::quantise::{Operands, outlier_columns};
use crate::times::Section;
use crate::weights::Weights;

/// Quantised rows of A, for all weights that take them so: of the same depth,
/// bits, groups of K, rotation and outlier columns.
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
    pub(super) k: usize,
    pub(super) operands: Operands,
    pub(super) group: usize,
    pub(super) rotation: Option<Arc<Rotation>>,
    pub(super) rule: OutlierRule,
    /// What is not quantised of them.
    pub(super) columns: OutlierColumns,
}

/// Outlier columns of activations.
#[derive(Default)]
pub(super) struct OutlierColumns {
    /// Which: in order, each once.
    pub(super) which: Vec<usize>,
    /// M x as many.
    pub(super) halves: Vec<f16>,
    /// A scale for each row.
    pub(super) scales: Vec<f32>,
}

/// How outlier columns were chosen.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum OutlierRule {
    /// By who loaded the weights; there may be none.
    Fixed,
    /// As [`outlier_columns`] finds them by a factor, here its bits.
    Above(u32),
}

impl OutlierRule {
    pub(super) const fn of(quantised: &Quantised) -> Self {
        match &quantised.outliers {
            OutlierStorage::Nothing | OutlierStorage::Columns(_) => Self::Fixed,
            OutlierStorage::All { times, .. } => Self::Above(times.to_bits()),
        }
    }
}

impl Weights {
    /// Quantises `a`, `m x k`, for these weights and others like them.
    ///
    /// # Errors
    /// A wrong length, and [`Error::WrongWeights`] if these are not quantised.
    pub fn quantise_activations(&self, m: usize, a: &[f32]) -> Result<QuantisedActivations, Error> {
        let quantised = self.quantised_or_refused()?;
        matrix("A", a, m, self.k())?;
        Ok(QuantisedActivations::new(self, quantised, a))
    }

    pub(super) fn quantised_or_refused(&self) -> Result<&Quantised, Error> {
        self.quantised()
            .ok_or_else(|| Error::wrong_weights("quantised", self))
    }

    /// What they have, if activations were quantised for such.
    pub(super) fn quantised_for(
        &self,
        activations: &QuantisedActivations,
    ) -> Result<&Quantised, Error> {
        let quantised = self.quantised_or_refused()?;
        let rule = OutlierRule::of(quantised);
        let alike = activations.k == self.k()
            && activations.operands == quantised.operands
            && activations.group == quantised.group
            && activations.rotation == quantised.rotation
            && activations.rule == rule
            && (rule != OutlierRule::Fixed
                || activations.columns.which == quantised.fixed_columns());
        alike.then_some(quantised).ok_or(Error::WrongActivations)
    }
}

impl Quantised {
    /// The outlier columns that all activations have.
    fn fixed_columns(&self) -> &[usize] {
        match &self.outliers {
            OutlierStorage::Columns(weights) => weights.columns(),
            OutlierStorage::Nothing | OutlierStorage::All { .. } => &[],
        }
    }

    /// Those of these activations.
    fn columns_of(&self, a: &[f32], k: usize) -> Vec<usize> {
        match self.outliers {
            OutlierStorage::All { times, .. } => outlier_columns(a, k, times),
            OutlierStorage::Nothing | OutlierStorage::Columns(_) => self.fixed_columns().to_vec(),
        }
    }
}

impl OutlierColumns {
    /// These columns of the rows of `a`.
    fn new(which: Vec<usize>, a: &[f32], k: usize) -> Self {
        let width = which.len();
        if width == 0 {
            return Self::default();
        }
        let mut halves = vec![f16::ZERO; a.len() / k * width];
        let scales = halves
            .par_chunks_mut(width)
            .zip(a.par_chunks(k))
            .map(|(out, row)| halves_of(row, &which, out))
            .collect();
        Self {
            which,
            halves,
            scales,
        }
    }
}

impl QuantisedActivations {
    /// Rotates and quantises all columns but outliers, which become zeros.
    fn new(weights: &Weights, quantised: &Quantised, a: &[f32]) -> Self {
        let k = weights.k();
        let groups = k.div_ceil(quantised.group);
        let m = a.len() / k;
        let mut integers = vec![0; a.len()];
        let mut scales = vec![0.0; m * groups];
        let start = || (weights.clock().stopwatch(Section::Pack), Vec::new());
        let columns = weights.workers().run(|| {
            let columns = OutlierColumns::new(quantised.columns_of(a, k), a, k);
            let as_they_are = columns.which.is_empty() && quantised.rotation.is_none();
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
                        for &column in &columns.which {
                            scratch[column] = 0.0;
                        }
                        if let Some(rotation) = &quantised.rotation {
                            rotation.apply(scratch);
                        }
                        &scratch[..]
                    };
                    quantise_groups(row, quantised, scales, out);
                });
            columns
        });
        Self {
            integers,
            scales,
            m,
            k,
            operands: quantised.operands,
            group: quantised.group,
            rotation: quantised.rotation.clone(),
            rule: OutlierRule::of(quantised),
            columns,
        }
    }

    /// Number of rows.
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
            .field("outlier_columns", &self.columns.which)
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
