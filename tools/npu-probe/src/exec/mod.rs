// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs one register program on given memory: the memory (`memory`), the model's chip
//! (`chip`), a device with its driver (`board`), and the relocation of a program to other
//! addresses (`relocate`).

#[allow(unsafe_code)]
pub(crate) mod board;
pub(crate) mod chip;
pub(crate) mod memory;
pub(crate) mod ranges;
pub(crate) mod relocate;

use serde::Serialize;

use relocate::RelocatedWord;

/// The visible outcome of one program.
#[derive(Debug, Default, Serialize)]
pub(crate) struct ProgramRun {
    /// The device or core.
    pub(crate) on: String,
    pub(crate) words: usize,
    /// IOVA of the program's first word, in hexadecimal.
    pub(crate) program: String,
    pub(crate) completed: bool,
    pub(crate) end: String,
    /// PC.INTERRUPT_RAW_STATUS, if it is readable.
    pub(crate) interrupts: Option<u32>,
    /// Modelled device time, nanoseconds, if a model ran the program.
    pub(crate) modelled_ns: Option<u64>,
    /// Buffers that the kernel moved: requested address, actual address.
    pub(crate) moved: Vec<(u32, u32)>,
    /// Words whose value was changed for the run.
    pub(crate) changed_words: Vec<RelocatedWord>,
    /// Traps and faults, one line each.
    pub(crate) events: Vec<String>,
    /// Memory accesses, if they are known and requested.
    pub(crate) accesses: Option<Vec<AccessReport>>,
}

/// A range of bytes that one memory master touched.
#[derive(Debug, Serialize)]
pub(crate) struct AccessReport {
    pub(crate) master: String,
    pub(crate) direction: String,
    pub(crate) start: u64,
    pub(crate) end: u64,
}
