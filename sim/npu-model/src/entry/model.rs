// SPDX-License-Identifier: MIT OR Apache-2.0
//! One software device: a chip with the driver on top.

use std::sync::Arc;
use std::time::Duration;

use rknpu_chip::{ChipOptions, Core, Level};
use rknpu_regcmd::timing::Machine;
use rocket_uapi::{Device, FileOperations};

use crate::base::bugs::Bug;
use crate::base::event::{Event, EventTally};
use crate::base::options::ModelOptions;
use crate::base::timeline::DeviceTimeline;
use crate::files::client_map::ClientMaps;
use crate::files::device::DriverState;
use crate::files::drm_file::DrmFile;
use crate::jobs::job::JobCounts;
use rknpu_chip::NpuCore;

/// Maximum number of cores: the driver puts the core number into four bits of
/// S_POINTER.
const MAX_CORES: u32 = 16;

/// One software device. All files opened on it share its cores.
///
/// It costs nothing while idle: the threads of its cores start with their
/// first job and sleep between jobs. They end when the model and everything
/// opened on it are gone.
#[derive(Debug)]
pub struct Model {
    driver: Arc<DriverState>,
    client_maps: Arc<ClientMaps>,
}

impl Model {
    /// A device after power-up.
    #[must_use]
    pub fn new(mut options: ModelOptions) -> Arc<Self> {
        let cores = options.cores.clamp(1, MAX_CORES);
        options.machine.chip.cores = cores;
        if options.level == Level::Strict {
            options.hang_timeout = Duration::ZERO;
        }
        let chip = ChipOptions {
            level: options.level,
            contested: options.contested,
            machine: options.machine,
        };
        let core =
            |index| -> Box<dyn NpuCore> { Box::new(options.damage.core(index, Core::new(&chip))) };
        let cores = (0..cores).map(core).collect();
        Self::with_cores(options, cores)
    }

    /// A device with these cores instead of those of the options.
    #[must_use]
    pub fn with_cores(options: ModelOptions, cores: Vec<Box<dyn NpuCore>>) -> Arc<Self> {
        Arc::new(Self {
            driver: Arc::new(DriverState::new(options, cores)),
            client_maps: Arc::default(),
        })
    }

    /// Opens the device: a file with its own handles, addresses and queue.
    #[must_use]
    pub fn open(&self) -> Arc<dyn FileOperations> {
        // Clients of `FileOperations` wait as long as `settle` returns.
        let must_wait_before_close = self.driver.options.bugs.contains(&Bug::UseAfterClose);
        Arc::new(self.open_with(must_wait_before_close))
    }

    fn open_with(&self, must_wait_before_close: bool) -> DrmFile {
        let driver = Arc::clone(&self.driver);
        DrmFile::new(
            driver,
            Arc::clone(&self.client_maps),
            must_wait_before_close,
        )
    }

    /// Opens the device for programs; see [`Model::open`].
    #[must_use]
    pub fn open_device(&self) -> Device {
        // SAFETY: nobody else has the new file.
        #[allow(unsafe_code)]
        unsafe {
            Device::new(self.open())
        }
    }

    /// Opens the device as a raw file: ioctl numbers and bytes.
    #[must_use]
    pub fn open_file(&self) -> DrmFile {
        self.open_with(true)
    }

    /// Drops objects and files that only ended mappings of other processes kept
    /// alive; see [`DrmFile::mmap_file`]. CREATE_BO, GEM_CLOSE and closing do
    /// this themselves. A server calls it while no client calls.
    pub fn collect(&self) {
        self.client_maps.collect();
    }

    /// Bytes of memory of the buffer objects of each file that has any, in the
    /// order in which the files were opened.
    #[must_use]
    pub fn allocated_bytes(&self) -> Vec<u64> {
        self.driver.objects.bytes_by_space().into_values().collect()
    }

    /// Number of cores.
    #[must_use]
    pub fn cores(&self) -> u32 {
        self.driver.scheduler.cores() as u32
    }

    /// The clocks, rates and costs that modelled times depend on.
    #[must_use]
    pub fn machine(&self) -> &Machine {
        &self.driver.options.machine
    }

    /// Whether a client has triggered an enabled bug that takes the kernel
    /// down. From then on all calls on all files fail with `ENODEV`.
    #[must_use]
    pub fn is_oopsed(&self) -> bool {
        self.driver.health.is_oopsed()
    }

    /// The latest few thousand events, oldest first.
    #[must_use]
    pub fn events(&self) -> Vec<Event> {
        self.driver.health.events.snapshot()
    }

    /// Counts of the events since the start.
    #[must_use]
    pub fn event_tally(&self) -> EventTally {
        self.driver.health.events.tally()
    }

    /// Numbers of the jobs accepted so far, by how they ended.
    #[must_use]
    pub fn jobs(&self) -> JobCounts {
        self.driver.scheduler.jobs()
    }

    /// Waits until no job is queued or running, at most `at_most`.
    pub fn wait_until_idle(&self, at_most: Duration) {
        self.driver.scheduler.wait_until_idle(at_most);
    }

    /// The events since the last call.
    #[must_use]
    pub fn take_events(&self) -> Vec<Event> {
        self.driver.health.events.take()
    }

    /// The jobs that have ended so far, with their modelled times on a board;
    /// `None` unless [`ModelOptions::timeline`] is set.
    #[must_use]
    pub fn timeline(&self) -> Option<DeviceTimeline> {
        self.driver.scheduler.timeline(*self.machine())
    }
}
