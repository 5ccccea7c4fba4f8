// SPDX-License-Identifier: MIT OR Apache-2.0
//! Several jobs of several files on the cores of one chip.
//!
//! The driver's rules, as observed on Linux 7.2: the jobs of a file run in
//! order, and while one of them is queued or running the next goes to the same
//! core; an idle file takes the core with the lowest score, the first of
//! equals, where the score counts the jobs given to the core and the files
//! that used it last; a core takes the job submitted first among those whose
//! fences have signalled; its tasks run one after another.
//!
//! Memory is shared in equal parts: whenever a core starts or stops to move
//! data the rates of all change. All arithmetic is on integers, so that the
//! same jobs give the same picoseconds everywhere.

use alloc::vec::Vec;

use thiserror::Error;

use super::machine::Machine;
use super::queue::Queues;
use super::running::Running;
use super::spans::Spans;
use super::work::TaskWork;

/// A job as the client submits it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Job {
    /// Which file descriptor.
    pub file: u32,
    /// What it does, in order.
    pub tasks: Vec<TaskWork>,
    /// The job that the client waits for before it submits this one: an index
    /// below this job's own. None: nothing.
    pub after: Option<usize>,
    /// How long the client then works before it submits, picoseconds.
    pub host_ps: u64,
    /// Jobs that write what this one reads or writes: the driver holds it
    /// back until they are done. Indices below this job's own.
    pub fences: Vec<usize>,
    /// Whether its tasks run in one kick, linked by the words of their
    /// programs. Not so in mainline Linux.
    pub chained: bool,
    /// How long it keeps its core after its tasks, picoseconds: the rest of
    /// the driver's time limit, if the task after them hung.
    pub hold_ps: u64,
    /// Core to run on, where that is known; else the driver's choice.
    pub core: Option<u32>,
}

/// What is wrong with a list of jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ScheduleError {
    /// A job waits for itself or for one that comes later.
    #[error("job {job} waits for job {waits_for}, which does not come before it")]
    Order {
        /// Index of the job.
        job: usize,
        /// What it names.
        waits_for: usize,
    },
    /// A job names a core that the chip does not have.
    #[error("job {job} asks for core {core} of {cores}")]
    Core {
        /// Index of the job.
        job: usize,
        /// What it names.
        core: u32,
        /// Cores of the chip.
        cores: u32,
    },
}

/// When a job ran. Times are modelled, in picoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct JobTime {
    /// Core.
    pub core: u32,
    /// The SUBMIT call.
    pub submit_ps: u64,
    /// Hand-over to the hardware.
    pub start_ps: u64,
    /// Completion.
    pub end_ps: u64,
}

/// When a task ran. Times are modelled, in picoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TaskTime {
    /// Index of its job.
    pub job: usize,
    /// Index in the job.
    pub task: usize,
    /// Core.
    pub core: u32,
    /// Start of what the driver does for it.
    pub kick_ps: u64,
    /// Start of the fetch.
    pub start_ps: u64,
    /// Ends of fetch, fill, flow and drain.
    pub(super) ends_ps: [u64; 4],
}

impl TaskTime {
    /// Completion.
    #[must_use]
    pub fn end_ps(&self) -> u64 {
        self.ends_ps[3]
    }

    /// When each engine worked. `work` is what the task was scheduled with.
    #[must_use]
    pub fn spans(&self, work: &TaskWork, machine: &Machine) -> Spans {
        Spans::between(work, machine, self.start_ps, self.ends_ps)
    }
}

/// What [`schedule`] found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Timeline {
    /// For each job, in the order given.
    pub jobs: Vec<JobTime>,
    /// For each task, in the order of their ends.
    pub tasks: Vec<TaskTime>,
    /// Modelled end of the last job, picoseconds.
    pub end_ps: u64,
}

/// Runs `jobs` on the machine.
///
/// # Errors
/// [`ScheduleError`] where a job waits for one that does not come before it,
/// or names a core that is not there.
pub fn schedule(jobs: &[Job], machine: &Machine) -> Result<Timeline, ScheduleError> {
    check(jobs, machine)?;
    let mut simulation = Simulation::new(jobs, machine);
    while simulation.step() {}
    Ok(simulation.timeline)
}

fn check(jobs: &[Job], machine: &Machine) -> Result<(), ScheduleError> {
    let cores = machine.chip.cores.max(1);
    for (
        job,
        Job {
            after,
            fences,
            core,
            ..
        },
    ) in jobs.iter().enumerate()
    {
        let waits = after.iter().chain(fences).copied();
        if let Some(waits_for) = waits.into_iter().find(|&other| other >= job) {
            return Err(ScheduleError::Order { job, waits_for });
        }
        if let Some(core) = core.filter(|&core| core >= cores) {
            return Err(ScheduleError::Core { job, core, cores });
        }
    }
    Ok(())
}

/// The state between two events.
struct Simulation<'a> {
    jobs: &'a [Job],
    machine: &'a Machine,
    now: u64,
    queues: Queues<'a>,
    cores: Vec<Option<Running>>,
    timeline: Timeline,
}

impl<'a> Simulation<'a> {
    fn new(jobs: &'a [Job], machine: &'a Machine) -> Self {
        let cores = machine.chip.cores.max(1) as usize;
        Self {
            jobs,
            machine,
            now: 0,
            queues: Queues::new(jobs, cores, machine.driver),
            cores: (0..cores).map(|_| None).collect(),
            timeline: Timeline {
                jobs: jobs.iter().map(|_| JobTime::default()).collect(),
                ..Timeline::default()
            },
        }
    }

    /// Goes on to the next event. False when there is none.
    fn step(&mut self) -> bool {
        self.queues.accept(self.now);
        for core in 0..self.cores.len() {
            self.start(core);
        }
        let rate = self.rate();
        let events = self.cores.iter().flatten().map(|run| run.left_ps(rate));
        let arrival = self
            .queues
            .next_arrival()
            .map(|at| at.saturating_sub(self.now));
        let Some(wait) = events.chain(arrival).min() else {
            return false;
        };
        self.now = self.now.saturating_add(wait);
        for core in 0..self.cores.len() {
            self.advance(core, wait, rate);
        }
        true
    }

    /// Bytes per second of each core that moves data.
    fn rate(&self) -> u64 {
        let moving = self.cores.iter().flatten().filter(|run| run.moves());
        self.machine.rate(moving.count() as u64)
    }

    fn start(&mut self, core: usize) {
        if self.cores[core].is_some() {
            return;
        }
        let Some(job) = self.queues.take(core) else {
            return;
        };
        let time = &mut self.timeline.jobs[job];
        time.core = core as u32;
        time.submit_ps = self.queues.submitted(job);
        time.start_ps = self.now;
        let run = Running::new(job, &self.jobs[job], self.machine);
        self.cores[core] = Some(run);
    }

    fn advance(&mut self, core: usize, wait: u64, rate: u64) {
        let Some(run) = &mut self.cores[core] else {
            return;
        };
        run.pass(wait, rate);
        let job = &self.jobs[run.job];
        while run.phase_is_over() {
            if let Some(mut done) = run.next_phase(self.now, job, self.machine) {
                done.core = core as u32;
                self.timeline.tasks.push(done);
            }
            if run.is_over() {
                let job = run.job;
                self.timeline.jobs[job].end_ps = self.now;
                self.timeline.end_ps = self.timeline.end_ps.max(self.now);
                self.queues.finished(job, self.now);
                self.cores[core] = None;
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::machine::DriverCosts;
    use super::*;
    use proptest::prelude::*;
    use std::vec;

    const MS: u64 = 1_000_000_000;

    /// A task that computes for so many milliseconds at 600 MHz.
    fn computing(ms: u64) -> TaskWork {
        TaskWork {
            mac_clocks: ms * 600_000,
            ..TaskWork::default()
        }
    }

    /// A task that writes for so many milliseconds on a core of its own.
    fn moving(ms: u64) -> TaskWork {
        TaskWork {
            command_bytes: ms * 4_800_000,
            ..TaskWork::default()
        }
    }

    fn job(file: u32, work: TaskWork) -> Job {
        Job {
            file,
            tasks: vec![work],
            ..Job::default()
        }
    }

    fn bare() -> Machine {
        Machine::RK3588.with_driver(DriverCosts::NONE)
    }

    fn ends(jobs: &[Job], machine: &Machine) -> Vec<u64> {
        let timeline = schedule(jobs, machine).unwrap();
        timeline.jobs.iter().map(|job| job.end_ps).collect()
    }

    #[test]
    fn a_file_uses_one_core_and_three_files_use_three() {
        // Observed on Linux 7.2 with jobs of 100 ms.
        let one = [0; 3].map(|file| job(file, computing(100)));
        assert_eq!(ends(&one, &bare()), [100 * MS, 200 * MS, 300 * MS]);
        let three = [0, 1, 2].map(|file| job(file, computing(100)));
        assert_eq!(ends(&three, &bare()), [100 * MS; 3]);
        let four = [0, 1, 2, 3].map(|file| job(file, computing(100)));
        assert_eq!(ends(&four, &bare())[3], 200 * MS);
    }

    #[test]
    fn a_lone_file_that_waits_alternates_between_cores() {
        // Observed on Linux 7.2.
        let jobs: Vec<Job> = (0..4)
            .map(|index: usize| Job {
                after: index.checked_sub(1),
                ..job(0, computing(1))
            })
            .collect();
        let timeline = schedule(&jobs, &bare()).unwrap();
        let cores: Vec<u32> = timeline.jobs.iter().map(|job| job.core).collect();
        assert_eq!(cores, [0, 1, 0, 1]);
        assert_eq!(timeline.end_ps, 4 * MS);
    }

    #[test]
    fn fences_hold_jobs_back_and_pins_choose_the_core() {
        let jobs = [
            job(0, computing(5)),
            Job {
                fences: vec![0],
                ..job(1, computing(5))
            },
            Job {
                core: Some(2),
                ..job(2, computing(1))
            },
        ];
        let timeline = schedule(&jobs, &bare()).unwrap();
        assert_eq!(timeline.jobs[1].start_ps, 5 * MS);
        assert_eq!(timeline.jobs[2].core, 2);
    }

    #[test]
    fn the_driver_costs_what_its_parameters_say() {
        let costs = DriverCosts::MAINLINE;
        let jobs = [
            Job {
                tasks: vec![computing(1); 2],
                ..Job::default()
            },
            Job {
                after: Some(0),
                host_ps: MS,
                ..job(0, computing(1))
            },
        ];
        let timeline = schedule(&jobs, &Machine::RK3588).unwrap();
        let first = costs.submit_ps + costs.attach_ps + 2 * (costs.kick_ps + MS);
        assert_eq!(timeline.jobs[0].end_ps, first);
        let second = timeline.jobs[1];
        assert_eq!(second.submit_ps, first + costs.wake_ps + MS);
        assert_eq!(second.start_ps, second.submit_ps + costs.submit_ps);
        let chained = jobs.map(|job| Job {
            chained: true,
            hold_ps: MS,
            ..job
        });
        let timeline = schedule(&chained, &Machine::RK3588).unwrap();
        assert_eq!(timeline.jobs[0].end_ps, first - costs.kick_ps + MS);
    }

    #[test]
    fn the_client_of_a_file_submits_one_job_after_the_other() {
        let jobs = [0, 1].map(|_| job(0, computing(1)));
        let timeline = schedule(&jobs, &Machine::RK3588).unwrap();
        let submits = timeline.jobs.iter().map(|job| job.submit_ps);
        let expected = [0, DriverCosts::MAINLINE.submit_ps];
        assert!(submits.eq(expected));
    }

    #[test]
    fn cores_share_what_memory_gives() {
        let machine = Machine {
            dram: super::super::Dram {
                shared_bytes_per_second: 4_800_000_000,
                ..super::super::Dram::RK3588
            },
            ..bare()
        };
        // Two move data: each at half the rate, until the shorter has ended.
        let jobs = [
            job(0, moving(10)),
            job(1, moving(30)),
            job(2, computing(10)),
        ];
        assert_eq!(ends(&jobs, &machine), [20 * MS, 40 * MS, 10 * MS]);
    }

    #[test]
    fn what_comes_later_cannot_be_waited_for() {
        let own = Job {
            after: Some(0),
            ..Job::default()
        };
        let order = ScheduleError::Order {
            job: 0,
            waits_for: 0,
        };
        assert_eq!(schedule(&[own], &bare()), Err(order));
        let core = Job {
            core: Some(3),
            ..Job::default()
        };
        assert!(schedule(&[core], &bare()).is_err());
        assert_eq!(schedule(&[], &bare()), Ok(Timeline::default()));
    }

    fn any_work() -> impl Strategy<Value = TaskWork> {
        let amount = || prop_oneof![3 => 0u64..1_000_000, 1 => any::<u64>()];
        (amount(), amount(), amount(), amount()).prop_map(|(fetch, fill, drain, mac)| TaskWork {
            command_bytes: fetch,
            feature_fill_bytes: fill,
            drain_bytes: drain,
            mac_clocks: mac,
            ..TaskWork::default()
        })
    }

    fn any_job(index: usize) -> impl Strategy<Value = Job> {
        let before = move || prop::option::of(0..index.max(1));
        let core = prop::option::weighted(0.2, 0u32..3);
        let tasks = prop::collection::vec(any_work(), 0..3);
        let times = (0u64..1000, prop_oneof![Just(0), any::<u64>()]);
        (
            0u32..4,
            tasks,
            before(),
            before(),
            times,
            core,
            any::<bool>(),
        )
            .prop_map(
                move |(file, tasks, after, fence, (host_ps, hold_ps), core, chained)| Job {
                    file,
                    tasks,
                    after: after.filter(|_| index > 0),
                    host_ps,
                    hold_ps,
                    chained,
                    fences: fence.filter(|_| index > 0).into_iter().collect(),
                    core,
                },
            )
    }

    proptest! {
        #![proptest_config(test_support::cases(128))]

        #[test]
        fn every_job_runs_once_and_no_core_does_two_things(
            jobs in (0..8).map(any_job).collect::<Vec<_>>(),
            shared in prop_oneof![Just(0), 1u64..20_000_000_000],
            clock_hz in prop_oneof![Just(0), 1u64..2_000_000_000],
        ) {
            let mut machine = Machine::RK3588.at_clock(clock_hz);
            machine.dram.shared_bytes_per_second = shared;
            let timeline = schedule(&jobs, &machine).unwrap();
            let tasks: usize = jobs.iter().map(|job| job.tasks.len()).sum();
            prop_assert_eq!(timeline.tasks.len(), tasks);
            for (job, time) in jobs.iter().zip(&timeline.jobs) {
                prop_assert!(time.submit_ps <= time.start_ps && time.start_ps <= time.end_ps);
                if let Some(after) = job.after {
                    prop_assert!(timeline.jobs[after].end_ps <= time.submit_ps);
                }
            }
            for core in 0..3 {
                let mut end = 0;
                for task in timeline.tasks.iter().filter(|task| task.core == core) {
                    prop_assert!(end <= task.kick_ps && task.kick_ps <= task.start_ps);
                    prop_assert!(task.ends_ps.is_sorted() && task.start_ps <= task.ends_ps[0]);
                    end = task.end_ps();
                }
            }
        }

        #[test]
        fn a_lone_task_takes_as_long_as_its_spans_say(work in any_work()) {
            let timeline = schedule(&[job(0, work)], &bare()).unwrap();
            let spans = work.spans(&bare());
            prop_assert_eq!(spans.end_ps, work.duration_ps(&bare()));
            prop_assert_eq!(timeline.end_ps, spans.end_ps);
            prop_assert_eq!(timeline.tasks[0].spans(&work, &bare()), spans);
        }
    }
}
