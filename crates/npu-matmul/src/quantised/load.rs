// SPDX-License-Identifier: MIT OR Apache-2.0
//! Float weights -> quantised weights on the devices.

use std::sync::Arc;

use half::f16;
use npu_kernels::quantise::quantise_scaled;
use rayon::prelude::*;

use super::outliers::OutlierWeights;
use super::{OutlierStorage, Quantised, halves_of};
use crate::dtype::Dtype;
use crate::engine::{Engine, matrix};
use crate::error::Error;
use crate::pack::{Int4, Int8};
use crate::plan::{WeightMemory, WeightPlan};
use crate::quantise::{Operands, Outliers, QuantiseOptions, Scheme, to_halves};
use crate::times::Section;
use crate::weights::Weights;

impl Engine {
    /// Quantises float weights, `n x k`, to INT8 with a scale for each output
    /// channel (see [`crate::quantise`]) and loads them.
    ///
    /// # Errors
    /// As [`Engine::load_i8`], and [`Error::TooDeep`].
    pub fn load_i8_quantised(&self, n: usize, k: usize, b: &[f32]) -> Result<Weights, Error> {
        self.load_quantised(n, k, &QuantiseOptions::default(), b)
    }

    /// Quantises float weights, `n x k`, as the options say and loads them.
    ///
    /// # Errors
    /// As [`Engine::load_i8`], [`Error::TooDeep`], and options that do not fit
    /// K: [`Error::RotationLength`], [`Error::OutlierColumn`], or of a K group
    /// [`Error::Plan`].
    pub fn load_quantised(
        &self,
        n: usize,
        k: usize,
        options: &QuantiseOptions,
        b: &[f32],
    ) -> Result<Weights, Error> {
        let view = matrix("B", b, n, k)?;
        let fill = |channel, row: &mut [f32]| row.copy_from_slice(view.row(channel));
        self.load_quantised_rows(n, k, options, fill)
    }

    /// How weights, `n x k`, that are quantised as the options say would be cut.
    ///
    /// # Errors
    /// Why they cannot be; see [`Error::Plan`].
    pub fn quantised_weight_plan(
        &self,
        n: usize,
        k: usize,
        options: &QuantiseOptions,
    ) -> Result<WeightPlan, Error> {
        let plan_options = options.plan_options(k, self.options());
        self.plan_weights(options.operands.dtype(), n, k, &plan_options)
    }

    /// The memory that weights, `n x k`, that are quantised as the options say
    /// would take, with what is kept of them in FP16.
    ///
    /// # Errors
    /// As [`Engine::load_quantised`], but for memory.
    pub fn quantised_weight_memory(
        &self,
        n: usize,
        k: usize,
        options: &QuantiseOptions,
    ) -> Result<WeightMemory, Error> {
        let loader = Loader::new(k, options)?;
        let plan = self.quantised_weight_plan(n, k, options)?;
        let own = options.plan_options(k, self.options());
        let memory = WeightMemory::new(&plan, &own).with_scales(n, k.div_ceil(loader.group));
        Ok(match &options.outliers {
            Outliers::Above(_) => memory.with_all_columns(n, k, self.options()),
            Outliers::Columns(_) if !loader.columns.is_empty() => {
                let (columns, options) = (loader.columns.len(), self.options());
                let outliers = self.plan_weights(Dtype::Fp16, n, columns, options)?;
                memory.with_columns(&outliers, options)
            }
            Outliers::Quantised | Outliers::Columns(_) => memory,
        })
    }

    /// As [`Engine::load_quantised`], for weights that are not in memory as
    /// floats: `fill(channel, row)` writes the K weights of an output channel.
    /// It is called once for each channel, by several threads. Only
    /// [`Scheme::PerTensor`] holds all of the floats at the same time.
    ///
    /// # Errors
    /// As [`Engine::load_quantised`].
    pub fn load_quantised_rows(
        &self,
        n: usize,
        k: usize,
        options: &QuantiseOptions,
        fill: impl Fn(usize, &mut [f32]) + Sync,
    ) -> Result<Weights, Error> {
        let loader = Loader::new(k, options)?;
        // Before anything is allocated for sizes that make no sense.
        let plan = self.quantised_weight_plan(n, k, options)?;
        let mut integers = vec![0; n * k];
        let fill = &fill;
        let channels = self.workers().run(|| match options.scheme {
            Scheme::PerTensor => loader.all_channels(n, fill, &mut integers),
            Scheme::PerChannel | Scheme::PerKGroup(_) => integers
                .par_chunks_mut(k)
                .enumerate()
                .map_init(
                    || (self.stopwatch(Section::PackWeights), vec![0.0; k]),
                    |(_, row), (channel, out)| {
                        fill(channel, row);
                        loader.channel(row, out)
                    },
                )
                .collect(),
        });
        let quantised = Quantised {
            operands: options.operands,
            group: loader.group,
            scales: group_major(&channels, k.div_ceil(loader.group)),
            rotation: options.rotation.clone().map(Arc::new),
            outliers: loader.kept(self, channels)?,
        };
        self.load_integers(plan, options, &integers, quantised)
    }

    /// Loads integers by a plan of any such; of four bits by one of their own.
    pub(super) fn load_integers(
        &self,
        plan: WeightPlan,
        options: &QuantiseOptions,
        integers: &[i8],
        quantised: Quantised,
    ) -> Result<Weights, Error> {
        let WeightPlan { n, k, .. } = plan;
        match options.operands {
            Operands::W8A8 => self.load_planned::<Int8>(plan, integers, Some(quantised)),
            Operands::W4A8 | Operands::W4A4 => {
                let plan = self.plan_int4(n, k, integers, |any| options.plan_options(k, any))?;
                self.load_planned::<Int4>(plan, integers, Some(quantised))
            }
        }
    }
}

/// What becomes of the weights of one output channel.
struct Loader<'o> {
    options: &'o QuantiseOptions,
    k: usize,
    /// Neighbouring channels with one scale.
    group: usize,
    /// Columns that all products keep out: in order, each once.
    columns: Vec<usize>,
}

/// An output channel, besides its integers.
struct Channel {
    /// One for each group of K.
    scales: Vec<f32>,
    /// What is kept of it.
    halves: Vec<f16>,
    /// The scale of that.
    halves_scale: f32,
}

impl<'o> Loader<'o> {
    fn new(k: usize, options: &'o QuantiseOptions) -> Result<Self, Error> {
        let group = options.scheme.group(k);
        let max = options.operands.depth_max();
        if group > max {
            return Err(Error::TooDeep { k: group, max });
        }
        if let Some(rotation) = options.rotation.as_ref().map(|rotation| rotation.row_len())
            && rotation != k
        {
            return Err(Error::RotationLength { rotation, k });
        }
        let mut columns = match &options.outliers {
            Outliers::Columns(columns) => columns.clone(),
            Outliers::Quantised | Outliers::Above(_) => Vec::new(),
        };
        columns.sort_unstable();
        columns.dedup();
        match columns.last() {
            Some(&column) if column >= k => Err(Error::OutlierColumn { column, k }),
            _ => Ok(Self {
                options,
                k,
                group,
                columns,
            }),
        }
    }

    /// Quantises all channels with one scale. Channels with a NaN or an
    /// infinity have none, and do not bear on it.
    fn all_channels(
        &self,
        n: usize,
        fill: impl Fn(usize, &mut [f32]) + Sync,
        integers: &mut [i8],
    ) -> Vec<Channel> {
        let mut floats = vec![0.0; n * self.k];
        let mut channels: Vec<Channel> = floats
            .par_chunks_mut(self.k)
            .enumerate()
            .map(|(channel, row)| {
                fill(channel, row);
                let (halves, halves_scale) = self.prepare(row);
                let finite = row.iter().all(|x| x.is_finite());
                if !finite {
                    row.fill(0.0);
                }
                Channel {
                    scales: vec![if finite { 0.0 } else { f32::NAN }],
                    halves,
                    halves_scale,
                }
            })
            .collect();
        let limit = self.options.operands.weight_max();
        let scale = self.options.search.scale(&floats, limit);
        for channel in &mut channels {
            for own in channel.scales.iter_mut().filter(|own| !own.is_nan()) {
                *own = scale;
            }
        }
        integers
            .par_chunks_mut(self.k)
            .zip(floats.par_chunks(self.k))
            .for_each(|(out, row)| quantise_scaled(row, scale, limit, out));
        channels
    }

    /// Quantises one channel.
    fn channel(&self, row: &mut [f32], out: &mut [i8]) -> Channel {
        let (halves, halves_scale) = self.prepare(row);
        let limit = self.options.operands.weight_max();
        let scales = row
            .chunks(self.group)
            .zip(out.chunks_mut(self.group))
            .map(|(row, out)| {
                let scale = self.options.search.scale(row, limit);
                quantise_scaled(row, scale, limit, out);
                scale
            })
            .collect();
        Channel {
            scales,
            halves,
            halves_scale,
        }
    }

    /// Takes out what is kept and rotates the rest.
    fn prepare(&self, row: &mut [f32]) -> (Vec<f16>, f32) {
        let mut halves = Vec::new();
        let scale = match self.options.outliers {
            Outliers::Quantised => 0.0,
            Outliers::Columns(_) => {
                halves.resize(self.columns.len(), f16::ZERO);
                let scale = halves_of(row, &self.columns, &mut halves);
                for &column in &self.columns {
                    row[column] = 0.0;
                }
                scale
            }
            Outliers::Above(_) => {
                halves.resize(row.len(), f16::ZERO);
                to_halves(row.iter().copied(), &mut halves)
            }
        };
        if let Some(rotation) = &self.options.rotation {
            rotation.apply(row);
        }
        (halves, scale)
    }

    /// Loads what is kept.
    fn kept(&self, engine: &Engine, channels: Vec<Channel>) -> Result<OutlierStorage, Error> {
        let gather = || {
            let scales: Vec<f32> = channels.iter().map(|c| c.halves_scale).collect();
            let halves: Vec<f16> = channels.iter().flat_map(|c| c.halves.clone()).collect();
            (halves, scales)
        };
        match self.options.outliers {
            Outliers::Above(times) => {
                let (halves, scales) = gather();
                Ok(OutlierStorage::All {
                    times,
                    halves,
                    scales,
                })
            }
            Outliers::Columns(_) if !self.columns.is_empty() => {
                let (halves, scales) = gather();
                let outliers = OutlierWeights::load(engine, self.columns.clone(), &halves, scales)?;
                Ok(OutlierStorage::Columns(Box::new(outliers)))
            }
            Outliers::Quantised | Outliers::Columns(_) => Ok(OutlierStorage::Nothing),
        }
    }
}

/// All scales of the first group, then those of the next.
fn group_major(channels: &[Channel], groups: usize) -> Vec<f32> {
    (0..groups)
        .flat_map(|group| channels.iter().map(move |channel| channel.scales[group]))
        .collect()
}
