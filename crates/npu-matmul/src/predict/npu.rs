// SPDX-License-Identifier: MIT OR Apache-2.0
//! Predicts the NPU's time for a plan, with the timing model of `rknpu-regcmd`.
//!
//! The prediction counts the register programs that would be submitted. All times are modelled.

use std::collections::{BTreeMap, HashMap};
use std::sync::LazyLock;

use rknpu_regcmd::timing::{Machine, Parts, ScheduledJob, TaskWork, schedule, seconds};
use rknpu_regcmd::{Program, ProgramOptions, tasks};
use rocket_uapi::PAGE_BYTES;

use crate::numbers::dtype::Dtype;
use crate::plan::emit;
use crate::plan::{JobPlan, Plan, TaskPlan, slice_of};
use crate::profile::{Choices, PS_PER_SECOND, clamped};

/// Prediction for a plan on a machine, with operands in place and no CPU work in between. Times are
/// modelled, in picoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Prediction {
    /// From the first SUBMIT to the end of the last job.
    pub npu_ps: u64,
    /// Lower bound from the multiplications, without padding, on all cores.
    pub mac_ps: u64,
    /// Lower bound from memory: A, B and C once, at the bandwidth of all cores together at this
    /// clock.
    pub memory_ps: u64,
    /// Jobs; [`Plan::submits`] counts the SUBMIT calls.
    pub jobs: u64,
    /// Register programs, without the witness that ends each job.
    pub tasks: u64,
    /// Bytes and operations of all tasks, without the witnesses.
    pub work: TaskWork,
    /// Elements that the CPU adds to earlier ones: those of all K tiles but the first.
    pub partial_sums: u64,
    /// Time of the tasks of the busiest device, by cause.
    pub parts: Parts,
    /// Time that the driver adds on that device: kicks, and the start of its jobs.
    pub driver_ps: u64,
    /// Bytes that the CPU packs, once for each device.
    pub packed_bytes: u64,
    /// Bytes that the CPU reads.
    pub read_bytes: u64,
}

impl Prediction {
    /// Lower bound of any plan's time: the larger of [`Self::mac_ps`] and [`Self::memory_ps`].
    #[must_use]
    pub fn bound_ps(&self) -> u64 {
        self.mac_ps.max(self.memory_ps)
    }

    /// What sets that bound: "multiplications" or "memory".
    #[must_use]
    pub const fn bound_by(&self) -> &'static str {
        if self.mac_ps >= self.memory_ps {
            "multiplications"
        } else {
            "memory"
        }
    }

    /// The plan's time as a multiple of the bound.
    #[must_use]
    pub fn over_bound(&self) -> f64 {
        seconds(self.npu_ps) / seconds(self.bound_ps().max(1))
    }
}

impl Plan {
    /// Predicts the time of this plan on `machine`.
    #[must_use]
    pub fn predict(&self, machine: &Machine) -> Prediction {
        let mut prediction = Prediction {
            mac_ps: self.least_mac_ps(machine),
            memory_ps: self.least_memory_ps(machine),
            ..Prediction::default()
        };
        let mut works = TaskWorks::default();
        let mut jobs = Vec::new();
        let mut devices: BTreeMap<usize, (Parts, u64)> = BTreeMap::new();
        let mut copies = Vec::new();
        for step in self.steps() {
            for job in &step.jobs {
                let copy = slice_of(&mut copies, (), job).copy;
                if copies[copy].readers == 1 {
                    prediction.packed_bytes += job.band.activation_bytes as u64;
                }
                prediction.read_bytes += job.output_bytes as u64;
                for task in &job.tasks {
                    let a = &job.band.k_tiles[task.activation];
                    if a.index > 0 {
                        prediction.partial_sums += (job.band.rows.len() * task.n.len()) as u64;
                    }
                }
                let tasks = works.of(job);
                for work in &tasks[..job.tasks.len()] {
                    prediction.work.add(work);
                }
                prediction.tasks += job.tasks.len() as u64;
                let (parts, driver_ps) = devices.entry(job.device).or_default();
                for work in &tasks {
                    parts.add(&work.parts(machine));
                }
                let kicks_ps = machine.driver.kick_ps.saturating_mul(tasks.len() as u64);
                *driver_ps = [machine.driver.submit_ps, machine.driver.attach_ps, kicks_ps]
                    .into_iter()
                    .fold(*driver_ps, u64::saturating_add);
                jobs.push(ScheduledJob {
                    file: u32::try_from(job.device).unwrap_or(u32::MAX),
                    tasks,
                    ..ScheduledJob::default()
                });
            }
        }
        prediction.jobs = jobs.len() as u64;
        let busiest = devices
            .into_values()
            .max_by_key(|(parts, _)| parts.total_ps());
        (prediction.parts, prediction.driver_ps) = busiest.unwrap_or_default();
        // No job names another or a core, so that nothing can be refused.
        prediction.npu_ps = schedule(&jobs, machine).map_or(u64::MAX, |timeline| timeline.end_ps);
        prediction
    }

    /// `[needed, processed]` bytes of cache maintenance for one matmul whose buffers and programs
    /// exist. PREP_BO and FINI_BO maintain whole pages of whole buffer objects (processed). A
    /// matmul needs it only for the elements of A, once for each file descriptor that reads them,
    /// and for the results of every K tile (needed).
    #[must_use]
    pub fn cache_bytes(&self, choices: &Choices) -> [u64; 2] {
        let input_bits = self.weights.dtype.input_bits() as u64;
        let mut copies = Vec::new();
        let slack = choices.slack_bytes.value;
        let [mut needed, mut passed] = [0; 2];
        let pages = |bytes: usize| bytes.next_multiple_of(PAGE_BYTES) as u64;
        for job in self.steps().flat_map(|step| step.jobs) {
            let copy = slice_of(&mut copies, (), &job).copy;
            if copies[copy].readers == 1 {
                let depth: usize = job.band.k_tiles.iter().map(|a| a.k.len()).sum();
                let elements = job.band.rows.len() as u64 * depth as u64;
                needed += (elements * input_bits).div_ceil(8);
                // Later jobs that read these activations need no cache maintenance.
                passed += pages(job.band.activation_bytes + slack);
            }
            for task in &job.tasks {
                let elements = job.band.rows.len() as u64 * task.n.len() as u64;
                needed += elements * job.dtype.output_bytes() as u64;
            }
            // The page of a job's witness is cleared, checked and read.
            const PASSES: u64 = 3;
            passed += pages(job.output_bytes) + PASSES * PAGE_BYTES as u64;
        }
        [needed, passed]
    }

    fn least_mac_ps(&self, machine: &Machine) -> u64 {
        let w = &self.weights;
        let macs = self.m as u128 * w.k as u128 * w.n as u128;
        let per_second = u128::from(w.dtype.macs_per_clock())
            * u128::from(machine.chip.cores)
            * u128::from(machine.clock_hz);
        clamped((macs * PS_PER_SECOND).div_ceil(per_second.max(1)))
    }

    fn least_memory_ps(&self, machine: &Machine) -> u64 {
        let w = &self.weights;
        let (m, k, n) = (self.m as u128, w.k as u128, w.n as u128);
        let bits = (m + n) * k * w.dtype.input_bits() as u128
            + m * n * 8 * self.weights.dtype.output_bytes() as u128;
        let core_rate = machine.dram.rate(machine.clock_hz, 1);
        let all_rates = u128::from(core_rate) * u128::from(machine.chip.cores.max(1));
        let per_second = all_rates.min(machine.dram.shared_bytes_per_second.max(1).into());
        clamped((bits.div_ceil(8) * PS_PER_SECOND).div_ceil(per_second))
    }
}

/// Work of the witness, the task that ends each job of this precision.
fn witness(dtype: Dtype) -> TaskWork {
    static WORKS: LazyLock<[TaskWork; Dtype::ALL.len()]> = LazyLock::new(|| {
        Dtype::ALL.map(|dtype| {
            let program = rocket_uapi::witness_program(dtype.matmul_type());
            program.as_ref().and_then(work_of).unwrap_or_default()
        })
    });
    let index = Dtype::ALL.iter().position(|one| *one == dtype);
    index
        .and_then(|at| WORKS.get(at).copied())
        .unwrap_or_default()
}

/// Everything that the work of a task depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct WorkKey {
    dtype: Dtype,
    program: ProgramOptions,
    size: [u32; 3],
    /// The size of the task before it, and whether both read the same tile of A and of B.
    before: Option<([u32; 3], [bool; 2])>,
}

/// Cache of the work of tasks. Plans have few different tasks.
#[derive(Default)]
pub(crate) struct TaskWorks(HashMap<WorkKey, TaskWork>);

impl TaskWorks {
    /// Work of the tasks of a job, in order; the last is its witness.
    pub(crate) fn of(&mut self, job: &JobPlan) -> Vec<TaskWork> {
        let size = |task: &TaskPlan| [task.m_padded, task.k_padded, task.n_padded];
        let works = emit::with_previous(job).map(|(task, before)| {
            let same = |before: &TaskPlan| [task.a == before.a, task.b == before.b];
            let key = WorkKey {
                dtype: job.dtype,
                program: job.program,
                size: size(task),
                before: before.map(|before| (size(before), same(before))),
            };
            *self.0.entry(key).or_insert_with(|| {
                task_work(job.dtype, task, before, &job.program).unwrap_or_default()
            })
        });
        works.chain([witness(job.dtype)]).collect()
    }
}

/// Bytes and operations of a task's program; `None` if the task has no legal program, which no plan
/// contains.
fn task_work(
    dtype: Dtype,
    task: &TaskPlan,
    before: Option<&TaskPlan>,
    options: &ProgramOptions,
) -> Option<TaskWork> {
    work_of(&emit::program(dtype, task, before, options).ok()?)
}

fn work_of(program: &Program) -> Option<TaskWork> {
    let words = program.words();
    let task = tasks(words).next()?;
    let work = TaskWork::of(&task.regs, task.enable).ok()?;
    Some(work.fetching(words.len() as u64))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rknpu_regcmd::MatmulForm;
    use test_support::assert_each_field_counts;

    use super::*;
    use crate::numbers::dtype::Dtype;
    use crate::profile::Profile;

    proptest! {
        #![proptest_config(test_support::cases(64))]

        #[test]
        fn keys_of_work_differ_in_each_field(
            sizes in [[1..3_u32, 1..3, 1..3], [1..3, 1..3, 1..3]],
            before in prop::array::uniform2(prop::option::of([1..3_u32, 1..3, 1..3])),
            flags in prop::array::uniform2(prop::array::uniform4(any::<bool>())),
        ) {
            let program = Profile::built_in().choices.program(Dtype::Int8);
            let [one, other] = [0, 1].map(|at| {
                let [same_a, same_b, is_float, is_form_a] = flags[at];
                WorkKey {
                    dtype: if is_float { Dtype::Fp16 } else { Dtype::Int8 },
                    program: ProgramOptions {
                        form: if is_form_a { MatmulForm::A } else { MatmulForm::B },
                        ..program
                    },
                    size: sizes[at],
                    before: before[at].map(|before| (before, [same_a, same_b])),
                }
            });
            assert_each_field_counts!(WorkKey { dtype, program, size, before }, one, other);
        }
    }
}
