// SPDX-License-Identifier: MIT OR Apache-2.0
//! The kernel driver: what a client of `/dev/accel/accel0` meets between its
//! ioctls and the register windows of the cores.
//!
//! Behaviour follows the `rocket` driver of Linux 7.2, run unmodified in
//! QEMU above a modelled NPU and observed call by call; where it was only
//! read in the source the item says so. `docs/driver.md` has the list.
//!
//! | file | what it is in the kernel |
//! |---|---|
//! | `ioctl` | drm_ioctl and the handlers |
//! | `file` | an open file: handles, address space, queue |
//! | `gem` | buffer objects, handles, reservations |
//! | `release`, `life`, `orphans` | the end of a file: drm_release, rocket_postclose |
//! | `iova`, `iommu` | drm_mm, the IOMMU domain |
//! | `mmap`, `client_map` | mappings, those of other processes |
//! | `prime`, `names` | export and import, GEM names |
//! | `shared_file`, `dma_buf`, `sync_file`, `sw_sync` | the files that are not the device node's |
//! | `job`, `sched`, `fence`, `resv` | SUBMIT, the DRM scheduler, dma_fence, dma_resv |
//! | `run`, `hardware` | a job on its core; the register accesses of one task |
//! | `memory`, `cache` | pages; the CPU's caches |
//! | `profile`, `bugs` | what differs between kernels; what they do wrong |
//!
//! Nothing here knows Rust callers: [`DrmFile::ioctl`] takes bytes and gives
//! an errno, so a typed layer, a preload library and a fuzzer are served
//! alike; [`SharedFile::ioctl`] is the same for dma-bufs and sync_files.

pub(crate) mod abi;
mod bugs;
mod cache;
mod client_map;
mod dma_buf;
mod fence;
mod file;
mod gem;
mod hardware;
mod ioctl;
mod iommu;
mod iova;
mod job;
mod life;
#[allow(unsafe_code)]
mod memory;
mod mmap;
mod names;
mod orphans;
mod prime;
mod profile;
mod release;
mod resv;
mod run;
mod sched;
mod shared_file;
mod sw_sync;
mod sync_file;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

pub use bugs::{Bug, DriverBugs};
pub use cache::Caches;
pub use file::DrmFile;
pub use hardware::{Kicked, kick};
pub use job::JobCounts;
pub use memory::Backing;
pub use mmap::Mapping;
pub use profile::{ChainedKicks, DriverProfile, Iommu};
pub use rocket_uapi::{Arena, Caller, Descriptor, Efault, OwnProcess, UserMemory, Wake};
pub use shared_file::SharedFile;

use rknpu_chip::NpuCore;
use rknpu_regcmd::timing::Machine;

use crate::event::{Event, EventLog, EventTally};
use crate::timeline::DeviceTimeline;
use crate::trace::TaskTrace;

/// What can be chosen about a [`Driver`].
#[derive(Clone, Debug)]
pub struct DriverOptions {
    /// Version and behaviour of the modelled kernel.
    pub profile: DriverProfile,
    /// The bugs of that kernel that take effect.
    pub bugs: DriverBugs,
    /// Whether [`Driver::open`] is called by root (`CAP_SYS_ADMIN`), which
    /// may use GEM names.
    pub privileged: bool,
    /// Whether a core loses its registers after
    /// [`DriverProfile::autosuspend`] without a job, by the clock of the host.
    /// The real one may.
    pub registers_lost: bool,
    /// Whether the CPU's view of buffer objects is the NPU's.
    pub caches: Caches,
    /// Memory of the board for buffer objects, bytes: CREATE_BO beyond it
    /// fails with `ENOMEM`. `None`: what the host gives, page by page as they
    /// are touched.
    pub memory: Option<u64>,
    /// How long a job that will never raise its interrupt holds its core, in
    /// wall clock time.
    pub hang_timeout: Duration,
    /// What buffer objects are made of.
    pub backing: Backing,
    /// Whether every DMA access is recorded; see [`Driver::take_traces`].
    pub trace: bool,
    /// Whether jobs are recorded for [`Driver::timeline`].
    pub timeline: bool,
}

impl Default for DriverOptions {
    fn default() -> Self {
        Self {
            hang_timeout: DriverProfile::default().job_limit,
            profile: DriverProfile::default(),
            bugs: DriverBugs::NONE,
            privileged: false,
            registers_lost: false,
            caches: Caches::default(),
            memory: None,
            backing: Backing::default(),
            trace: false,
            timeline: false,
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
    health: Arc<bugs::Health>,
    offsets: Arc<gem::MmapOffsets>,
    names: names::Names,
    client_maps: client_map::ClientMaps,
    scheduler: sched::Scheduler,
}

impl Driver {
    /// A driver bound to these cores.
    #[must_use]
    pub fn new(options: DriverOptions, cores: Vec<Box<dyn NpuCore>>) -> Self {
        let events = Arc::new(EventLog::default());
        let health = Arc::new(bugs::Health::new(options.bugs.clone(), events));
        let scheduler = sched::Scheduler::new(&options, cores, Arc::clone(&health));
        Self {
            device: Arc::new(Device {
                offsets: Arc::new(gem::MmapOffsets::new(options.memory)),
                options,
                health,
                names: names::Names::default(),
                client_maps: client_map::ClientMaps::default(),
                scheduler,
            }),
        }
    }

    /// Opens the device node.
    #[must_use]
    pub fn open(&self) -> DrmFile {
        DrmFile::new(Arc::clone(&self.device), self.device.options.privileged)
    }

    /// Lets go of what only mappings of other processes kept alive that are
    /// gone by now; see [`DrmFile::mmap_file`]. CREATE_BO, GEM_CLOSE and
    /// closing do it for themselves: this is for a server without calls.
    pub fn collect(&self) {
        self.device.client_maps.collect();
    }

    /// Bytes of memory that buffer objects take, for each file that has any, in
    /// the order in which the files were opened.
    #[must_use]
    pub fn allocated_bytes(&self) -> Vec<u64> {
        self.device.offsets.bytes_by_space().into_values().collect()
    }

    /// Whether a client has run into a bug that is switched on and takes the
    /// kernel down: from then on all calls on all files fail with `ENODEV`.
    #[must_use]
    pub fn is_oopsed(&self) -> bool {
        self.device.health.is_oopsed()
    }

    /// What happened, oldest first; the latest few thousand.
    #[must_use]
    pub fn events(&self) -> Vec<Event> {
        self.device.health.events.snapshot()
    }

    /// How often what happened, from the start on.
    #[must_use]
    pub fn event_tally(&self) -> EventTally {
        self.device.health.events.tally()
    }

    /// How the jobs ended that were accepted so far.
    #[must_use]
    pub fn jobs(&self) -> JobCounts {
        self.device.scheduler.jobs()
    }

    /// Waits until no job is queued or running, but not longer than so long.
    pub fn wait_until_idle(&self, at_most: Duration) {
        self.device.scheduler.wait_until_idle(at_most);
    }

    /// What happened since the last call.
    #[must_use]
    pub fn take_events(&self) -> Vec<Event> {
        self.device.health.events.take()
    }

    /// The jobs that have ended and when they would have run on `machine`, by
    /// modelled time, if [`DriverOptions::timeline`] is set.
    #[must_use]
    pub fn timeline(&self, machine: Machine) -> Option<DeviceTimeline> {
        self.device.scheduler.timeline(machine)
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
