// SPDX-License-Identifier: MIT OR Apache-2.0
//! Options of `npu-probe calibrate`.

use std::path::PathBuf;

use clap::Args;

use super::common::{DeviceFlags, ReportFlags};

/// The name that stands for all facts.
const ALL: &str = "all";

/// Options of `calibrate`.
#[derive(Debug, Args)]
pub(crate) struct CalibrateFlags {
    /// Write the profile to this file [default: rocket-npu/profile.json in the user's
    /// configuration]
    #[arg(long, value_name = "FILE", conflicts_with = "facts")]
    pub(crate) out: Option<PathBuf>,

    /// Check only these contested facts, by name or `all`, and write no profile
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    facts: Vec<String>,

    /// Also run experiments that may hang a core
    ///
    /// A hung job blocks its core for half a second, until the driver resets it. Other users
    /// of the NPU wait. Some sources say that a core may then need a power cycle: save your
    /// work, and be ready to reboot.
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
    /// Whether everything is measured, not only facts.
    pub(crate) fn is_whole(&self) -> bool {
        self.facts.is_empty()
    }

    /// Whether facts that match the model are shown too.
    pub(crate) fn shows_all(&self) -> bool {
        self.verbose || !self.is_whole()
    }

    /// Names of the facts to check; empty for all.
    pub(crate) fn facts(&self) -> Vec<String> {
        let named = self.facts.iter().filter(|name| *name != ALL);
        named.cloned().collect()
    }
}
