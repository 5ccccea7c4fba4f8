// SPDX-License-Identifier: MIT OR Apache-2.0
//! Options that several commands share.

use std::path::PathBuf;

use clap::Args;
use rocket_uapi::Selector;
use serde::Serialize;

use crate::base::exit::Failure;
use crate::base::output;

/// Options of commands that use a device, or the profile of its board.
#[derive(Clone, Debug, Args)]
pub(crate) struct DeviceFlags {
    /// Device to use: a path, `model`, or `auto`
    ///
    /// `auto` uses a device of the kernel's rocket driver if one is usable, else the software
    /// model. A path, such as /dev/accel/accel0, requires that device: the exit code is 3 if
    /// it is not usable. Without this option, the environment variable ROCKET_DEVICE applies,
    /// then `auto`.
    #[arg(long, value_name = "DEVICE")]
    device: Option<Selector>,
}

impl DeviceFlags {
    /// The device of the command line.
    pub(crate) fn named(&self) -> Option<Selector> {
        self.device.clone()
    }

    /// The device to use, from the command line or else the environment.
    pub(crate) fn selector(&self) -> Selector {
        self.device.clone().unwrap_or_else(Selector::from_env)
    }
}

/// Options of commands that print a report.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct ReportFlags {
    /// Print one JSON object instead of text
    #[arg(long)]
    pub(crate) json: bool,
}

impl ReportFlags {
    /// Prints a report, as JSON or as its text.
    pub(crate) fn print(
        self,
        report: &impl Serialize,
        text: impl FnOnce() -> String,
    ) -> Result<(), Failure> {
        output::print(&self.render(report, text)?)
    }

    /// A report, as JSON or as its text.
    pub(crate) fn render(
        self,
        report: &impl Serialize,
        text: impl FnOnce() -> String,
    ) -> Result<String, Failure> {
        if self.json {
            output::json(report)
        } else {
            Ok(text())
        }
    }

    /// Prints text during a run, unless the run ends with JSON.
    pub(crate) fn say(self, text: &str) -> Result<(), Failure> {
        if self.json {
            Ok(())
        } else {
            output::print(text)
        }
    }
}

/// Files that record a run.
#[derive(Clone, Debug, Args)]
pub(crate) struct RunFiles {
    /// Write a timeline of the NPU's engines to this file
    ///
    /// Times are modelled, so this needs the software model. The format is Chrome's trace
    /// event JSON: open the file at ui.perfetto.dev.
    #[arg(long, value_name = "FILE")]
    pub(crate) trace: Option<PathBuf>,

    /// Record all jobs, with all memory that they access, to this file
    ///
    /// `replay` and `decode` read it, on any machine. During the recording SUBMIT
    /// returns after its jobs have ended, and jobs run one at a time.
    #[arg(long, value_name = "FILE")]
    pub(crate) record: Option<PathBuf>,
}
