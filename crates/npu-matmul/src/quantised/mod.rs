// SPDX-License-Identifier: MIT OR Apache-2.0
//! Float products by way of quantised ones, on an engine.
//!
//! ```text
//! load:      B --(take outlier columns out, rotate, scale)--> integers, scales
//!             \--(outlier columns)--> FP16 weights beside them
//! multiply:  A --(the same)--> integers, scales --> NPU --> sums * scales = C
//!             \--(outlier columns)--> FP16 --> NPU --> C += sums * scales
//! ```

mod activations;
mod beside;
mod given;
mod load;
mod multiply;

use std::sync::Arc;

use half::f16;

use beside::{Beside, Source};

use crate::quantise::rotate::Rotation;
use crate::quantise::{Operands, to_halves};

pub use activations::QuantisedActivations;
pub(crate) use beside::Rest;

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
    pub(crate) outliers: Kept,
}

/// Outlier columns of weights.
#[derive(Debug)]
pub(crate) enum Kept {
    /// None.
    Nothing,
    /// The same for all products.
    Columns(Box<Beside>),
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
            Kept::Columns(beside) => beside.device_bytes(),
            Kept::Nothing | Kept::All { .. } => 0,
        }
    }

    /// Bytes of the host's memory.
    pub(crate) fn host_bytes(&self) -> u64 {
        let kept = match &self.outliers {
            Kept::Nothing => 0,
            Kept::Columns(beside) => beside.host_bytes(),
            Kept::All { halves, scales, .. } => size_of_val(&**halves) + size_of_val(&**scales),
        };
        (size_of_val(&*self.scales) + kept) as u64
    }

    /// The FP16 weights of outlier columns, if there may be any.
    fn beside(&self) -> Option<Source<'_>> {
        match &self.outliers {
            Kept::Nothing => None,
            Kept::Columns(beside) => Some(Source::Loaded(beside)),
            Kept::All { halves, scales, .. } => Some(Source::All { halves, scales }),
        }
    }
}

/// The elements of a row in some columns, as FP16, and their scale.
fn halves_of(row: &[f32], columns: &[usize], out: &mut [f16]) -> f32 {
    to_halves(columns.iter().map(|&at| row[at]), out)
}
