// SPDX-License-Identifier: MIT OR Apache-2.0
//! One software device: a chip with the driver on top.

use std::sync::Arc;
use std::time::Duration;

use rknpu_regcmd::timing::Machine;
use rocket_uapi::{Backend, Device, IoctlBackend};

use crate::damage::Damage;
use crate::driver::{
    Backing, Bug, Caches, Driver, DriverBugs, DriverOptions, DriverProfile, DrmFile, JobCounts,
};
use crate::event::{Event, EventTally};
use crate::timeline::DeviceTimeline;
use crate::trace::TaskTrace;
use rknpu_chip::{ChipOptions, Contested, Core, Level};

/// Most cores a device can have: the driver puts the number of the core into
/// four bits of S_POINTER.
const MAX_CORES: u32 = 16;

/// What can be chosen about a [`Model`].
#[derive(Clone, Debug)]
pub struct ModelOptions {
    /// Number of cores, 1 to 16 (values outside count as the nearest).
    /// RK3588: 3.
    pub cores: u32,
    /// What happens when a program does what silicon punishes.
    pub level: Level,
    /// Sides of the facts about the chip that the sources disagree on.
    pub contested: Contested,
    /// How long a hung job holds its core, wall clock. 500 ms in the real
    /// driver; tests shorten it. [`Level::Strict`] does not wait at all.
    pub hang_timeout: Duration,
    /// The kernel and its IOMMU. A task that alone takes longer than
    /// [`DriverProfile::job_limit`] is not computed but hangs.
    pub driver: DriverProfile,
    /// Which bugs of the kernel take effect. Running into any is an
    /// [`Event::KernelBug`].
    pub bugs: DriverBugs,
    /// Whether root opens the device. Only GEM names (FLINK, OPEN) ask.
    pub privileged: bool,
    /// Whether a core loses its registers when it was without a job for
    /// [`DriverProfile::autosuspend`], by the clock of the host.
    pub registers_lost: bool,
    /// Whether the CPU's view of buffer objects is the NPU's. It is not on a
    /// board: [`Caches::Manual`] finds forgotten PREP_BO and FINI_BO.
    pub caches: Caches,
    /// Memory of the board for buffer objects, bytes. `None`: what the host
    /// gives, page by page as they are touched.
    pub memory: Option<u64>,
    /// Cores that do not work.
    pub damage: Damage,
    /// What buffer objects are made of.
    pub backing: Backing,
    /// Whether each DMA access is recorded for [`Model::take_traces`].
    pub trace: bool,
    /// Whether jobs are recorded for [`Model::timeline`]: lighter than
    /// [`Self::trace`].
    pub timeline: bool,
    /// What modelled times depend on: clock (by default the one that boards boot with
    /// and mainline keeps), memory, and what the driver adds.
    /// Its number of cores is [`Self::cores`].
    pub machine: Machine,
}

impl Default for ModelOptions {
    fn default() -> Self {
        Self {
            cores: Machine::RK3588.chip.cores,
            level: Level::default(),
            contested: Contested::default(),
            hang_timeout: DriverProfile::default().job_limit,
            driver: DriverProfile::default(),
            bugs: DriverBugs::NONE,
            privileged: false,
            registers_lost: false,
            caches: Caches::default(),
            memory: None,
            damage: Damage::default(),
            backing: if cfg!(miri) {
                Backing::Heap
            } else {
                Backing::default()
            },
            trace: false,
            timeline: false,
            machine: Machine::RK3588.at_clock(Machine::BOOT_CLOCK_HZ),
        }
    }
}

/// One software device. All files opened on it share its cores.
///
/// It costs nothing while idle: the threads of its cores start with their
/// first job and sleep between jobs. They end when the model and everything
/// opened on it are gone.
#[derive(Debug)]
pub struct Model {
    driver: Driver,
    cores: u32,
    machine: Machine,
}

impl Model {
    /// A device after power-up.
    #[must_use]
    pub fn new(options: ModelOptions) -> Arc<Self> {
        let ModelOptions {
            cores,
            level,
            contested,
            hang_timeout,
            driver,
            bugs,
            privileged,
            registers_lost,
            caches,
            memory,
            damage,
            backing,
            trace,
            timeline,
            mut machine,
        } = options;
        let cores = cores.clamp(1, MAX_CORES);
        machine.chip.cores = cores;
        let chip = ChipOptions {
            level,
            contested,
            machine,
            literal: false,
        };
        let core = |index| damage.core(index, Core::new(&chip));
        let driver_options = DriverOptions {
            hang_timeout: if level == Level::Strict {
                Duration::ZERO
            } else {
                hang_timeout
            },
            profile: driver,
            bugs,
            privileged,
            registers_lost,
            caches,
            memory,
            backing,
            trace,
            timeline,
        };
        Arc::new(Self {
            driver: Driver::new(driver_options, (0..cores).map(core).collect()),
            cores,
            machine,
        })
    }

    /// Opens the device: a file with its own handles, addresses and queue.
    #[must_use]
    pub fn open(&self) -> Arc<dyn Backend> {
        let file = self.driver.open();
        if !file.options().bugs.contains(Bug::UseAfterClose) {
            // Its clients wait as long as the file says.
            file.need_not_settle();
        }
        Arc::new(IoctlBackend::new(Arc::new(file)))
    }

    /// Opens the device for programs; see [`Model::open`].
    #[must_use]
    pub fn open_device(&self) -> Device {
        Device::from_backend(self.open())
    }

    /// Opens the device as a raw file: ioctl numbers and bytes.
    #[must_use]
    pub fn open_file(&self) -> DrmFile {
        self.driver.open()
    }

    /// Lets go of what only mappings of other processes kept alive; see
    /// [`Driver::collect`].
    pub fn collect(&self) {
        self.driver.collect();
    }

    /// Bytes of memory that buffer objects take; see
    /// [`Driver::allocated_bytes`].
    #[must_use]
    pub fn allocated_bytes(&self) -> Vec<u64> {
        self.driver.allocated_bytes()
    }

    /// Number of cores.
    #[must_use]
    pub fn cores(&self) -> u32 {
        self.cores
    }

    /// The clocks, rates and costs that modelled times depend on.
    #[must_use]
    pub fn machine(&self) -> &Machine {
        &self.machine
    }

    /// Whether a client has taken the modelled kernel down; see
    /// [`Driver::is_oopsed`].
    #[must_use]
    pub fn is_oopsed(&self) -> bool {
        self.driver.is_oopsed()
    }

    /// What happened so far, oldest first; the latest few thousand events.
    #[must_use]
    pub fn events(&self) -> Vec<Event> {
        self.driver.events()
    }

    /// How often what happened, from the start on.
    #[must_use]
    pub fn event_tally(&self) -> EventTally {
        self.driver.event_tally()
    }

    /// How the jobs ended that the driver accepted so far.
    #[must_use]
    pub fn jobs(&self) -> JobCounts {
        self.driver.jobs()
    }

    /// Waits until no job is queued or running, but not longer than so long.
    pub fn wait_until_idle(&self, at_most: Duration) {
        self.driver.wait_until_idle(at_most);
    }

    /// What happened since the last call.
    #[must_use]
    pub fn take_events(&self) -> Vec<Event> {
        self.driver.take_events()
    }

    /// The tasks since the last call with all their DMA accesses, if
    /// [`ModelOptions::trace`] is set.
    #[must_use]
    pub fn take_traces(&self) -> Vec<TaskTrace> {
        self.driver.take_traces()
    }

    /// The jobs that have ended so far and when they would have run on a
    /// board, by modelled time, if [`ModelOptions::timeline`] is set.
    #[must_use]
    pub fn timeline(&self) -> Option<DeviceTimeline> {
        self.driver.timeline(self.machine)
    }
}
