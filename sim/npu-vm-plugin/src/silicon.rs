// SPDX-License-Identifier: MIT OR Apache-2.0
//! The cores of the guest's NPU, as the board that is played has them.

use rknpu_chip::{ChipOptions, Contested, Core, NpuCore};

/// What of the played board differs from the chip's default.
#[derive(Debug, Default)]
pub(crate) struct Differences {
    /// Sides of contested facts.
    pub(crate) facts: Contested,
    /// Numbers of cores whose tasks never end.
    pub(crate) wedged: Vec<u32>,
}

impl Differences {
    /// The core of that number. Another model takes its place here.
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
