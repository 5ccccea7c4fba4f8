// SPDX-License-Identifier: MIT OR Apache-2.0
//! A recording replays with the same results, and differences are found.

#![allow(missing_docs, clippy::unwrap_used, clippy::panic)]

mod common;

use std::collections::BTreeSet;
use std::time::Duration;

use common::{
    Memory, SIZES, bare, fields, multiply, plain_model, reader, recorded, recorded_matmuls,
};
use npu_capture::format::SectionKind;
use npu_capture::{
    Capture, CaptureWriter, CapturedObject, Contents, JobOutcome, JobView, Moment, ProgramChange,
    Recorder, RecorderOptions, ReplayError, ReplayOptions, ReplayedJob, Role, diff, replay,
    replay_changed,
};
use npu_model::{Model, ModelOptions};
use rknpu_regcmd::{Precision, TaskRegisters, Word, written_element};
use rocket_uapi::{Arena, Bo, ByteLen, Deadline, Device, Errno, Handle, RawJob, sys};
use zerocopy::IntoBytes;

fn model() -> Device {
    Model::new(quick()).open_device()
}

/// A model that does not wait half a second for a hung job.
fn quick() -> ModelOptions {
    ModelOptions {
        hang_timeout: Duration::from_millis(5),
        ..ModelOptions::default()
    }
}

fn options() -> ReplayOptions {
    ReplayOptions::default()
}

/// The capture with other bytes after its jobs, or other outcomes.
fn changed(
    capture: &Capture,
    change: impl Fn(usize, usize, &mut [u8]),
    outcome: impl Fn(JobOutcome) -> JobOutcome,
) -> Capture {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("changed");
    let info = &capture.device().info;
    let recorder = Recorder::create(&path, info, RecorderOptions::default()).unwrap();
    let mut contents = Contents::new(capture);
    for (index, job) in capture.jobs().iter().enumerate() {
        let numbers = job.objects();
        let objects: Vec<_> = numbers.iter().map(|&at| capture.objects()[at]).collect();
        let mut memory = |moment, job_change: &dyn Fn(usize, &mut [u8])| -> Memory {
            contents.go(moment);
            let read = |(&number, object): (&usize, &CapturedObject)| {
                let mut bytes = vec![0; object.bytes as usize];
                contents.read(number, 0, &mut bytes).unwrap();
                job_change(number, &mut bytes);
                (object.handle, bytes)
            };
            numbers.iter().zip(&objects).map(read).collect()
        };
        let before = memory(Moment::Before(index), &|_, _| ());
        let after = memory(Moment::After(index), &|object, bytes| {
            change(index, object, bytes)
        });
        let token = recorder.job(&JobView {
            file: job.file,
            tasks: &job.tasks,
            reads: &job.handles(Role::In),
            writes: &job.handles(Role::Out),
            objects: &objects,
            bytes: &reader(&before),
        });
        token.finish(outcome(job.outcome), Some(&reader(&after)));
    }
    recorder.finish().unwrap();
    Capture::open(&path).unwrap()
}

#[test]
fn recorded_results_are_replayed() {
    let capture = recorded_matmuls(3, RecorderOptions::default());
    let report = replay(&capture, &model(), &options()).unwrap();
    assert!(report.matches(), "{report:?}");
    assert_eq!(report.jobs.len(), capture.jobs().len());
    for job in &report.jobs {
        assert!(job.comparison.as_ref().unwrap().bytes >= 4 * 4096);
    }
    // Recording a recording changes nothing.
    let again = changed(&capture, |_, _, _| (), |outcome| outcome);
    assert!(replay(&again, &model(), &options()).unwrap().matches());
}

#[test]
fn addresses_are_had_again_whatever_else_was_there() {
    let capture = recorded(&plain_model(), RecorderOptions::default(), |device| {
        let other = device.alloc(ByteLen::new(5 << 20).unwrap()).unwrap();
        multiply(device, 1);
        // The same addresses once more, for other objects.
        let small = device.alloc(ByteLen::new(4096).unwrap()).unwrap();
        multiply(device, 1);
        drop((other, small));
        multiply(device, 1);
    });
    let ranges = || capture.objects().iter().filter_map(|object| object.range());
    assert!(ranges().next().unwrap().start >= 5 << 20);
    let overlaps = ranges().enumerate().any(|(at, a)| {
        ranges()
            .skip(at + 1)
            .any(|b| a.start < b.end && b.start < a.end)
    });
    assert!(
        overlaps,
        "jobs should have different objects at the same addresses"
    );
    let report = replay(&capture, &model(), &options()).unwrap();
    assert!(report.matches(), "{report:?}");
}

/// The first task of a job.
fn first_task(capture: &Capture, job: usize) -> TaskRegisters {
    let mut contents = Contents::new(capture);
    contents.go(Moment::Before(job));
    let mut programs = capture.programs(&capture.jobs()[job], &contents);
    programs.next().unwrap().tasks().next().unwrap()
}

#[test]
fn the_first_wrong_element_is_named() {
    let capture = recorded_matmuls(2, RecorderOptions::default());
    let last = capture.jobs().len() - 1;
    let mut uses = capture.jobs()[last].uses.iter();
    let out = uses.find(|used| used.role == Role::Out).unwrap();
    let out = out.object.unwrap();
    let task = first_task(&capture, last);
    let start = capture.objects()[out].range().unwrap().start;
    // Somewhere inside: two bytes of one element, one of a later one.
    let offset = (0..)
        .find(|&offset| {
            let element = written_element(&task.regs, task.enable, start + offset);
            element.is_some_and(|element| element.channel == 33 && element.byte == 1)
        })
        .unwrap();
    let wrong = changed(
        &capture,
        |job, object, bytes| {
            if job == last && object == out {
                for at in [offset, offset + 1, offset + 40] {
                    bytes[at as usize] ^= 0x55;
                }
            }
        },
        |outcome| outcome,
    );
    let report = replay(&wrong, &model(), &options()).unwrap();
    assert!(!report.matches());
    assert!(report.jobs[..last].iter().all(|job| job.matches()));
    let comparison = report.jobs[last].comparison.as_ref().unwrap();
    assert_eq!(comparison.different, 3);
    let first = comparison.first.as_ref().unwrap();
    assert_eq!((first.object, first.offset), (out, offset));
    assert_eq!(first.iova, start + offset);
    assert_eq!(first.recorded ^ first.replayed, 0x55);
    let place = first.place.as_ref().unwrap();
    assert_eq!((place.program, place.element.channel), (0, 33));
    let values = [&place.recorded, &place.replayed];
    let [then, now] = values.map(|value| value.parse::<i32>().unwrap());
    assert_eq!(then ^ now, 0x55_5500);
}

#[test]
fn element_coordinates_are_those_of_the_matmul() {
    let [m, k, n] = SIZES;
    let capture = recorded_matmuls(1, RecorderOptions::default());
    let expected = multiply(&model(), 1);
    assert_eq!(capture.jobs().len(), 1, "one tile");
    let job = &capture.jobs()[0];
    let task = first_task(&capture, 0);
    let mut contents = Contents::new(&capture);
    contents.go(Moment::After(0));
    let mut found = 0;
    for object in job.objects() {
        let range = capture.objects()[object].range().unwrap();
        for iova in range.clone().step_by(4) {
            let Some(element) = written_element(&task.regs, task.enable, iova) else {
                continue;
            };
            assert_eq!((element.ty, element.byte), (Precision::Int32, 0));
            let (row, column) = ((element.x + element.y) as usize, element.channel as usize);
            if row < m && column < n {
                let mut bytes = [0; 4];
                contents
                    .read(object, iova - range.start, &mut bytes)
                    .unwrap();
                assert_eq!(
                    i32::from_le_bytes(bytes),
                    expected[row * n + column],
                    "K = {k}"
                );
                found += 1;
            }
        }
    }
    assert_eq!(found, m * n);
}

/// Submits a job whose program, in `bo`, starts nothing and so never ends.
fn submit_idle(bo: &Bo, writes: &[Handle]) {
    let tasks = [sys::Task {
        regcmd: bo.iova().0,
        regcmd_count: 4,
    }];
    let job = RawJob {
        tasks: &tasks,
        reads: &[],
        writes,
    };
    // SAFETY: the program accesses nothing.
    #[allow(unsafe_code)]
    unsafe { bo.device().submit_raw(&[job]) }.unwrap();
}

/// Submits a job that writes `bo` and an unknown object, without the checks of `submit_raw`.
fn submit_unknown(bo: &Bo) {
    let arena = Arena::new();
    let task = [bo.iova().0, 4].map(u32::to_ne_bytes).concat();
    let writes = [u32::from(bo.handle()), 77].map(u32::to_ne_bytes).concat();
    let job = sys::Job {
        tasks: arena.push(&task),
        in_bo_handles: 0,
        out_bo_handles: arena.push(&writes),
        task_count: 1,
        task_struct_size: size_of::<sys::Task>() as u32,
        in_bo_handle_count: 0,
        out_bo_handle_count: 2,
    };
    let mut submit = sys::Submit {
        jobs: arena.push(job.as_bytes()),
        job_count: 1,
        job_struct_size: size_of::<sys::Job>() as u32,
        reserved: 0,
    };
    #[allow(unsafe_code)]
    // SAFETY: the file submits one job, which does not run.
    let file = unsafe { bo.device().raw_file() };
    #[allow(unsafe_code)]
    // SAFETY: the addresses are the arena's.
    unsafe { rocket_uapi::ioctl(file, sys::SUBMIT, &mut submit, &arena) }.unwrap();
}

/// Submits jobs that never end, and two that the driver drops.
fn hang(device: &Device) {
    let mut bo = device.alloc(ByteLen::new(4096).unwrap()).unwrap();
    bo.write(Deadline::FOREVER).unwrap()[..8].fill(0);
    let own = bo.handle();
    for writes in [&[own][..], &[], &[own, own]] {
        submit_idle(&bo, writes);
    }
    submit_unknown(&bo);
    assert!(bo.read(Deadline::FOREVER).is_ok());
}

#[test]
fn a_file_that_is_used_again_keeps_no_bytes() {
    // More jobs than files stay open.
    let capture = recorded(&model(), RecorderOptions::default(), |device| {
        let mut bo = device.alloc(ByteLen::new(4096).unwrap()).unwrap();
        for byte in [7, 7, 7, 0] {
            bo.write(Deadline::FOREVER).unwrap()[4000..].fill(byte);
            submit_idle(&bo, &[bo.handle()]);
        }
    });
    assert_eq!((capture.objects().len(), capture.jobs().len()), (1, 4));
    let report = replay(&capture, &model(), &options()).unwrap();
    assert!(report.matches(), "{report:?}");
}

#[test]
fn all_cores_run_jobs() {
    let capture = recorded_matmuls(6, RecorderOptions::default());
    let model = Model::new(ModelOptions {
        timeline: true,
        ..quick()
    });
    let report = replay(&capture, &model.open_device(), &options()).unwrap();
    assert!(report.matches(), "{report:?}");
    let timeline = model.timeline().unwrap();
    let cores: BTreeSet<_> = timeline.jobs().map(|(_, time)| time.core).collect();
    assert_eq!(cores.len(), 3);
}

#[test]
fn jobs_that_did_not_run_do_not_run_again() {
    let capture = recorded(&model(), RecorderOptions::default(), hang);
    let outcomes: Vec<_> = capture.jobs().iter().map(|job| job.outcome).collect();
    let killed = JobOutcome::Killed(Errno::CANCELED);
    assert_eq!(
        outcomes,
        [killed, killed, JobOutcome::Dropped, JobOutcome::Dropped]
    );
    assert_eq!(capture.jobs()[1].uses[0].role, Role::Reached);
    assert_eq!(capture.jobs()[3].uses[1].object, None);
    assert!(replay(&capture, &model(), &options()).unwrap().matches());
    let lied = changed(&capture, |_, _, _| (), |_| JobOutcome::Completed);
    let report = replay(&lied, &model(), &options()).unwrap();
    assert!(report.jobs.iter().all(|job| !job.matches()));
    // If the recorded end was not seen, any end is right.
    let unknown = changed(&capture, |_, _, _| (), |_| JobOutcome::Unknown);
    assert!(replay(&unknown, &model(), &options()).unwrap().matches());
}

#[test]
fn memory_is_limited() {
    let capture = recorded_matmuls(1, RecorderOptions::default());
    let options = ReplayOptions {
        bytes_max: 3 * 4096,
        ..options()
    };
    let error = replay(&capture, &model(), &options).unwrap_err();
    assert!(matches!(error, ReplayError::TooLarge { .. }), "{error}");
}

/// A small capture of `jobs` jobs, each of another file if `file_each`. They list
/// an object of `pages` pages of zeroes at page `first`. They have no program, so
/// the driver drops them.
fn claims(jobs: u32, file_each: bool, first: u32, pages: u32) -> Capture {
    const DROPPED: u32 = 2;
    const NO_PROGRAM: u32 = 0;
    let mut writer = CaptureWriter::new(Vec::new(), 0, 0).unwrap();
    let mut section = |kind, payload: Vec<u8>| writer.section(kind, &payload).unwrap();
    let (device, payload) = common::device();
    section(device, payload);
    let (iova, bytes) = (first << 12, pages << 12);
    for job in 0..jobs {
        let (file, object) = if file_each { (job, job) } else { (0, 0) };
        if file_each || job == 0 {
            let record = [object, file, 1, iova, bytes, 0, 1, 0];
            section(SectionKind::OBJECT, fields(&record));
        }
        let task = [first << 12, NO_PROGRAM];
        let uses = [1, object, 1];
        let record = [job, file, 0, 0, 1, 1];
        let job_section = [&record[..], &task, &uses].concat();
        section(SectionKind::JOB, fields(&job_section));
        section(SectionKind::DONE, fields(&[job, DROPPED, 0, 0, 0, 0]));
    }
    Capture::from_bytes(&writer.finish().unwrap()).unwrap()
}

#[test]
fn claims_of_a_small_file_are_refused_before_any_work() {
    // The device has memory for one page, so a replay that begins would fail
    // otherwise.
    let mut tiny = quick();
    tiny.memory = Some(4096);
    let device = Model::new(tiny).open_device();
    // Gaps count like objects, since fillers lie there.
    for (first, pages) in [(0, 0x7_ffff), (0x7_ffff, 0x7_ffff), (0xf_0000, 1)] {
        let bytes = u64::from(first + pages) * 4096;
        match replay(&claims(1, false, first, pages), &device, &options()).unwrap_err() {
            ReplayError::TooLarge {
                job: 0,
                bytes: found,
                ..
            } => assert_eq!(found, bytes),
            other => panic!("{other}"),
        }
    }
    // 512 MiB 200 times; different pages 100 times, each behind a gap of almost 1 GiB.
    let many = [
        (claims(200, false, 0, 0x2_0000), 200 << 29),
        (claims(100, true, 0x3_ffff, 1), 100 << 30),
    ];
    for (many, work) in many {
        match replay(&many, &device, &options()).unwrap_err() {
            ReplayError::TooMuchWork { bytes, .. } => assert_eq!(bytes, work),
            other => panic!("{other}"),
        }
    }
    // For the same objects, the gap is filled once.
    let same = claims(100, false, 0xff, 1);
    let mut limits = ReplayOptions {
        bytes_max: 1 << 20,
        work_max: (1 << 20) + 99 * 4096,
    };
    assert!(replay(&same, &model(), &limits).unwrap().matches());
    limits.work_max -= 1;
    let error = replay(&same, &model(), &limits).unwrap_err();
    assert!(matches!(error, ReplayError::TooMuchWork { .. }), "{error}");
    // With a higher limit the claim is accepted.
    let far = ReplayOptions {
        bytes_max: 4 << 30,
        ..options()
    };
    let report = replay(&claims(1, false, 0xf_0000, 1), &model(), &far).unwrap();
    assert!(report.matches(), "{report:?}");
}

#[test]
fn all_files_together_keep_to_the_limit() {
    const PAGES: u32 = 16;
    let capture = claims(8, true, 0, PAGES);
    let options = ReplayOptions {
        bytes_max: 2 * u64::from(PAGES) * 4096,
        ..options()
    };
    // The device has no memory for a third file.
    let mut small = quick();
    small.memory = Some(options.bytes_max);
    let device = Model::new(small).open_device();
    let report = replay(&capture, &device, &options).unwrap();
    assert!(report.matches() && report.jobs.len() == 8, "{report:?}");
}

#[test]
fn without_data_only_outcomes_are_compared() {
    let report = replay(&recorded_matmuls(2, bare()), &model(), &options()).unwrap();
    assert!(report.matches());
    assert!(report.jobs.iter().all(|job| job.comparison.is_none()));
}

fn differences(first: &Capture, second: &Capture) -> Vec<String> {
    let mut differences = Vec::new();
    diff(first, second, &mut |one| differences.push(one.to_string())).unwrap();
    differences
}

#[test]
fn differences_are_named() {
    let capture = recorded_matmuls(2, RecorderOptions::default());
    assert_eq!(differences(&capture, &capture), <[&str; 0]>::default());
    let words = u64::from(capture.jobs()[0].tasks[0].regcmd);
    let ranges = capture
        .objects()
        .iter()
        .map(|object| object.range().unwrap());
    let mut ranges = ranges.enumerate();
    let (object, range) = ranges.find(|(_, range)| range.contains(&words)).unwrap();
    let at = words - range.start;
    // The jobs end differently, and the first one changes its own program.
    let other = changed(
        &capture,
        |job, changed, bytes| {
            if job == 0 && changed == object {
                bytes[at as usize + 10] ^= 1;
            }
        },
        |_| JobOutcome::Killed(Errno::CANCELED),
    );
    let found = differences(&capture, &other);
    let expected = [
        "job 0: outcome: completed | killed".to_owned(),
        format!(
            "after job 0: object {object}: 1 bytes differ, the first at {:#x}: ",
            at + 10
        ),
    ];
    assert!(found.len() >= expected.len(), "{found:?}");
    for (found, expected) in found.iter().zip(expected) {
        assert!(found.starts_with(&expected), "{found}");
    }
    let found = differences(&capture, &recorded_matmuls(1, bare()));
    let told = |part: &str| found.iter().any(|one| one.contains(part));
    assert!(
        told("without data: false | true") && told("jobs: ") && !told(", word "),
        "{found:?}"
    );
}

#[test]
fn words_that_differ_are_told_by_register() {
    let capture = recorded_matmuls(1, RecorderOptions::default());
    let moved = recorded(&plain_model(), RecorderOptions::default(), |device| {
        // Everything lies a page higher.
        let _page = device.alloc(ByteLen::new(4096).unwrap()).unwrap();
        multiply(device, 1);
    });
    let mut words = differences(&capture, &moved);
    words.retain(|one| one.contains(", word "));
    assert!(!words.is_empty());
    for word in &words {
        assert!(word.contains("_ADDR"), "{word}");
    }
}

/// The first program of a job.
fn words_of(capture: &Capture, job: usize) -> Vec<Word> {
    let mut contents = Contents::new(capture);
    contents.go(Moment::Before(job));
    let mut programs = capture.programs(&capture.jobs()[job], &contents);
    programs.next().unwrap().words().to_vec()
}

fn with_words(capture: &Capture, job: usize, words: &[Word]) -> Result<ReplayedJob, ReplayError> {
    let change = ProgramChange {
        job,
        program: 0,
        words,
    };
    let report = replay_changed(capture, &change, &model(), &options())?;
    assert_eq!(report.jobs.len(), 1);
    Ok(report.jobs.into_iter().next().unwrap())
}

#[test]
fn a_changed_program_runs_in_place_of_a_recorded_one() {
    let capture = recorded_matmuls(2, RecorderOptions::default());
    let words = words_of(&capture, 1);
    let same = with_words(&capture, 1, &words).unwrap();
    assert!(same.matches() && same.comparison.is_some(), "{same:?}");
    // With another DPU.DST_BASE_ADDR the output lies elsewhere.
    let is_destination = |word: &&Word| word.target() == 0x1001 && word.offset() == 0x4020;
    let at = words.iter().position(|word| is_destination(&word)).unwrap();
    let mut moved = words.clone();
    moved[at] = Word::new(0x1001, 0x4020, words[at].value() + 16);
    let replayed = with_words(&capture, 1, &moved).unwrap();
    assert_eq!(replayed.replayed, JobOutcome::Completed);
    let comparison = replayed.comparison.unwrap();
    assert!(comparison.different > 0);
    let first = comparison.first.unwrap();
    let output = u64::from(words[at].value());
    assert!((output..output + 0x1000).contains(&first.iova), "{first:?}");
    // Without the word that starts the blocks, no interrupt comes.
    let idle = with_words(&capture, 1, &words[..words.len() - 1]).unwrap();
    let is_killed = matches!(idle.replayed, JobOutcome::Killed(_));
    assert!(is_killed, "{idle:?}");
}

#[test]
fn a_dropped_job_is_not_taken_for_completed() {
    let capture = recorded_matmuls(1, RecorderOptions::default());
    let words = words_of(&capture, 0);
    // A program without words drops the job, and its fence signals as if it had run.
    let replayed = with_words(&capture, 0, &[]).unwrap();
    assert_eq!(replayed.replayed, JobOutcome::Dropped);
    let long = vec![words[0]; rknpu_regcmd::Program::WORDS_MAX + 1];
    let error = with_words(&capture, 0, &long).unwrap_err();
    assert!(
        matches!(error, ReplayError::ProgramLength { .. }),
        "{error}"
    );
    let error = with_words(&capture, 7, &words).unwrap_err();
    assert!(
        matches!(error, ReplayError::NoJob { job: 7, .. }),
        "{error}"
    );
    let change = ProgramChange {
        job: 0,
        program: 9,
        words: &words,
    };
    let error = replay_changed(&capture, &change, &model(), &options()).unwrap_err();
    assert!(
        matches!(error, ReplayError::NoProgram { program: 9, .. }),
        "{error}"
    );
}
