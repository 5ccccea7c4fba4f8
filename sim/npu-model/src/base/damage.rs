// SPDX-License-Identifier: MIT OR Apache-2.0
//! Faults of a board: cores that start tasks that never end, jobs that never start, and jobs that
//! go wrong.

use std::collections::BTreeSet;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::num::NonZeroU64;
use std::path::{Path, PathBuf};

use rknpu_chip::{Core, NpuCore};

use crate::base::job_fault::JobFault;

/// The cores that do not work, whatever runs on them, and the jobs that do not start or go wrong.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Damage {
    /// Whether no core gets power. On kernels up to 7.0 a job then never ends, as if it
    /// hung.
    pub power_fails: bool,
    /// Cores that are wedged from the start.
    pub wedged: BTreeSet<u32>,
    /// File with the numbers of cores that are wedged until a power cycle. A model starts
    /// with these, and adds those that it wedges. To cycle power, remove the file.
    pub memory: Option<PathBuf>,
    /// Each job of this number is accepted and never starts; see [`rknpu_chip::Stalls`].
    pub stall: Option<NonZeroU64>,
    /// The kind of task or job that goes wrong.
    pub fault: Option<JobFault>,
}

impl Damage {
    /// Applies the damage to `core`, which has number `index`.
    pub(crate) fn core(&self, index: u32, core: Core) -> Core {
        let memory = self.memory.as_ref();
        let is_remembered = memory.is_some_and(|memory| is_remembered(memory, index));
        if self.power_fails || self.wedged.contains(&index) || is_remembered {
            core.broken()
        } else {
            core
        }
    }

    /// Adds the number of a core that needs a power cycle to the file, if there is one.
    pub(crate) fn note(&self, index: u32, core: &dyn NpuCore) {
        if let Some(memory) = &self.memory
            && core.needs_power_cycle()
        {
            remember(memory, index);
        }
    }
}

/// Whether a file of core numbers, one per line, has this one.
fn is_remembered(memory: &Path, index: u32) -> bool {
    let text = fs::read_to_string(memory).unwrap_or_default();
    text.lines().any(|line| line.trim().parse() == Ok(index))
}

/// Adds a number to such a file.
fn remember(memory: &Path, index: u32) {
    if is_remembered(memory, index) {
        return;
    }
    let file = OpenOptions::new().create(true).append(true).open(memory);
    let written = file.and_then(|mut file| writeln!(file, "{index}"));
    if let Err(error) = written {
        tracing::error!(%error, path = %memory.display(), "a wedged core is forgotten");
    }
}
