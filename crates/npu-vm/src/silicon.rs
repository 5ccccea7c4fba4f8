// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a core has to do.

use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::Duration;

use rknpu_chip::{Bus, Chip, ChipOptions, Core};

/// A core as its register window shows it.
pub trait Silicon: Send {
    /// A register write by the CPU, at `offset` bytes from the core's base.
    /// The write of 1 to PC.OPERATION_ENABLE runs the task to its end.
    fn write(&mut self, offset: u32, value: u32, bus: &dyn Bus);

    /// What a CPU would read.
    fn read(&mut self, offset: u32) -> u32;

    /// The reset pulse.
    fn reset(&mut self);

    /// The next task is another job's.
    fn begin_job(&mut self) {}

    /// How long the last task takes on the device: so much of the guest's time
    /// goes by before it ends.
    fn device_time(&self) -> Duration {
        Duration::ZERO
    }

    /// What is wrong with the last task, in lines for people.
    fn diagnosis(&self) -> Vec<String> {
        Vec::new()
    }
}

/// The cores of this project's chip.
#[must_use]
pub fn chip(options: &ChipOptions) -> Vec<Box<dyn Silicon>> {
    let chip = Arc::new(Chip::new(options));
    (0..chip.cores().len())
        .map(|index| -> Box<dyn Silicon> {
            let chip = Arc::clone(&chip);
            Box::new(ChipCore { chip, index })
        })
        .collect()
}

/// One core of a [`Chip`].
struct ChipCore {
    chip: Arc<Chip>,
    index: usize,
}

impl ChipCore {
    fn core(&self) -> MutexGuard<'_, Core> {
        // The index counts these cores. A panic within one is a dead thread
        // here, and a task that never ends for the guest.
        let core = &self.chip.cores()[self.index];
        core.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Silicon for ChipCore {
    fn write(&mut self, offset: u32, value: u32, bus: &dyn Bus) {
        self.core().mmio_write(offset, value, bus);
    }

    fn read(&mut self, offset: u32) -> u32 {
        self.core().mmio_read(offset)
    }

    fn reset(&mut self) {
        self.core().reset();
    }

    fn begin_job(&mut self) {
        self.core().begin_job();
    }

    fn device_time(&self) -> Duration {
        self.core().device_time()
    }

    fn diagnosis(&self) -> Vec<String> {
        let diagnosis = self.core().diagnosis();
        diagnosis.iter().map(ToString::to_string).collect()
    }
}
