// SPDX-License-Identifier: MIT OR Apache-2.0
//! Buffer objects of one device that are used again from call to call.
//!
//! A new buffer costs a system call, zeroed pages and mappings for both the
//! CPU and the NPU. A caller that multiplies the same shapes again, as every
//! layer of a language model does, gets the buffers of the call before. They
//! fit exactly, because PREP_BO and FINI_BO maintain the caches of a whole
//! buffer, however little of it is used.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use rocket_uapi::{Bo, ByteLen, Device, Error};

/// Bytes that a device keeps for later. Beyond it, those unused for longest
/// are given back to the kernel.
pub(crate) const IDLE_BYTES_MAX: usize = 256 << 20;

/// A device and its buffers.
pub(crate) struct Buffers {
    device: Device,
    is_model: bool,
    idle: Mutex<VecDeque<Bo>>,
}

impl Buffers {
    pub(crate) fn new(device: Device) -> Self {
        Self {
            is_model: device.info().is_model,
            device,
            idle: Mutex::default(),
        }
    }

    pub(crate) fn device(&self) -> &Device {
        &self.device
    }

    /// Whether it is software.
    pub(crate) fn is_model(&self) -> bool {
        self.is_model
    }

    /// A buffer of `bytes` bytes, rounded to pages, with any content. Whoever
    /// drops it instead of putting it back gives it to the kernel: nothing is
    /// lost on error paths.
    pub(crate) fn take(&self, bytes: usize) -> Result<Bo, Error> {
        let len = ByteLen::new(bytes)?;
        let wanted = len.page_rounded().get();
        let found = {
            let mut idle = self.idle();
            // The one at the lowest address: the same sequence of products
            // gets the same buffers in the same roles each time, and with them
            // finds its programs again.
            let fitting = idle.iter().enumerate().filter(|(_, bo)| bo.len() == wanted);
            let lowest = fitting.min_by_key(|(_, bo)| bo.iova().0).map(|(at, _)| at);
            lowest.and_then(|at| idle.remove(at))
        };
        match found {
            Some(bo) => Ok(bo),
            None => self.alloc(len),
        }
    }

    /// A new buffer; if there is no memory or no address left, once more
    /// without those that are kept for later.
    pub(crate) fn alloc(&self, len: ByteLen) -> Result<Bo, Error> {
        match self.device.alloc(len) {
            Err(error @ Error::OutOfMemory { .. }) => {
                let idle = std::mem::take(&mut *self.idle());
                if idle.is_empty() {
                    return Err(error);
                }
                drop(idle);
                self.device.alloc(len)
            }
            other => other,
        }
    }

    /// Keeps a buffer for later.
    pub(crate) fn put(&self, bo: Bo) {
        let mut evicted = Vec::new();
        {
            let mut idle = self.idle();
            idle.push_back(bo);
            let mut bytes: usize = idle.iter().map(Bo::len).sum();
            while bytes > IDLE_BYTES_MAX {
                let Some(oldest) = idle.pop_front() else {
                    break;
                };
                bytes -= oldest.len();
                evicted.push(oldest);
            }
        }
        // Freed outside the lock.
        drop(evicted);
    }

    fn idle(&self) -> MutexGuard<'_, VecDeque<Bo>> {
        // Every critical section leaves the queue whole, panic or not.
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
