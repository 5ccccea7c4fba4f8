// SPDX-License-Identifier: MIT OR Apache-2.0
//! Integers and scales that somebody else made.

use super::activations::{OutlierColumns, Rule};
use super::{OutlierStorage, Quantised, QuantisedActivations};
use crate::engine::{Engine, check_int4, check_split, matrix};
use crate::error::Error;
use crate::quantise::{Operands, QuantiseOptions, Scheme};
use crate::weights::Weights;

/// The most products of any 8-bit integers whose sum surely fits into 32 bits:
/// -128 is one of them, which quantising here never gives.
const DEPTH_OF_ANY: usize = i32::MAX as usize / (128 * 128);

impl Engine {
    /// Loads weights that are integers with scales already, `n x k`: each stands
    /// for itself times its scale. `scales` are one ([`Scheme::PerTensor`]), one
    /// for each channel, or with [`Scheme::PerKGroup`] those of all channels for
    /// the first group of K, then those for the next, as [`Weights::scales`] has
    /// them. They are multiplied as [`Engine::load_quantised`]'s.
    ///
    /// # Errors
    /// As [`Engine::load_i8`]; [`Error::Int4Range`], [`Error::TooDeep`]; a wrong
    /// number of scales; of a K group [`Error::Plan`].
    pub fn load_scaled(
        &self,
        n: usize,
        k: usize,
        operands: Operands,
        scheme: Scheme,
        b: &[i8],
        scales: &[f32],
    ) -> Result<Weights, Error> {
        let options = QuantiseOptions {
            operands,
            scheme,
            ..QuantiseOptions::default()
        };
        let group = scheme.group(k);
        check_depth(group)?;
        matrix("B", b, n, k)?;
        if operands != Operands::W8A8 {
            check_int4("B", b)?;
        }
        // Before anything is allocated for sizes that make no sense.
        let plan = self.quantised_weight_plan(n, k, &options)?;
        let scales = if scheme == Scheme::PerTensor {
            matrix("scales of B", scales, 1, 1)?.row(0).repeat(n)
        } else {
            matrix("scales of B", scales, k.div_ceil(group), n)?;
            scales.to_vec()
        };
        let quantised = Quantised {
            operands,
            group,
            scales,
            rotation: None,
            outliers: OutlierStorage::Nothing,
        };
        self.load_integers(plan, &options, b, quantised)
    }
}

impl Weights {
    /// Activations for these weights that are integers with scales already,
    /// `m x k`: each stands for itself times its scale. `scales` are one for each
    /// row or, where the weights have groups of K, all groups of a row, then those
    /// of the next. If the weights are rotated, so must these be.
    ///
    /// # Errors
    /// Wrong lengths; [`Error::WrongWeights`] if these are not quantised;
    /// [`Error::WrongActivations`] if they have outlier columns;
    /// [`Error::Int4Range`] and [`Error::SplitRange`]; [`Error::TooDeep`].
    pub fn scaled_activations(
        &self,
        m: usize,
        a: &[i8],
        scales: &[f32],
    ) -> Result<QuantisedActivations, Error> {
        let quantised = self.quantised_or_refused()?;
        if !matches!(quantised.outliers, OutlierStorage::Nothing) {
            return Err(Error::WrongActivations);
        }
        matrix("A", a, m, self.k())?;
        let groups = self.k().div_ceil(quantised.group);
        matrix("scales of A", scales, m, groups)?;
        check_depth(quantised.group)?;
        match quantised.operands {
            Operands::W8A8 => {}
            Operands::W4A8 => check_split(a)?,
            Operands::W4A4 => check_int4("A", a)?,
        }
        Ok(QuantisedActivations {
            integers: a.to_vec(),
            scales: scales.to_vec(),
            m,
            k: self.k(),
            operands: quantised.operands,
            group: quantised.group,
            rotation: quantised.rotation.clone(),
            rule: Rule::of(quantised),
            columns: OutlierColumns::default(),
        })
    }
}

/// Checks that sums of so many products fit into 32 bits.
fn check_depth(group: usize) -> Result<(), Error> {
    if group > DEPTH_OF_ANY {
        return Err(Error::TooDeep {
            k: group,
            max: DEPTH_OF_ANY,
        });
    }
    Ok(())
}
