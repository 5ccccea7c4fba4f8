// SPDX-License-Identifier: MIT OR Apache-2.0
//! Modelled timelines: what ran is what they say, and viewers can show them.

#![allow(missing_docs, clippy::unwrap_used, clippy::panic)]

use std::collections::BTreeMap;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

use npu_model::timeline::DeviceTimeline;
use npu_model::{Backing, Level, Model, ModelOptions};
use rknpu_chip::Master;
use rknpu_regcmd::timing::{JobTime, Machine};
use rknpu_regcmd::{Binding, BufferId, ChipProfile, DmaEngine, MatmulTask, MatmulType};
use rocket_uapi::{Access, Backend, ByteLen, Deadline, Handle, RawBo, RawJob, RawTask};
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
        self.wait();
    }

    fn wait(&self) {
        self.backend.prep_bo(self.out, Deadline::FOREVER).unwrap();
    }

    /// Submits a job whose tasks have so many of the program's words.
    fn submit(&self, words: &[u32]) {
        self.submit_reading(words, &[self.program.handle]);
    }

    /// As [`Self::submit`], with these objects listed as read.
    fn submit_reading(&self, words: &[u32], reads: &[Handle]) {
        let tasks: Vec<RawTask> = words
            .iter()
            .map(|&words| RawTask {
                regcmd: self.program.iova,
                words,
            })
            .collect();
        let job = RawJob {
            tasks: &tasks,
            reads,
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
    assert!(firsts[0].0.after.is_empty() && firsts[1].0.after.is_empty());
    assert_eq!((firsts[0].1.submit_ps, firsts[1].1.submit_ps), (0, 0));
    // A job follows the one that its file waited for.
    for (job, time) in timeline.jobs().skip(2) {
        let (before, ended) = timeline.jobs().nth(job.job as usize - 3).unwrap();
        assert_eq!((&job.after[..], job.file), (&[before.job][..], before.file));
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

/// When jobs ran, by file and by their order there.
fn times(model: &Model) -> BTreeMap<u64, Vec<JobTime>> {
    let mut times: BTreeMap<u64, Vec<JobTime>> = BTreeMap::new();
    for (job, &time) in model.timeline().unwrap().jobs() {
        times.entry(job.file).or_default().push(time);
    }
    times
}

/// What each client does: jobs of so many tasks, and how many may be under way
/// before it waits for the oldest.
const CLIENTS: [(&[usize], usize); 4] = [
    (&[3, 1, 2, 1], 1),
    (&[1, 4, 1], 2),
    (&[2, 2, 5], 1),
    (&[1, 1, 1, 1, 6], 3),
];

/// One client to its end. `pause` may take any time at all.
fn client(file: &File, (jobs, under_way): (&[usize], usize), mut pause: impl FnMut()) {
    for (index, &tasks) in jobs.iter().enumerate() {
        pause();
        file.submit(&vec![file.words; tasks]);
        if index % under_way == under_way - 1 {
            pause();
            file.wait();
        }
    }
    file.wait();
}

/// Threads decide in which order files come to the device, which core is free
/// when they do, and whether a job has ended when the next is submitted. None
/// of that is in the timeline.
#[test]
fn modelled_time_knows_nothing_of_the_hosts_threads() {
    for count in [3, 4] {
        let mut seen = Vec::new();
        for round in 0..12_u64 {
            let model = model(ModelOptions::default());
            let files: Vec<_> = (0..count).map(|_| File::open(&model)).collect();
            let pairs = || files.iter().zip(CLIENTS);
            match round {
                // One after the other, in both orders.
                0 => pairs().for_each(|(file, jobs)| client(file, jobs, || ())),
                1 => pairs()
                    .rev()
                    .for_each(|(file, jobs)| client(file, jobs, || ())),
                _ => std::thread::scope(|scope| {
                    for (index, (file, jobs)) in pairs().enumerate() {
                        // Constants of PCG.
                        let mut state = round << 8 | index as u64;
                        scope.spawn(move || {
                            client(file, jobs, || {
                                state = state
                                    .wrapping_mul(6364136223846793005)
                                    .wrapping_add(1442695040888963407);
                                std::thread::sleep(Duration::from_micros(state >> 32 & 0xfff));
                            });
                        });
                    }
                }),
            }
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

/// A job that was over here when another came that reads its result is over in
/// modelled time too, however the client passed the result on.
#[test]
fn what_is_over_here_may_not_be_over_in_modelled_time() {
    #[derive(Clone, Copy, Debug)]
    enum Pass {
        /// The other file's job lists the object.
        Object,
        /// Its client waits for the object.
        Wait,
        /// A sync_file of the object, made when the job was over.
        SyncFile,
    }
    for pass in [Pass::Object, Pass::Wait, Pass::SyncFile] {
        let model = model(ModelOptions::default());
        let [writer, reader] = [File::open(&model), File::open(&model)];
        let dma_buf = writer.backend.export_bo(writer.out).unwrap();
        writer.run(4);
        let imported = reader.backend.import_bo(dma_buf.as_fd()).unwrap();
        let mut reads = vec![reader.program.handle];
        match pass {
            Pass::Object => reads.push(imported),
            Pass::Wait => reader.backend.prep_bo(imported, Deadline::FOREVER).unwrap(),
            Pass::SyncFile => {
                let own = reader.backend.export_bo(reader.out).unwrap();
                let files = reader.backend.sharing().unwrap();
                let fence = files
                    .export_sync_file(dma_buf.as_fd(), Access::Read)
                    .unwrap();
                files
                    .import_sync_file(own.as_fd(), Access::Read, fence.as_fd())
                    .unwrap();
            }
        }
        reader.submit_reading(&[reader.words], &reads);
        reader.wait();
        let times = times(&model);
        let [writer, reader] = [1, 2].map(|file| times[&file][0]);
        assert!(reader.start_ps >= writer.end_ps, "{pass:?}");
        let waits = matches!(pass, Pass::Wait);
        assert_eq!(reader.submit_ps >= writer.end_ps, waits, "{pass:?}");
    }
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
