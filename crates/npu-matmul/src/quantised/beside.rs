// SPDX-License-Identifier: MIT OR Apache-2.0
//! The FP16 product of outlier columns, which is added to the quantised one.

use std::ops::Deref;

use half::f16;
use rayon::prelude::*;

use super::activations::Columns;
use crate::dtype::Dtype;
use crate::engine::{Engine, boxed};
use crate::error::Error;
use crate::exec::{Run, Scaled};
use crate::pack::Fp16;
use crate::weights::Weights;

/// Some columns, as FP16 weights on the devices.
#[derive(Debug)]
pub(crate) struct Beside {
    /// Which: in order, each once, at least one.
    columns: Vec<usize>,
    /// Output channels x columns.
    weights: Weights,
    /// A scale for each output channel.
    scales: Vec<f32>,
}

impl Beside {
    /// Loads columns, which `halves` has and nothing else: those of an output
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

    /// Which columns.
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
pub(super) enum Source<'a> {
    /// They are on the devices.
    Loaded(&'a Beside),
    /// From all weights, as [`Kept::All`](super::Kept::All) has them.
    All {
        halves: &'a [f16],
        scales: &'a [f32],
    },
}

impl<'a> Source<'a> {
    /// The weights of `columns`, of K `k`.
    fn load(self, engine: &Engine, k: usize, columns: &[usize]) -> Result<Of<'a>, Error> {
        let (halves, scales) = match self {
            Self::Loaded(beside) => return Ok(Of::Weights(beside)),
            Self::All { halves, scales } => (halves, scales),
        };
        let some: Vec<f16> = halves
            .par_chunks(k)
            .flat_map_iter(|row| columns.iter().map(|&at| row[at]))
            .collect();
        let beside = Beside::load(engine, columns.to_vec(), &some, scales.to_vec())?;
        Ok(Of::Call(Box::new(beside)))
    }
}

/// FP16 weights of the weights, or of this call alone.
enum Of<'a> {
    Weights(&'a Beside),
    Call(Box<Beside>),
}

impl Deref for Of<'_> {
    type Target = Beside;

    fn deref(&self) -> &Beside {
        match self {
            Self::Weights(beside) => beside,
            Self::Call(beside) => beside,
        }
    }
}

/// What a quantised product still lacks: that of its outlier columns.
pub(crate) struct Rest<'a> {
    /// Rows of A.
    pub(super) m: usize,
    /// Of the quantised weights.
    pub(super) k: usize,
    pub(super) source: Source<'a>,
    pub(super) columns: &'a Columns,
    /// The quantised product, complete.
    pub(super) out: &'a mut [f32],
}

impl Rest<'_> {
    /// Computes all of them, and adds each to its result.
    ///
    /// # Errors
    /// A device that fails, or has no memory for the columns of a call.
    pub(crate) fn finish(engine: &Engine, mut rests: Vec<Self>) -> Result<(), Error> {
        let load = |rest: &Self| rest.source.load(engine, rest.k, &rest.columns.which);
        let besides = rests.iter().map(load).collect::<Result<Vec<_>, _>>()?;
        let works = rests.iter_mut().zip(&besides).map(|(rest, beside)| {
            let Columns { halves, scales, .. } = rest.columns;
            let collect = Scaled::<f32>::added(scales, &beside.scales);
            let (weights, out) = (&beside.weights, &mut *rest.out);
            boxed(engine.product::<Fp16, _>(weights, rest.m, halves, out, collect))
        });
        Run::new(engine, works.collect::<Result<_, _>>()?).finish()
    }
}
