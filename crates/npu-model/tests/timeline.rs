// SPDX-License-Identifier: MIT OR Apache-2.0
//! Modelled timelines: what ran is what they say, and viewers can show them.

#![allow(missing_docs, clippy::unwrap_used, clippy::panic)]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use npu_model::chip::Master;
use npu_model::timeline::DeviceTimeline;
use npu_model::{Backing, Level, Model, ModelOptions};
use rknpu_regcmd::timing::Machine;
use rknpu_regcmd::{Binding, BufferId, ChipProfile, DmaEngine, MatmulTask, MatmulType};
use rocket_uapi::{Backend, ByteLen, Deadline, Handle, RawBo, RawJob, RawTask};
use serde_json::Value;

/// Bytes of the buffer objects.
const BO_BYTES: usize = 64 << 10;

/// The product that every task computes.
fn product() -> MatmulTask {
    let at = |id| BufferId(id).at(0);
    MatmulTask {
        ty: MatmulType::Int8ToInt32,
        m: 64,
        k: 128,
        n: 64,
        a: at(0),
        b: at(1),
        c: at(2),
    }
}

/// An open file with one program and its operands.
struct File {
    backend: Arc<dyn Backend>,
    program: RawBo,
    words: u32,
    out: Handle,
}

impl File {
    fn open(model: &Model) -> Self {
        let backend = model.open();
        let bo = || backend.create_bo(ByteLen::new(BO_BYTES).unwrap()).unwrap();
        let (program, operands) = (bo(), [bo(), bo(), bo()]);
        let bindings = [0, 1, 2].map(|index: u32| Binding {
            id: BufferId(index),
            iova: operands[index as usize].iova,
            len: BO_BYTES as u32,
        });
        let linked = product().program(&ChipProfile::RK3588).unwrap();
        let linked = linked.link(&bindings).unwrap();
        let words: Vec<u8> = linked
            .words()
            .iter()
            .flat_map(|word| word.bits().to_le_bytes())
            .collect();
        assert!(words.len() <= program.memory.len());
        // SAFETY: the mapping is writable and as long as just checked; no job
        // has been submitted yet.
        unsafe {
            program
                .memory
                .as_ptr()
                .copy_from_nonoverlapping(words.as_ptr(), words.len());
        }
        Self {
            words: linked.words().len() as u32,
            out: operands[2].handle,
            backend,
            program,
        }
    }

    /// Runs a job of the program, as often as said, and waits for it.
    fn run(&self, tasks: usize) {
        self.submit(&vec![self.words; tasks]);
        self.backend.prep_bo(self.out, Deadline::FOREVER).unwrap();
    }

    /// Submits a job whose tasks have so many of the program's words.
    fn submit(&self, words: &[u32]) {
        let tasks: Vec<RawTask> = words
            .iter()
            .map(|&words| RawTask {
                regcmd: self.program.iova,
                words,
            })
            .collect();
        let job = RawJob {
            tasks: &tasks,
            reads: &[self.program.handle],
            writes: &[self.out],
        };
        // SAFETY: no slice of these buffers exists while the job runs.
        unsafe { self.backend.submit(&[job]) }.unwrap();
    }
}

fn model(options: ModelOptions) -> Arc<Model> {
    Model::new(ModelOptions {
        timeline: true,
        backing: Backing::Memfd,
        ..options
    })
}

#[test]
fn nothing_is_recorded_unless_asked_for() {
    assert!(Model::new(ModelOptions::default()).timeline().is_none());
}

#[test]
fn two_files_share_the_device_in_modelled_time() {
    let model = model(ModelOptions {
        trace: true,
        ..ModelOptions::default()
    });
    let files = [File::open(&model), File::open(&model)];
    for _ in 0..3 {
        for file in &files {
            file.run(2);
        }
    }
    let timeline = model.timeline().unwrap();
    assert_eq!((timeline.jobs().len(), timeline.left_out()), (6, 0));
    // Both clients start at once, whatever the order of their threads here.
    let firsts: Vec<_> = timeline.jobs().take(2).collect();
    assert_eq!((firsts[0].0.after, firsts[1].0.after), (None, None));
    assert_eq!((firsts[0].1.submit_ps, firsts[1].1.submit_ps), (0, 0));
    // A job follows the one that its file waited for.
    for (job, time) in timeline.jobs().skip(2) {
        let (before, ended) = timeline.jobs().nth(job.job as usize - 3).unwrap();
        assert_eq!((job.after, job.file), (Some(before.job), before.file));
        let driver = Machine::RK3588.driver;
        assert_eq!(time.submit_ps, ended.end_ps + driver.wake_ps);
        assert!(time.start_ps >= time.submit_ps + driver.submit_ps);
    }
    // The work is that of the register values, and of what was touched.
    let traces = model.take_traces();
    assert_eq!(timeline.tasks().count(), 12);
    for (job, work, time) in timeline.tasks() {
        assert_eq!(work.macs, 64 * 128 * 64);
        let touched = |master: Master| -> u64 {
            let mut of_task = traces
                .iter()
                .filter(|trace| (trace.place.job, trace.place.task) == (job.job, time.task));
            let accesses = &of_task.next().unwrap().accesses;
            let ranges = accesses.iter().filter(|access| access.master == master);
            ranges
                .map(|access| access.range.end - access.range.start)
                .sum()
        };
        for (master, engine) in [
            (Master::Feature, DmaEngine::Feature),
            (Master::Weight, DmaEngine::Weight),
            (Master::DpuWrite, DmaEngine::DpuWrite),
        ] {
            assert_eq!(work.bytes.of(engine), touched(master));
        }
        assert_eq!(work.command_bytes, touched(Master::Fetch));
    }
    check_trace(&timeline);
}

#[test]
fn a_killed_job_keeps_its_core_for_the_time_limit() {
    let model = model(ModelOptions {
        level: Level::Strict,
        hang_timeout: Duration::ZERO,
        ..ModelOptions::default()
    });
    let file = File::open(&model);
    // The second task's program ends before its enable word.
    file.submit(&[file.words, 4]);
    file.backend.prep_bo(file.out, Deadline::FOREVER).unwrap();
    file.run(1);
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
    let end_at = |clock_hz| {
        let model = model(ModelOptions {
            machine: Machine::RK3588.at_clock(clock_hz),
            ..ModelOptions::default()
        });
        File::open(&model).run(1);
        model.timeline().unwrap().end_ps()
    };
    assert!(end_at(Machine::BOOT_CLOCK_HZ) > end_at(600_000_000));
}

/// The exported file is JSON whose slices do not overlap on any track, whose
/// arrows have both ends in slices, and whose sums are those of the work.
fn check_trace(timeline: &DeviceTimeline) {
    let trace: Value = serde_json::from_str(&timeline.to_chrome_trace()).unwrap();
    assert_eq!(trace["otherData"]["time"], "modelled, not measured");
    let events = trace["traceEvents"].as_array().unwrap();
    let ps = |value: &Value| (value.as_f64().unwrap() * 1e6).round() as u64;
    let track = |event: &Value| {
        let number = |key: &str| event[key].as_u64().unwrap();
        (number("pid"), number("tid"))
    };
    let mut names = BTreeMap::new();
    let mut slices: BTreeMap<_, Vec<(u64, u64)>> = BTreeMap::new();
    let mut bytes: BTreeMap<String, u64> = BTreeMap::new();
    for event in events {
        match event["ph"].as_str().unwrap() {
            "M" if event["name"] == "thread_name" => {
                names.insert(
                    track(event),
                    event["args"]["name"].as_str().unwrap().to_owned(),
                );
            }
            "M" => assert!(event["args"]["name"].as_str().unwrap().contains("modelled")),
            "X" => {
                let (start, dur) = (ps(&event["ts"]), ps(&event["dur"]));
                slices
                    .entry(track(event))
                    .or_default()
                    .push((start, start + dur));
                if let Some(moved) = event["args"]["bytes"].as_u64() {
                    *bytes.entry(names[&track(event)].clone()).or_default() += moved;
                }
            }
            "s" | "f" => {}
            other => panic!("an event of kind {other}"),
        }
    }
    for (track, slices) in &mut slices {
        assert!(names.contains_key(track), "{track:?} has no name");
        slices.sort_unstable();
        for pair in slices.windows(2) {
            assert!(pair[0].1 <= pair[1].0, "{}: {pair:?}", names[track]);
        }
    }
    let mut arrows: BTreeMap<u64, Vec<&str>> = BTreeMap::new();
    for event in events.iter().filter(|event| event["cat"] == "submit") {
        let at = ps(&event["ts"]);
        let around = slices[&track(event)].iter();
        assert!(around.into_iter().any(|&(from, to)| from <= at && at < to));
        let ends = arrows.entry(event["id"].as_u64().unwrap()).or_default();
        ends.push(event["ph"].as_str().unwrap());
    }
    assert_eq!(arrows.len(), timeline.jobs().len());
    assert!(arrows.values().all(|ends| ends == &["s", "f"]));

    let moved = |of: &dyn Fn(&rknpu_regcmd::timing::TaskWork) -> u64| -> u64 {
        timeline.tasks().map(|(_, work, _)| of(work)).sum()
    };
    assert_eq!(bytes["tasks"], moved(&|work| work.total_bytes()));
    assert_eq!(bytes["command fetch"], moved(&|work| work.command_bytes));
    for engine in [DmaEngine::Feature, DmaEngine::Weight, DmaEngine::DpuWrite] {
        assert_eq!(
            bytes[&engine.to_string()],
            moved(&|work| work.bytes.of(engine))
        );
    }
}
