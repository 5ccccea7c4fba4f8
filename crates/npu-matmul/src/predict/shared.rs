// SPDX-License-Identifier: MIT OR Apache-2.0
//! Jobs that the CPU computes in place of the NPU: how many waves the NPU has ahead, and which steps
//! the CPU gets.

use rknpu_regcmd::timing::{ScheduledJob, schedule};

use super::npu::TaskWorks;
use super::read::read;
use crate::plan::{JobPlan, Plan, PlanOptions, SharedTimes, Step, WaveStep};
use crate::profile::{CostSide, KernelCost, UnpackTo};

/// Picoseconds of a plan whose jobs NPU and CPU share, for its first step: of the CPU, at its likely
/// speed, for a job and for reading the results; of the NPU, at its upper bound of speed. `None` if
/// they do not share its jobs.
pub(crate) fn shared_times(plan: &Plan, options: &PlanOptions) -> Option<SharedTimes> {
    if !plan.cpu_jobs {
        return None;
    }
    let first = plan.steps().next()?;
    let job = first.jobs.first()?;
    let [likely, fast] = [CostSide::Likely, CostSide::Upper].map(|side| options.on(side));
    let alone = ScheduledJob {
        tasks: TaskWorks::default().of(job),
        ..ScheduledJob::default()
    };
    // A job that waits for no other cannot be refused.
    let timeline = schedule(&[alone], &fast.profile.machine).unwrap_or_default();
    Some(SharedTimes {
        job_ps: shared_job_ps(job, &likely),
        read_ps: read(&first, &likely).0,
        step_ps: timeline.end_ps.max(1),
    })
}

/// Steps of a call, of which the CPU may compute some.
pub(super) struct SharedSteps {
    /// For each step, the CPU's time for its jobs; `None` if it gets none of them.
    cpu_ps: Vec<Option<u64>>,
    times: Option<SharedTimes>,
}

impl SharedSteps {
    pub(super) fn of(plans: &[&Plan], steps: &[&WaveStep<'_>], options: &PlanOptions) -> Self {
        let times = plans.iter().filter_map(|plan| shared_times(plan, options));
        let times = times.reduce(SharedTimes::slowest);
        let in_flight = times.map_or(0, |times| times.waves_in_flight(100));
        let cpu_ps = steps.iter().enumerate().map(|(at, planned)| {
            let is_shared = at >= in_flight && plans[planned.matmul].cpu_jobs;
            is_shared.then(|| computed(planned.step, options).0)
        });
        Self {
            cpu_ps: cpu_ps.collect(),
            times,
        }
    }

    /// Which steps the CPU computes, from the last one on, as long as the NPU has other work and the
    /// call ends earlier. `ends` are the ends of all steps on the NPU, `read` the CPU's times to read
    /// their results; it has packed everything at `now`.
    pub(super) fn taken(&self, ends: &[u64], read: &[(u64, u64)], now: u64) -> Vec<bool> {
        let mut is_taken = vec![false; self.cpu_ps.len()];
        let mut cpu_ps = read
            .iter()
            .fold(now, |sum, (ps, _)| sum.saturating_add(*ps));
        let npu_ps = |is_taken: &[bool]| {
            let last = is_taken.iter().rposition(|taken| !taken);
            last.map_or(0, |last| ends[last].saturating_add(read[last].0))
        };
        let (mut before, mut begins) = (npu_ps(&is_taken).max(cpu_ps), now);
        let mut waves = ends.len();
        for (at, ps) in self.cpu_ps.iter().enumerate().rev() {
            let (Some(ps), Some(times)) = (ps, self.times) else {
                continue;
            };
            waves -= 1;
            let ended = ends.iter().filter(|end| **end <= begins).count();
            if !times.leaves_time(waves.saturating_sub(ended), 100) {
                break;
            }
            begins = begins.saturating_add(*ps);
            is_taken[at] = true;
            cpu_ps = cpu_ps.saturating_sub(read[at].0).saturating_add(*ps);
            let after = npu_ps(&is_taken).max(cpu_ps);
            if after >= before {
                is_taken[at] = false;
                break;
            }
            before = after;
        }
        is_taken
    }
}

/// Picoseconds in which the CPU computes the jobs of a step, and bytes that it moves for it.
pub(super) fn computed(step: &Step, options: &PlanOptions) -> (u64, u64) {
    let (mut ps, mut moved) = (0_u64, 0_u64);
    for job in &step.jobs {
        ps = ps.saturating_add(shared_job_ps(job, options));
        // The last-level cache keeps the operands.
        let operands = (job.band.rows.len() + job.n.len()) * depth(job);
        let written = KernelCost::unpack(job.dtype, UnpackTo::Result).bytes(elements(job));
        moved = moved
            .saturating_add(written)
            .saturating_add(operands as u64);
    }
    (ps, moved)
}

/// Picoseconds in which the CPU computes a job.
pub(crate) fn shared_job_ps(job: &JobPlan, options: &PlanOptions) -> u64 {
    let macs = elements(job).saturating_mul(depth(job) as u64);
    let kernel = KernelCost::unpack(job.dtype, UnpackTo::Result);
    let unpack_ps = options.profile.host.kernel_ps(elements(job), kernel);
    options.profile.int8_ps(macs).saturating_add(unpack_ps)
}

fn elements(job: &JobPlan) -> u64 {
    (job.band.rows.len() * job.n.len()) as u64
}

fn depth(job: &JobPlan) -> usize {
    job.band.k_tiles.iter().map(|tile| tile.padded).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Dtype;
    use crate::plan::WeightPlan;

    /// NPU and CPU end at about the same time. A faster CPU takes more, an NPU alone longer.
    #[test]
    fn the_cpu_computes_jobs_that_wait() {
        let predicted = |cpu_jobs: bool, macs: Option<u64>| {
            let mut options = PlanOptions::uncalibrated(200_000_000);
            options.cpu_jobs = Some(cpu_jobs);
            let mut profile = (*options.profile).clone();
            profile.int8_macs_per_second = macs;
            options.profile = profile.into();
            let weights = WeightPlan::new(Dtype::Int8, 8192, 2048, 3, &options).unwrap();
            let plan = Plan::new(&weights, 512, &options).unwrap();
            plan.call(&options.on(CostSide::Likely))
        };
        let alone = predicted(false, None);
        assert_eq!(alone.computed_ps, 0);
        let [slow, likely, fast] =
            [Some(1_000), None, Some(400_000_000_000)].map(|macs| predicted(true, macs));
        assert_eq!(slow.computed_ps, 0);
        assert!(fast.call_ps < likely.call_ps && likely.call_ps < slow.call_ps);
        assert!(
            4 * fast.call_ps < 3 * alone.call_ps,
            "{slow:?} {likely:?} {fast:?} {alone:?}"
        );
        assert!(slow.call_ps < alone.call_ps + alone.call_ps / 16);
        for call in [likely, fast] {
            assert!(call.call_ps >= call.npu_ps.max(call.cpu_ps()), "{call:?}");
            assert!(10 * call.cpu_ps() > 7 * call.call_ps, "{call:?}");
            assert!(10 * call.npu_ps > 7 * call.call_ps, "{call:?}");
        }
    }

    /// The slower the CPU, the more waves must be in flight. Beside a fast NPU it computes none.
    #[test]
    fn the_npu_has_work_while_the_cpu_computes() {
        let waves = |clock_hz, macs| {
            let mut options = PlanOptions::uncalibrated(clock_hz);
            let mut profile = (*options.profile).clone();
            profile.int8_macs_per_second = macs;
            options.profile = profile.into();
            let weights = WeightPlan::new(Dtype::Int8, 8192, 2048, 3, &options).unwrap();
            let plan = Plan::new(&weights, 512, &options).unwrap();
            let times = shared_times(&plan, &options)?;
            for side in [CostSide::Likely, CostSide::Upper] {
                assert_eq!(shared_times(&plan, &options.on(side)), Some(times));
            }
            let waves = times.waves_in_flight(100);
            assert!((waves as u64 - 1) * times.step_ps >= times.job_ps);
            Some(waves)
        };
        assert!(waves(200_000_000, None) > Some(2));
        assert_eq!(waves(200_000_000, Some(1 << 50)), Some(2));
        assert_eq!(waves(200_000_000, Some(20_000_000_000)), None);
        assert_eq!(waves(600_000_000, None), None);
    }
}
