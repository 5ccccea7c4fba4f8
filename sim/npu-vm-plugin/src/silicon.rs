// SPDX-License-Identifier: MIT OR Apache-2.0
//! The cores of the guest's NPU, with the facts of the emulated board.

use rknpu_chip::{ChipOptions, Contested, Core, NpuCore};

/// Differences of the emulated board from the chip's default.
#[derive(Debug, Default)]
pub(crate) struct Differences {
    /// Sides of contested facts.
    pub(crate) facts: Contested,
    /// Numbers of cores whose tasks never end.
    pub(crate) wedged: Vec<u32>,
}

impl Differences {
    /// Makes core number `index`. To use another model, make it here.
    pub(crate) fn core(&self, index: u32) -> Box<dyn NpuCore> {
        let core = Core::new(&ChipOptions {
            contested: self.facts,
            ..ChipOptions::default()
        });
        Box::new(if self.wedged.contains(&index) {
            core.broken()
        } else {
            core
        })
    }
}
