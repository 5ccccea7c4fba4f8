// SPDX-License-Identifier: MIT OR Apache-2.0
//! The end of an open file: what closing waits for, what it drops, and what
//! outlives it.
//!
//! The kernel releases a file when its last descriptor *and* its last mapping
//! are gone. It closes the handles first, then waits for the queue, then frees
//! what belongs to the file (drm_file_free, rocket_postclose).

use std::sync::{Arc, Mutex};

use crate::base::bugs::Bug;
use crate::base::lock::lock;
use crate::files::device::DriverState;
use crate::files::shared_file;
use crate::jobs::sched::EntityId;
use crate::objects::gem::HandleTable;
use crate::objects::iommu::AddressSpace;

/// State that the descriptor and the mappings of one open file share. Dropping the
/// last of them releases the file.
#[derive(Debug)]
pub(crate) struct FileState {
    pub(crate) driver: Arc<DriverState>,
    /// Address space, with the file's [`Life`](crate::objects::life::Life). Objects may
    /// outlive the file.
    pub(crate) space: Arc<AddressSpace>,
    pub(crate) handles: Mutex<HandleTable>,
    pub(crate) entity: EntityId,
    /// Byte that is locked in the files for mappings by other processes; see
    /// `client_map`.
    pub(crate) map_lock: i64,
    /// Whether its client has to wait before it closes the file, as on a real
    /// kernel. Clients that know the model need not.
    pub(crate) must_wait_before_close: bool,
}

impl FileState {
    /// Does what the kernel does after the last descriptor and mapping are gone;
    /// see [`DrmFile::close`](crate::driver::DrmFile::close).
    pub(crate) fn release(&self, is_ending: &dyn Fn() -> bool) -> usize {
        let life = &self.space.life;
        // Record a death before the handles are closed.
        let is_ending = || {
            let ending = is_ending();
            life.note_death(ending);
            ending
        };
        let exiting = is_ending();
        let DriverState {
            options,
            health,
            scheduler,
            ..
        } = &*self.driver;
        let (objects, dangling) = {
            let mut handles = lock(&self.handles);
            let dangling = handles.has_dangling();
            (handles.drain(), dangling)
        };
        if dangling {
            let how = "closed a file with a handle that a failed CREATE_BO left";
            health.run_into(Bug::DanglingHandle, how);
        }
        let cached = objects
            .iter()
            .any(|object| object.was_exported() && Arc::ptr_eq(&object.space, &self.space));
        drop(objects);
        let died_with = scheduler.remove_entity(self.entity, exiting, &is_ending);
        shared_file::collect();
        if cached {
            // The file's own cache has the dma-buf, which is freed after the file.
            let how = "closed a file without GEM_CLOSE of an object that was exported";
            health.run_into(Bug::UseAfterClose, how);
        }
        let delay = options.driver.free_delay;
        if self.must_wait_before_close && self.space.life.job_ended_within(delay) {
            let how = format!("closed a file less than {delay:?} after a job's end");
            health.run_into(Bug::UseAfterClose, how);
        }
        self.space.life.free();
        died_with
    }
}

impl Drop for FileState {
    fn drop(&mut self) {
        if !self.space.life.is_freed() {
            self.release(&|| false);
        }
    }
}
