// SPDX-License-Identifier: MIT OR Apache-2.0
//! An open file of the device node: handles, address space, queue.

use std::sync::{Arc, Mutex};

use rustix::event::PollFlags;
use rustix::io::Errno;

use super::fence::{Fence, FenceState};
use super::gem::{HandleTable, MmapOffsets, Object};
use super::iommu::AddressSpace;
use super::mmap::Mapping;
use super::resv::Usage;
use super::sched::EntityId;
use super::shared_file;
use super::{Device, lock};

/// One open file. Closing is dropping.
///
/// Closing waits until the file's queue is empty, that is until its jobs
/// were handed to a core; the one in flight goes on and its writes land.
/// Mappings keep their objects.
#[derive(Debug)]
pub struct DrmFile {
    pub(super) device: Arc<Device>,
    pub(super) space: Arc<AddressSpace>,
    pub(super) handles: Mutex<HandleTable>,
    pub(super) entity: EntityId,
}

/// The unfinished jobs that wrote a buffer object at one moment: what a
/// sync_file exported from its dma-buf stands for.
#[derive(Clone, Debug)]
pub struct WriteFence {
    fences: Vec<Arc<Fence>>,
}

impl WriteFence {
    /// Active while any of the jobs is unfinished, then failed if any was
    /// killed. Signalled from the start if there was no such job.
    #[must_use]
    pub fn state(&self) -> FenceState {
        let states = self.fences.iter().map(|fence| fence.state());
        states.fold(FenceState::Signaled, |all, one| match (all, one) {
            (FenceState::Active, _) | (_, FenceState::Active) => FenceState::Active,
            (FenceState::Failed(errno), _) | (_, FenceState::Failed(errno)) => {
                FenceState::Failed(errno)
            }
            (FenceState::Signaled, FenceState::Signaled) => FenceState::Signaled,
        })
    }
}

impl DrmFile {
    pub(super) fn new(device: Arc<Device>) -> Self {
        let entity = device.scheduler.add_entity();
        Self {
            device,
            space: Arc::new(AddressSpace::new()),
            handles: Mutex::default(),
            entity,
        }
    }

    pub(super) fn offsets(&self) -> &Arc<MmapOffsets> {
        &self.device.offsets
    }

    pub(super) fn lookup(&self, handle: u32) -> Option<Arc<Object>> {
        lock(&self.handles).get(handle).cloned()
    }

    pub(super) fn has_handle(&self, object: &Arc<Object>) -> bool {
        lock(&self.handles).find(object).is_some()
    }

    /// poll without waiting: the events that are there. A device without
    /// mode setting never has any.
    #[must_use]
    pub fn poll(&self) -> PollFlags {
        PollFlags::empty()
    }

    /// A read with `O_NONBLOCK`: of DRM events, of which there are none.
    ///
    /// # Errors
    /// `EAGAIN`, always.
    pub fn read_nonblocking(&self, _buffer: &mut [u8]) -> Result<usize, Errno> {
        Err(Errno::AGAIN)
    }

    /// How many handles are in use.
    #[must_use]
    pub fn handles_in_use(&self) -> usize {
        lock(&self.handles).len()
    }

    /// Another open file of the same device.
    #[must_use]
    pub fn reopen(&self) -> Self {
        Self::new(Arc::clone(&self.device))
    }

    /// The pages of a buffer object, mapped whole, readable and writable.
    ///
    /// # Errors
    /// `ENOENT` for an unknown handle.
    pub fn map_handle(&self, handle: u32) -> Result<Mapping, Errno> {
        self.lookup(handle).map(Mapping::shared).ok_or(Errno::NOENT)
    }

    /// What a sync_file would hold that is exported now from the dma-buf of
    /// `handle`, for reading: the unfinished jobs that write it.
    ///
    /// # Errors
    /// `ENOENT` for an unknown handle.
    pub fn write_fence(&self, handle: u32) -> Result<WriteFence, Errno> {
        let object = self.lookup(handle).ok_or(Errno::NOENT)?;
        Ok(WriteFence {
            fences: object.reservation().export(Usage::in_the_way_of(false)),
        })
    }
}

impl Drop for DrmFile {
    fn drop(&mut self) {
        self.device.scheduler.remove_entity(self.entity);
        let objects = lock(&self.handles).drain();
        drop(objects);
        shared_file::collect();
    }
}
