// SPDX-License-Identifier: MIT OR Apache-2.0
//! `npu-probe evidence`: all that a board can tell, as one archive to be sent.
//!
//! Each step is a process of its own, which is killed at a limit. A file keeps what
//! has begun and what has ended, so that a run goes on where the last one stopped,
//! also if a step took the whole machine down. Nothing private is left in any result.

mod archive;
mod child;
mod private;
mod state;
mod step;

pub(crate) use archive::{EvidenceIndex, pack};
pub(crate) use child::ChildRunner;
pub(crate) use private::PrivateWords;
pub(crate) use state::{EVIDENCE_MODE, EvidenceOutcome, EvidenceState};
pub(crate) use step::{
    EvidenceDevice, EvidenceStep, FIRST_PROFILE, StepPlaces, evidence_steps, find, plan_steps,
    rung_step, rung_steps,
};
