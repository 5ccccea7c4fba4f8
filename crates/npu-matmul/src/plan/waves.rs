// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which steps are submitted together.
//!
//! The jobs of a wave go to a device in one SUBMIT, one after the other. Its
//! buffers are all in use at once, and the first of its jobs starts when all of
//! its activations are packed. So what needs little memory is one wave; of more,
//! one wave is packed and unpacked while another is computed.

use std::collections::HashSet;
use std::ops::Range;

use super::{JobLimits, Plan, Step};

/// Waves that are started and not finished: one computes while the CPU works
/// on the other.
pub(crate) const WAVES_IN_FLIGHT: usize = 2;

/// Most jobs of a wave.
pub(super) const WAVE_JOBS: usize = 64;

/// Activation and output buffer: most that the largest job has of
/// [`JobLimits::buffer_bytes`].
pub(super) const BUFFERS_OF_A_JOB: usize = 2;

/// What steps need together.
#[derive(Debug, Default)]
pub(crate) struct WaveSize {
    jobs: usize,
    /// Bytes in flight, by device.
    bytes: Vec<usize>,
    /// Activations that are counted: of which product, on which device, rows, and
    /// first K tile. Jobs that read the same share a buffer.
    inputs: HashSet<(usize, usize, Range<usize>, usize)>,
}

impl WaveSize {
    /// With one more step, of product `work`.
    pub(crate) fn add(&mut self, work: usize, step: &Step) {
        for job in &step.jobs {
            let band = &*job.band;
            let first = band.k_tiles.first().map_or(0, |k_tile| k_tile.index);
            let input = (work, job.device, band.rows.clone(), first);
            if self.bytes.len() <= job.device {
                self.bytes.resize(job.device + 1, 0);
            }
            let bytes = &mut self.bytes[job.device];
            *bytes += job.output_bytes;
            if self.inputs.insert(input) {
                *bytes += band.activation_bytes;
            }
        }
        self.jobs += step.jobs.len();
    }

    /// SUBMIT calls: one for each device.
    fn submits(&self) -> usize {
        self.bytes.iter().filter(|&&bytes| bytes > 0).count()
    }

    fn largest(&self) -> usize {
        self.bytes.iter().copied().max().unwrap_or(0)
    }
}

/// The most that a wave needs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WaveLimit {
    /// Bytes on each device.
    bytes: usize,
}

impl WaveLimit {
    /// For products that need `all` together: one wave, if no device needs more
    /// for it than for two waves of one large step each.
    pub(crate) fn new(all: &WaveSize, limits: &JobLimits) -> Self {
        let one = limits.buffer_bytes;
        let together = one.saturating_mul(WAVES_IN_FLIGHT * BUFFERS_OF_A_JOB);
        let bytes = if all.largest() <= together {
            together
        } else {
            one
        };
        Self { bytes }
    }

    /// Whether steps of this size may be a wave; a single one always may.
    pub(crate) fn holds(self, size: &WaveSize) -> bool {
        size.jobs <= WAVE_JOBS && size.largest() <= self.bytes
    }
}

impl Plan<'_> {
    /// SUBMIT calls of this product, run on its own within these limits.
    #[must_use]
    pub fn submits(&self, limits: &JobLimits) -> usize {
        let mut all = WaveSize::default();
        self.steps().for_each(|step| all.add(0, &step));
        let limit = WaveLimit::new(&all, limits);
        let (mut wave, mut submits) = (WaveSize::default(), 0);
        for step in self.steps() {
            let before = wave.submits();
            wave.add(0, &step);
            if !limit.holds(&wave) && before > 0 {
                submits += before;
                wave = WaveSize::default();
                wave.add(0, &step);
            }
        }
        submits + wave.submits()
    }
}
