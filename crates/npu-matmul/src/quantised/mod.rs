// SPDX-License-Identifier: MIT OR Apache-2.0
//! Float products by way of quantised ones, on an engine.
//!
//! ```text
//! load:      B --(take outlier columns out, rotate, scale)--> integers, scales
//!             \--(outlier columns)--> FP16 weights of their own
//! multiply:  A --(the same)--> integers, scales --> NPU --> sums * scales = C
//!             \--(outlier columns)--> FP16 --> NPU --> C += sums * scales
//! ```

mod activations;
mod load;
mod multiply;
mod outliers;

use std::sync::Arc;

use half::f16;

use outliers::{OutlierSource, OutlierWeights};

use crate::quantise::rotate::Rotation;
use crate::quantise::{Operands, to_halves};

pub use activations::QuantisedActivations;
pub(crate) use outliers::OutlierProduct;

/// What quantised weights have besides their integers.
#[derive(Debug)]
pub(crate) struct Quantised {
    /// Bits.
    pub(crate) operands: Operands,
    /// Neighbouring channels of K that share a scale; K where all do.
    pub(crate) group: usize,
    /// As [`Weights::scales`] gives them.
    pub(crate) scales: Vec<f32>,
    /// How activations are to be rotated.
    pub(crate) rotation: Option<Arc<Rotation>>,
    /// What is not quantised.
    pub(crate) outliers: OutlierStorage,
}

/// Outlier columns of weights.
#[derive(Debug)]
pub(crate) enum OutlierStorage {
    /// There are none.
    Nothing,
    /// The same for all products.
    Columns(Box<OutlierWeights>),
    /// Chosen anew for each product.
    All {
        /// What is an outlier: see [`crate::quantise::outlier_columns`].
        times: f32,
        /// All weights, N x K.
        halves: Vec<f16>,
        /// A scale for each output channel.
        scales: Vec<f32>,
    },
}

impl Quantised {
    /// Bytes of device memory, besides the integers.
    pub(crate) fn device_bytes(&self) -> u64 {
        match &self.outliers {
            OutlierStorage::Columns(weights) => weights.device_bytes(),
            OutlierStorage::Nothing | OutlierStorage::All { .. } => 0,
        }
    }

    /// Bytes of the host's memory.
    pub(crate) fn host_bytes(&self) -> u64 {
        let kept = match &self.outliers {
            OutlierStorage::Nothing => 0,
            OutlierStorage::Columns(weights) => weights.host_bytes(),
            OutlierStorage::All { halves, scales, .. } => {
                size_of_val(&**halves) + size_of_val(&**scales)
            }
        };
        (size_of_val(&*self.scales) + kept) as u64
    }

    /// The FP16 weights of outlier columns, if there may be any.
    fn outlier_source(&self) -> Option<OutlierSource<'_>> {
        match &self.outliers {
            OutlierStorage::Nothing => None,
            OutlierStorage::Columns(weights) => Some(OutlierSource::Loaded(weights)),
            OutlierStorage::All { halves, scales, .. } => {
                Some(OutlierSource::All { halves, scales })
            }
        }
    }
}

/// The elements of a row in some columns, as FP16, and their scale.
fn halves_of(row: &[f32], columns: &[usize], out: &mut [f16]) -> f32 {
    to_halves(columns.iter().map(|&at| row[at]), out)
}
