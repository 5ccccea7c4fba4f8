// SPDX-License-Identifier: MIT OR Apache-2.0
//! Float activations times quantised weights.

use std::ops::Range;
use std::time::Instant;

use half::f16;
use npu_kernels::dequantise::dequantise_row;
use rayon::prelude::*;

use super::{Beside, Kept, Quantised, QuantisedActivations, halves_of};
use crate::engine::{Engine, matrix};
use crate::error::Error;
use crate::exec::{Scaled, Sums, Work};
use crate::observe::Activity;
use crate::pack::{Format, Fp16, Int4, Int8, SplitInt8};
use crate::quantise::{Operands, outlier_columns};
use crate::unpack::{Partial, Split};
use crate::weights::Weights;

impl Engine {
    /// C = A x B^T for weights that were quantised when they were loaded: the
    /// rows of `a`, `m x k`, are quantised likewise, with scales that clip
    /// nothing, and `out`, `m x n`, is `sum * row scale * channel scale`.
    ///
    /// With scales for G groups of K, `out` is the f32 sum of G such terms. It
    /// lies within G * 2^-24 * (1 + G * 2^-22) * sum|terms| of the exact sum of
    /// the terms, if no sum is subnormal, sum|terms| is finite and G is below
    /// 2^22. Outlier columns add an FP16 product to it, of the bound of
    /// [`Engine::multiply_f32`] and once more half an ulp of the result.
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
        let Some(quantised) = weights.quantised() else {
            return Err(Error::wrong_weights("quantised", weights));
        };
        matrix("A", a, m, weights.k())?;
        matrix("C", out, m, weights.n())?;
        let workers = self.workers();
        let beside = workers.run(|| quantised.beside(self, weights.k(), a))?;
        let columns = beside.as_deref().map_or(&[][..], |beside| &beside.columns);
        let activations = self.watching(a, || {
            QuantisedActivations::new(weights, quantised, a, columns)
        });
        self.run(self.product_quantised(weights, quantised, &activations, out)?)?;
        if let Some(beside) = beside {
            let (halves, scales) = workers.run(|| beside.activations(a, weights.k()));
            let collect = Scaled::<f32>::added(&scales, &beside.scales);
            let weights = &beside.weights;
            self.run(self.product::<Fp16, _>(weights, m, &halves, out, collect)?)?;
        }
        Ok(())
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
        self.product_quantised(weights, quantised, activations, out)
    }

    fn product_quantised<'a>(
        &self,
        weights: &'a Weights,
        quantised: &'a Quantised,
        activations: &'a QuantisedActivations,
        out: &'a mut [f32],
    ) -> Result<Box<dyn Work<'a> + 'a>, Error> {
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
        if groups > 1 {
            let collect = Scaled::<T>::groups(&activations.scales, &quantised.scales, groups);
            return self.product::<F, _>(weights, m, integers, out, collect);
        }
        // Integers are added up where the floats will be: both have 4 bytes.
        let sums: &mut [i32] = zerocopy::transmute_mut!(out);
        let finish = |row: usize, channels: Range<usize>, part: &mut [i32]| {
            dequantise_row(part, activations.scales[row], &quantised.scales[channels]);
        };
        self.product::<F, _>(weights, m, integers, sums, Sums::<T, _>::new(finish))
    }
}

impl Quantised {
    /// The FP16 weights that belong to these activations.
    fn beside(&self, engine: &Engine, k: usize, a: &[f32]) -> Result<Option<BesideOf<'_>>, Error> {
        match &self.outliers {
            Kept::Nothing => Ok(None),
            Kept::Columns(beside) => Ok(Some(BesideOf::Loaded(beside))),
            Kept::All {
                times,
                halves,
                scales,
            } => {
                let columns = outlier_columns(a, k, *times);
                if columns.is_empty() {
                    return Ok(None);
                }
                let some: Vec<f16> = halves
                    .par_chunks(k)
                    .flat_map_iter(|row| columns.iter().map(|&at| row[at]))
                    .collect();
                let beside = Beside::load(engine, columns, &some, scales.clone())?;
                Ok(Some(BesideOf::New(Box::new(beside))))
            }
        }
    }
}

/// FP16 weights of the weights, or of this product alone.
enum BesideOf<'w> {
    Loaded(&'w Beside),
    New(Box<Beside>),
}

impl std::ops::Deref for BesideOf<'_> {
    type Target = Beside;

    fn deref(&self) -> &Beside {
        match self {
            Self::Loaded(beside) => beside,
            Self::New(beside) => beside,
        }
    }
}

impl Beside {
    /// These columns of the activations, and a scale for each row.
    fn activations(&self, a: &[f32], k: usize) -> (Vec<f16>, Vec<f32>) {
        let width = self.columns.len();
        let mut halves = vec![f16::ZERO; a.len() / k * width];
        let scales = halves
            .par_chunks_mut(width)
            .zip(a.par_chunks(k))
            .map(|(out, row)| halves_of(row, &self.columns, out))
            .collect();
        (halves, scales)
    }
}
