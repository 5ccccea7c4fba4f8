// SPDX-License-Identifier: MIT OR Apache-2.0
//! One raw register program against given memory: the memory (`memory`), the
//! model's chip (`chip`), a device with its driver (`board`), and what it takes
//! to run a program at other addresses than its own (`relocate`).

#[allow(unsafe_code)]
pub(crate) mod board;
pub(crate) mod chip;
pub(crate) mod memory;
pub(crate) mod relocate;

use std::time::Duration;

use npu_model::accesses::DmaAccess;

use relocate::RelocatedWord;

/// What a program did that was run alone, as far as that can be seen.
#[derive(Debug, Default)]
pub(crate) struct ProgramRun {
    /// Whether the program ended as it should.
    pub(crate) completed: bool,
    /// Why not, or what else there is to say of the end.
    pub(crate) end: String,
    /// PC.INTERRUPT_RAW_STATUS, where it can be seen.
    pub(crate) raw_status: Option<u32>,
    /// Modelled device time, where a model ran it.
    pub(crate) device_time: Option<Duration>,
    /// Traps and faults, one line each.
    pub(crate) events: Vec<String>,
    /// What was touched, where that is known.
    pub(crate) accesses: Vec<DmaAccess>,
    /// Words that ran with another value than was given.
    pub(crate) changes: Vec<RelocatedWord>,
    /// Buffers that the kernel put elsewhere: address asked for, address given.
    pub(crate) moved: Vec<(u32, u32)>,
}
