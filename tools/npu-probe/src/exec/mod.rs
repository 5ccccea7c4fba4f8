// SPDX-License-Identifier: MIT OR Apache-2.0
//! One raw register program on given memory: the memory (`memory`), the model's chip (`chip`),
//! a device with its driver (`board`), and the move of a program to other addresses
//! (`relocate`).

#[allow(unsafe_code)]
pub(crate) mod board;
pub(crate) mod chip;
pub(crate) mod memory;
pub(crate) mod relocate;

use std::time::Duration;

use npu_model::accesses::DmaAccess;

use relocate::RelocatedWord;

/// The visible outcome of one program.
#[derive(Debug, Default)]
pub(crate) struct ProgramRun {
    /// Whether the program completed.
    pub(crate) completed: bool,
    /// How it ended.
    pub(crate) end: String,
    /// PC.INTERRUPT_RAW_STATUS, where it can be seen.
    pub(crate) raw_status: Option<u32>,
    /// Modelled device time, where a model ran it.
    pub(crate) device_time: Option<Duration>,
    /// Traps and faults, one line each.
    pub(crate) events: Vec<String>,
    /// Memory accesses, if known.
    pub(crate) accesses: Vec<DmaAccess>,
    /// Words whose value was changed for the run.
    pub(crate) changes: Vec<RelocatedWord>,
    /// Buffers that the kernel moved: requested address, actual address.
    pub(crate) moved: Vec<(u32, u32)>,
}
