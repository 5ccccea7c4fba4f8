// SPDX-License-Identifier: MIT OR Apache-2.0
//! When the jobs of a model would have run on a board: modelled time.
//!
//! The model computes as fast as its host can and keeps no clock while it
//! does. It records what each job moved and computed, and what its client's
//! calls say of its order: which jobs the client had waited for, and which were
//! in its way by the objects that it lists. [`DeviceTimeline`] is what
//! [`rknpu_regcmd::timing::schedule`] makes of that, by the driver's rules and
//! with cores sharing memory. What the host's own speed and load decide is not
//! in it: on which core a job ran here, in which order threads came, and what
//! had ended when. A file's client is taken to do nothing between the end of a
//! job and its next SUBMIT: the model has no idea how long a board's CPU would
//! work.

mod chrome;
mod jobs;
mod record;

pub use jobs::{DeviceTimeline, TimelineJob};
pub(crate) use record::{FenceName, TimelineRecorder};
