// SPDX-License-Identifier: MIT OR Apache-2.0
//! Records matmuls on the model, within the process.

#![allow(missing_docs, clippy::unwrap_used)]

mod common;

use common::{SIZES, multiply, recorded_matmuls, recorded_model};
use npu_capture::{
    Capture, CapturedProgram, Contents, JobOutcome, Moment, Programs, RecorderOptions, Role,
};
use npu_model::{Model, ModelOptions};
use rocket_uapi::RawTask;

#[test]
fn recording_changes_no_result() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x");
    let (device, recorder) = recorded_model(&path, RecorderOptions::default());
    let recorded = multiply(&device, 2);
    let plain = Model::new(ModelOptions::default()).open_device();
    assert_eq!(recorded, multiply(&plain, 2));
    let summary = recorder.finish().unwrap();
    assert!(summary.jobs >= 2);
}

fn programs<'a>(
    capture: &'a Capture,
    contents: &'a Contents<'_>,
    tasks: &'a [RawTask],
) -> impl Iterator<Item = CapturedProgram> + 'a {
    let read = move |iova: u64, into: &mut [u8]| {
        let holder = capture
            .objects()
            .iter()
            .position(|object| object.range().is_some_and(|range| range.contains(&iova)));
        let Some(holder) = holder else { return false };
        let start = capture.objects()[holder].range().unwrap().start;
        contents.read(holder, iova - start, into).is_ok()
    };
    Programs::new(tasks, read)
}

#[test]
fn a_recording_has_programs_and_results() {
    let capture = recorded_matmuls(2, RecorderOptions::default());
    assert!(capture.device().info.is_model);
    assert_eq!(capture.device().chip, "rk3588");
    let mut contents = Contents::new(&capture);
    for (index, job) in capture.jobs().iter().enumerate() {
        assert_eq!(job.outcome, JobOutcome::Completed);
        assert!(job.uses.iter().any(|used| used.role == Role::Out));
        assert!(job.uses.iter().all(|used| used.role != Role::Reached));
        contents.go(Moment::Before(index));
        for program in programs(&capture, &contents, &job.tasks) {
            assert_eq!(program.words().len(), program.task.words as usize);
            assert_eq!(program.tasks().count(), 1);
            assert!(program.lint().is_empty(), "{:?}", program.lint());
        }
    }
    // The matmuls differ only in A: the second stores little.
    let [m, k, n] = SIZES;
    assert!(m * k < 4096 && n * k < 4096);
    let first = &capture.jobs()[0];
    let objects = first.objects();
    assert_eq!(objects.len(), capture.objects().len());
}

#[test]
fn without_data_programs_stay_whole() {
    let options = RecorderOptions {
        zero_data: true,
        ..RecorderOptions::default()
    };
    let bare = recorded_matmuls(1, options);
    let full = recorded_matmuls(1, RecorderOptions::default());
    let words = |capture: &Capture| {
        let mut contents = Contents::new(capture);
        contents.go(Moment::Before(0));
        let tasks = &capture.jobs()[0].tasks;
        let words: Vec<_> = programs(capture, &contents, tasks)
            .map(|program| program.words)
            .collect();
        words
    };
    assert_eq!(words(&bare), words(&full));
    let data = |capture: &Capture| {
        let mut contents = Contents::new(capture);
        contents.go(Moment::After(0));
        (0..capture.objects().len())
            .map(|object| contents.data_ranges(object).count())
            .collect::<Vec<_>>()
    };
    let with_data = |ranges: Vec<usize>| ranges.iter().filter(|&&count| count > 0).count();
    assert_eq!(
        with_data(data(&bare)),
        2,
        "the programs' object, the witness's"
    );
    assert!(with_data(data(&full)) >= 4);
}
