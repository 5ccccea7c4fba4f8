// SPDX-License-Identifier: MIT OR Apache-2.0
//! From SUBMIT to the chip.

pub(crate) mod hardware;
pub(crate) mod job;
pub(crate) mod orphans;
pub(crate) mod run;
pub(crate) mod sched;
