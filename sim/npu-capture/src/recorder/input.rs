// SPDX-License-Identifier: MIT OR Apache-2.0
//! The arguments of a recorder.

use rknpu_regcmd::Iova;
use rocket_uapi::RawTask;

use crate::delta::BoBytes;

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

/// A buffer object as a recorder sees it.
#[derive(Clone, Copy)]
pub struct BoView<'a> {
    /// Its GEM handle.
    pub handle: u32,
    /// Its NPU address; `None` for an imported object, whose contents are not recorded.
    pub iova: Option<Iova>,
    /// Its length in bytes, whole pages.
    pub len: u64,
    /// Reads its contents, as the CPU sees them now.
    pub bytes: &'a dyn BoBytes,
}

/// A job as it is submitted.
#[derive(Clone, Copy)]
pub struct JobView<'a> {
    /// Its register programs: address and length of each.
    pub tasks: &'a [RawTask],
    /// The handles that it only reads, as the client gave them.
    pub reads: &'a [u32],
    /// The handles that it writes, as the client gave them.
    pub writes: &'a [u32],
    /// All buffer objects of its file. Those that the job lists or its programs reach are
    /// recorded.
    pub bos: &'a [BoView<'a>],
}
