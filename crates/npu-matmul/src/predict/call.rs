// SPDX-License-Identifier: MIT OR Apache-2.0
//! Predicts the time of a whole call: packing, computing and unpacking, overlapped as in
//! [`exec`](crate).
//!
//! The CPU packs and submits one wave after the other. Then it unpacks the jobs of one step after
//! the other as they end. If it may, it computes the last jobs itself, so many that NPU and CPU end
//! at about the same time. The timing model predicts the NPU's time,
//! [`HostCores`](crate::profile::HostCores) the CPU's. Both share one DRAM: a call takes at least
//! the DRAM's time for the bytes of both ([`CallTime::memory_ps`]). The wait of matmuls that exceed
//! what [`JobLimits`](crate::plan::JobLimits) allow in flight is not modelled.

use std::collections::BTreeSet;

use rknpu_regcmd::timing::{DriverCosts, ScheduledJob, TaskWork, schedule};

use super::npu::TaskWorks;
use super::read::read;
use super::shared::{SharedSteps, computed};
use crate::plan::{JobLimits, Plan, PlanOptions, Step, WavePlan, WaveStep, waves};
use crate::profile::{KernelCost, bytes_ps};

/// Predicted times of a call. They are modelled, in picoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CallTime {
    /// From the call to its return.
    pub call_ps: u64,
    /// Time in which at least one core computes.
    pub npu_ps: u64,
    /// Part of [`Self::npu_ps`]: kicks of tasks and starts of jobs, on the device with the most.
    pub driver_ps: u64,
    /// Time in which the CPU packs.
    pub pack_ps: u64,
    /// Time in which the CPU unpacks.
    pub unpack_ps: u64,
    /// Time in which the CPU computes jobs in place of the NPU.
    pub computed_ps: u64,
    /// Time in which CPU and NPU are busy at the same time.
    pub overlap_ps: u64,
    /// Time that the DRAM takes for all bytes that CPU and NPU move. No call is shorter.
    pub memory_ps: u64,
}

impl CallTime {
    /// Time in which the CPU packs, unpacks or computes.
    #[must_use]
    pub const fn cpu_ps(&self) -> u64 {
        let moved_ps = self.pack_ps.saturating_add(self.unpack_ps);
        moved_ps.saturating_add(self.computed_ps)
    }

    /// Time in which the CPU works for the call and no core does.
    #[must_use]
    pub const fn uncovered_ps(&self) -> u64 {
        self.call_ps.saturating_sub(self.npu_ps)
    }

    /// The bottleneck of the call: "CPU", "NPU", or "memory" if the DRAM limits both.
    #[must_use]
    pub const fn waits_for(&self) -> &'static str {
        if self.memory_ps >= self.call_ps {
            "memory"
        } else if self.cpu_ps() > self.npu_ps {
            "CPU"
        } else {
            "NPU"
        }
    }

    /// Overlapped time as a share of the CPU's or the NPU's time, whichever is shorter: 0 to 1.
    #[must_use]
    pub fn overlapped(&self) -> f64 {
        self.overlap_ps as f64 / self.cpu_ps().min(self.npu_ps).max(1) as f64
    }
}

/// Start and end of an activity.
type Span = [u64; 2];

impl Plan {
    /// Predicts the time of a call with the options' profile and limits.
    #[must_use]
    pub fn call(&self, options: &PlanOptions) -> CallTime {
        call_together(&[self], 0, options)
    }

    /// Number of SUBMIT calls of this matmul within these limits, if nothing else runs.
    #[must_use]
    pub fn submits(&self, limits: &JobLimits) -> usize {
        let steps = steps_of(&[self]);
        let waves = waves_of(&[self], &steps, limits);
        waves.iter().map(|wave| wave.size.submits()).sum()
    }
}

fn steps_of(plans: &[&Plan]) -> Vec<Vec<Step>> {
    plans.iter().map(|plan| plan.steps().collect()).collect()
}

/// The waves of matmuls of the same activations, which those of one precision pack alike.
fn waves_of<'s>(plans: &[&Plan], steps: &'s [Vec<Step>], limits: &JobLimits) -> Vec<WavePlan<'s>> {
    let matmuls = plans.iter().zip(steps);
    let matmuls = matmuls.map(|(plan, steps)| (plan.weights.dtype, &steps[..]));
    let is_shared = |matmul: usize| plans[matmul].cpu_jobs;
    waves(&matmuls.collect::<Vec<_>>(), limits, is_shared).0
}

/// Predicts the time of matmuls of the same activations that [`Engine::run`](crate::Engine::run)
/// computes together: query, key and value of a layer, say. `quantise_ps` is the time in which the
/// CPU quantises all rows, each before a job that reads it is submitted; 0 if they are not
/// quantised.
#[must_use]
pub fn call_together(plans: &[&Plan], quantise_ps: u64, options: &PlanOptions) -> CallTime {
    let steps = steps_of(plans);
    let (driver, host) = (&options.profile.machine.driver, &options.profile.host);
    let mut works = TaskWorks::default();
    let (mut now, mut pack_ps, mut moved) = (0_u64, 0_u64, 0_u64);
    let mut cpu: Vec<Span> = Vec::new();
    let mut submitted = Submitted::default();
    let waves = waves_of(plans, &steps, &options.limits);
    let rows = plans.iter().map(|plan| plan.m).max().unwrap_or(0);
    let mut quantised = 0;
    for wave in &waves {
        let jobs = wave.steps.iter().flat_map(|planned| &planned.step.jobs);
        let end = jobs.map(|job| job.band.rows.end).max().unwrap_or(0);
        let more = end.saturating_sub(quantised);
        quantised += more;
        let (mut ps, mut bytes) = (share(quantise_ps, more, rows), 0_u64);
        for WaveStep {
            step,
            matmul,
            packs,
            ..
        } in &wave.steps
        {
            let packed = step.jobs.iter().zip(packs).filter(|(_, packs)| **packs);
            let kernel = KernelCost::pack(plans[*matmul].weights.dtype);
            for (job, _) in packed {
                let tiles = job.band.k_tiles.iter();
                let depth: usize = tiles.map(|tile| tile.padded).sum();
                let elements = (job.band.rows.len() * depth) as u64;
                ps = ps.saturating_add(host.kernel_ps(elements, kernel));
                moved = moved.saturating_add(kernel.bytes(elements));
                bytes += job.band.activation_bytes as u64;
            }
        }
        // Devices clean their copies at the same time.
        let together = (wave.size.submits() as u64).clamp(1, u64::from(host.cores.max(1)));
        ps = ps.saturating_add(options.profile.dirty_sync_ps(bytes) / together);
        cpu.push([now, now.saturating_add(ps)]);
        pack_ps = pack_ps.saturating_add(ps);
        now = now.saturating_add(ps);
        for planned in &wave.steps {
            submitted.add(planned, now, driver.submit_ps, &mut works);
        }
        now = now.saturating_add(driver.submit_ps);
    }
    // No job names another or a core, so `schedule` cannot reject any.
    let timeline = schedule(&submitted.jobs, &options.profile.machine).unwrap_or_default();
    let steps: Vec<_> = waves.iter().flat_map(|wave| &wave.steps).collect();
    let ends = submitted.jobs_by_step.iter().map(|jobs| {
        let ends = jobs.iter().filter_map(|&job| timeline.jobs.get(job));
        ends.map(|time| time.end_ps).max().unwrap_or(0)
    });
    let ends: Vec<_> = ends.collect();
    let read: Vec<_> = steps
        .iter()
        .map(|planned| read(planned.step, options))
        .collect();
    let is_taken = SharedSteps::of(plans, &steps, options).taken(&ends, &read, now);
    let mut unpack_ps = 0_u64;
    let mut computed_ps = 0_u64;
    let mut jobs = BTreeSet::new();
    for (at, planned) in steps.iter().enumerate() {
        if is_taken[at] {
            let (ps, bytes) = computed(planned.step, options);
            moved = moved.saturating_add(bytes);
            computed_ps = computed_ps.saturating_add(ps);
            continue;
        }
        jobs.extend(submitted.jobs_by_step[at].iter().copied());
        let (end, (ps, bytes)) = (ends[at], read[at]);
        moved = moved.saturating_add(bytes);
        let from = now.max(end.saturating_add(driver.wake_ps));
        now = from.saturating_add(ps);
        cpu.push([from, now]);
        unpack_ps = unpack_ps.saturating_add(ps);
    }
    // While it waits for the NPU, and then what is left.
    let idle_ps = now.saturating_sub(pack_ps.saturating_add(unpack_ps));
    now = now.saturating_add(computed_ps.saturating_sub(idle_ps));
    let of = |job: &usize| submitted.jobs.get(*job);
    let tasks = jobs.iter().filter_map(of).flat_map(|job| &job.tasks);
    moved = tasks
        .map(TaskWork::total_bytes)
        .fold(moved, u64::saturating_add);
    let spans = jobs.iter().filter_map(|&job| timeline.jobs.get(job));
    let npu = merged(spans.map(|time| [time.start_ps, time.end_ps]).collect());
    let npu_ps = npu.iter().map(|[from, to]| to - from).sum();
    let memory_ps = bytes_ps(moved, options.profile.memory_bytes_per_second());
    CallTime {
        call_ps: now.max(memory_ps),
        npu_ps,
        driver_ps: submitted.driver_ps(driver, &jobs),
        pack_ps,
        unpack_ps,
        computed_ps,
        // It computes while it waits for the NPU.
        overlap_ps: npu_ps.min(common(&cpu, &npu).saturating_add(computed_ps.min(idle_ps))),
        memory_ps,
    }
}

/// Predicts the NPU's time of matmuls of the same activations that run together, with operands in
/// place and no CPU work in between: from the first SUBMIT to the end of the last job, in
/// picoseconds. Of one matmul it is [`Prediction::npu_ps`](super::Prediction::npu_ps).
#[must_use]
pub fn npu_ps_together(plans: &[&Plan], options: &PlanOptions) -> u64 {
    let steps = steps_of(plans);
    let (mut submitted, mut works) = (Submitted::default(), TaskWorks::default());
    let waves = waves_of(plans, &steps, &options.limits);
    for planned in waves.iter().flat_map(|wave| &wave.steps) {
        submitted.add(planned, 0, 0, &mut works);
    }
    let timeline = schedule(&submitted.jobs, &options.profile.machine);
    timeline.map_or(u64::MAX, |timeline| timeline.end_ps)
}

/// The part of `ps` that `part` of `all` takes.
fn share(ps: u64, part: usize, all: usize) -> u64 {
    let part = u128::from(ps) * part as u128 / all.max(1) as u128;
    u64::try_from(part).unwrap_or(u64::MAX)
}

/// The jobs that a call submits.
#[derive(Default)]
struct Submitted {
    jobs: Vec<ScheduledJob>,
    /// For each step, the indices of its jobs.
    jobs_by_step: Vec<Vec<usize>>,
    /// For each device, its job of the last steps that were joined, and the time when its client
    /// had submitted it.
    devices: Vec<(Option<usize>, u64)>,
}

impl Submitted {
    /// Adds a step that is submitted from `now` on, which takes `submit_ps`.
    fn add(&mut self, planned: &WaveStep<'_>, now: u64, submit_ps: u64, works: &mut TaskWorks) {
        if !planned.is_joined {
            self.devices.iter_mut().for_each(|(job, _)| *job = None);
        }
        let mut step_jobs = Vec::new();
        for job in &planned.step.jobs {
            if self.devices.len() <= job.device {
                self.devices.resize(job.device + 1, (None, 0));
            }
            let (open, last) = &mut self.devices[job.device];
            let tasks = works.of(job);
            if let Some(open) = *open {
                let joined = &mut self.jobs[open].tasks;
                // The witness of the jobs before; `tasks` ends with the one of all.
                joined.pop();
                joined.extend(tasks);
                step_jobs.push(open);
                continue;
            }
            let host_ps = now.saturating_sub(*last);
            *last = last.saturating_add(host_ps).saturating_add(submit_ps);
            *open = Some(self.jobs.len());
            step_jobs.push(self.jobs.len());
            self.jobs.push(ScheduledJob {
                file: u32::try_from(job.device).unwrap_or(u32::MAX),
                tasks,
                host_ps,
                ..ScheduledJob::default()
            });
        }
        self.jobs_by_step.push(step_jobs);
    }

    /// Picoseconds that the driver adds for these jobs, on the device with the most.
    fn driver_ps(&self, driver: &DriverCosts, jobs: &BTreeSet<usize>) -> u64 {
        let mut devices = vec![0_u64; self.devices.len()];
        for job in jobs.iter().filter_map(|job| self.jobs.get(*job)) {
            let kicks = driver.kick_ps.saturating_mul(job.tasks.len() as u64);
            if let Some(device) = devices.get_mut(job.file as usize) {
                *device = device.saturating_add(driver.attach_ps.saturating_add(kicks));
            }
        }
        devices.into_iter().max().unwrap_or(0)
    }
}

/// The spans in order. Spans that touch are merged.
fn merged(mut spans: Vec<Span>) -> Vec<Span> {
    spans.sort_unstable();
    let mut merged: Vec<Span> = Vec::new();
    for [from, to] in spans {
        match merged.last_mut() {
            Some(last) if from <= last[1] => last[1] = last[1].max(to),
            _ => merged.push([from, to]),
        }
    }
    merged
}

/// Time that both have in common. Spans of the same list must not overlap.
fn common(one: &[Span], other: &[Span]) -> u64 {
    let pairs = one.iter().flat_map(|a| other.iter().map(move |b| (a, b)));
    pairs
        .map(|(a, b)| a[1].min(b[1]).saturating_sub(a[0].max(b[0])))
        .sum()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rknpu_regcmd::timing::seconds;

    use super::*;
    use crate::plan::WeightPlan;
    use crate::{Dtype, Profile};

    fn options(rows: usize, parts: Option<usize>) -> PlanOptions {
        PlanOptions {
            parts,
            batch_rows: rows,
            ..PlanOptions::default()
        }
    }

    #[test]
    fn parts_hide_the_cpu_behind_the_npu() {
        for dtype in Dtype::ALL {
            let [whole, cut] = [Some(1), None].map(|parts| {
                let mut options = options(512, parts);
                options.cpu_jobs = Some(false);
                // So that the memory does not limit CPU and NPU together.
                let mut profile = Profile::clone(&options.profile);
                profile.host.bytes_per_second *= 4;
                options.profile = profile.into();
                let weights = WeightPlan::new(dtype, 4096, 4096, 3, &options).unwrap();
                let plan = Plan::new(&weights, 512, &options).unwrap();
                (plan.steps().len(), plan.call(&options))
            });
            // FP16 has enough parts: one for each tile of rows.
            assert_eq!(cut.0 > whole.0, dtype != Dtype::Fp16, "{dtype}");
            assert!(
                cut.1.call_ps < whole.1.call_ps || cut == whole,
                "{dtype}: {cut:?} {whole:?}"
            );
            // Only the first packing and the last unpacking overlap with nothing.
            let most = 1.0 - 1.0 / cut.0 as f64;
            assert!(cut.1.overlapped() > 0.9 * most, "{dtype}: {cut:?}");
            for (_, call) in [whole, cut] {
                assert!(call.call_ps >= call.npu_ps.max(call.cpu_ps()));
                assert!(call.call_ps <= 2 * (call.npu_ps + call.cpu_ps()));
                assert!(call.overlap_ps <= call.npu_ps.min(call.cpu_ps()));
            }
        }
    }

    /// Bytes per second that a call must move: the NPU's fetches and writes, A as the caller has it
    /// and packed, C as the NPU writes it and as the caller gets it.
    fn least_rate(dtype: Dtype, [m, k, n]: [usize; 3], options: &PlanOptions) -> f64 {
        let weights = WeightPlan::new(dtype, n, k, 3, options).unwrap();
        let plan = Plan::new(&weights, m, options).unwrap();
        let prediction = plan.predict(&options.profile.machine);
        let a = m * k * dtype.input_bits() / 8;
        let c = m * n * (plan.weights.dtype.output_bytes() + 4);
        let cpu = prediction.packed_bytes + (a + c) as u64;
        let bytes = prediction.work.total_bytes() + cpu;
        bytes as f64 / seconds(plan.call(options).call_ps)
    }

    proptest! {
        #![proptest_config(test_support::cases(24))]

        #[test]
        fn no_call_moves_more_than_the_memory_gives(
            dtype in prop::sample::select(&Dtype::ALL[..]),
            m in prop_oneof![1..64_usize, 256..1100_usize],
            k in 1..9000_usize,
            n in 1..9000_usize,
            megahertz in prop::sample::select(&[200_u64, 600, 1000][..]),
            unmeasured_tiles in prop::sample::select(&[Some(false), Some(true)][..]),
        ) {
            let mut options = PlanOptions { unmeasured_tiles, ..options(m, None) };
            options.profile = Profile::built_in().at_clock(megahertz * 1_000_000).into();
            let most = options.profile.memory_bytes_per_second();
            let rate = least_rate(dtype, [m, k, n], &options);
            prop_assert!(rate <= most as f64 * (1.0 + 1e-6), "{}", rate);
        }
    }

    /// CPU and NPU alone stay below the memory's bandwidth; together they would exceed it.
    #[test]
    fn a_call_that_would_overrun_the_memory_takes_as_long_as_the_memory() {
        let mut options = options(512, None);
        options.profile = Profile::built_in().at_clock(600_000_000).into();
        let size = [512, 4096, 14336];
        // A memory with more bandwidth is not waited for, and changes nothing else.
        let call = |options: &PlanOptions| {
            let weights = WeightPlan::new(Dtype::Int8, size[2], size[1], 3, options).unwrap();
            let plan = Plan::new(&weights, size[0], options).unwrap();
            (plan.call(options), plan)
        };
        let (shared, plan) = call(&options);
        assert_eq!(shared.waits_for(), "memory", "{shared:?}");
        assert_eq!(shared.call_ps, shared.memory_ps);
        let mut profile = Profile::clone(&options.profile);
        profile.host.bytes_per_second *= 4;
        options.profile = profile.into();
        let apart = plan.call(&options);
        assert!(apart.call_ps < shared.call_ps && apart.memory_ps < apart.call_ps);
        assert_ne!(apart.waits_for(), "memory");
        assert_eq!(apart.npu_ps, shared.npu_ps);
    }

    /// Query, key and value of a layer take one job a device, large gates one each.
    #[test]
    fn matmuls_of_small_results_together_save_their_jobs() {
        let options = options(8, None);
        let plan = |n| {
            let weights = WeightPlan::new(Dtype::Int8, n, 2048, 3, &options).unwrap();
            Plan::new(&weights, 8, &options).unwrap()
        };
        let driver = &options.profile.machine.driver;
        let job_ps = driver.submit_ps + driver.attach_ps;
        for (sizes, joined) in [(vec![2048, 512, 512], 2), (vec![16384, 16384], 0)] {
            let plans: Vec<_> = sizes.into_iter().map(plan).collect();
            let machine = &options.profile.machine;
            let alone: u64 = plans.iter().map(|plan| plan.predict(machine).npu_ps).sum();
            let plans: Vec<_> = plans.iter().collect();
            assert_eq!(
                npu_ps_together(&plans[..1], &options),
                plans[0].predict(machine).npu_ps
            );
            let together = npu_ps_together(&plans, &options);
            assert!(together + joined * job_ps <= alone, "{together} of {alone}");
            let calls: u64 = plans.iter().map(|plan| plan.call(&options).call_ps).sum();
            assert!(call_together(&plans, 0, &options).call_ps < calls);
        }
    }

    #[test]
    fn spans_are_merged_and_compared() {
        let spans = merged(vec![[5, 7], [0, 2], [1, 3], [7, 9]]);
        assert_eq!(spans, [[0, 3], [5, 9]]);
        assert_eq!(common(&spans, &[[2, 6], [8, 20]]), 1 + 1 + 1);
        assert_eq!(common(&[], &spans), 0);
    }
}
