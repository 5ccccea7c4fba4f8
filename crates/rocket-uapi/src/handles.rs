// SPDX-License-Identifier: MIT OR Apache-2.0
//! GEM handles that are closed on drop.
//!
//! If a file already has a handle of a dma-buf, PRIME import returns that handle without a
//! second reference, so one close closes it for all users. Therefore the file counts the
//! uses of handles, and closes and forgets a handle in one step. Otherwise a number could
//! be closed under a live buffer and given to another.

use std::os::fd::BorrowedFd;

use crate::Errno;
use crate::calls::import;
use crate::device::Device;
use crate::error::Error;
use crate::units::{self, Handle};

/// The handle of a buffer object that this file made, or one use of the handle of an
/// imported dma-buf. Dropping it closes the handle, unless it is used elsewhere.
#[derive(Debug)]
pub(crate) struct GemHandle {
    handle: Handle,
    device: Device,
    /// Whether to leave the handle open on drop.
    is_kept: bool,
}

impl GemHandle {
    /// The handle of a buffer object that this file made.
    pub(crate) fn new(device: &Device, handle: Handle) -> Self {
        device.handles().own.insert(handle);
        Self {
            handle,
            device: device.clone(),
            is_kept: false,
        }
    }

    /// PRIME_FD_TO_HANDLE.
    pub(crate) fn import(device: &Device, dma_buf: BorrowedFd<'_>) -> Result<Self, Error> {
        let refused = |errno| Error::of("PRIME_FD_TO_HANDLE", None, errno);
        let mut handles = device.handles();
        let handle = import(device.file(), dma_buf).map_err(refused)?;
        let handle = units::handle(handle).ok_or_else(|| refused(Errno::BADMSG))?;
        if handles.own.contains(&handle) {
            return Err(Error::OwnBuffer(handle));
        }
        *handles.imported.entry(handle).or_default() += 1;
        drop(handles);
        Ok(Self {
            handle,
            device: device.clone(),
            is_kept: false,
        })
    }

    pub(crate) fn get(&self) -> Handle {
        self.handle
    }

    /// Returns the number without closing the handle; the caller must close it.
    pub(crate) fn keep(mut self) -> Handle {
        self.is_kept = true;
        self.handle
    }

    pub(crate) fn device(&self) -> &Device {
        &self.device
    }
}

impl Drop for GemHandle {
    fn drop(&mut self) {
        if self.is_kept {
            return;
        }
        let mut handles = self.device.handles();
        if let Some(uses) = handles.imported.get_mut(&self.handle) {
            *uses -= 1;
            if *uses > 0 {
                return;
            }
        }
        self.device.close(self.handle);
        handles.own.remove(&self.handle);
        handles.imported.remove(&self.handle);
    }
}
