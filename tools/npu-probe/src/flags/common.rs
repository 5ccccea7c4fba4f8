// SPDX-License-Identifier: MIT OR Apache-2.0
//! Options that several commands have.

use std::path::PathBuf;

use clap::Args;
use npu_model::Selector;
use serde::Serialize;

use crate::exit::Failure;
use crate::output;

/// Of commands that work on a device, or for the board that it is in.
#[derive(Clone, Debug, Args)]
pub(crate) struct DeviceFlags {
    /// Device to use: a path, `model`, or `auto`
    ///
    /// `auto` takes a device of the kernel's rocket driver if it can be used,
    /// else the software model. A path, such as /dev/accel/accel0, demands that
    /// device: without it the exit code is 3. Where this option is not given,
    /// the environment variable ROCKET_DEVICE is asked, then `auto` is taken.
    #[arg(long, value_name = "PATH|model|auto")]
    device: Option<Selector>,
}

impl DeviceFlags {
    /// The device to use; asks the environment if the command line says
    /// nothing.
    pub(crate) fn selector(&self) -> Selector {
        self.device.clone().unwrap_or_else(Selector::from_env)
    }
}

/// Of commands that report what they found.
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
        match self.json {
            true => output::print_json(report),
            false => output::print(&text()),
        }
    }

    /// Prints what people see of a run as it goes on, unless JSON is to come at its
    /// end.
    pub(crate) fn say(self, text: &str) -> Result<(), Failure> {
        match self.json {
            true => Ok(()),
            false => output::print(text),
        }
    }
}

/// Files that tell of a run.
#[derive(Clone, Debug, Args)]
pub(crate) struct RunFiles {
    /// Write when each engine of the NPU would have worked into this file
    ///
    /// By modelled time, so only on the software model. The format is Chrome's
    /// trace event JSON: open the file at ui.perfetto.dev.
    #[arg(long, value_name = "FILE")]
    pub(crate) trace: Option<PathBuf>,

    /// Record all jobs, with all that they touch, into this file
    ///
    /// For `replay`, `decode` and `diff`, here or elsewhere. SUBMIT then returns
    /// when its jobs have ended, and no two jobs run at the same time.
    #[arg(long, value_name = "FILE")]
    pub(crate) record: Option<PathBuf>,
}
