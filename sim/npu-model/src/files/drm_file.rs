// SPDX-License-Identifier: MIT OR Apache-2.0
//! An open file of the device node: handles, address space, queue.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard};

use rustix::io::Errno;

use crate::base::lock::lock;
use crate::files::client_map::{self, ClientMaps};
use crate::files::device::DriverState;
use crate::files::release::FileState;
use crate::objects::gem::{GemObject, HandleTable};
use crate::objects::iommu::AddressSpace;
use crate::objects::life::Life;

/// An open file of the device node. Dropping it closes the file.
///
/// The file is released when its last mapping is gone too. Releasing waits until its queue
/// is empty, that is until all its jobs were handed to a core. The job in flight continues,
/// and its writes land.
pub struct DrmFile {
    pub(crate) open: Arc<FileState>,
    pub(crate) client_maps: Arc<ClientMaps>,
}

impl fmt::Debug for DrmFile {
    /// Leaves out the device, which would print the whole CBUF.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DrmFile").finish_non_exhaustive()
    }
}

impl Drop for DrmFile {
    fn drop(&mut self) {
        self.client_maps.collect_of(&self.open);
        self.open.space.life.close();
    }
}

impl DrmFile {
    /// Opens a file. `must_wait_before_close`: its client has to wait before it closes the file.
    pub(crate) fn new(
        driver: Arc<DriverState>,
        client_maps: Arc<ClientMaps>,
        must_wait_before_close: bool,
    ) -> Self {
        let entity = driver.scheduler.add_entity();
        let aperture = driver.options.driver.iommu.aperture();
        let open = Arc::new(FileState {
            driver,
            space: Arc::new(AddressSpace::new(aperture, Life::default())),
            handles: Mutex::default(),
            entity,
            map_lock: client_map::new_lock(),
            must_wait_before_close,
        });
        Self { open, client_maps }
    }

    pub(crate) fn driver(&self) -> &DriverState {
        &self.open.driver
    }

    pub(crate) fn handles(&self) -> MutexGuard<'_, HandleTable> {
        lock(&self.open.handles)
    }

    /// Fails with `ENODEV` once the kernel is down; see
    /// [`Model::is_oopsed`](crate::Model::is_oopsed).
    pub(crate) fn check_device(&self) -> Result<(), Errno> {
        if self.driver().health.is_oopsed() {
            return Err(Errno::NODEV);
        }
        Ok(())
    }

    pub(crate) fn lookup(&self, handle: u32) -> Option<Arc<GemObject>> {
        let handles = self.handles();
        if handles.is_dangling(handle) {
            self.driver().health.dangling_handle_used(handle);
        }
        handles.get(handle).cloned()
    }

    pub(crate) fn has_handle(&self, object: &Arc<GemObject>) -> bool {
        self.handles().find(object).is_some()
    }

    /// Closes the file for a process that may be ending, by SIGKILL or by exit. `is_ending`
    /// returns whether it is; it is called before and during the wait.
    ///
    /// A living process waits until all jobs were handed to a core. A process that is
    /// already ending waits at most [`exit_wait`]. If a process is killed while it waits,
    /// the wait ends at once. Then the queued jobs are dropped and their fences signalled
    /// with `ESRCH`. The job in flight continues. While a mapping keeps the file
    /// ([`is_mapped`](Self::is_mapped)) nothing waits.
    ///
    /// Returns how many of its jobs were unfinished when the process ended, 0 if it lives.
    ///
    /// [`exit_wait`]: crate::driver::DriverProfile::exit_wait
    pub fn close(self, is_ending: &dyn Fn() -> bool) -> usize {
        let open = Arc::clone(&self.open);
        drop(self);
        Arc::into_inner(open).map_or(0, |open| open.release(is_ending))
    }

    /// Whether another process has anything of the file mapped; see
    /// [`mmap_file`](Self::mmap_file).
    #[must_use]
    pub fn is_mapped(&self) -> bool {
        self.client_maps.collect_of(&self.open)
    }

    /// Bytes of memory behind a handle, in whole pages. PREP_BO and FINI_BO maintain the
    /// caches of all of them. `None` for an unknown handle.
    #[must_use]
    pub fn bo_bytes(&self, handle: u32) -> Option<u64> {
        self.handles()
            .get(handle)
            .map(|object| object.pages.len() as u64)
    }

    /// Another open file of the same device, for the same client.
    #[must_use]
    pub fn reopen(&self) -> Self {
        let driver = Arc::clone(&self.open.driver);
        Self::new(
            driver,
            Arc::clone(&self.client_maps),
            self.open.must_wait_before_close,
        )
    }
}
