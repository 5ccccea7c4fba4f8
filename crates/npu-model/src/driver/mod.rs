// SPDX-License-Identifier: MIT OR Apache-2.0
//! The kernel driver: what a client of `/dev/accel/accel0` meets between its
//! ioctls and the register windows of the cores.
//!
//! Behaviour follows the `rocket` driver of Linux 7.2, run unmodified in
//! QEMU above a modelled NPU and observed call by call; where it was only
//! read in the source the item says so. `docs/model.md` has the list.
//!
//! | file | what it is in the kernel |
//! |---|---|
//! | `ioctl` | drm_ioctl and the handlers |
//! | `file` | an open file: handles, address space, queue |
//! | `gem` | buffer objects, handles, reservations |
//! | `iova`, `iommu` | drm_mm, the IOMMU domain |
//! | `mmap`, `prime` | mappings, export and import |
//! | `shared_file`, `dma_buf`, `sync_file` | the files that are not the device node's |
//! | `job`, `sched`, `fence`, `resv` | SUBMIT, the DRM scheduler, dma_fence, dma_resv |
//! | `run`, `hardware` | a job on its core; the register accesses of one task |
//! | `memory`, `user` | pages; the client's memory |
//!
//! Nothing here knows Rust callers: [`DrmFile::ioctl`] takes bytes and gives
//! an errno, so a typed layer, a preload library and a fuzzer are served
//! alike; [`SharedFile::ioctl`] is the same for dma-bufs and sync_files.

pub(crate) mod abi;
mod dma_buf;
mod fence;
mod file;
mod gem;
mod hardware;
mod ioctl;
mod iommu;
mod iova;
mod job;
#[allow(unsafe_code)]
mod memory;
mod mmap;
mod prime;
mod resv;
mod run;
mod sched;
mod shared_file;
mod sync_file;
#[allow(unsafe_code)]
mod user;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

pub use fence::FenceState;
pub use file::{DrmFile, WriteFence};
pub(crate) use hardware::ChipCore;
pub use hardware::NpuCore;
pub use memory::Backing;
pub use mmap::Mapping;
pub use shared_file::SharedFile;
pub use user::{Arena, Efault, OwnProcess, UserMemory};

use crate::event::{Event, EventLog};
use crate::trace::TaskTrace;

/// How long the driver lets a job run: 500 ms from its hand-over to the
/// hardware, all its tasks together (Linux 7.2, observed).
pub const JOB_TIME_LIMIT: Duration = Duration::from_millis(500);

/// What can be chosen about a [`Driver`].
#[derive(Clone, Debug)]
pub struct DriverOptions {
    /// Longest job, in modelled device time. How slow this host computes it
    /// never matters.
    pub job_limit: Duration,
    /// How long a job that will never raise its interrupt holds its core, in
    /// wall clock time.
    pub hang_timeout: Duration,
    /// What buffer objects are made of.
    pub backing: Backing,
    /// Whether every DMA access is recorded; see [`Driver::take_traces`].
    pub trace: bool,
}

impl Default for DriverOptions {
    fn default() -> Self {
        Self {
            job_limit: JOB_TIME_LIMIT,
            hang_timeout: JOB_TIME_LIMIT,
            backing: Backing::default(),
            trace: false,
        }
    }
}

/// The driver of one device.
///
/// Threads exist from the first job on, one per core that had one, and end
/// when this and all open files are gone.
#[derive(Clone, Debug)]
pub struct Driver {
    device: Arc<Device>,
}

/// What the files of one device share.
#[derive(Debug)]
struct Device {
    options: DriverOptions,
    events: Arc<EventLog>,
    offsets: Arc<gem::MmapOffsets>,
    scheduler: sched::Scheduler,
}

impl Driver {
    /// A driver bound to these cores.
    #[must_use]
    pub fn new(options: DriverOptions, cores: Vec<Box<dyn NpuCore>>) -> Self {
        let events = Arc::new(EventLog::default());
        let scheduler = sched::Scheduler::new(&options, cores, Arc::clone(&events));
        Self {
            device: Arc::new(Device {
                options,
                events,
                offsets: Arc::new(gem::MmapOffsets::new()),
                scheduler,
            }),
        }
    }

    /// Opens the device node.
    #[must_use]
    pub fn open(&self) -> DrmFile {
        DrmFile::new(Arc::clone(&self.device))
    }

    /// What happened, oldest first; the latest few thousand.
    #[must_use]
    pub fn events(&self) -> Vec<Event> {
        self.device.events.snapshot()
    }

    /// What happened since the last call.
    #[must_use]
    pub fn take_events(&self) -> Vec<Event> {
        self.device.events.take()
    }

    /// The tasks that ran since the last call with all their DMA accesses,
    /// if [`DriverOptions::trace`] is set.
    #[must_use]
    pub fn take_traces(&self) -> Vec<TaskTrace> {
        self.device.scheduler.take_traces()
    }
}

/// Locks, also after a panic of another thread: everything below a mutex of
/// this crate is consistent between statements.
pub(crate) fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
