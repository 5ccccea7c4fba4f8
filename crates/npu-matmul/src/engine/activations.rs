// SPDX-License-Identifier: MIT OR Apache-2.0
//! Quantises float activations for quantised weights, band after band: the NPU computes with the
//! first rows while the CPU quantises the next ones.

use std::collections::TryReserveError;
use std::time::Instant;

use npu_kernels::quantise::quantise_row;
use rayon::prelude::*;

use crate::device::times::Section;
use crate::engine::{Engine, matrix};
use crate::matrix::MatrixView;
use crate::numbers::quantise::Quantisation;
use crate::numbers::quantise::rotate::Rotation;
use crate::numbers::scratch::resize;
use crate::plan::error::Error;
use crate::plan::observe::Activity;

/// Quantised rows of A, shared by all weights that need the same ones: query, key and value
/// matrices of a layer quantise their input once.
#[derive(Debug)]
pub(crate) struct QuantisedRows<'a> {
    of: FloatRows<'a>,
    /// Number of rows that are quantised: the first ones.
    ready: usize,
    /// M x K.
    integers: Vec<i8>,
    /// One for each row.
    scales: Vec<f32>,
}

/// Everything that quantised rows depend on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FloatRows<'a> {
    /// M x K.
    pub(crate) floats: &'a [f32],
    pub(crate) k: usize,
    pub(crate) quantisation: Quantisation,
    /// The rotation of the weights, if they are rotated.
    pub(crate) rotation: Option<&'a Rotation>,
}

impl PartialEq for FloatRows<'_> {
    /// Compares the place of the floats. The caller keeps them borrowed during the run, so a place
    /// has one content.
    fn eq(&self, other: &Self) -> bool {
        let Self {
            floats,
            k,
            quantisation,
            rotation,
        } = *self;
        std::ptr::eq(floats, other.floats)
            && k == other.k
            && quantisation == other.quantisation
            && rotation == other.rotation
    }
}

impl<'a> QuantisedRows<'a> {
    /// Returns the index of these rows in `known`; adds them, none quantised, if they are missing.
    pub(crate) fn find_or_add(
        known: &mut Vec<Self>,
        engine: &Engine,
        of: FloatRows<'a>,
    ) -> Result<usize, Error> {
        if let Some(found) = known.iter().position(|rows| rows.of == of) {
            return Ok(found);
        }
        // `quantise_to` writes each element before it is read.
        known.push(Self {
            integers: engine.integers.take(of.floats.len())?,
            scales: engine.scales.take(of.floats.len() / of.k)?,
            ready: 0,
            of,
        });
        Ok(known.len() - 1)
    }

    /// The integers, M x K.
    pub(crate) fn integers(&self) -> Result<MatrixView<'_, i8>, Error> {
        matrix("A", &self.integers, self.scales.len(), self.of.k)
    }

    /// The scale of each row.
    pub(crate) fn scales(&self) -> &[f32] {
        &self.scales
    }

    /// Keeps the memory for later rows.
    pub(crate) fn recycle(self, engine: &Engine) {
        engine.integers.put(self.integers);
        engine.scales.put(self.scales);
    }

    /// Quantises the rows before `end` that are not yet.
    pub(crate) fn quantise_to(&mut self, engine: &Engine, end: usize) -> Result<(), Error> {
        let FloatRows {
            floats: a,
            k,
            rotation,
            ..
        } = self.of;
        let rows = self.ready..end.min(self.scales.len());
        if rows.is_empty() {
            return Ok(());
        }
        let from = Instant::now();
        let elements = rows.start * k..rows.end * k;
        let a = &a[elements.clone()];
        let integers = &mut self.integers[elements];
        let scales = &mut self.scales[rows.clone()];
        let start = || (engine.stopwatch(Section::Pack), Vec::new());
        engine.workers.run(|| {
            integers
                .par_chunks_mut(k)
                .zip(scales)
                .zip(a.par_chunks(k))
                .try_for_each_init(start, |(_, scratch), ((out, scale), row)| {
                    let row = match rotation {
                        None => row,
                        Some(rotation) => {
                            resize(scratch, row.len())?;
                            scratch.copy_from_slice(row);
                            rotation.apply(scratch);
                            &scratch[..]
                        }
                    };
                    *scale = quantise_row(row, out);
                    Ok::<_, TryReserveError>(())
                })
        })?;
        self.ready = rows.end;
        let token = engine.observer.token();
        let elements = a.len();
        engine.done(token, None, Activity::Quantise { elements }, from);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use test_support::assert_each_field_counts;

    use super::*;

    proptest! {
        #![proptest_config(test_support::cases(64))]

        #[test]
        fn rows_differ_in_each_field(numbers in [[0..2_usize, 1..3, 0..2, 0..3], [0..2, 1..3, 0..2, 0..3]]) {
            let floats = [[0.0_f32; 4], [1.0; 4]];
            let rotations = [Rotation::new(4, 1), Rotation::new(4, 2), None];
            let [one, other] = numbers.map(|[of, k, quantisation, rotation]| FloatRows {
                floats: &floats[of],
                k,
                quantisation: Quantisation::ALL[quantisation],
                rotation: rotations[rotation].as_ref(),
            });
            assert_each_field_counts!(FloatRows { floats, k, quantisation, rotation }, one, other);
        }
    }

    /// Equal numbers at another place may change in other ways.
    #[test]
    fn rows_are_known_by_their_place() {
        let floats = [0.0; 4];
        let rows = |floats| FloatRows {
            floats,
            k: 2,
            quantisation: Quantisation::W8A8,
            rotation: None,
        };
        assert_ne!(rows(&floats[..2]), rows(&floats[2..]));
        assert_ne!(rows(&floats[..2]), rows(&floats));
        assert_eq!(rows(&floats), rows(&floats));
    }
}
