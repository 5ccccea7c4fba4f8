// SPDX-License-Identifier: MIT OR Apache-2.0
//! Weights (B of C = A x B^T) in host memory, before an engine loads them.

use std::fmt;
use std::sync::Arc;

use half::f16;
use npu_kernels::quantise::quantise_scaled;
use rayon::prelude::*;

use crate::dtype::Dtype;
use crate::engine::{Engine, check_int4, matrix};
use crate::error::Error;
use crate::pack::{Fp16, Int4, Int8};
use crate::packed::{PackedWeights, WeightScales};
use crate::plan::{PlanOptions, WeightPlan, int4_depth};
use crate::quantise::rotate::{self, Rotation};
use crate::quantise::{INT8_K_MAX, Quantisation};
use crate::times::Section;
use crate::weight_format::WeightFormat;

/// Weights in host memory: `n x k`, one row for each output channel. [`Engine::load`] checks and
/// packs them.
///
/// ```no_run
/// # fn example(engine: &npu_matmul::Engine, rows: &[f32]) -> Result<(), npu_matmul::Error> {
/// use npu_matmul::Weights;
///
/// let weights = engine.load(Weights::w8a8(1024, 4096, rows).rotated())?;
/// # Ok(())
/// # }
/// ```
pub struct Weights<'a> {
    n: usize,
    k: usize,
    format: WeightFormat,
    elements: Elements<'a>,
}

/// Writes all K weights of an output channel.
type FillRow<'a> = Box<dyn Fn(usize, &mut [f32]) + Sync + 'a>;

enum Elements<'a> {
    Integers(&'a [i8]),
    Halves(&'a [f16]),
    Floats(&'a [f32]),
    Rows(FillRow<'a>),
}

impl<'a> Weights<'a> {
    const fn new(n: usize, k: usize, format: WeightFormat, elements: Elements<'a>) -> Self {
        Self {
            n,
            k,
            format,
            elements,
        }
    }

    /// 8-bit integers, for exact INT8 matmuls.
    #[must_use]
    pub const fn i8(n: usize, k: usize, b: &'a [i8]) -> Self {
        Self::new(n, k, WeightFormat::Int8, Elements::Integers(b))
    }

    /// Integers from -8 to 7, for exact INT4 matmuls.
    #[must_use]
    pub const fn i4(n: usize, k: usize, b: &'a [i8]) -> Self {
        Self::new(n, k, WeightFormat::Int4, Elements::Integers(b))
    }

    /// binary16 weights, for FP16 matmuls.
    #[must_use]
    pub const fn f16(n: usize, k: usize, b: &'a [f16]) -> Self {
        Self::new(n, k, WeightFormat::Fp16, Elements::Halves(b))
    }

    /// Floats to quantise to INT8; activations are quantised to INT8, too.
    #[must_use]
    pub const fn w8a8(n: usize, k: usize, b: &'a [f32]) -> Self {
        Self::quantised(n, k, Quantisation::W8A8, b)
    }

    /// Floats to quantise to integers.
    #[must_use]
    pub const fn quantised(n: usize, k: usize, to: Quantisation, b: &'a [f32]) -> Self {
        Self::new(n, k, WeightFormat::Quantised(to), Elements::Floats(b))
    }

    /// As [`Weights::quantised`], for weights that are not in memory as floats. `fill(channel,
    /// row)` writes the K weights of one output channel. It is called once for each channel, from
    /// several threads.
    #[must_use]
    pub fn quantised_rows(
        n: usize,
        k: usize,
        to: Quantisation,
        fill: impl Fn(usize, &mut [f32]) + Sync + 'a,
    ) -> Self {
        let rows = Elements::Rows(Box::new(fill));
        Self::new(n, k, WeightFormat::Quantised(to), rows)
    }

    /// Rotates weights of [`Weights::w8a8`], which spreads outliers of the activations; see
    /// [`rotate`]. Other weights are unchanged.
    #[must_use]
    pub const fn rotated(mut self) -> Self {
        if let WeightFormat::Quantised(to @ Quantisation::W8A8) = &mut self.format {
            *to = Quantisation::W8A8Hadamard;
        }
        self
    }
}

impl fmt::Debug for Weights<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Weights")
            .field("format", &self.format)
            .field("n", &self.n)
            .field("k", &self.k)
            .finish_non_exhaustive()
    }
}

impl Engine {
    /// Packs weights into device memory, where they stay until [`PackedWeights`] is dropped.
    ///
    /// # Errors
    /// A wrong length, a dimension of 0, no memory, [`Error::Int4Range`]; for quantised weights
    /// also [`Error::TooDeep`].
    pub fn load(&self, weights: Weights<'_>) -> Result<PackedWeights, Error> {
        let Weights {
            n,
            k,
            format,
            elements,
        } = weights;
        match (elements, format) {
            (Elements::Integers(b), WeightFormat::Int8) => {
                let plan = self.weight_plan(format, n, k)?;
                self.pack::<Int8>(plan, format, b, None)
            }
            (Elements::Integers(b), _) => {
                check_int4("B", b)?;
                let plan = self.int4_plan(n, k, b)?;
                self.pack::<Int4>(plan, format, b, None)
            }
            (Elements::Halves(b), _) => {
                let plan = self.weight_plan(format, n, k)?;
                self.pack::<Fp16>(plan, format, b, None)
            }
            (Elements::Floats(b), WeightFormat::Quantised(to)) => {
                let rows = matrix("B", b, n, k)?;
                let fill = |channel, row: &mut [f32]| row.copy_from_slice(rows.row(channel));
                self.load_quantised(n, k, to, &fill)
            }
            (Elements::Rows(fill), WeightFormat::Quantised(to)) => {
                self.load_quantised(n, k, to, &fill)
            }
            // Unreachable: every constructor gives floats the format Quantised.
            (Elements::Floats(_) | Elements::Rows(_), _) => Err(Error::WrongWeights {
                expected: "quantised",
                actual: format.name(),
            }),
        }
    }

    /// Plans INT4 weights with the deepest tiles that their values allow.
    fn int4_plan(&self, n: usize, k: usize, b: &[i8]) -> Result<Arc<WeightPlan>, Error> {
        let known = PlanOptions {
            int4_depth: Some(self.workers.run(|| int4_depth(k, b))),
            ..self.options.clone()
        };
        self.plan_weights(Dtype::Int4, n, k, &known)
    }

    fn load_quantised(
        &self,
        n: usize,
        k: usize,
        to: Quantisation,
        fill: &(impl Fn(usize, &mut [f32]) + Sync),
    ) -> Result<PackedWeights, Error> {
        let (format, group) = (WeightFormat::Quantised(to), to.group(k));
        if group > INT8_K_MAX {
            return Err(Error::TooDeep { k, max: INT8_K_MAX });
        }
        // Rejects bad sizes before anything is allocated.
        let plan = self.weight_plan(format, n, k)?;
        let rotation = Rotation::new(k, rotate::SEED).filter(|_| to.is_rotated());
        let mut integers = vec![0; n * k];
        let start = || (self.stopwatch(Section::PackWeights), vec![0.0; k]);
        let channels: Vec<Vec<f32>> = self.workers.run(|| {
            let rows = integers.par_chunks_mut(k).enumerate();
            let scales = rows.map_init(start, |(_, row), (channel, out)| {
                fill(channel, row);
                if let Some(rotation) = &rotation {
                    rotation.apply(row);
                }
                quantise_channel(to, group, row, out)
            });
            scales.collect()
        });
        let scales = WeightScales {
            quantisation: to,
            columns: group_major(&channels, k.div_ceil(group)),
            rotation,
        };
        match to.dtype() {
            Dtype::Int4 => self.pack::<Int4>(plan, format, &integers, Some(scales)),
            Dtype::Int8 | Dtype::Fp16 => self.pack::<Int8>(plan, format, &integers, Some(scales)),
        }
    }

    /// Plans weights of `n x k` without loading any.
    ///
    /// # Errors
    /// [`Error::Plan`] if they cannot be planned.
    pub fn weight_plan(
        &self,
        format: WeightFormat,
        n: usize,
        k: usize,
    ) -> Result<Arc<WeightPlan>, Error> {
        self.plan_weights(format.dtype(), n, k, &format.plan_options(&self.options))
    }
}

/// Quantises one channel, with a scale for each group of K.
fn quantise_channel(to: Quantisation, group: usize, row: &[f32], out: &mut [i8]) -> Vec<f32> {
    let limit = to.weight_max();
    row.chunks(group)
        .zip(out.chunks_mut(group))
        .map(|(row, out)| {
            let scale = to.weight_scale(row);
            quantise_scaled(row, scale, limit, out);
            scale
        })
        .collect()
}

/// Reorders scales: all channels of the first group, then those of the next.
fn group_major(channels: &[Vec<f32>], groups: usize) -> Vec<f32> {
    (0..groups)
        .flat_map(|group| channels.iter().map(move |scales| scales[group]))
        .collect()
}
