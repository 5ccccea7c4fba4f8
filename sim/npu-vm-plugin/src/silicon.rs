// SPDX-License-Identifier: MIT OR Apache-2.0
//! The cores of the guest's NPU, as the board that is played has them.

use npu_vm::Silicon;
use rknpu_chip::{Bus, ChipOptions, Contested, Core, FinishedKick, Kick, KickOutcome};

/// What of the played board differs from the chip's default.
#[derive(Debug, Default)]
pub(crate) struct Differences {
    /// Sides of contested facts.
    pub(crate) facts: Contested,
    /// Numbers of cores whose tasks never end.
    pub(crate) wedged: Vec<u32>,
}

impl Differences {
    /// The core of that number.
    pub(crate) fn core(&self, index: u32) -> PlayedCore {
        PlayedCore {
            core: Core::new(&ChipOptions {
                contested: self.facts,
                ..ChipOptions::default()
            }),
            is_wedged: self.wedged.contains(&index),
        }
    }
}

/// A core; a wedged one takes every write and starts nothing.
#[derive(Debug)]
pub(crate) struct PlayedCore {
    core: Core,
    is_wedged: bool,
}

impl Silicon for PlayedCore {
    type Kick = Kick;
    type Finished = FinishedKick;

    fn mmio_read(&self, offset: u32) -> u32 {
        self.core.mmio_read(offset)
    }

    fn mmio_write(&mut self, offset: u32, value: u32) -> Option<Kick> {
        let starts = Core::starts_tasks(offset, value);
        match self.is_wedged && starts {
            true => None,
            false => self.core.mmio_write(offset, value),
        }
    }

    fn run(kick: Kick, bus: &mut dyn Bus) -> (FinishedKick, KickOutcome) {
        Core::run(kick, bus)
    }

    fn complete(&mut self, finished: FinishedKick) {
        Silicon::complete(&mut self.core, finished);
    }

    fn irq_level(&self) -> bool {
        self.core.irq_level()
    }

    fn reset(&mut self) {
        self.core.reset();
    }
}
