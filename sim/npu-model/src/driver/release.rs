// SPDX-License-Identifier: MIT OR Apache-2.0
//! The end of an open file: what closing waits for, what it drops, and what
//! is still alive behind it.
//!
//! The kernel releases a file when its last descriptor *and* its last mapping
//! are gone. It closes the handles first, then waits for the queue, then frees
//! what belongs to the file (drm_file_free, rocket_postclose).

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use super::gem::HandleTable;
use super::iommu::AddressSpace;
use super::sched::EntityId;
use super::{Device, lock, shared_file};

/// What descriptor and mappings of one open file share. Dropping the last of
/// them releases the file.
#[derive(Debug)]
pub(super) struct FileState {
    pub(super) device: Arc<Device>,
    pub(super) space: Arc<AddressSpace>,
    pub(super) handles: Mutex<HandleTable>,
    pub(super) entity: EntityId,
    /// Whether root opened it.
    pub(super) privileged: bool,
    /// Byte of the locks on what other processes map by it.
    pub(super) map_lock: i64,
    /// Whether its descriptor is closed.
    pub(super) closed: AtomicBool,
    /// Whether it was released ahead of its end.
    pub(super) released: bool,
    /// Whether its client does not wait before closing, because it knows that
    /// this is the model.
    pub(super) need_not_settle: AtomicBool,
}

impl FileState {
    /// Whether its descriptor is closed.
    pub(super) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// What the kernel does behind the last descriptor and mapping; see
    /// [`DrmFile::close`](super::DrmFile::close).
    pub(super) fn release(&mut self, is_ending: &dyn Fn() -> bool) -> usize {
        self.released = true;
        let life = &self.space.life;
        // Before the handles go.
        let is_ending = || {
            let ending = is_ending();
            life.note_death(ending);
            ending
        };
        let exiting = is_ending();
        let Device {
            options,
            health,
            names,
            scheduler,
            ..
        } = &*self.device;
        let (objects, dangling) = {
            let mut handles = lock(&self.handles);
            let dangling = handles.has_dangling();
            (handles.drain(), dangling)
        };
        if dangling {
            health.closed_with_dangling_handle();
        }
        // A dma-buf in the file's own cache goes after the file.
        let cached = objects
            .iter()
            .any(|object| object.was_exported() && Arc::ptr_eq(object.space(), &self.space));
        for object in objects {
            names.handle_closed(&object);
        }
        let died_with = scheduler.remove_entity(self.entity, exiting, &is_ending);
        shared_file::collect();
        if cached {
            health.closed_with_export();
        }
        let delay = options.profile.free_delay;
        let patient = self.need_not_settle.load(Ordering::Acquire);
        if !patient && self.space.life.job_ended_within(delay) {
            health.closed_after_job(delay);
        }
        self.space.life.end();
        died_with
    }
}

impl Drop for FileState {
    fn drop(&mut self) {
        if !self.released {
            self.release(&|| false);
        }
    }
}
