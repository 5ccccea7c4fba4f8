// SPDX-License-Identifier: MIT OR Apache-2.0
//! Open files of a server, whose ioctls a test handles.

use std::fmt;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use npu_server::OpenFile;
use rocket_uapi::{Caller, Errno, FileLayer, MapRequest};

/// Handles an ioctl, perhaps with the file below.
type Hook = dyn Fn(&dyn OpenFile, u32, &mut [u8], &dyn Caller) -> Result<i32, Errno> + Send + Sync;

/// An open file whose ioctls go through a hook.
struct Hooked {
    below: Box<dyn OpenFile>,
    hook: Arc<Hook>,
}

impl fmt::Debug for Hooked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hooked").finish_non_exhaustive()
    }
}

/// Puts `hook` in front of a server's files: each ioctl goes through it.
pub fn hooked(
    hook: impl Fn(&dyn OpenFile, u32, &mut [u8], &dyn Caller) -> Result<i32, Errno>
    + Send
    + Sync
    + 'static,
) -> impl Fn(Box<dyn OpenFile>) -> Box<dyn OpenFile> + Send + Sync {
    let hook: Arc<Hook> = Arc::new(hook);
    move |below| {
        let hook = Arc::clone(&hook);
        Box::new(Hooked { below, hook })
    }
}

// SAFETY: handles, memory and jobs are those of the file below.
unsafe impl FileLayer for Hooked {
    type Below = dyn OpenFile;

    fn below(&self) -> &(dyn OpenFile + 'static) {
        &*self.below
    }

    unsafe fn ioctl(
        &self,
        request: u32,
        arg: &mut [u8],
        caller: &dyn Caller,
    ) -> Result<i32, Errno> {
        (self.hook)(&*self.below, request, arg, caller)
    }
}

impl OpenFile for Hooked {
    fn client_map(&self, request: &MapRequest) -> Result<(OwnedFd, u64), Errno> {
        self.below.client_map(request)
    }

    fn bo_bytes(&self, handle: u32) -> Option<u64> {
        self.below.bo_bytes(handle)
    }

    fn is_mapped(&self) -> bool {
        self.below.is_mapped()
    }

    fn close(self: Box<Self>, is_ending: &dyn Fn() -> bool, died: &dyn Fn()) {
        self.below.close(is_ending, died);
    }
}
