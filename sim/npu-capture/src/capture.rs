// SPDX-License-Identifier: MIT OR Apache-2.0
//! A capture in memory: its device, buffer objects, jobs and contents.

use std::collections::BTreeSet;
use std::fmt;
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Mutex, PoisonError};

use rknpu_regcmd::Iova;
use rocket_uapi::{DeviceInfo, Errno, FenceStatus, sys};

use crate::error::CaptureError;
use crate::format::PAGE;

/// A capture file that was read and checked.
///
/// Page contents stay in the file, compressed, until they are read. Memory use is
/// proportional to the length of the file, whatever the file claims.
#[derive(Debug)]
pub struct Capture {
    pub(crate) device: RecordedDevice,
    pub(crate) notes: Vec<(String, String)>,
    pub(crate) zero_data: bool,
    pub(crate) finished: bool,
    pub(crate) objects: Vec<CapturedObject>,
    pub(crate) jobs: Vec<CapturedJob>,
    pub(crate) chunks: Vec<Chunk>,
    pub(crate) source: File,
    pub(crate) unpacked: Mutex<Vec<(usize, Arc<[u8]>)>>,
}

/// Number of unpacked sections that are kept, of at most 1 MiB each. Contents are
/// mostly read in order.
const UNPACKED_KEPT: usize = 8;

/// The device that a capture was made on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordedDevice {
    /// Name, driver, version and number of cores, as the device gave them.
    pub info: DeviceInfo,
    /// The name of its chip.
    pub chip: String,
    /// The chip profile of the recorder: names and values.
    pub profile: Vec<(String, u32)>,
    /// The program that recorded.
    pub recorder: String,
}

/// A buffer object. If a handle is closed and given again with another address or
/// length, that is another object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CapturedObject {
    /// The open file that it belongs to, counted from 0.
    pub file: u32,
    /// Its GEM handle in that file.
    pub handle: u32,
    /// Its NPU address; `None` for an imported object, which has no contents here
    /// either.
    pub iova: Option<Iova>,
    /// Its length in bytes, whole pages.
    pub bytes: u64,
}

impl CapturedObject {
    /// Its NPU addresses; `None` without an address.
    #[must_use]
    pub fn range(&self) -> Option<Range<u64>> {
        let start = u64::from(self.iova?.0);
        Some(start..start + self.bytes)
    }

    /// What is wrong with its address and length, if anything.
    pub(crate) fn wrong(&self) -> Option<&'static str> {
        let Self { iova, bytes, .. } = *self;
        let start = u64::from(iova.unwrap_or_default().0);
        if !bytes.is_multiple_of(PAGE) || !start.is_multiple_of(PAGE) {
            Some("its address or length is not a multiple of the page size")
        } else if bytes > Iova::END - start || (bytes == 0) == iova.is_some() {
            Some("its length is impossible at its address")
        } else {
            None
        }
    }
}

/// How a job uses an object. The numbers are those of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    /// It is in the list of objects that the job reads.
    In = 0,
    /// It is in the list of objects that the job writes.
    Out = 1,
    /// It is in no list, but the job's programs reach it.
    Reached = 2,
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::In => "in",
            Self::Out => "out",
            Self::Reached => "reached",
        })
    }
}

/// An entry of a job's lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ObjectUse {
    /// The handle that was given.
    pub handle: u32,
    /// The object behind the handle; `None` if there is none.
    pub object: Option<usize>,
    /// How the job uses the object.
    pub role: Role,
}

/// How a job ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobOutcome {
    /// It completed without an error.
    Completed,
    /// The driver killed it, with this error in its fence.
    Killed(Errno),
    /// SUBMIT succeeded, but the driver did not accept the job.
    Dropped,
    /// SUBMIT failed.
    Refused(Errno),
    /// Its end was not seen: the wait failed, or the recorder, its program or the
    /// machine died.
    Unknown,
}

impl From<FenceStatus> for JobOutcome {
    fn from(status: FenceStatus) -> Self {
        match status {
            FenceStatus::Signaled => Self::Completed,
            FenceStatus::Failed(errno) => Self::Killed(errno),
            FenceStatus::Active => Self::Unknown,
        }
    }
}

impl fmt::Display for JobOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Completed => f.write_str("completed"),
            Self::Killed(errno) => write!(f, "killed ({errno})"),
            Self::Dropped => f.write_str("dropped by the driver without an error"),
            Self::Refused(errno) => write!(f, "refused ({errno})"),
            Self::Unknown => f.write_str("unknown"),
        }
    }
}

/// Whether the driver never runs such a job although SUBMIT returns 0 (observed on Linux
/// 7.2). `exists` returns whether the file has a handle.
pub(crate) fn is_dropped(
    tasks: &[sys::Task],
    reads: &[u32],
    writes: &[u32],
    exists: impl Fn(u32) -> bool,
) -> bool {
    let mut seen = BTreeSet::new();
    let mut listed = reads.iter().chain(writes);
    // The reservation lock of an object cannot be taken twice.
    let can_lock = listed.all(|&handle| exists(handle) && seen.insert(handle));
    tasks.is_empty() || tasks.iter().any(|task| task.regcmd_count == 0) || !can_lock
}

/// A job as it was submitted, and how it ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CapturedJob {
    /// The open file that it came from.
    pub file: u32,
    /// Its register programs: NPU address and length of each.
    pub tasks: Vec<sys::Task>,
    /// The objects in its lists, in order, and those that only its programs reach.
    pub uses: Vec<ObjectUse>,
    /// When it was submitted, nanoseconds after recording began.
    pub started_ns: u64,
    /// When its end was seen, nanoseconds after recording began; `None` if it was
    /// not.
    pub ended_ns: Option<u64>,
    /// How it ended.
    pub outcome: JobOutcome,
    /// Chunks that were recorded after the end of the job before it.
    pub(crate) before: Range<usize>,
    /// Chunks of the pages that it changed.
    pub(crate) after: Range<usize>,
}

impl CapturedJob {
    /// A job that has not ended.
    pub(crate) fn new(
        file: u32,
        started_ns: u64,
        tasks: Vec<sys::Task>,
        uses: Vec<ObjectUse>,
    ) -> Self {
        Self {
            file,
            tasks,
            uses,
            started_ns,
            ended_ns: None,
            outcome: JobOutcome::Unknown,
            before: 0..0,
            after: 0..0,
        }
    }

    /// The handles of one role, in order.
    #[must_use]
    pub fn handles(&self, role: Role) -> Vec<u32> {
        let uses = self.uses.iter().filter(|used| used.role == role);
        uses.map(|used| used.handle).collect()
    }

    /// The objects that it lists or reaches, each once.
    #[must_use]
    pub fn objects(&self) -> Vec<usize> {
        let mut objects: Vec<usize> = self.uses.iter().filter_map(|used| used.object).collect();
        objects.sort_unstable();
        objects.dedup();
        objects
    }
}

/// Pages `first` to `first + count` of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PageRun {
    pub(crate) first: u32,
    pub(crate) count: u32,
    /// The index of its first page in the chunk's data; `None` for zeroes.
    pub(crate) data: Option<u32>,
}

/// The pages of one object that one PAGE section of the file holds.
#[derive(Clone, Debug)]
pub(crate) struct Chunk {
    pub(crate) object: usize,
    pub(crate) runs: Vec<PageRun>,
    /// Offset of the compressed data in the file.
    pub(crate) offset: u64,
    pub(crate) packed_bytes: usize,
    pub(crate) raw_bytes: usize,
}

impl Capture {
    /// Whether `start`, the first bytes of a file, begins a capture file.
    #[must_use]
    pub fn begins(start: &[u8]) -> bool {
        start.starts_with(&crate::format::MAGIC)
    }

    /// The device that it was made on.
    #[must_use]
    pub fn device(&self) -> &RecordedDevice {
        &self.device
    }

    /// Texts about the recording: names and values.
    #[must_use]
    pub fn notes(&self) -> &[(String, String)] {
        &self.notes
    }

    /// Whether contents were left out: all bytes but command words are 0.
    #[must_use]
    pub fn zero_data(&self) -> bool {
        self.zero_data
    }

    /// Whether the recorder finished the file.
    #[must_use]
    pub fn finished(&self) -> bool {
        self.finished
    }

    /// The buffer objects, in the order in which jobs first used them.
    #[must_use]
    pub fn objects(&self) -> &[CapturedObject] {
        &self.objects
    }

    /// The jobs, in order.
    #[must_use]
    pub fn jobs(&self) -> &[CapturedJob] {
        &self.jobs
    }

    /// Unpacks the data pages of a chunk.
    pub(crate) fn unpack(&self, index: usize) -> Result<Arc<[u8]>, CaptureError> {
        let mut kept = self.unpacked.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(at) = kept.iter().position(|(chunk, _)| *chunk == index) {
            let found = kept.remove(at);
            kept.push(found);
            return Ok(Arc::clone(&kept[kept.len() - 1].1));
        }
        let chunk = &self.chunks[index];
        let mut packed = vec![0; chunk.packed_bytes];
        self.source.read_exact_at(&mut packed, chunk.offset)?;
        let refused = |message: String| CaptureError::Compression {
            offset: chunk.offset,
            message,
        };
        // The parser has checked that the runs need this much, at most 1 MiB.
        let mut raw = vec![0; chunk.raw_bytes];
        let len = zstd::bulk::decompress_to_buffer(&packed, &mut raw)
            .map_err(|error| refused(error.to_string()))?;
        if len != raw.len() {
            return Err(refused(format!("{len} bytes instead of {}", raw.len())));
        }
        let raw: Arc<[u8]> = raw.into();
        if kept.len() == UNPACKED_KEPT {
            kept.remove(0);
        }
        kept.push((index, Arc::clone(&raw)));
        Ok(raw)
    }
}
