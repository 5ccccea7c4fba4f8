// SPDX-License-Identifier: MIT OR Apache-2.0
//! What does the work of an NPU core behind the registers of a guest.

use std::fmt;
use std::time::Duration;

use rknpu_chip::{Bus, Core, FinishedKick, Kick, KickOutcome};

/// A core as its register window shows it, and what its tasks do: the interface
/// of [`rknpu_chip::Core`], for whatever else is to be a core.
pub trait Silicon: fmt::Debug + Send + 'static {
    /// Tasks that a register write has started.
    type Kick: fmt::Debug + Send;
    /// What the core is to know of their end.
    type Finished;

    /// The value that a CPU would read there.
    fn mmio_read(&self, offset: u32) -> u32;

    /// A register write by the CPU, at `offset` bytes from the core's base.
    fn mmio_write(&mut self, offset: u32, value: u32) -> Option<Self::Kick>;

    /// Runs tasks, on a thread that the guest does not wait for. The bus refuses
    /// every access once the core was reset. So much of the guest's time goes
    /// by as [`KickOutcome::device_time`] says before they end.
    fn run(kick: Self::Kick, bus: &mut dyn Bus) -> (Self::Finished, KickOutcome);

    /// The tasks have ended: from now on the registers say so. Not called when
    /// the core was reset since they started.
    fn complete(&mut self, finished: Self::Finished);

    /// Whether the core's interrupt line is raised.
    fn irq_level(&self) -> bool;

    /// What the reset line does to the core, when it is asserted.
    fn reset(&mut self);
}

/// What the guest's driver gives a job: what takes longer on the device need
/// not be computed.
const BUDGET: Duration = Duration::from_millis(500);

impl Silicon for Core {
    type Kick = Kick;
    type Finished = FinishedKick;

    fn mmio_read(&self, offset: u32) -> u32 {
        Self::mmio_read(self, offset)
    }

    fn mmio_write(&mut self, offset: u32, value: u32) -> Option<Kick> {
        Self::mmio_write(self, offset, value)
    }

    fn run(kick: Kick, bus: &mut dyn Bus) -> (FinishedKick, KickOutcome) {
        let mut finished = kick.run(bus, BUDGET);
        let outcome = std::mem::take(&mut finished.outcome);
        (finished, outcome)
    }

    fn complete(&mut self, finished: FinishedKick) {
        Self::complete(self, finished);
    }

    fn irq_level(&self) -> bool {
        Self::irq_level(self)
    }

    fn reset(&mut self) {
        Self::reset(self);
    }
}
