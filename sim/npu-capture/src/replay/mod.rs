// SPDX-License-Identifier: MIT OR Apache-2.0
//! Running a capture again, on the model or on a board, and comparing.
//!
//! Each job finds what it found when it was recorded, whatever the one before
//! it made of it this time: every job is judged for itself. Buffer objects lie
//! at their recorded addresses, so that the words are those of the recording.

mod compare;
mod error;
mod options;
mod place;
mod report;
mod run;

use rocket_uapi::Device;

use crate::capture::Capture;

pub use error::ReplayError;
pub use options::ReplayOptions;
pub use report::{
    ByteDifference, ContentsComparison, ElementDifference, ReplayReport, ReplayedJob, Value,
};

/// Runs all jobs of `capture` on files of their own of `device`, in order,
/// and compares what comes out.
///
/// The programs run as they were recorded. On a board that is as safe as the
/// program that was recorded: the NPU reaches nothing but the files' own
/// objects, but a program may hang a core until the driver resets it.
///
/// # Errors
/// [`ReplayError`]: when the capture needs more than `options` allow, which is
/// found before the device is used; when the capture cannot be read or the device
/// cannot be brought into the recorded state. That a job ends otherwise than recorded is
/// in the report.
pub fn replay(
    capture: &Capture,
    device: &Device,
    options: &ReplayOptions,
) -> Result<ReplayReport, ReplayError> {
    run::Replay::new(capture, device, *options).all()
}
