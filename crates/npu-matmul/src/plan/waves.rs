// SPDX-License-Identifier: MIT OR Apache-2.0
//! Groups steps into waves.
//!
//! The steps of a *wave* go to each device in one SUBMIT. A step that packs activations begins a
//! wave, so that the NPU computes one wave while the CPU packs the next. A step joins the wave
//! before it if its activations are already packed, or if that wave packs little.

use std::collections::HashSet;
use std::ops::Range;

use super::options::JobLimits;
use super::step::{JobPlan, Step};

/// Most jobs of a wave.
pub(crate) const WAVE_JOBS: usize = 64;

/// Waves of the largest size in flight: one computes while the CPU works on the other. More waves
/// of smaller size may be in flight.
pub(crate) const WAVES_IN_FLIGHT: usize = 2;

/// Buffers of a job, each of at most [`JobLimits::buffer_bytes`]: activations and output.
pub(crate) const BUFFERS_OF_A_JOB: usize = 2;

/// Least bytes that a wave packs on a device before it is submitted. Packing them takes the CPU
/// about 10 us; less is not worth a separate SUBMIT.
pub(super) const PACKED_BYTES_MIN: usize = 64 << 10;

/// Jobs and buffer bytes of a wave.
#[derive(Clone, Debug, Default)]
pub(crate) struct WaveSize {
    pub(crate) jobs: usize,
    /// For each device, bytes of results and bytes of activations that the wave packs.
    devices: Vec<[usize; 2]>,
}

impl WaveSize {
    /// Bytes on the device that needs most.
    fn bytes(&self) -> usize {
        let bytes = self
            .devices
            .iter()
            .map(|[results, packed]| results + packed);
        bytes.max().unwrap_or(0)
    }

    /// Bytes of results on the device that has most.
    pub(crate) fn result_bytes(&self) -> usize {
        let results = self.devices.iter().map(|[results, _]| *results);
        results.max().unwrap_or(0)
    }

    /// Bytes that it packs on the device that packs most.
    fn packed_bytes(&self) -> usize {
        let packed = self.devices.iter().map(|[_, packed]| *packed);
        packed.max().unwrap_or(0)
    }

    /// SUBMIT calls: one for each device.
    pub(crate) fn submits(&self) -> usize {
        let used = self.devices.iter().filter(|[results, _]| *results > 0);
        used.count()
    }

    /// The size with one more step. `packs` says which of its jobs pack.
    fn with(&self, step: &Step, packs: &[bool]) -> Self {
        let mut size = self.clone();
        size.jobs += step.jobs.len();
        for (job, packs) in step.jobs.iter().zip(packs) {
            if size.devices.len() <= job.device {
                size.devices.resize(job.device + 1, [0; 2]);
            }
            let [results, packed] = &mut size.devices[job.device];
            *results += job.output_bytes;
            if *packs {
                *packed += job.band.activation_bytes;
            }
        }
        size
    }

    /// Whether this wave may start while `[bytes, jobs]` are in flight: bytes in use on a device,
    /// and running jobs.
    pub(crate) fn fits(&self, in_flight: [usize; 2], limits: &JobLimits) -> bool {
        let [bytes, jobs] = in_flight;
        let most = limits.buffer_bytes.saturating_mul(BUFFERS_OF_A_JOB);
        bytes.saturating_add(self.bytes()) <= most.saturating_mul(WAVES_IN_FLIGHT)
            && jobs + self.jobs <= WAVE_JOBS * WAVES_IN_FLIGHT
    }
}

/// Groups steps into waves, in order.
#[derive(Debug, Default)]
pub(crate) struct WaveBuilder(WaveSize);

impl WaveBuilder {
    /// Adds `step` to the wave. If it does not fit, starts a new wave with it, and returns the size
    /// of the one before. `packs` says for each job of the step whether it packs its activations;
    /// otherwise they are already packed.
    pub(crate) fn push(
        &mut self,
        step: &Step,
        packs: &[bool],
        limits: &JobLimits,
    ) -> Option<WaveSize> {
        let together = self.0.with(step, packs);
        let most = limits.buffer_bytes.saturating_mul(BUFFERS_OF_A_JOB);
        let fits = together.jobs <= WAVE_JOBS && together.bytes() <= most;
        let waits = self.0.packed_bytes() >= PACKED_BYTES_MIN && packs.contains(&true);
        if self.0.jobs == 0 || fits && !waits {
            self.0 = together;
            return None;
        }
        let alone = WaveSize::default().with(step, packs);
        Some(std::mem::replace(&mut self.0, alone))
    }

    /// The size of the last wave.
    pub(crate) fn finish(self) -> WaveSize {
        self.0
    }
}

/// The activations that earlier jobs have packed, for matmuls of the same A.
#[derive(Debug, Default)]
pub(crate) struct Packed(HashSet<(usize, Range<usize>, [usize; 3])>);

impl Packed {
    /// Whether `job` is the first that needs its activations. Records them.
    pub(crate) fn is_first(&mut self, job: &JobPlan) -> bool {
        let band = &job.band;
        let tiles = &band.k_tiles;
        let depth = tiles
            .first()
            .map_or([0; 3], |tile| [tile.k.start, tile.padded, tiles.len()]);
        let key = (job.device, band.rows.clone(), depth);
        self.0.insert(key)
    }
}

/// Steps that are submitted together.
pub(crate) struct PlannedWave<'s> {
    pub(crate) steps: &'s [Step],
    pub(crate) size: WaveSize,
    /// For each of their jobs, whether it packs its activations.
    pub(crate) packs: Vec<bool>,
}

/// The waves of the steps of one matmul or of a batch, within these limits and if nothing else
/// runs.
pub(crate) fn waves<'s>(steps: &'s [Step], limits: &JobLimits) -> Vec<PlannedWave<'s>> {
    let (mut packed, mut builder) = (Packed::default(), WaveBuilder::default());
    let (mut waves, mut wave_packs, mut first) = (Vec::new(), Vec::new(), 0);
    for (index, step) in steps.iter().enumerate() {
        let packs: Vec<_> = step.jobs.iter().map(|job| packed.is_first(job)).collect();
        if let Some(size) = builder.push(step, &packs, limits) {
            waves.push(PlannedWave {
                steps: &steps[first..index],
                size,
                packs: std::mem::take(&mut wave_packs),
            });
            first = index;
        }
        wave_packs.extend(packs);
    }
    waves.push(PlannedWave {
        steps: &steps[first..],
        size: builder.finish(),
        packs: wave_packs,
    });
    waves
}
