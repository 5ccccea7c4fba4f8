// SPDX-License-Identifier: MIT OR Apache-2.0
//! The arguments of a recorder.

use rocket_uapi::sys;

use crate::capture::CapturedObject;

/// Options of a recording.
#[derive(Clone, Debug, Default)]
pub struct RecorderOptions {
    /// Records no contents except command words.
    pub zero_data: bool,
    /// Writes the file to the disk before each job runs, so that it survives a crash of the
    /// machine. Slow.
    pub durable: bool,
    /// Texts for the file: names and values.
    pub notes: Vec<(String, String)>,
}

/// A job as it is submitted.
#[derive(Clone, Copy)]
pub struct JobView<'a> {
    /// The open file that it comes from.
    pub file: u32,
    /// Its register programs: address and length of each.
    pub tasks: &'a [sys::Task],
    /// The handles that it only reads, as the client gave them.
    pub reads: &'a [u32],
    /// The handles that it writes, as the client gave them.
    pub writes: &'a [u32],
    /// All buffer objects of its file, so their `file` is that of the job. Those that the
    /// job lists or its programs reach are recorded. An object without an address has 0
    /// bytes.
    pub objects: &'a [CapturedObject],
    /// Reads them.
    pub bytes: ReadObject<'a>,
}

impl JobView<'_> {
    /// Whether it reads or writes the object with this handle.
    pub(super) fn lists(&self, handle: u32) -> bool {
        self.reads.contains(&handle) || self.writes.contains(&handle)
    }
}

/// Function that fills a slice with the bytes of the object with a handle, as the CPU sees
/// them now, from an offset on.
pub type ReadObject<'a> = &'a dyn Fn(u32, u64, &mut [u8]);
