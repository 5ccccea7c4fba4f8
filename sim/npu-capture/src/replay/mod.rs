// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs a capture again, on the model or on a board, and compares the results.
//!
//! Each job starts from its recorded state, whatever the job before it did this time, so
//! each job is judged by itself. Buffer objects lie at their recorded addresses, so the
//! command words stay unchanged.

mod compare;
mod error;
mod place;
mod report;
mod run;

use rocket_uapi::Device;

use crate::capture::Capture;

pub use error::ReplayError;
pub use report::{
    ByteDifference, ContentsComparison, ElementDifference, ReplayReport, ReplayedJob,
};
pub use run::ReplayOptions;

/// Runs all jobs of `capture` in order, on new files of `device`, and compares the
/// results.
///
/// The programs run as they were recorded. On a board that is as safe as the recorded
/// program: the NPU reaches only the files' own objects, but a program may hang a core
/// until the driver resets it.
///
/// # Errors
/// [`ReplayError`] if the capture needs more than `options` allow, which is checked
/// before the device is used; if the capture cannot be read; or if the device cannot be
/// brought into the recorded state. A job that ends otherwise than recorded is not an
/// error: the report shows it.
pub fn replay(
    capture: &Capture,
    device: &Device,
    options: &ReplayOptions,
) -> Result<ReplayReport, ReplayError> {
    run::Replay::new(capture, device, *options).all()
}
