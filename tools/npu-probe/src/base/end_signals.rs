// SPDX-License-Identifier: MIT OR Apache-2.0
//! The signals that ask this process to end, so that it can clean up.

use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};

use crate::base::exit::Failure;

/// Offset of exit codes for programs that a signal ended, as in shells.
pub(crate) const SIGNAL_CODE: i32 = 128;

/// Blocked signals, which are read instead.
pub(crate) struct EndSignals {
    pub(crate) set: SigSet,
    pending: SignalFd,
}

impl EndSignals {
    /// Blocks them. Call this on the thread that starts all others.
    pub(crate) fn block() -> Result<Self, Failure> {
        let set: SigSet = [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP]
            .into_iter()
            .collect();
        let pending = set.thread_block().and_then(|()| {
            SignalFd::with_flags(&set, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)
        });
        let pending = pending.map_err(Failure::device("cannot wait for signals"))?;
        Ok(Self { set, pending })
    }

    /// Whether one of them has arrived since the last call.
    pub(crate) fn arrived(&self) -> bool {
        matches!(self.pending.read_signal(), Ok(Some(_)))
    }
}
