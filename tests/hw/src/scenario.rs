// SPDX-License-Identifier: MIT OR Apache-2.0
//! Scenarios that need a separate process, as it ends in them.

use std::io;
use std::mem;
use std::os::fd::AsFd;
use std::process::{Command, ExitStatus, Stdio};
use std::time::Duration;

use clap::ValueEnum;
use nix::sys::signal::{Signal, raise};
use rocket_uapi::Device;

use crate::RowContext;
use crate::bench::RowBench;
use crate::busy::{patience, quick};
use crate::check::{Must, NotPassed, RowOutcome};
use crate::raw::File;
use crate::submit::{IDLE_AT_ZERO, JobArgs, SubmitArgs};

/// Number of jobs in the queue of a process that is killed.
const QUEUE: usize = 4;

/// One of them, which the program's option `--scenario` runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Scenario {
    /// Exits as soon as PREP_BO says that the job is over.
    ExitAfterWait,
    /// Exits while a job is on the NPU.
    ExitBusy,
    /// Exits with a buffer object that it exported.
    ExitExported,
    /// DRM_IOCTL_GET_UNIQUE.
    GetUnique,
    /// Is killed with jobs in its queue, whose only object is the dma-buf that is its
    /// standard input.
    DieQueued,
}

impl Scenario {
    /// Runs the scenario in this process, whose end is part of it.
    ///
    /// # Errors
    /// If a step before the end fails.
    pub fn run(self, device: &Device) -> RowOutcome {
        match self {
            Self::ExitAfterWait => {
                let job = quick(device, |job| job)?;
                job.wait(patience()).map(mem::forget)?;
            }
            Self::ExitBusy => {
                let bench = RowBench::new(File::new(device))?;
                let page = bench.page()?.handle;
                bench.submit(bench.job(page))?;
                // Gives the scheduler a moment to hand the job over.
                std::thread::sleep(Duration::from_millis(20));
            }
            Self::ExitExported => {
                let file = File::new(device);
                let bo = file.create(1).must("CREATE_BO")?;
                mem::forget(file.export(bo.handle).must("export")?);
            }
            Self::GetUnique => {
                let file = File::new(device);
                // The result does not matter.
                let _ = file.get_unique();
            }
            Self::DieQueued => {
                let file = File::new(device);
                let import = file.import(io::stdin().as_fd()).must("import")?;
                let jobs = vec![JobArgs::of(IDLE_AT_ZERO, import); QUEUE];
                SubmitArgs::of(jobs).submit(&file).must("SUBMIT")?;
                raise(Signal::SIGKILL).must("SIGKILL")?;
            }
        }
        Ok(())
    }

    /// Runs the scenario in a separate process, and returns how that ended.
    pub(crate) fn spawn(self, context: &RowContext, input: Stdio) -> Result<ExitStatus, NotPassed> {
        let program = std::env::current_exe().must("the path of this program")?;
        let mut command = Command::new(program);
        command.args(["--device", &context.info.name, "--scenario"]);
        command.args(
            self.to_possible_value()
                .map(|value| value.get_name().to_owned()),
        );
        command.stdin(input).stdout(Stdio::null());
        command.status().must("a process")
    }
}
