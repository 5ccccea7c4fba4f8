// SPDX-License-Identifier: MIT OR Apache-2.0
//! GEM handles that are closed on drop. `handle_use.rs` counts their users.

use std::os::fd::BorrowedFd;

use crate::device::Device;
use crate::error::Error;
use crate::units::Handle;

fn close(device: &Device, handle: Handle) {
    if let Err(error) = device.file().close_bo(handle) {
        tracing::warn!(%handle, %error, "cannot close a buffer object");
    }
}

/// The handle of a buffer object that this file made. Dropping it closes it.
#[derive(Debug)]
pub(crate) struct GemHandle {
    handle: Handle,
    device: Device,
    /// Whether to leave the handle open on drop.
    is_kept: bool,
}

impl GemHandle {
    pub(crate) fn new(device: &Device, handle: Handle) -> Self {
        device.handles().own.insert(handle);
        Self {
            handle,
            device: device.clone(),
            is_kept: false,
        }
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
        let mut uses = self.device.handles();
        close(&self.device, self.handle);
        uses.own.remove(&self.handle);
    }
}

/// One use of the handle of an imported dma-buf. Dropping the last use closes the handle.
#[derive(Debug)]
pub(crate) struct ImportedHandle {
    handle: Handle,
    device: Device,
}

impl ImportedHandle {
    /// PRIME_FD_TO_HANDLE.
    pub(crate) fn import(device: &Device, dma_buf: BorrowedFd<'_>) -> Result<Self, Error> {
        let mut uses = device.handles();
        let handle = device.file().import_bo(dma_buf)?;
        if uses.own.contains(&handle) {
            return Err(Error::OwnBuffer { handle });
        }
        *uses.imported.entry(handle).or_default() += 1;
        drop(uses);
        Ok(Self {
            handle,
            device: device.clone(),
        })
    }

    pub(crate) fn get(&self) -> Handle {
        self.handle
    }
}

impl Drop for ImportedHandle {
    fn drop(&mut self) {
        let mut uses = self.device.handles();
        let Some(count) = uses.imported.get_mut(&self.handle) else {
            return;
        };
        *count -= 1;
        if *count == 0 {
            close(&self.device, self.handle);
            uses.imported.remove(&self.handle);
        }
    }
}
