// SPDX-License-Identifier: MIT OR Apache-2.0
//! Capture files: jobs of the NPU with the memory that they touched.
//!
//! A job that failed on a board can be run again from its file. The file has the device,
//! the buffer objects with their contents before and after each job, the jobs with their
//! programs, and how they ended. [`Recorder`] writes such a file, [`Capture`] reads it,
//! [`replay()`] runs it again, [`diff()`] compares two. docs/capture.md describes the
//! format field by field.
//!
//! A capture may come from a stranger. Whatever its bytes are, reading returns a
//! [`CaptureError`] or a capture, and takes at most a small multiple of the file's
//! length as memory.
//!
//! ```
//! use npu_capture::{Capture, Recorder, RecorderOptions, ReplayOptions, replay};
//! use npu_matmul::{Engine, Weights};
//! use rocket_uapi::DevicePool;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let folder = tempfile::tempdir()?;
//! # let path = folder.path().join("matmul.rkcap");
//! let device = npu_model::Model::new(npu_model::ModelOptions::default()).open_device();
//! let recorder = Recorder::create(&path, &device.info(), RecorderOptions::default())?;
//! let recorded = recorder.open(&device)?;
//! // All jobs of this device go into the file.
//! let engine = Engine::open(DevicePool::open(&recorded, 1)?)?;
//! let weights = engine.load(Weights::i8(1, 2, &[3, 4]))?;
//! engine.prepare(&weights, 1)?.run(&[1_i8, 2], &mut [0_i32])?;
//! recorder.finish()?;
//!
//! let report = replay(&Capture::open(&path)?, &device, &ReplayOptions::default())?;
//! assert!(report.matches());
//! # Ok(())
//! # }
//! ```
#![deny(unsafe_code)]

mod capture;
mod contents;
mod delta;
mod diff;
mod error;
mod fields;
pub mod format;
mod parse;
mod programs;
#[allow(unsafe_code)]
mod recorded;
mod recorder;
#[allow(unsafe_code)]
mod replay;
mod sections;
mod writer;

pub use capture::{
    Capture, CapturedJob, CapturedObject, JobOutcome, ObjectUse, RecordedDevice, Role,
};
pub use contents::{Contents, Moment};
pub use diff::diff;
pub use error::{CaptureError, RecordError};
pub use programs::CapturedProgram;
pub use recorded::RecordedFile;
pub use recorder::{
    JobToken, JobView, Outcomes, ReadObject, Recorder, RecorderOptions, RecordingSummary,
};
pub use replay::{
    ByteDifference, ContentsComparison, ElementDifference, ProgramChange, ReplayError,
    ReplayOptions, ReplayReport, ReplayedJob, replay, replay_changed,
};
pub use writer::CaptureWriter;
