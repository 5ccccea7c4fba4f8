// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reuse of a device's buffer objects from call to call.
//!
//! A new buffer costs a system call, zeroed pages, and mappings for the CPU and the NPU. Callers
//! mostly multiply the same shapes again, as every layer of a language model does, and then get the
//! buffers of the previous call. Sizes match exactly: PREP_BO and FINI_BO maintain the caches of a
//! whole buffer, even if little of it is used.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use rknpu_regcmd::LinkedProgram;
use rocket_uapi::{Bo, ByteLen, Device, Error, PAGE_BYTES, ProgramBo};

use crate::arena::WeightArena;
use crate::prepared::{IDLE_PROGRAMS, IdleLimits, JobPrograms, ProgramCache, ProgramsKey};
use crate::profile::Choices;
use crate::sync::lock;

/// Bytes that a device keeps for reuse. Beyond this, the least recently used buffers are freed.
pub(crate) const IDLE_BYTES_MAX: usize = 256 << 20;

/// Buffers that a device keeps for reuse: each is a mapping of the process.
pub(crate) const IDLE_BUFFERS_MAX: usize = 512;

const IDLE: IdleLimits = IdleLimits {
    bytes: IDLE_BYTES_MAX,
    buffers: IDLE_BUFFERS_MAX,
};

/// Buffers kept for reuse, oldest first.
#[derive(Default)]
struct IdleBuffers(Mutex<VecDeque<Bo>>);

/// A device with its buffers.
pub(crate) struct Buffers {
    pub(crate) device: Device,
    /// Whether the device is the software model.
    pub(crate) is_model: bool,
    /// Bytes behind the data that the NPU reads; see [`Choices::slack_bytes`].
    slack_bytes: usize,
    /// The page at address 0 of the open file; see [`Choices::guard_page`].
    _guard: Option<Bo>,
    /// The resident weights.
    pub(crate) weights: WeightArena,
    programs: ProgramCache,
    idle: IdleBuffers,
    idle_programs: IdleBuffers,
}

impl Buffers {
    /// Creates the buffers of one of `devices` devices.
    ///
    /// # Errors
    /// No memory for the guard page.
    pub(crate) fn new(device: Device, devices: usize, choices: &Choices) -> Result<Self, Error> {
        let page = ByteLen::new(PAGE_BYTES)?;
        let guard = choices.guard_page.value.then(|| device.alloc(page));
        Ok(Self {
            is_model: device.info().is_model,
            slack_bytes: choices.slack_bytes.value,
            _guard: guard.transpose()?,
            device,
            weights: WeightArena::default(),
            programs: ProgramCache::new(devices),
            idle: IdleBuffers::default(),
            idle_programs: IdleBuffers::default(),
        })
    }

    /// Returns a buffer of `bytes` bytes, rounded up to pages, with arbitrary contents. Put it back
    /// with [`Buffers::put`]; a dropped buffer is freed, so error paths lose nothing.
    pub(crate) fn take(&self, bytes: usize) -> Result<Bo, Error> {
        self.take_of(&self.idle, bytes)
    }

    fn take_of(&self, idle: &IdleBuffers, bytes: usize) -> Result<Bo, Error> {
        let len = ByteLen::new(bytes)?;
        match idle.take(len.page_rounded().get()) {
            Some(bo) => Ok(bo),
            None => self.alloc(len),
        }
    }

    /// As `take`, for an operand that the NPU reads: with slack.
    pub(crate) fn take_operand(&self, bytes: usize) -> Result<Bo, Error> {
        self.take(bytes.saturating_add(self.slack_bytes))
    }

    /// Allocates a new buffer for `bytes` bytes of operands that the NPU reads, with slack.
    pub(crate) fn alloc_operands(&self, bytes: usize) -> Result<Bo, Error> {
        self.alloc(ByteLen::new(bytes.saturating_add(self.slack_bytes))?)
    }

    /// Allocates a new buffer. If memory or addresses run out, it frees all idle buffers and tries
    /// again.
    fn alloc(&self, len: ByteLen) -> Result<Bo, Error> {
        match self.device.alloc(len) {
            Err(error @ Error::OutOfMemory { .. }) => {
                let idle = [&self.idle, &self.idle_programs].map(IdleBuffers::take_all);
                if idle.iter().all(VecDeque::is_empty) {
                    return Err(error);
                }
                drop(idle);
                self.device.alloc(len)
            }
            other => other,
        }
    }

    /// The programs of a job, from the cache or made by `link`, and the bytes written for them.
    pub(crate) fn programs<E>(
        &self,
        key: ProgramsKey,
        link: impl FnOnce() -> Result<Vec<LinkedProgram>, E>,
        failed: impl FnOnce(Error) -> E,
    ) -> Result<(Arc<JobPrograms>, usize), E> {
        let mut written = 0;
        let make = || {
            let linked = link()?;
            let bo = ProgramBo::place(&linked, |bytes| self.take_of(&self.idle_programs, bytes));
            let bo = bo.map_err(failed)?;
            written = bo.bo().len();
            Ok(JobPrograms { linked, bo })
        };
        let recycle = |bo| self.idle_programs.put(bo, &IDLE_PROGRAMS);
        let programs = self.programs.get_or_make(key, make, recycle)?;
        Ok((programs, written))
    }

    /// Keeps a buffer for reuse.
    pub(crate) fn put(&self, bo: Bo) {
        self.idle.put(bo, &IDLE);
    }
}

impl IdleBuffers {
    /// Returns a buffer of exactly this size, the one at the lowest address. So the same sequence
    /// of matmuls gets the same buffers in the same roles each time, and finds its programs in the
    /// cache.
    fn take(&self, bytes: usize) -> Option<Bo> {
        let mut idle = lock(&self.0);
        let fitting = idle.iter().enumerate().filter(|(_, bo)| bo.len() == bytes);
        let lowest = fitting.min_by_key(|(_, bo)| bo.iova().0).map(|(at, _)| at);
        idle.remove(lowest?)
    }

    fn take_all(&self) -> VecDeque<Bo> {
        std::mem::take(&mut *lock(&self.0))
    }

    fn put(&self, bo: Bo, most: &IdleLimits) {
        let mut evicted = Vec::new();
        {
            let mut idle = lock(&self.0);
            idle.push_back(bo);
            let mut bytes: usize = idle.iter().map(Bo::len).sum();
            while bytes > most.bytes || idle.len() > most.buffers {
                let Some(oldest) = idle.pop_front() else {
                    break;
                };
                bytes -= oldest.len();
                evicted.push(oldest);
            }
        }
        // Freed without holding the lock.
        drop(evicted);
    }
}
