// SPDX-License-Identifier: MIT OR Apache-2.0
//! A fence of another device of the model, whose job ends when the test opens a gate.

use std::os::fd::OwnedFd;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use npu_model::driver::{Arena, DrmFile};
use npu_model::{Model, ModelOptions};
use rknpu_chip::{FinishedKick, Kick, KickOutcome, NpuCore};
use rocket_uapi::sys::{CREATE_BO, SUBMIT};
use rocket_uapi::write_fence;

/// Offsets of the registers used here, and the interrupt bit of DPU_0.
const OPERATION_ENABLE: u32 = 0x08;
const RAW_STATUS: u32 = 0x2c;
const DPU_0: u32 = 0x100;

#[derive(Debug, Default)]
struct Door {
    open: Mutex<bool>,
    opened: Condvar,
}

impl Door {
    fn open(&self) {
        *self.open.lock().unwrap() = true;
        self.opened.notify_all();
    }

    fn pass(&self) {
        let open = self.open.lock().unwrap();
        drop(self.opened.wait_while(open, |open| !*open).unwrap());
    }
}

/// A core that stops each task at the door. Then the task succeeds, or hangs.
#[derive(Debug)]
struct DoorCore {
    door: Arc<Door>,
    hangs: bool,
}

impl NpuCore for DoorCore {
    fn mmio_write(&mut self, offset: u32, value: u32) -> Option<Kick> {
        if (offset, value) == (OPERATION_ENABLE, 1) {
            self.door.pass();
        }
        None
    }

    fn complete(&mut self, _: FinishedKick) -> Option<KickOutcome> {
        None
    }

    fn mmio_read(&self, offset: u32) -> u32 {
        if offset == RAW_STATUS && !self.hangs {
            DPU_0
        } else {
            0
        }
    }

    fn reset(&mut self) {}
}

/// A job that waits at a door, with its fence.
pub(crate) struct Gate {
    door: Arc<Door>,
    fence: OwnedFd,
    _file: DrmFile,
}

impl Gate {
    /// A job that succeeds.
    pub(crate) fn new() -> Self {
        Self::with(false)
    }

    /// A job that is killed once the gate is open.
    pub(crate) fn of_a_hung_job() -> Self {
        Self::with(true)
    }

    fn with(hangs: bool) -> Self {
        let door = Arc::new(Door::default());
        let options = ModelOptions {
            hang_timeout: Duration::ZERO,
            ..ModelOptions::default()
        };
        let core = DoorCore {
            door: Arc::clone(&door),
            hangs,
        };
        let file = Model::with_cores(options, vec![Box::new(core)]).open_file();
        let mut create = [0; 24];
        create[0] = 8;
        file.ioctl(CREATE_BO, &mut create, &Arena::new()).unwrap();
        let arena = Arena::new();
        // The job has one task of two words at 0, and writes one object, handle 1.
        let task = arena.push(&[0_u32, 2].map(u32::to_le_bytes).concat());
        let writes = arena.push(&1_u32.to_le_bytes());
        let job = [
            [task, 0, writes].map(u64::to_le_bytes).concat(),
            [1_u32, 8, 0, 1].map(u32::to_le_bytes).concat(),
        ];
        let jobs = arena.push(&job.concat());
        let mut submit = [jobs.to_le_bytes(), (40_u64 << 32 | 1).to_le_bytes(), [0; 8]].concat();
        file.ioctl(SUBMIT, &mut submit, &arena).unwrap();
        Self {
            door,
            fence: write_fence(&file, 1).unwrap().into(),
            _file: file,
        }
    }

    pub(crate) fn fence(&self) -> OwnedFd {
        self.fence.try_clone().unwrap()
    }

    pub(crate) fn open(&self) {
        self.door.open();
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        // Open the door even if the test fails, because the file waits for its job.
        self.door.open();
    }
}
