// SPDX-License-Identifier: MIT OR Apache-2.0
//! Groups steps into waves, and small steps of different matmuls into the same jobs.
//!
//! The steps of a *wave* go to each device in one SUBMIT. A step that packs activations begins a
//! wave, so that the NPU computes one wave while the CPU packs the next. A step joins the wave
//! before it if its activations are already packed, or if that wave packs little.
//!
//! In a wave the jobs of a step are *joined* with those of the step before, of another matmul, if
//! the earlier results are small: each device then runs one job with the tasks of both. A job of
//! its own would let the CPU read the earlier results while the NPU computes, but costs more than
//! that saves.

use std::collections::HashSet;
use std::ops::Range;

use rknpu_regcmd::MatmulType;

use super::options::{JobLimits, PACKED_BYTES_MIN};
use super::steps::{JobPlan, Step};

/// Most jobs of a wave.
pub(crate) const WAVE_JOBS: usize = 64;

/// Waves of the largest size in flight: one computes while the CPU works on the other. More waves
/// of smaller size may be in flight.
pub(crate) const WAVES_IN_FLIGHT: usize = 2;

/// Buffers of a job, each of at most [`JobLimits::buffer_bytes`]: activations and output.
pub(crate) const BUFFERS_OF_A_JOB: usize = 2;

/// Bytes of results of a device from which on the CPU reads them while the NPU runs another job. It
/// reads three times as many, of three devices, in about the 40 us that a job costs beyond its
/// tasks (modelled; E-time-submit).
const RESULT_BYTES_MIN: u64 = 64 << 10;

/// Jobs and buffer bytes of a wave.
#[derive(Clone, Debug, Default)]
pub(crate) struct WaveSize {
    pub(crate) jobs: usize,
    /// For each device, bytes of results and bytes of activations that the wave packs.
    devices: Vec<[usize; 2]>,
}

impl WaveSize {
    /// The largest value of `of` over all devices.
    fn most(&self, of: impl Fn(&[usize; 2]) -> usize) -> usize {
        self.devices.iter().map(of).max().unwrap_or(0)
    }

    /// Bytes on the device that needs most.
    fn bytes(&self) -> usize {
        self.most(|[results, packed]| results + packed)
    }

    /// Bytes of results on the device that has most.
    pub(crate) fn result_bytes(&self) -> usize {
        self.most(|[results, _]| *results)
    }

    /// SUBMIT calls: one for each device.
    pub(crate) fn submits(&self) -> usize {
        self.devices
            .iter()
            .filter(|[results, _]| *results > 0)
            .count()
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

/// Steps whose jobs are joined.
#[derive(Debug)]
struct JoinedSteps {
    /// Index of the last step's matmul.
    matmul: usize,
    ty: Option<MatmulType>,
    /// On each device at most: bytes of results, tasks, and bound of the time.
    results: u64,
    tasks: u64,
    time_bound_ns: u64,
}

impl JoinedSteps {
    fn of(matmul: usize, step: &Step) -> Self {
        let most = |of: fn(&JobPlan) -> u64| step.jobs.iter().map(of).max().unwrap_or(0);
        Self {
            matmul,
            ty: step.jobs.first().map(|job| job.ty),
            results: most(|job| job.output_bytes as u64),
            tasks: most(|job| job.tasks.len() as u64),
            time_bound_ns: most(|job| job.time_bound_ns),
        }
    }

    /// These steps and `next`; `None` if the jobs of `next` should be separate.
    fn with(&self, next: &Self, limits: &JobLimits) -> Option<Self> {
        let together = Self {
            results: self.results + next.results,
            tasks: self.tasks + next.tasks,
            time_bound_ns: self.time_bound_ns.saturating_add(next.time_bound_ns),
            ..*next
        };
        let fits = together.tasks <= limits.tasks as u64
            && u128::from(together.time_bound_ns) <= limits.time.as_nanos();
        let is_other = self.matmul != next.matmul && self.ty == next.ty;
        (is_other && self.results < RESULT_BYTES_MIN && fits).then_some(together)
    }
}

/// The place of a step.
#[derive(Debug)]
pub(crate) struct StepPlacement {
    /// The size of the wave before, if the step begins a new one.
    pub(crate) ended: Option<WaveSize>,
    /// Whether its jobs are joined with those of the step before.
    pub(crate) is_joined: bool,
}

/// Groups steps into waves, in order.
#[derive(Debug, Default)]
pub(crate) struct WaveBuilder {
    /// The size of the last wave.
    pub(crate) wave: WaveSize,
    /// Its last steps.
    joined: Option<JoinedSteps>,
}

impl WaveBuilder {
    /// Adds a step of the matmul with this index to the wave. If it does not fit, starts a new wave
    /// with it. `packs` says for each job of the step whether it packs its activations; otherwise
    /// they are already packed.
    pub(crate) fn push(
        &mut self,
        matmul: usize,
        step: &Step,
        packs: &[bool],
        limits: &JobLimits,
    ) -> StepPlacement {
        let alone = JoinedSteps::of(matmul, step);
        let together = self.wave.with(step, packs);
        let most = limits.buffer_bytes.saturating_mul(BUFFERS_OF_A_JOB);
        let fits = together.jobs <= WAVE_JOBS && together.bytes() <= most;
        let waits =
            self.wave.most(|[_, packed]| *packed) >= PACKED_BYTES_MIN && packs.contains(&true);
        if self.wave.jobs > 0 && (!fits || waits) {
            self.joined = Some(alone);
            let wave = WaveSize::default().with(step, packs);
            return StepPlacement {
                ended: Some(std::mem::replace(&mut self.wave, wave)),
                is_joined: false,
            };
        }
        self.wave = together;
        let joined = self.joined.as_ref();
        let joined = joined.and_then(|before| before.with(&alone, limits));
        let is_joined = joined.is_some();
        self.joined = Some(joined.unwrap_or(alone));
        StepPlacement {
            ended: None,
            is_joined,
        }
    }
}

/// The activations that earlier jobs have packed, for matmuls of the same A.
#[derive(Debug, Default)]
pub(crate) struct Packed(HashSet<(usize, MatmulType, Range<usize>, [usize; 3])>);

impl Packed {
    /// Whether `job` is the first that needs its activations. Records them.
    pub(crate) fn is_first(&mut self, job: &JobPlan) -> bool {
        let band = &job.band;
        let tiles = &band.activations;
        let depth = tiles.first().map_or([0; 3], |tile| {
            [tile.k_tile.k.start, tile.k_tile.padded, tiles.len()]
        });
        let key = (job.device, job.ty, band.rows.clone(), depth);
        self.0.insert(key)
    }
}

/// A step in a wave.
pub(crate) struct PlannedStep<'s> {
    pub(crate) step: &'s Step,
    /// Index of its matmul.
    pub(crate) matmul: usize,
    /// For each of its jobs, whether it packs its activations.
    pub(crate) packs: Vec<bool>,
    /// Whether its jobs are joined with those of the step before.
    pub(crate) is_joined: bool,
}

/// Steps that are submitted together.
pub(crate) struct PlannedWave<'s> {
    pub(crate) steps: Vec<PlannedStep<'s>>,
    pub(crate) size: WaveSize,
}

/// The waves of matmuls of the same activations, given by their steps, within these limits and if
/// nothing else runs.
pub(crate) fn waves<'s>(matmuls: &'s [Vec<Step>], limits: &JobLimits) -> Vec<PlannedWave<'s>> {
    let (mut packed, mut builder) = (Packed::default(), WaveBuilder::default());
    let (mut waves, mut steps) = (Vec::new(), Vec::new());
    for (matmul, of_matmul) in matmuls.iter().enumerate() {
        for step in of_matmul {
            let packs: Vec<_> = step.jobs.iter().map(|job| packed.is_first(job)).collect();
            let StepPlacement { ended, is_joined } = builder.push(matmul, step, &packs, limits);
            if let Some(size) = ended {
                let steps = std::mem::take(&mut steps);
                waves.push(PlannedWave { steps, size });
            }
            steps.push(PlannedStep {
                step,
                matmul,
                packs,
                is_joined,
            });
        }
    }
    let size = builder.wave;
    waves.push(PlannedWave { steps, size });
    waves
}
