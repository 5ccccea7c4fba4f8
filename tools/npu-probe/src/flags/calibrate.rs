// SPDX-License-Identifier: MIT OR Apache-2.0
//! Options of `npu-probe calibrate`.

use std::path::PathBuf;

use clap::Args;

use super::common::{DeviceFlags, ReportFlags};

/// The word for all facts.
const ALL: &str = "all";

/// Options of `calibrate`.
#[derive(Debug, Args)]
pub(crate) struct CalibrateFlags {
    /// The profile's file [default: rocket-npu/profile.json in the user's configuration]
    #[arg(long, value_name = "FILE", conflicts_with = "facts")]
    pub(crate) out: Option<PathBuf>,

    /// Measure nothing but these contested facts, and write no profile: their names, or
    /// `all`
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    facts: Vec<String>,

    /// Run also what may hang a core
    ///
    /// A job that hangs holds its core for half a second, until the driver
    /// resets it; other users of the NPU wait. Some sources say that a core may
    /// then need a power cycle: be ready to reboot, and save your work.
    #[arg(long)]
    pub(crate) risky: bool,

    /// Show the outcome of each contested fact, not only those that differ from the model
    #[arg(short, long)]
    verbose: bool,

    #[command(flatten)]
    pub(crate) device: DeviceFlags,

    #[command(flatten)]
    pub(crate) report: ReportFlags,
}

impl CalibrateFlags {
    /// Whether all is measured, not facts alone.
    pub(crate) fn is_whole(&self) -> bool {
        self.facts.is_empty()
    }

    /// Whether facts are shown that are as expected: where nothing else was asked for.
    pub(crate) fn shows_all(&self) -> bool {
        self.verbose || !self.is_whole()
    }

    /// Names of the facts; none for all.
    pub(crate) fn facts(&self) -> Vec<String> {
        let named = self.facts.iter().filter(|name| *name != ALL);
        named.cloned().collect()
    }
}
