// SPDX-License-Identifier: MIT OR Apache-2.0
//! The FP16 product of outlier columns, which is added to the quantised one.

use std::ops::Deref;

use half::f16;
use rayon::prelude::*;

use super::activations::OutlierColumns;
use crate::dtype::Dtype;
use crate::engine::{Engine, boxed};
use crate::error::Error;
use crate::exec::{ProductRun, Scaled};
use crate::pack::Fp16;
use crate::weights::Weights;

/// The outlier columns of weights, as FP16 on the devices.
#[derive(Debug)]
pub(crate) struct OutlierWeights {
    /// Their indices: in order, each once, at least one.
    columns: Vec<usize>,
    /// Output channels x columns.
    weights: Weights,
    /// A scale for each output channel.
    scales: Vec<f32>,
}

impl OutlierWeights {
    /// Loads columns. `halves` has nothing else: the columns of one output
    /// channel, then those of the next.
    pub(super) fn load(
        engine: &Engine,
        columns: Vec<usize>,
        halves: &[f16],
        scales: Vec<f32>,
    ) -> Result<Self, Error> {
        let (n, k) = (scales.len(), columns.len());
        let plan = engine.plan_weights(Dtype::Fp16, n, k, engine.options())?;
        Ok(Self {
            columns,
            weights: engine.load_planned::<Fp16>(plan, halves, None)?,
            scales,
        })
    }

    /// Their indices.
    pub(super) fn columns(&self) -> &[usize] {
        &self.columns
    }

    /// Bytes of the host's memory.
    pub(super) fn host_bytes(&self) -> usize {
        size_of_val(&*self.columns) + size_of_val(&*self.scales)
    }

    /// Bytes of device memory.
    pub(super) fn device_bytes(&self) -> u64 {
        self.weights.device_bytes()
    }
}

/// Where the FP16 weights of columns come from.
#[derive(Clone, Copy)]
pub(super) enum OutlierSource<'a> {
    /// They are on the devices.
    Loaded(&'a OutlierWeights),
    /// From all weights, as [`OutlierStorage::All`](super::OutlierStorage::All) has them.
    All {
        halves: &'a [f16],
        scales: &'a [f32],
    },
}

impl<'a> OutlierSource<'a> {
    /// The weights of `columns`, of K `k`.
    fn load(
        self,
        engine: &Engine,
        k: usize,
        columns: &[usize],
    ) -> Result<OutliersInUse<'a>, Error> {
        let (halves, scales) = match self {
            Self::Loaded(weights) => return Ok(OutliersInUse::Weights(weights)),
            Self::All { halves, scales } => (halves, scales),
        };
        let some: Vec<f16> = halves
            .par_chunks(k)
            .flat_map_iter(|row| columns.iter().map(|&at| row[at]))
            .collect();
        let weights = OutlierWeights::load(engine, columns.to_vec(), &some, scales.to_vec())?;
        Ok(OutliersInUse::Call(Box::new(weights)))
    }
}

/// FP16 weights of the weights, or of this call alone.
enum OutliersInUse<'a> {
    Weights(&'a OutlierWeights),
    Call(Box<OutlierWeights>),
}

impl Deref for OutliersInUse<'_> {
    type Target = OutlierWeights;

    fn deref(&self) -> &OutlierWeights {
        match self {
            Self::Weights(weights) => weights,
            Self::Call(weights) => weights,
        }
    }
}

/// The FP16 product of the outlier columns, to be added to the quantised one.
pub(crate) struct OutlierProduct<'a> {
    /// Rows of A.
    pub(super) m: usize,
    /// Of the quantised weights.
    pub(super) k: usize,
    pub(super) source: OutlierSource<'a>,
    pub(super) columns: &'a OutlierColumns,
    /// The quantised product, complete.
    pub(super) out: &'a mut [f32],
}

impl OutlierProduct<'_> {
    /// Computes all of them, and adds each to its result.
    ///
    /// # Errors
    /// A device that fails, or has no memory for the columns of a call.
    pub(crate) fn finish(engine: &Engine, mut products: Vec<Self>) -> Result<(), Error> {
        let load = |product: &Self| {
            product
                .source
                .load(engine, product.k, &product.columns.which)
        };
        let weights = products.iter().map(load).collect::<Result<Vec<_>, _>>()?;
        let works = products
            .iter_mut()
            .zip(&weights)
            .map(|(product, outliers)| {
                let OutlierColumns { halves, scales, .. } = product.columns;
                let collect = Scaled::<f32>::added(scales, &outliers.scales);
                let (weights, out) = (&outliers.weights, &mut *product.out);
                boxed(engine.product::<Fp16, _>(weights, product.m, halves, out, collect))
            });
        ProductRun::new(engine, works.collect::<Result<_, _>>()?).finish()
    }
}
