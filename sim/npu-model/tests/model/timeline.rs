// SPDX-License-Identifier: MIT OR Apache-2.0
//! Modelled timelines: they match what ran, and viewers can show them.

use std::collections::BTreeMap;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use npu_model::timeline::DeviceTimeline;
use npu_model::{Level, Model, ModelOptions};
use rknpu_regcmd::DmaEngine;
use rknpu_regcmd::timing::{JobTime, Machine};
use rocket_uapi::{BufferAccess, Deadline, export, prep_bo, sys};
use serde_json::Value;

use crate::matmul::File;

/// The DMA engines of a matmul, without the one that fetches programs.
const ENGINES: [DmaEngine; 3] = [DmaEngine::Feature, DmaEngine::Weight, DmaEngine::DpuWrite];

fn model(options: ModelOptions) -> Arc<Model> {
    Model::new(ModelOptions {
        timeline: true,
        ..options
    })
}

/// A file with its program, and the program's length in words.
struct Client {
    file: File,
    words: usize,
}

impl Client {
    fn new(model: &Model) -> Self {
        let mut file = File::open(model);
        let words = file.write_program();
        Self { file, words }
    }

    fn run(&self, tasks: usize) {
        self.perform(&[tasks, 0], || ());
    }

    /// Submits a job of so many tasks for each step; at a 0 it waits for all jobs
    /// so far. `pause` may take any time.
    fn perform(&self, steps: &[usize], mut pause: impl FnMut()) {
        for &tasks in steps {
            pause();
            match tasks {
                0 => self.file.wait(),
                _ => self.file.submit(&vec![self.words; tasks], &[]),
            }
        }
    }
}

#[test]
fn two_files_share_the_device_in_modelled_time() {
    let model = model(ModelOptions::default());
    let clients = [Client::new(&model), Client::new(&model)];
    for _ in 0..3 {
        clients.iter().for_each(|client| client.run(2));
    }
    let timeline = model.timeline().unwrap();
    assert_eq!((timeline.jobs().len(), timeline.left_out()), (6, 0));
    for (job, time) in timeline.jobs() {
        // Both clients start at once, whatever the order of their threads here.
        // Each later job follows the one that its file waited for.
        let Some(before) = (job.job as usize).checked_sub(3) else {
            assert!(job.after.is_empty() && time.submit_ps == 0);
            continue;
        };
        let (before, ended) = timeline.jobs().nth(before).unwrap();
        assert_eq!((&job.after[..], job.file), (&[before.job][..], before.file));
        let driver = Machine::RK3588.driver;
        assert_eq!(time.submit_ps, ended.end_ps + driver.wake_ps);
        assert!(time.start_ps >= time.submit_ps + driver.submit_ps);
    }
    assert_eq!(timeline.tasks().count(), 12);
    let mut tasks = timeline.tasks();
    assert!(tasks.all(|(_, work, _)| work.macs == 64 * 128 * 64));
    check_trace(&timeline);
}

/// When jobs ran, by file and in order.
fn times(model: &Model) -> BTreeMap<u64, Vec<JobTime>> {
    let mut times: BTreeMap<u64, Vec<JobTime>> = BTreeMap::new();
    for (job, &time) in model.timeline().unwrap().jobs() {
        times.entry(job.file).or_default().push(time);
    }
    times
}

/// Threads decide in which order files come to the device, which core is free then,
/// and whether a job has ended when the next is submitted. The timeline depends on
/// none of this.
#[test]
fn modelled_time_knows_nothing_of_the_hosts_threads() {
    const CLIENTS: [&[usize]; 4] = [
        &[3, 0, 1, 0, 2, 0, 1, 0],
        &[1, 4, 0, 1, 0],
        &[2, 0, 2, 0, 5, 0],
        &[1, 1, 1, 0, 1, 6, 0],
    ];
    for count in [3, 4] {
        let mut seen = Vec::new();
        for round in 0..12 {
            let model = model(ModelOptions::default());
            let clients: Vec<_> = (0..count).map(|_| Client::new(&model)).collect();
            let mut pairs: Vec<_> = clients.iter().zip(CLIENTS).collect();
            if round == 1 {
                pairs.reverse();
            }
            thread::scope(|scope| {
                for (index, (client, steps)) in pairs.into_iter().enumerate() {
                    let mut micros = round * 997 + index as u64 * 331;
                    let client = scope.spawn(move || {
                        client.perform(steps, || {
                            micros = micros * 1571 % 4099;
                            thread::sleep(Duration::from_micros(micros));
                        });
                    });
                    // One after the other, in both orders.
                    if round < 2 {
                        client.join().unwrap();
                    }
                }
            });
            seen.push((times(&model), model.timeline().unwrap().end_ps()));
        }
        for other in &seen[1..] {
            assert_eq!(other, &seen[0], "{count} files");
        }
        // Three at once, each on its core.
        let firsts = seen[0].0.values().take(3).map(|jobs| jobs[0]);
        let firsts: Vec<_> = firsts.map(|time| (time.core, time.submit_ps)).collect();
        assert_eq!(firsts, [(0, 0), (1, 0), (2, 0)]);
    }
}

/// If a job ended here before a reader of its result was submitted, it also ends
/// before the reader starts in modelled time. The reader lists the object, its
/// client waits for the object, or it imports a sync_file that was made after the
/// job's end.
#[test]
fn ended_jobs_may_still_run_in_modelled_time() {
    for pass in ["object", "wait", "sync_file"] {
        let model = model(ModelOptions::default());
        let [writer, reader] = [Client::new(&model), Client::new(&model)];
        let out = writer.file.out().into();
        // SAFETY: the file exports a buffer and waits; nobody has a guard meanwhile.
        let [own, file] = [&writer, &reader].map(|one| unsafe { one.file.device.raw_file() });
        let dma_buf = export(own, out, sys::DRM_RDWR).unwrap();
        writer.run(4);
        let shared = reader.file.device.import(dma_buf.as_fd()).unwrap();
        let mut reads = vec![];
        match pass {
            "object" => reads.push(shared.handle()),
            "wait" => prep_bo(file, shared.handle().into(), Deadline::FOREVER).unwrap(),
            _ => {
                let fence = writer.file.operands[2].fence(BufferAccess::Read);
                let added = reader.file.operands[2].add_reader(&fence.unwrap());
                added.unwrap();
            }
        }
        reader.file.submit(&[reader.words], &reads);
        reader.file.wait();
        let times = times(&model);
        let [writer, reader] = [1, 2].map(|file| times[&file][0]);
        assert!(reader.start_ps >= writer.end_ps, "{pass}");
        let waits = reader.submit_ps >= writer.end_ps;
        assert_eq!(waits, pass == "wait", "{pass}");
    }
}

#[test]
fn a_killed_job_keeps_its_core_for_the_time_limit() {
    let model = model(ModelOptions {
        level: Level::Strict,
        // Strict does not wait for the hang.
        hang_timeout: Duration::MAX,
        ..ModelOptions::default()
    });
    let client = Client::new(&model);
    // The second task's program ends before its enable word.
    client.file.submit(&[client.words, 4], &[]);
    client.file.wait();
    client.run(1);
    let timeline = model.timeline().unwrap();
    let jobs: Vec<_> = timeline.jobs().collect();
    assert!(!jobs[0].0.completed && jobs[1].0.completed);
    assert_eq!(jobs[0].0.tasks.len(), 1);
    let taken = jobs[0].1.end_ps - jobs[0].1.start_ps;
    let limit_ps = 500_000_000_000;
    assert!(taken >= limit_ps && taken < limit_ps + 100_000_000);
    check_trace(&timeline);
}

#[test]
fn the_clock_is_the_one_that_was_chosen() {
    let [slow, fast] = [Machine::BOOT_CLOCK_HZ, 600_000_000].map(|clock_hz| {
        let model = model(ModelOptions {
            machine: Machine::RK3588.at_clock(clock_hz),
            ..ModelOptions::default()
        });
        Client::new(&model).run(1);
        model.timeline().unwrap().end_ps()
    });
    assert!(slow > fast);
    let unasked = Model::new(ModelOptions::default());
    assert!(unasked.timeline().is_none());
}

/// The exported file is JSON. Its slices do not overlap on any track, its arrows
/// have both ends in slices, and its sums are those of the work.
fn check_trace(timeline: &DeviceTimeline) {
    let trace: Value = serde_json::from_str(&timeline.to_chrome_trace()).unwrap();
    assert_eq!(trace["otherData"]["time"], "modelled, not measured");
    let events = trace["traceEvents"].as_array().unwrap();
    let ps = |value: &Value| (value.as_f64().unwrap() * 1e6).round() as u64;
    let track = |event: &Value| ["pid", "tid"].map(|key| event[key].as_u64().unwrap());
    let mut names = BTreeMap::new();
    let mut slices: BTreeMap<_, Vec<(u64, u64)>> = BTreeMap::new();
    let mut bytes: BTreeMap<String, u64> = BTreeMap::new();
    let mut arrows: BTreeMap<u64, String> = BTreeMap::new();
    for event in events {
        let named = &event["args"]["name"];
        match event["ph"].as_str().unwrap() {
            "M" if event["name"] == "thread_name" => {
                names.insert(track(event), named.as_str().unwrap().to_owned());
            }
            "M" => assert!(named.as_str().unwrap().contains("modelled")),
            "X" => {
                let (start, dur) = (ps(&event["ts"]), ps(&event["dur"]));
                let slices = slices.entry(track(event)).or_default();
                slices.push((start, start + dur));
                let moved = event["args"]["bytes"].as_u64();
                *bytes.entry(names[&track(event)].clone()).or_default() += moved.unwrap_or(0);
            }
            end @ ("s" | "f") => {
                let ends = arrows.entry(event["id"].as_u64().unwrap()).or_default();
                ends.push_str(end);
            }
            other => panic!("an event of kind {other}"),
        }
    }
    for (track, slices) in &mut slices {
        slices.sort_unstable();
        for pair in slices.windows(2) {
            assert!(pair[0].1 <= pair[1].0, "{}: {pair:?}", names[track]);
        }
    }
    assert_eq!(arrows.len(), timeline.jobs().len());
    assert!(arrows.values().all(|ends| ends == "sf"));
    for event in events.iter().filter(|event| event["cat"] == "submit") {
        let at = ps(&event["ts"]);
        let mut around = slices[&track(event)].iter();
        assert!(around.any(|&(from, to)| from <= at && at < to));
    }

    let mut moved: BTreeMap<String, u64> = BTreeMap::new();
    for (_, work, _) in timeline.tasks() {
        for engine in ENGINES {
            *moved.entry(engine.to_string()).or_default() += work.bytes.of(engine);
        }
        *moved.entry("tasks".to_owned()).or_default() += work.total_bytes();
        *moved.entry("command fetch".to_owned()).or_default() += work.command_bytes;
    }
    for (track, moved) in moved {
        assert_eq!(bytes[&track], moved, "{track}");
    }
}
