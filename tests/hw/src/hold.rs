// SPDX-License-Identifier: MIT OR Apache-2.0
//! A fence that a row signals itself. Jobs that wait for it are held until the row
//! releases them, however fast or busy the machine is.
//!
//! The kernel offers such fences to root in a file of debugfs, if it was built with
//! CONFIG_SW_SYNC; the model always does.

use std::fs::OpenOptions;
use std::os::fd::{AsFd, OwnedFd};

use npu_model::driver::SharedFile;
use rocket_uapi::{BufferAccess, ByteLen, Device, DmaBuf, PAGE_BYTES, sys};

use crate::check::{Must, NotPassed, RowOutcome};
use crate::raw::File;

/// The kernel's file for such fences.
const SW_SYNC: &str = "/sys/kernel/debug/sync/sw_sync";

/// Holds the jobs that read its buffer.
#[derive(Debug)]
pub(crate) struct Hold {
    file: File,
    // Closed before the buffer, which releases jobs that still wait.
    timeline: OwnedFd,
    /// The buffer that held jobs list as an input. No program reads it.
    pub(crate) gate: DmaBuf,
}

/// A page with a dma-buf.
pub(crate) fn exported_page(device: &Device) -> Result<DmaBuf, NotPassed> {
    let page = device.alloc(ByteLen::new(PAGE_BYTES).must("a length")?)?;
    page.export().map_err(|(error, _)| error.into())
}

/// A timeline for this row, if the device's kernel offers one.
fn timeline(device: &Device) -> Result<Option<OwnedFd>, NotPassed> {
    if device.info().is_model {
        return Ok(Some(SharedFile::open_sw_sync().must("a timeline")?));
    }
    let opened = OpenOptions::new().read(true).write(true).open(SW_SYNC);
    Ok(opened.ok().map(OwnedFd::from))
}

pub(crate) fn is_possible(device: &Device) -> bool {
    matches!(timeline(device), Ok(Some(_)))
}

/// The outcome of rows that only held jobs can prove anything for: a long job may be over
/// before the row has seen it.
fn impossible() -> NotPassed {
    NotPassed::Skip("no job can be held".to_owned())
}

/// Skips the row where no job can be held.
pub(crate) fn check_possible(device: &Device) -> RowOutcome {
    if is_possible(device) {
        Ok(())
    } else {
        Err(impossible())
    }
}

impl Hold {
    /// `None` where the kernel has no such fences.
    pub(crate) fn new(device: &Device) -> Result<Option<Self>, NotPassed> {
        let Some(timeline) = timeline(device)? else {
            return Ok(None);
        };
        let file = File::new(device);
        let fence = file.timeline_fence(timeline.as_fd(), 1);
        let fence = device.adopt_sync_file(fence.must("SW_SYNC_IOC_CREATE_FENCE")?);
        let gate = exported_page(device)?;
        gate.add_fence(BufferAccess::Write, &fence)?;
        Ok(Some(Self {
            file,
            timeline,
            gate,
        }))
    }

    /// Skips the row where the kernel has none.
    pub(crate) fn required(device: &Device) -> Result<Self, NotPassed> {
        Self::new(device)?.ok_or_else(impossible)
    }

    pub(crate) fn handle(&self) -> u32 {
        self.gate.handle().into()
    }

    pub(crate) fn release(&self) -> Result<(), NotPassed> {
        let timeline = self.timeline.as_fd();
        let advanced = self.file.call_on(timeline, sys::SW_SYNC_INC, &mut 1_u32);
        advanced.must("SW_SYNC_IOC_INC")
    }
}
