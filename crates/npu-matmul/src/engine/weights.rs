// SPDX-License-Identifier: MIT OR Apache-2.0
//! Weights (B of C = A x B^T) in host memory, before an engine loads them.

use std::collections::TryReserveError;
use std::fmt;
use std::sync::Arc;

use half::f16;
use npu_kernels::quantise::quantise_row;
use rayon::prelude::*;

use crate::device::times::Section;
use crate::engine::packed::{PackedWeights, WeightScales};
use crate::engine::{Engine, check_int4, matrix};
use crate::numbers::pack::{Fp16, Int4, Int8};
use crate::numbers::quantise::Quantisation;
use crate::numbers::quantise::rotate::{self, Rotation};
use crate::numbers::scratch::{resize, zeroed};
use crate::plan::error::Error;
use crate::plan::weight_format::WeightFormat;
use crate::plan::{PlanOptions, WeightPlan, int4_depth};

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
    source: WeightSource<'a>,
}

/// Writes all K weights of an output channel.
type FillRow<'a> = Box<dyn Fn(usize, &mut [f32]) + Sync + 'a>;

enum WeightSource<'a> {
    Int8(&'a [i8]),
    Int4(&'a [i8]),
    Fp16(&'a [f16]),
    Floats(Quantisation, &'a [f32]),
    Rows(Quantisation, FillRow<'a>),
}

impl WeightSource<'_> {
    const fn format(&self) -> WeightFormat {
        match self {
            Self::Int8(_) => WeightFormat::Int8,
            Self::Int4(_) => WeightFormat::Int4,
            Self::Fp16(_) => WeightFormat::Fp16,
            Self::Floats(to, _) | Self::Rows(to, _) => WeightFormat::Quantised(*to),
        }
    }
}

impl<'a> Weights<'a> {
    const fn new(n: usize, k: usize, source: WeightSource<'a>) -> Self {
        Self { n, k, source }
    }

    /// 8-bit integers, for exact INT8 matmuls.
    #[must_use]
    pub const fn i8(n: usize, k: usize, b: &'a [i8]) -> Self {
        Self::new(n, k, WeightSource::Int8(b))
    }

    /// Integers from -8 to 7, for exact INT4 matmuls.
    #[must_use]
    pub const fn i4(n: usize, k: usize, b: &'a [i8]) -> Self {
        Self::new(n, k, WeightSource::Int4(b))
    }

    /// binary16 weights, for FP16 matmuls.
    #[must_use]
    pub const fn f16(n: usize, k: usize, b: &'a [f16]) -> Self {
        Self::new(n, k, WeightSource::Fp16(b))
    }

    /// Floats to quantise to INT8; activations are quantised to INT8, too.
    #[must_use]
    pub const fn w8a8(n: usize, k: usize, b: &'a [f32]) -> Self {
        Self::quantised(n, k, Quantisation::W8A8, b)
    }

    /// Floats to quantise to integers.
    #[must_use]
    pub const fn quantised(n: usize, k: usize, to: Quantisation, b: &'a [f32]) -> Self {
        Self::new(n, k, WeightSource::Floats(to, b))
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
        Self::new(n, k, WeightSource::Rows(to, Box::new(fill)))
    }

    /// Rotates weights of [`Weights::w8a8`], which spreads outliers of the activations; see
    /// [`rotate`]. Other weights are unchanged.
    #[must_use]
    pub const fn rotated(mut self) -> Self {
        if let WeightSource::Floats(to @ Quantisation::W8A8, _)
        | WeightSource::Rows(to @ Quantisation::W8A8, _) = &mut self.source
        {
            *to = Quantisation::W8A8Hadamard;
        }
        self
    }
}

impl fmt::Debug for Weights<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Weights")
            .field("format", &self.source.format())
            .field("n", &self.n)
            .field("k", &self.k)
            .finish_non_exhaustive()
    }
}

impl Engine {
    /// Packs weights into device memory, where they stay until [`PackedWeights`] is dropped.
    ///
    /// # Errors
    /// A wrong length, a dimension of 0, no memory, [`Error::Int4Range`], [`Error::TooDeep`].
    pub fn load(&self, weights: Weights<'_>) -> Result<PackedWeights, Error> {
        let Weights { n, k, source } = weights;
        let format = source.format();
        match source {
            WeightSource::Int8(b) => {
                self.pack::<Int8>(self.weight_plan(format, n, k)?, format, b, None)
            }
            WeightSource::Int4(b) => {
                check_int4("B", b)?;
                // The deepest tiles that the values allow.
                let known = PlanOptions {
                    int4_depth: Some(self.workers.run(|| int4_depth(k, b))),
                    ..self.options.clone()
                };
                let plan = self.plan_weights(format, n, k, &known)?;
                self.pack::<Int4>(plan, format, b, None)
            }
            WeightSource::Fp16(b) => {
                self.pack::<Fp16>(self.weight_plan(format, n, k)?, format, b, None)
            }
            WeightSource::Floats(to, b) => {
                let rows = matrix("B", b, n, k)?;
                let fill = |channel, row: &mut [f32]| row.copy_from_slice(rows.row(channel));
                self.load_quantised(n, k, to, &fill)
            }
            WeightSource::Rows(to, fill) => self.load_quantised(n, k, to, &fill),
        }
    }

    fn load_quantised(
        &self,
        n: usize,
        k: usize,
        to: Quantisation,
        fill: &(impl Fn(usize, &mut [f32]) + Sync),
    ) -> Result<PackedWeights, Error> {
        let format = WeightFormat::Quantised(to);
        // Rejects bad sizes before anything is allocated.
        let plan = self.weight_plan(format, n, k)?;
        let rotation = Rotation::new(k, rotate::SEED).filter(|_| to.is_rotated());
        let (mut integers, mut columns) = (zeroed(n * k)?, zeroed(n)?);
        let start = || (self.stopwatch(Section::PackWeights), Vec::new());
        self.workers.run(|| {
            let channels = integers.par_chunks_mut(k).zip(&mut columns).enumerate();
            channels.try_for_each_init(start, |(_, row), (channel, (integers, scale))| {
                resize(row, k)?;
                fill(channel, row);
                if let Some(rotation) = &rotation {
                    rotation.apply(row);
                }
                *scale = quantise_row(row, integers);
                Ok::<_, TryReserveError>(())
            })
        })?;
        let scales = WeightScales {
            quantisation: to,
            columns,
            rotation,
        };
        self.pack::<Int8>(plan, format, &integers, Some(scales))
    }

    /// Plans weights of `n x k` without loading any.
    ///
    /// # Errors
    /// [`Error::Plan`] if they cannot be planned; [`Error::TooDeep`].
    pub fn weight_plan(
        &self,
        format: WeightFormat,
        n: usize,
        k: usize,
    ) -> Result<Arc<WeightPlan>, Error> {
        self.plan_weights(format, n, k, &self.options)
    }
}
