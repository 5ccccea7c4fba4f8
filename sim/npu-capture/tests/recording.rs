// SPDX-License-Identifier: MIT OR Apache-2.0
//! Records matmuls on the model, within the process.

#![allow(missing_docs, clippy::unwrap_used)]

mod common;

use common::{SIZES, bare, multiply, plain_model, recorded, recorded_matmuls};
use npu_capture::{Capture, Contents, JobOutcome, Moment, RecorderOptions, Role};

#[test]
fn recording_changes_no_result() {
    let capture = recorded(&plain_model(), RecorderOptions::default(), |device| {
        assert_eq!(multiply(device, 2), multiply(&plain_model(), 2));
    });
    assert!(capture.jobs().len() >= 2);
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
        for program in capture.programs(job, &contents) {
            assert_eq!(program.words().len(), program.task.regcmd_count as usize);
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
    let bare = recorded_matmuls(1, bare());
    let full = recorded_matmuls(1, RecorderOptions::default());
    let words = |capture: &Capture| {
        let mut contents = Contents::new(capture);
        contents.go(Moment::Before(0));
        let programs = capture.programs(&capture.jobs()[0], &contents);
        programs.map(|program| program.words).collect::<Vec<_>>()
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
