// SPDX-License-Identifier: MIT OR Apache-2.0
//! Quantises float activations for quantised weights.

use std::collections::TryReserveError;
use std::time::Instant;

use npu_kernels::quantise::row_scale;
use rayon::prelude::*;

use crate::device::times::Section;
use crate::engine::Engine;
use crate::engine::packed::WeightScales;
use crate::numbers::quantise::{Quantisation, quantise_groups};
use crate::numbers::scratch::resize;
use crate::plan::error::Error;
use crate::plan::observe::Activity;

/// Quantised rows of A, shared by all weights that need the same ones: query, key and value
/// matrices of a layer quantise their input once.
#[derive(Debug)]
pub(crate) struct QuantisedRows {
    /// Address and length of the floats. The caller keeps them borrowed, so an address identifies
    /// them.
    floats: (usize, usize),
    k: usize,
    quantisation: Quantisation,
    /// M x K.
    pub(crate) integers: Vec<i8>,
    /// All groups of K of a row, then those of the next row.
    pub(crate) scales: Vec<f32>,
}

impl QuantisedRows {
    /// Returns the index in `done` of `a` quantised for these weights; quantises it if it is
    /// missing.
    pub(crate) fn find_or_make(
        done: &mut Vec<Self>,
        engine: &Engine,
        k: usize,
        weights: &WeightScales,
        a: &[f32],
    ) -> Result<usize, Error> {
        let floats = (a.as_ptr().addr(), a.len());
        let is_same = |rows: &Self| {
            rows.floats == floats && rows.k == k && rows.quantisation == weights.quantisation
        };
        if let Some(found) = done.iter().position(is_same) {
            return Ok(found);
        }
        let from = Instant::now();
        done.push(Self::new(engine, k, weights, a)?);
        let elements = a.len();
        let token = engine.observer.token();
        engine.done(token, None, Activity::Quantise { elements }, from);
        Ok(done.len() - 1)
    }

    /// Keeps the memory for later rows.
    pub(crate) fn recycle(self, engine: &Engine) {
        engine.integers.put(self.integers);
        engine.scales.put(self.scales);
    }

    fn new(engine: &Engine, k: usize, weights: &WeightScales, a: &[f32]) -> Result<Self, Error> {
        let quantisation = weights.quantisation;
        let group = quantisation.group(k);
        let groups = k.div_ceil(group);
        let limit = quantisation.activation_max();
        // Every element of both is written below.
        let mut integers = engine.integers.take(a.len())?;
        let mut scales = engine.scales.take(a.len() / k * groups)?;
        let start = || (engine.stopwatch(Section::Pack), Vec::new());
        engine.workers.run(|| {
            integers
                .par_chunks_mut(k)
                .zip(scales.par_chunks_mut(groups))
                .zip(a.par_chunks(k))
                .try_for_each_init(start, |(_, scratch), ((out, scales), row)| {
                    let row = match &weights.rotation {
                        None => row,
                        Some(rotation) => {
                            resize(scratch, row.len())?;
                            scratch.copy_from_slice(row);
                            rotation.apply(scratch);
                            &scratch[..]
                        }
                    };
                    let scale_of = |row: &[f32]| row_scale(row, limit);
                    quantise_groups(row, group, (scale_of, limit), (out, scales));
                    Ok::<_, TryReserveError>(())
                })
        })?;
        Ok(Self {
            floats: (a.as_ptr().addr(), a.len()),
            k,
            quantisation,
            integers,
            scales,
        })
    }
}
