// SPDX-License-Identifier: MIT OR Apache-2.0
//! Checks whether a process is ending.

use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::process::{Pid, PidfdFlags};

/// `PF_EXITING` of the kernel's task flags (Linux, include/linux/sched.h).
const PF_EXITING: u64 = 0x4;

/// Position of the flags in /proc/PID/stat, counted from the state, which
/// follows the name in parentheses (proc_pid_stat(5)).
const FLAGS_FIELD: usize = 6;

/// Whether a process is ending, or gone.
pub(crate) fn is_dying(pid: u32) -> bool {
    match std::fs::read_to_string(format!("/proc/{pid}/stat")) {
        Ok(stat) => flags(&stat).is_some_and(|flags| flags & PF_EXITING != 0),
        Err(error) => error.kind() == std::io::ErrorKind::NotFound,
    }
}

/// A handle of a process; `None` if it is gone, or the kernel has none.
pub(crate) fn handle(pid: u32) -> Option<OwnedFd> {
    let pid = Pid::from_raw(i32::try_from(pid).ok()?)?;
    rustix::process::pidfd_open(pid, PidfdFlags::empty()).ok()
}

/// Waits for the end of a process, at most `at_most`. Returns whether it has
/// ended.
pub(crate) fn wait_for_end(process: &OwnedFd, at_most: Duration) -> bool {
    let mut fds = [PollFd::new(process, PollFlags::IN)];
    let at_most = Timespec::try_from(at_most).ok();
    // A signal ends the wait early, which does no harm.
    rustix::event::poll(&mut fds, at_most.as_ref()).is_ok_and(|ready| ready > 0)
}

fn flags(stat: &str) -> Option<u64> {
    // The name may contain anything, also parentheses and blanks.
    let (_, rest) = stat.rsplit_once(')')?;
    rest.split_whitespace().nth(FLAGS_FIELD)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_does_not_matter() {
        let stat = "7 (a) b (c)) Z 1 2 3 4 5 4228 0 0";
        assert_eq!(flags(stat), Some(4228));
        assert_eq!(flags("7 (a"), None);
    }

    #[test]
    fn a_child_dies_and_we_do_not() {
        assert!(!is_dying(std::process::id()));
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let id = child.id();
        // Nobody has waited for it yet, so it becomes a zombie.
        while !is_dying(id) {
            std::thread::yield_now();
        }
        child.wait().unwrap();
        assert!(is_dying(id));
    }
}
