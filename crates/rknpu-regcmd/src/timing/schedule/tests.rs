// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of the driver's rules and of shared memory.

use super::super::{Dram, DriverCosts, TaskWork};
use super::*;
use proptest::prelude::*;

const MS: u64 = 1_000_000_000;

/// A task that computes for `ms` milliseconds at 600 MHz.
fn computing(ms: u64) -> TaskWork {
    TaskWork {
        mac_clocks: ms * 600_000,
        ..TaskWork::default()
    }
}

/// A task that moves data for `ms` milliseconds, if no other core does.
fn moving(ms: u64) -> TaskWork {
    TaskWork {
        command_bytes: ms * 4_800_000,
        ..TaskWork::default()
    }
}

fn job(file: u32, work: TaskWork) -> ScheduledJob {
    ScheduledJob {
        file,
        tasks: vec![work],
        ..ScheduledJob::default()
    }
}

/// `job`, which its client submits when these have ended.
fn after(waits: &[usize], job: ScheduledJob) -> ScheduledJob {
    let after = waits.to_vec();
    ScheduledJob { after, ..job }
}

/// `job`, which the driver holds back until job `fence` is done.
fn fenced(fence: usize, job: ScheduledJob) -> ScheduledJob {
    let fences = vec![fence];
    ScheduledJob { fences, ..job }
}

fn bare() -> Machine {
    Machine::RK3588.with_driver(DriverCosts::NONE)
}

fn ends(jobs: &[ScheduledJob], machine: &Machine) -> Vec<u64> {
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
    let jobs: Vec<ScheduledJob> = (0..4)
        .map(|index: usize| after(index.checked_sub(1).as_slice(), job(0, computing(1))))
        .collect();
    let timeline = schedule(&jobs, &bare()).unwrap();
    let cores: Vec<u32> = timeline.jobs.iter().map(|job| job.core).collect();
    assert_eq!(cores, [0, 1, 0, 1]);
    assert_eq!(timeline.end_ps, 4 * MS);
}

#[test]
fn fences_hold_jobs_back() {
    let jobs = [
        job(0, computing(5)),
        fenced(0, job(1, computing(5))),
        // Also where the other job is submitted later.
        after(&[0], job(2, computing(5))),
        fenced(2, job(3, computing(5))),
    ];
    assert_eq!(ends(&jobs, &bare()), [5, 10, 10, 15].map(|ms| ms * MS));
}

#[test]
fn a_client_can_wait_for_several_jobs_and_keeps_the_order_of_a_file() {
    let jobs = [
        job(0, computing(5)),
        job(1, computing(7)),
        after(&[0, 1], job(0, computing(1))),
        job(0, computing(1)),
    ];
    let timeline = schedule(&jobs, &bare()).unwrap();
    let submits: Vec<u64> = timeline.jobs.iter().map(|job| job.submit_ps).collect();
    assert_eq!(submits, [0, 0, 7 * MS, 7 * MS]);
    assert_eq!(timeline.end_ps, 9 * MS);
}

#[test]
fn the_driver_costs_what_its_parameters_say() {
    let costs = DriverCosts::MAINLINE;
    let jobs = [
        ScheduledJob {
            tasks: vec![computing(1); 2],
            ..ScheduledJob::default()
        },
        ScheduledJob {
            after: vec![0],
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
    let chained = jobs.map(|job| ScheduledJob {
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
        dram: Dram {
            shared_bytes_per_second: 4_800_000_000,
            ..Dram::RK3588
        },
        ..bare()
    };
    // Two cores move data: each at half the rate, until the shorter task has ended.
    let jobs = [
        job(0, moving(10)),
        job(1, moving(30)),
        job(2, computing(10)),
    ];
    assert_eq!(ends(&jobs, &machine), [20 * MS, 40 * MS, 10 * MS]);
}

#[test]
fn jobs_cannot_wait_for_later_ones() {
    let own = after(&[0], ScheduledJob::default());
    let order = ScheduleError {
        job: 0,
        waits_for: 0,
    };
    assert_eq!(schedule(&[own], &bare()), Err(order));
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

fn any_job(index: usize) -> impl Strategy<Value = ScheduledJob> {
    let before = move || prop::option::of(0..index.max(1));
    let tasks = prop::collection::vec(any_work(), 0..3);
    let times = (0u64..1000, prop_oneof![Just(0), any::<u64>()]);
    (0u32..4, tasks, before(), before(), times, any::<bool>()).prop_map(
        move |(file, tasks, after, fence, (host_ps, hold_ps), chained)| ScheduledJob {
            file,
            tasks,
            after: after.filter(|_| index > 0).into_iter().collect(),
            host_ps,
            hold_ps,
            chained,
            fences: fence.filter(|_| index > 0).into_iter().collect(),
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
            for &after in &job.after {
                prop_assert!(timeline.jobs[after].end_ps <= time.submit_ps);
            }
            for &fence in &job.fences {
                prop_assert!(timeline.jobs[fence].end_ps <= time.start_ps);
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
    fn the_order_of_different_files_in_the_list_means_nothing(
        jobs in (0..8).map(any_job).collect::<Vec<_>>(),
        keys in prop::collection::vec(any::<u32>(), 8),
    ) {
        // Another order, which keeps the order of each file and what jobs wait for.
        let waits = |job: usize, other: usize| {
            other < job && jobs[other].file == jobs[job].file
                || jobs[job].after.contains(&other)
                || jobs[job].fences.contains(&other)
        };
        let mut order: Vec<usize> = Vec::new();
        while order.len() < jobs.len() {
            let free = (0..jobs.len()).filter(|&job| {
                !order.contains(&job) && (0..jobs.len()).all(|o| !waits(job, o) || order.contains(&o))
            });
            order.push(free.min_by_key(|&job| keys[job]).unwrap());
        }
        let place = |list: &[usize]| -> Vec<usize> {
            list.iter().map(|other| order.iter().position(|job| job == other).unwrap()).collect()
        };
        let moved: Vec<ScheduledJob> = order
            .iter()
            .map(|&job| ScheduledJob {
                after: place(&jobs[job].after),
                fences: place(&jobs[job].fences),
                ..jobs[job].clone()
            })
            .collect();
        let (own, moved) = (
            schedule(&jobs, &Machine::RK3588).unwrap(),
            schedule(&moved, &Machine::RK3588).unwrap(),
        );
        prop_assert_eq!(own.end_ps, moved.end_ps);
        for (index, &job) in order.iter().enumerate() {
            prop_assert_eq!(own.jobs[job], moved.jobs[index]);
        }
    }

    #[test]
    fn a_lone_task_takes_as_long_as_its_spans_say(work in any_work()) {
        let timeline = schedule(&[job(0, work)], &bare()).unwrap();
        let spans = work.spans(&bare());
        prop_assert_eq!(timeline.end_ps, work.duration_ps(&bare()));
        prop_assert_eq!(timeline.tasks[0].spans(&work, &bare()), spans);
    }
}
