// SPDX-License-Identifier: MIT OR Apache-2.0
//! Groups the steps of a list of matmuls into waves, and steps of different matmuls into the same
//! jobs.
//!
//! The steps of a *wave* go to each device in one SUBMIT. A step that packs activations begins a
//! wave, so that the NPU computes one wave while the CPU packs the next. A step belongs to the wave
//! before it if its activations are already packed, or if that wave packs little. Steps of all
//! matmuls that read the same activations follow each other:
//!
//! ```text
//!   wave 0                                   wave 1
//!   gate, rows 0..256 | up, rows 0..256      gate, rows 256..512 | up, rows 256..512
//! ```
//!
//! In a wave the jobs of a step are *joined* with those of the step before, if they are of another
//! matmul, of the same type, and together within the limits of a job: each device then runs one job
//! with the tasks of both. In the last wave a job ends once it has at least 128 KiB of results and no
//! fewer than all steps after it, so that the CPU reads them while the NPU computes the rest.
//!
//! Jobs that NPU and CPU share are not joined: each step is a wave, and few are in flight.
//!
//! A matmul keeps the order of its steps, and an element of C has one device, which collects jobs
//! in order. So K tiles are added in order.

use std::ops::Range;
use std::sync::Arc;

use super::options::{JobLimits, PACKED_BYTES_MIN};
use super::steps::{Band, JobPlan, Step};
use crate::dtype::Dtype;

/// Most jobs of a wave.
pub(crate) const WAVE_JOBS: usize = 64;

/// Waves of the largest size in flight: one computes while the CPU works on the other. More waves
/// of smaller size may be in flight.
pub(crate) const WAVES_IN_FLIGHT: usize = 2;

/// Buffers of a job, each of at most [`JobLimits::buffer_bytes`]: activations and output.
pub(crate) const BUFFERS_OF_A_JOB: usize = 2;

/// Least bytes of results of a device that the CPU reads while the NPU runs another job. It reads
/// three times as many, of three devices, in about twice the 40 us that a job costs beyond its
/// tasks (modelled; E-time-submit).
const RESULT_BYTES_MIN: u64 = 128 << 10;

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
        let devices = self.devices.iter();
        devices.filter(|[results, _]| *results > 0).count()
    }

    /// Adds a step.
    fn add(&mut self, step: &WaveStep<'_>) {
        let jobs = &step.step.jobs;
        self.jobs += jobs.len();
        for (job, packs) in jobs.iter().zip(&step.packs) {
            if self.devices.len() <= job.device {
                self.devices.resize(job.device + 1, [0; 2]);
            }
            let [results, packed] = &mut self.devices[job.device];
            *results += job.output_bytes;
            if *packs {
                *packed += job.band.activation_bytes;
            }
        }
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

/// Activations that a device packs once for all jobs of a list that read them.
pub(crate) struct BandCopy<A> {
    /// Identifies the matrix and its encoding.
    pub(crate) a: A,
    pub(crate) device: usize,
    pub(crate) band: Arc<Band>,
    /// Number of jobs that read it.
    pub(crate) readers: usize,
}

/// The part of a copy that a job reads.
#[derive(Clone, Copy)]
pub(crate) struct BandSlice {
    /// Index of the copy in its list.
    pub(crate) copy: usize,
    /// Byte offset of the job's band in the copy.
    pub(crate) offset: usize,
}

impl BandSlice {
    /// Bytes of the buffer that `job` reads.
    pub(crate) fn range(self, job: &JobPlan) -> Range<usize> {
        self.offset..self.offset + job.band.activation_bytes
    }
}

/// The part that `job` reads of one of these copies. Adds a copy if none has its band.
pub(crate) fn slice_of<A: PartialEq>(
    copies: &mut Vec<BandCopy<A>>,
    a: A,
    job: &JobPlan,
) -> BandSlice {
    let found = copies.iter().enumerate().rev().find_map(|(index, copy)| {
        if copy.device != job.device || copy.a != a {
            return None;
        }
        let offset = job.offset_in(&copy.band)?;
        Some(BandSlice {
            copy: index,
            offset,
        })
    });
    let slice = found.unwrap_or_else(|| {
        copies.push(BandCopy {
            a,
            device: job.device,
            band: Arc::clone(&job.band),
            readers: 0,
        });
        BandSlice {
            copy: copies.len() - 1,
            offset: 0,
        }
    });
    copies[slice.copy].readers += 1;
    slice
}

/// A step in a wave.
pub(crate) struct WaveStep<'s> {
    pub(crate) step: &'s Step,
    /// Index of its matmul.
    pub(crate) matmul: usize,
    /// Index of the step in its matmul.
    pub(crate) index: usize,
    /// For each of its jobs, the part of a copy that it reads.
    pub(crate) slices: Vec<BandSlice>,
    /// For each of its jobs, whether it packs its activations.
    pub(crate) packs: Vec<bool>,
    /// Whether its jobs are joined with those of the step before.
    pub(crate) is_joined: bool,
}

impl WaveStep<'_> {
    /// Bytes of results, tasks, and time bound in nanoseconds, each on the device with most.
    fn load(&self) -> [u64; 3] {
        let most = |of: fn(&JobPlan) -> u64| self.step.jobs.iter().map(of).max().unwrap_or(0);
        let tasks = most(|job| job.tasks.len() as u64);
        let time_ns = most(|job| job.time_bound_ns);
        [most(|job| job.output_bytes as u64), tasks, time_ns]
    }
}

/// Steps that are submitted together.
#[derive(Default)]
pub(crate) struct WavePlan<'s> {
    pub(crate) steps: Vec<WaveStep<'s>>,
    pub(crate) size: WaveSize,
}

impl<'s> WavePlan<'s> {
    /// Whether `step` belongs to this wave, which then has the size `together`.
    fn accepts(&self, step: &WaveStep<'_>, together: &WaveSize, limits: &JobLimits) -> bool {
        let most = limits.buffer_bytes.saturating_mul(BUFFERS_OF_A_JOB);
        let fits = together.jobs <= WAVE_JOBS && together.bytes() <= most;
        let packed = self.size.most(|[_, packed]| *packed);
        let is_packed = packed < PACKED_BYTES_MIN || !step.packs.contains(&true);
        self.steps.is_empty() || (fits && is_packed)
    }

    /// Decides which steps are joined.
    fn join(&mut self, is_last: bool, limits: &JobLimits) {
        // Bytes of results of the steps that have no job yet.
        let loads: Vec<_> = self.steps.iter().map(WaveStep::load).collect();
        let mut left: u64 = loads.iter().map(|[results, ..]| results).sum();
        let mut before: Option<(usize, Option<Dtype>, [u64; 3])> = None;
        for (step, alone) in self.steps.iter_mut().zip(loads) {
            let dtype = step.step.jobs.first().map(|job| job.dtype);
            let joined = before.and_then(|(matmul, before_dtype, load)| {
                let together @ [_, tasks, time_ns] =
                    std::array::from_fn(|at| alone[at].saturating_add(load[at]));
                let is_read_early = is_last && load[0] >= left.max(RESULT_BYTES_MIN);
                let fits =
                    tasks <= limits.tasks as u64 && u128::from(time_ns) <= limits.time.as_nanos();
                let is_joined = limits.joined
                    && matmul != step.matmul
                    && before_dtype == dtype
                    && fits
                    && !is_read_early;
                is_joined.then_some(together)
            });
            step.is_joined = joined.is_some();
            left -= alone[0];
            before = Some((step.matmul, dtype, joined.unwrap_or(alone)));
        }
    }
}

/// The waves of a list of matmuls, if nothing else runs, and the copies that they read. Each
/// matmul has its steps, and an `A` that identifies its matrix. Without steps there is one empty
/// wave. Each step of a matmul that `is_shared` is a wave, so that jobs wait for NPU or CPU.
pub(crate) fn waves<'s, A: PartialEq + Copy>(
    matmuls: &[(A, &'s [Step])],
    limits: &JobLimits,
    is_shared: impl Fn(usize) -> bool,
) -> (Vec<WavePlan<'s>>, Vec<BandCopy<A>>) {
    let (mut copies, mut all) = (Vec::new(), Vec::new());
    for (matmul, (a, steps)) in matmuls.iter().enumerate() {
        // The last activations that it has read, and the number of steps since then.
        let mut turn = (0, 0);
        for (index, step) in steps.iter().enumerate() {
            let slices = step.jobs.iter().map(|job| slice_of(&mut copies, *a, job));
            let step = WaveStep {
                step,
                matmul,
                index,
                slices: slices.collect(),
                packs: Vec::new(),
                is_joined: false,
            };
            // Each matmul keeps the order of its steps, whatever others have packed.
            let copy = step.slices.first().map_or(0, |slice| slice.copy);
            turn = (turn.0, turn.1 + 1).max((copy, 0));
            all.push((turn, step));
        }
    }
    all.sort_by_key(|(turn, _)| *turn);
    let mut packed = vec![false; copies.len()];
    let (mut waves, mut wave) = (Vec::new(), WavePlan::default());
    for (_, mut step) in all {
        let packs = |slice: &BandSlice| !std::mem::replace(&mut packed[slice.copy], true);
        step.packs = step.slices.iter().map(packs).collect();
        let mut together = wave.size.clone();
        together.add(&step);
        let before = wave.steps.last().map(|step| step.matmul);
        let is_next = before.is_some_and(|before| is_shared(before) || is_shared(step.matmul));
        if is_next || !wave.accepts(&step, &together, limits) {
            wave.join(false, limits);
            waves.push(std::mem::take(&mut wave));
            together = WaveSize::default();
            together.add(&step);
        }
        wave.size = together;
        wave.steps.push(step);
    }
    wave.join(true, limits);
    waves.push(wave);
    (waves, copies)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proptest::prelude::*;

    use super::*;
    use crate::numbers::dtype::Dtype;
    use crate::plan::{Plan, PlanOptions, WeightPlan};

    fn steps(dtype: Dtype, [m, n, k]: [usize; 3], options: &PlanOptions) -> Vec<Step> {
        let weights = WeightPlan::new(dtype, n, k, 3, options).unwrap();
        Plan::new(&weights, m, options).unwrap().steps().collect()
    }

    proptest! {
        #![proptest_config(test_support::cases(32))]

        #[test]
        fn each_step_has_one_place(
            sizes in prop::collection::vec(
                (0..2_u8, 1..900_usize, 1..3_usize, prop::option::of(1..5_usize)),
                1..5,
            ),
            m in 1..300_usize,
            row_tile in prop::sample::select(&[None, Some(16)][..]),
            k_tile in prop::sample::select(&[None, Some(64)][..]),
            tasks in prop::sample::select(&[4_usize, 1024][..]),
            joined in any::<bool>(),
            shared in any::<u8>(),
            buffer_bytes in prop::sample::select(&[256 << 10_usize, 64 << 20][..]),
        ) {
            let mut options = PlanOptions { row_tile, k_tile, ..PlanOptions::default() };
            options.limits = JobLimits { buffer_bytes, tasks, joined, ..options.limits };
            let all: Vec<_> = (sizes.iter())
                .map(|&(_, n, k, parts)| {
                    let options = PlanOptions { parts, ..options.clone() };
                    steps(Dtype::Int8, [m, n, 256 * k], &options)
                })
                .collect();
            // Matrices of different depth are different.
            let of = sizes.iter().zip(&all);
            let matmuls: Vec<_> = of.map(|(&(a, _, k, _), steps)| ((a, k), &steps[..])).collect();
            let shared: Vec<_> = (0..sizes.len()).map(|matmul| shared >> matmul & 1 == 1).collect();
            let (waves, copies) = waves(&matmuls, &options.limits, |matmul| shared[matmul]);

            let mut next = vec![0; all.len()];
            let mut packed = HashSet::new();
            for wave in &waves {
                let has_room = wave.size.jobs <= WAVE_JOBS
                    && wave.size.bytes() <= BUFFERS_OF_A_JOB * buffer_bytes;
                prop_assert!(has_room || wave.steps.len() == 1);
                let is_shared = wave.steps.iter().any(|step| shared[step.matmul]);
                prop_assert!(!is_shared || wave.steps.len() == 1);
                let (mut before, mut job_tasks) = (None, 0);
                for step in &wave.steps {
                    job_tasks = step.load()[1] + if step.is_joined { job_tasks } else { 0 };
                    prop_assert!(job_tasks <= tasks as u64);
                    prop_assert_eq!(step.index, next[step.matmul]);
                    next[step.matmul] += 1;
                    let follows_another = before.is_some_and(|m| m != step.matmul);
                    prop_assert!(!step.is_joined || (joined && follows_another));
                    before = Some(step.matmul);
                    for (at, slice) in step.slices.iter().enumerate() {
                        let is_first = packed.insert(slice.copy);
                        prop_assert_eq!(step.packs[at], is_first);
                        let (job, band) = (&step.step.jobs[at], &copies[slice.copy].band);
                        prop_assert_eq!(job.offset_in(band), Some(slice.offset));
                        prop_assert!(slice.range(job).end <= band.activation_bytes);
                        // So the wave's size counts all that is packed.
                        prop_assert!(!is_first || job.band == *band);
                    }
                }
                let job_counts = wave.steps.iter().map(|step| step.step.jobs.len());
                prop_assert_eq!(wave.size.jobs, job_counts.sum::<usize>());
            }
            prop_assert_eq!(next, all.iter().map(Vec::len).collect::<Vec<_>>());
            let readers: usize = copies.iter().map(|copy| copy.readers).sum();
            let jobs = all.iter().flatten().map(|step| step.jobs.len());
            prop_assert_eq!(readers, jobs.sum::<usize>());
        }
    }

    /// Gate and up. Each wave but the last is one job a device; the last is one for each matmul.
    #[test]
    fn only_the_last_results_are_separate() {
        let options = PlanOptions::default();
        let each = steps(Dtype::Int8, [512, 8192, 2048], &options);
        let (waves, _) = waves(&[((), &each[..]), ((), &each[..])], &options.limits, |_| {
            false
        });
        assert!(waves.len() > 1);
        for (index, wave) in waves.iter().enumerate() {
            let joined = wave.steps.iter().filter(|step| step.is_joined).count();
            let is_last = index + 1 == waves.len();
            assert_eq!(wave.steps.len(), 2);
            assert_eq!(joined, usize::from(!is_last));
        }
    }
}
