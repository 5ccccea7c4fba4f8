// SPDX-License-Identifier: MIT OR Apache-2.0
//! Float activations times quantised weights.

use std::time::Instant;

use super::{OutlierProduct, Quantised, QuantisedActivations};
use crate::engine::{Engine, matrix};
use crate::error::Error;
use crate::exec::{Dequantised, Groups, Scaled, ToOutlierProduct, Work};
use crate::observe::Activity;
use crate::pack::{Format, Int4, Int8, SplitInt8};
use crate::quantise::Operands;
use crate::unpack::{Partial, Split};
use crate::weights::Weights;

impl Engine {
    /// C = A x B^T for weights that were quantised when they were loaded: the
    /// rows of `a`, `m x k`, are quantised likewise, with scales that clip
    /// nothing, and `out`, `m x n`, is `sum * row scale * channel scale`.
    ///
    /// With scales for groups of K, `out` is the f32 sum of such terms, one for
    /// each K tile. With T of these it lies within
    /// T * 2^-24 * (1 + T * 2^-22) * sum|terms| of the exact sum of the terms, if
    /// no sum is subnormal, sum|terms| is finite and T is below 2^22. Outlier columns
    /// add an FP16 product to it, of the bound of [`Engine::multiply_f32`] and once
    /// more half an ulp of the result.
    ///
    /// # Errors
    /// As [`Engine::multiply_i32`].
    pub fn multiply_quantised(
        &self,
        weights: &Weights,
        m: usize,
        a: &[f32],
        out: &mut [f32],
    ) -> Result<(), Error> {
        // Before anything is done for it.
        matrix("C", out, m, weights.n())?;
        let activations = self.quantise_activations(weights, m, a)?;
        self.multiply_activations(weights, &activations, out)
    }

    /// As [`Weights::quantise_activations`], seen by this engine's observer.
    ///
    /// # Errors
    /// As [`Weights::quantise_activations`].
    pub fn quantise_activations(
        &self,
        weights: &Weights,
        m: usize,
        a: &[f32],
    ) -> Result<QuantisedActivations, Error> {
        self.watching(a, || weights.quantise_activations(m, a))
    }

    /// Quantises `a`, and tells the observer.
    fn watching<T>(&self, a: &[f32], quantise: impl FnOnce() -> T) -> T {
        let from = Instant::now();
        let quantised = quantise();
        let elements = a.len();
        let watched = self.watched();
        watched.done(watched.token(), None, Activity::Quantise { elements }, from);
        quantised
    }

    /// As [`Engine::multiply_quantised`], for activations that are quantised
    /// already; `out` has as many rows.
    ///
    /// # Errors
    /// As [`Engine::multiply_i32`]; [`Error::WrongActivations`] if they were
    /// quantised for weights of another kind.
    pub fn multiply_activations(
        &self,
        weights: &Weights,
        activations: &QuantisedActivations,
        out: &mut [f32],
    ) -> Result<(), Error> {
        self.run(self.product_activations(weights, activations, out)?)
    }

    pub(crate) fn product_activations<'a>(
        &self,
        weights: &'a Weights,
        activations: &'a QuantisedActivations,
        out: &'a mut [f32],
    ) -> Result<Box<dyn Work<'a> + 'a>, Error> {
        let quantised = weights.quantised_for(activations)?;
        match quantised.operands {
            Operands::W8A8 => self.product_of::<Int8, i32>(weights, quantised, activations, out),
            Operands::W4A8 => {
                self.product_of::<SplitInt8, Split>(weights, quantised, activations, out)
            }
            Operands::W4A4 => self.product_of::<Int4, i16>(weights, quantised, activations, out),
        }
    }

    fn product_of<'a, F, T>(
        &self,
        weights: &'a Weights,
        quantised: &'a Quantised,
        activations: &'a QuantisedActivations,
        out: &'a mut [f32],
    ) -> Result<Box<dyn Work<'a> + 'a>, Error>
    where
        F: Format<Host = i8>,
        T: Partial<Sum = i32> + 'a,
    {
        let (m, integers) = (activations.m, &activations.integers);
        let groups = weights.k().div_ceil(quantised.group);
        let (k, columns) = (weights.k(), &activations.columns);
        let source = quantised
            .outlier_source()
            .filter(|_| !columns.which.is_empty());
        let outliers = source.map(|source| {
            move |out| OutlierProduct {
                m,
                k,
                source,
                columns,
                out,
            }
        });
        if groups > 1 {
            let groups = Groups {
                count: groups,
                k_tiles: quantised.group / weights.plan().k_tile,
            };
            let collect = Scaled::<T>::groups(&activations.scales, &quantised.scales, groups);
            let mut product = self.product::<F, _>(weights, m, integers, out, collect)?;
            product.outliers =
                outliers.map(|outliers| Box::new(outliers) as ToOutlierProduct<'a, _>);
            return Ok(Box::new(product));
        }
        // Integers are added up where the floats will be: both have 4 bytes.
        let sums: &mut [i32] = zerocopy::transmute_mut!(out);
        let collect = Dequantised::<T>::new(&activations.scales, &quantised.scales);
        let mut product = self.product::<F, _>(weights, m, integers, sums, collect)?;
        product.outliers = outliers.map(|outliers| {
            let floats = move |out: &'a mut [i32]| outliers(zerocopy::transmute_mut!(out));
            Box::new(floats) as ToOutlierProduct<'a, _>
        });
        Ok(Box::new(product))
    }
}
