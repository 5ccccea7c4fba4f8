// SPDX-License-Identifier: MIT OR Apache-2.0
//! Modelled time: when the jobs of a model would have run on a board.
//!
//! The model computes as fast as its host can, without a clock. It records what
//! each job moved and computed, and what must come before it: the jobs that its
//! client had waited for, and the jobs that use the same objects. From that
//! [`rknpu_regcmd::timing::schedule`] makes a [`DeviceTimeline`], by the
//! driver's rules and with cores that share memory. It does not depend on the
//! host's speed and load: on which core a job ran here, in which order threads
//! came, and which jobs had ended when. A file's client takes no time between
//! the end of a job and its next SUBMIT, because the model does not know how
//! long a board's CPU would work.

mod chrome;
mod jobs;
mod record;

pub use jobs::{DeviceTimeline, TimelineJob};
pub(crate) use record::{FenceName, TimelineRecorder};
