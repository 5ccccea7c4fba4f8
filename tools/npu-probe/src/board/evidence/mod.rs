// SPDX-License-Identifier: MIT OR Apache-2.0
//! The steps of `npu-probe first` and `npu-probe evidence`, and their archive.
//!
//! Each step is a separate process, which is killed at a time limit. A file records
//! the steps that have begun and ended, so a later run continues where the last one
//! stopped, also after a crash of the machine. Results contain no private data.

mod archive;
mod child;
mod private;
mod state;
mod step;

pub(crate) use archive::{EvidenceIndex, pack};
pub(crate) use child::ChildRunner;
pub(crate) use private::PrivateWords;
pub(crate) use state::{EvidenceOutcome, EvidenceState};
pub(crate) use step::{
    EvidenceSetup, EvidenceStep, FIRST_PROFILE, PROFILE, RECORDING_END, SELF_TEST, find,
};
