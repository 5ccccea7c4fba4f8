// SPDX-License-Identifier: MIT OR Apache-2.0
//! A child process with all files and mappings of its parent.

use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{ForkResult, fork};

use crate::check::{Must, NotPassed};
use crate::raw::File;

/// What the child does before it ends.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Child {
    Nothing,
    /// Waits for a buffer object and closes its handle, which is the parent's too.
    Close(u32),
    /// Triggers the known bug `get-unique`, which kills the child.
    GetUnique,
}

/// Forks, waits for the child, and returns how it ended.
pub(crate) fn run(file: &File, child: Child) -> Result<WaitStatus, NotPassed> {
    // SAFETY: the child makes system calls and ends; it neither allocates nor takes
    // a lock. (The model takes locks: there the child does nothing.)
    match unsafe { fork() }.must("fork")? {
        ForkResult::Parent { child } => waitpid(child, None).must("waitpid"),
        ForkResult::Child => {
            match child {
                Child::Nothing => {}
                Child::Close(handle) => {
                    let _ = file.prep(handle, 0);
                    let _ = file.close(handle);
                }
                Child::GetUnique => {
                    let _ = file.get_unique();
                }
            }
            // SAFETY: ends the process without running any code of the parent.
            unsafe { nix::libc::_exit(0) }
        }
    }
}
