// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs programs, each with a time limit.

use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

use crate::base::end_signals::{EndSignals, SIGNAL_CODE};
use crate::base::exit::Failure;

/// Interval between checks of a running program.
const POLL: Duration = Duration::from_millis(20);
/// How long to wait for a killed program; one in a call to a driver may never end.
const GRACE: Duration = Duration::from_secs(10);

/// Runs programs in separate process groups, so that it can kill all their processes.
/// Kills them if a signal ends this program.
pub(crate) struct ChildRunner(EndSignals);

impl ChildRunner {
    pub(crate) fn new() -> Result<Self, Failure> {
        EndSignals::block().map(Self)
    }

    /// Runs a program and returns its exit code; `None` if it was killed after
    /// `limit`.
    pub(crate) fn run(
        &self,
        mut command: Command,
        limit: Duration,
    ) -> Result<Option<i32>, Failure> {
        let end = Instant::now() + limit;
        // The program starts with its signals unblocked.
        let unblocked = self.0.set.thread_unblock();
        let child = command.stdin(Stdio::null()).process_group(0).spawn();
        let blocked = self.0.set.thread_block();
        unblocked.and(blocked).map_err(Failure::device("signals"))?;
        let mut child = child
            .with_context(|| format!("cannot run {}", command.get_program().display()))
            .map_err(Failure::NotExecutable)?;
        loop {
            if let Some(status) = ended(&mut child)? {
                // Kills processes that the program left behind.
                kill(&child);
                let signal_code = status.signal().map(|signal| SIGNAL_CODE + signal);
                return Ok(Some(status.code().or(signal_code).unwrap_or(1)));
            }
            let told = self.0.arrived();
            if told || Instant::now() >= end {
                kill(&child);
                let gone = Instant::now() + GRACE;
                while ended(&mut child)?.is_none() && Instant::now() < gone {
                    thread::sleep(POLL);
                }
                if told {
                    return Err(Failure::Device(anyhow!(
                        "stopped by a signal; run the same command to continue"
                    )));
                }
                return Ok(None);
            }
            thread::sleep(POLL);
        }
    }
}

fn ended(child: &mut Child) -> Result<Option<ExitStatus>, Failure> {
    child
        .try_wait()
        .map_err(Failure::device("cannot wait for a program"))
}

fn kill(child: &Child) {
    // The id fits, since it was a process id. A group that is gone is not an error.
    let _ = killpg(Pid::from_raw(child.id().cast_signed()), Signal::SIGKILL);
}
