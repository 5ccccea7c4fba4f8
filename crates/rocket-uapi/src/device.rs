// SPDX-License-Identifier: MIT OR Apache-2.0
//! Open devices, and pools of them.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::mem;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Instant;

use rknpu_regcmd::{Iova, TaskType};

use crate::arena::Arena;
use crate::calls::{EXPORT_FLAGS, export, ioctl, is_unfinished, plain_ioctl, prep_bo, submit};
use crate::discover::{self, ACCEL_DIRECTORY, DiscoverError};
use crate::error::Error;
use crate::file::{DeviceInfo, FileOperations, MappedMemory};
use crate::raw_job::RawJob;
use crate::shared_files::SharedFiles;
use crate::sync_file::SyncFile;
use crate::units::{Deadline, Handle};
use crate::{Errno, sys};

/// Bytes of the objects of all PREP_BO and FINI_BO calls of a file since it was opened.
///
/// The NPU does not see the CPU's caches. PREP_BO invalidates and FINI_BO cleans them line
/// by line over the whole buffer object, however little of it is used
/// (`dma_sync_sgtable_for_cpu` and `_for_device` in the kernel's `rocket_gem.c`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheTraffic {
    /// Sum of the object lengths over all PREP_BO calls, bytes.
    pub prep_bytes: u64,
    /// Sum of the object lengths over all FINI_BO calls, bytes.
    pub fini_bytes: u64,
}

/// An open file of the driver, with its own NPU addresses and its own place in the queue
/// for cores. Clones share the file.
///
/// The file is closed when its last clone and its last buffer are dropped, and not before
/// the driver has released the last job (see [`FileOperations::settle`]).
#[derive(Clone)]
pub struct Device(Arc<Inner>);

struct Inner {
    file: Arc<dyn FileOperations>,
    info: DeviceInfo,
    /// Time at which the last job's end was seen.
    last_end: Mutex<Option<Instant>>,
    /// Whether there may have been jobs whose end this crate does not wait for.
    raw_jobs: AtomicBool,
    handles: Mutex<Handles>,
    cache_traffic: Mutex<CacheTraffic>,
    witnesses: Mutex<WitnessBos>,
}

/// The handles of a file that are in use; see `handles.rs`.
#[derive(Debug, Default)]
pub(crate) struct Handles {
    /// Made by CREATE_BO.
    pub(crate) own: HashSet<Handle>,
    /// Imported handles, with the number of uses of each.
    pub(crate) imported: HashMap<Handle, usize>,
}

/// A mapped buffer object without its file.
#[derive(Debug)]
pub(crate) struct RawBo {
    pub(crate) handle: Handle,
    pub(crate) iova: Iova,
    /// Whole pages, readable and writable.
    pub(crate) memory: Box<dyn MappedMemory>,
}

/// The buffer objects of a file's witnesses that no job has. They hold no reference to the
/// file.
#[derive(Default)]
pub(crate) struct WitnessBos {
    /// Pages for later jobs, each with the program of a witness of this type.
    pub(crate) idle: Vec<(TaskType, RawBo)>,
    /// Operands of all witnesses.
    pub(crate) operands: Option<RawBo>,
}

impl WitnessBos {
    /// Takes an idle page with the program of this type.
    pub(crate) fn take(&mut self, ty: TaskType) -> Option<RawBo> {
        let at = self.idle.iter().rposition(|(one, _)| *one == ty)?;
        Some(self.idle.swap_remove(at).1)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Inner {
    /// GEM_CLOSE of a handle that no buffer uses any more.
    #[allow(unsafe_code)]
    fn close(&self, handle: Handle) {
        let mut bo = sys::GemClose {
            handle: handle.into(),
            pad: 0,
        };
        // SAFETY: the argument holds no address. No buffer has the handle: a `GemHandle` closes it
        // after its last use, and `drop` those of witnesses, with no buffer left.
        let closed = unsafe { ioctl(&*self.file, sys::GEM_CLOSE, &mut bo, &Arena::new()) };
        if let Err(errno) = closed {
            let error = Error::of("GEM_CLOSE", Some(handle), errno);
            tracing::warn!(%error, "cannot close a buffer object");
        }
    }

    fn settle(&self) {
        let last_end = *lock(&self.last_end);
        if let Some(ended) = last_end {
            thread::sleep(self.file.settle().saturating_sub(ended.elapsed()));
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        let WitnessBos { idle, operands } = mem::take(&mut *lock(&self.witnesses));
        for RawBo { handle, memory, .. } in idle.into_iter().map(|(_, page)| page).chain(operands) {
            drop(memory);
            self.close(handle);
        }
        self.settle();
    }
}

impl Device {
    /// The device behind an open file.
    ///
    /// # Safety
    /// Whoever else has the file keeps the promises of [`Device::raw_file`].
    #[must_use]
    #[allow(unsafe_code)]
    pub unsafe fn new(file: Arc<dyn FileOperations>) -> Self {
        Self::of(file)
    }

    /// The device behind a file that nobody else has.
    fn of(file: Arc<dyn FileOperations>) -> Self {
        Self(Arc::new(Inner {
            info: file.info(),
            file,
            last_end: Mutex::new(None),
            raw_jobs: AtomicBool::new(false),
            handles: Mutex::default(),
            cache_traffic: Mutex::default(),
            witnesses: Mutex::default(),
        }))
    }

    /// Opens the kernel device at `path`.
    ///
    /// # Errors
    /// The reason why the node is not usable, with a fix: it is missing, belongs to a group
    /// that this user is not in, or another driver serves it.
    pub fn open(path: &Path) -> Result<Self, Error> {
        Ok(Self::of(discover::open(path)?))
    }

    /// Opens the first node below [`ACCEL_DIRECTORY`] that the `rocket` driver
    /// serves.
    ///
    /// # Errors
    /// No node is usable. The error lists every node with the reason and a fix.
    pub fn discover() -> Result<Self, DiscoverError> {
        Self::discover_in(Path::new(ACCEL_DIRECTORY))
    }

    /// Like [`Device::discover`], in another directory.
    ///
    /// # Errors
    /// As [`Device::discover`].
    pub fn discover_in(directory: &Path) -> Result<Self, DiscoverError> {
        Ok(Self::of(discover::first_usable(directory)?))
    }

    /// Opens the same device again, with separate NPU addresses.
    ///
    /// # Errors
    /// Those of the first open.
    pub fn reopen(&self) -> Result<Self, Error> {
        Ok(Self::of(self.file().reopen()?))
    }

    /// Opens the same device again, through `wrap`, which wraps the open file to record or
    /// change the calls.
    ///
    /// # Errors
    /// Those of the first open.
    ///
    /// # Safety
    /// As of [`Device::new`], for the file that is wrapped and for the one that `wrap` returns.
    #[allow(unsafe_code)]
    pub unsafe fn reopen_through(
        &self,
        wrap: impl FnOnce(Arc<dyn FileOperations>) -> Arc<dyn FileOperations>,
    ) -> Result<Self, Error> {
        Ok(Self::of(wrap(self.file().reopen()?)))
    }

    /// Description of the device and its driver.
    #[must_use]
    pub fn info(&self) -> DeviceInfo {
        self.0.info.clone()
    }

    /// The open file, for driver tests, which may submit jobs through it.
    ///
    /// # Safety
    /// Through the file, nobody closes the handle of a [`crate::Bo`], or writes the memory of one
    /// that has a guard or slice: not by a job, nor by a mapping, nor by a dma-buf that was
    /// exported.
    #[must_use]
    #[allow(unsafe_code)]
    pub unsafe fn raw_file(&self) -> &dyn FileOperations {
        self.0.raw_jobs.store(true, Ordering::Release);
        self.file()
    }

    /// The open file. Not public: closing a handle under a live [`crate::Bo`] would give its
    /// number to the next one.
    pub(crate) fn file(&self) -> &dyn FileOperations {
        &*self.0.file
    }

    /// Wraps a sync_file from elsewhere for use with this device.
    #[must_use]
    pub fn adopt_sync_file(&self, fd: OwnedFd) -> SyncFile {
        SyncFile::new(fd, self.shared_files())
    }

    pub(crate) fn shared_files(&self) -> SharedFiles {
        SharedFiles::new(self.file().shared_files())
    }

    pub(crate) fn handles(&self) -> MutexGuard<'_, Handles> {
        lock(&self.0.handles)
    }

    /// GEM_CLOSE. The memory should be unmapped by now.
    pub(crate) fn close(&self, handle: Handle) {
        self.0.close(handle);
    }

    /// PRIME export: returns a dma-buf of a BO.
    pub(crate) fn export_bo(&self, handle: Handle) -> Result<OwnedFd, Error> {
        export(self.file(), handle.into(), EXPORT_FLAGS).map_err(|errno| match errno {
            Errno::OPNOTSUPP => Error::Unsupported("PRIME_HANDLE_TO_FD"),
            _ => Error::of("PRIME_HANDLE_TO_FD", Some(handle), errno),
        })
    }

    /// Submits any register programs, without checks of their words.
    ///
    /// # Errors
    /// A job lists a handle that this file does not have, or has a task without words;
    /// the driver refuses the call.
    ///
    /// # Safety
    /// Until the jobs have ended, every address that a program can make the NPU read or
    /// write lies in a buffer object of this file that stays alive and has no guard or
    /// slice.
    #[allow(unsafe_code)]
    pub unsafe fn submit_raw(&self, jobs: &[RawJob<'_>]) -> Result<(), Error> {
        // Kept until SUBMIT has looked the handles up, so that none of them is closed.
        let handles = self.handles();
        let exists =
            |handle| handles.own.contains(&handle) || handles.imported.contains_key(&handle);
        let mut indexed = jobs.iter().enumerate();
        indexed.try_for_each(|(index, job)| job.check(index, exists))?;
        self.0.raw_jobs.store(true, Ordering::Release);
        self.note_end();
        // SAFETY: the caller promises more: no guard or slice of any of the BOs.
        unsafe { submit(self.file(), jobs) }
    }

    /// Notes that a wait for a buffer has ended; a raw job may have ended with it.
    pub(crate) fn note_wait(&self) {
        if self.has_raw_jobs() {
            self.note_end();
        }
    }

    /// Whether there may be jobs that write buffers without [`crate::Bo`] knowing.
    pub(crate) fn has_raw_jobs(&self) -> bool {
        self.0.raw_jobs.load(Ordering::Acquire)
    }

    /// Calls and counts PREP_BO of an object of `len` bytes.
    pub(crate) fn prep(&self, handle: Handle, len: usize, until: Deadline) -> Result<(), Error> {
        // Count before the call: the driver invalidates caches even if it fails.
        self.count_prep(len);
        prep_bo(self.file(), handle.into(), until).map_err(|errno| {
            if is_unfinished(errno) {
                Error::TimedOut(handle)
            } else {
                Error::of("PREP_BO", Some(handle), errno)
            }
        })
    }

    /// Calls [`FileOperations::was_accepted`], and counts a PREP_BO of `len` bytes.
    pub(crate) fn was_accepted(&self, handle: Handle, len: usize) -> Result<bool, Error> {
        self.count_prep(len);
        let accepted = self.file().was_accepted(handle.into());
        accepted.map_err(|errno| Error::of("PREP_BO", Some(handle), errno))
    }

    fn count_prep(&self, len: usize) {
        lock(&self.0.cache_traffic).prep_bytes += len as u64;
    }

    pub(crate) fn witnesses(&self) -> MutexGuard<'_, WitnessBos> {
        lock(&self.0.witnesses)
    }

    /// Calls and counts FINI_BO of an object of `len` bytes.
    pub(crate) fn fini(&self, handle: Handle, len: usize) -> Result<(), Error> {
        lock(&self.0.cache_traffic).fini_bytes += len as u64;
        let mut bo = sys::FiniBo {
            handle: handle.into(),
            reserved: 0,
        };
        let called = plain_ioctl(self.file(), sys::FINI_BO, &mut bo);
        called.map_err(|errno| Error::of("FINI_BO", Some(handle), errno))?;
        Ok(())
    }

    /// Bytes of PREP_BO and FINI_BO calls so far, by [`crate::Bo`], [`crate::DmaBuf`], and
    /// jobs for their witness pages.
    #[must_use]
    pub fn cache_traffic(&self) -> CacheTraffic {
        *lock(&self.0.cache_traffic)
    }

    /// Waits until the driver has released the last job, as dropping the device does. For a
    /// process that exits with live buffers, whose file the kernel then closes.
    pub fn settle(&self) {
        self.0.settle();
    }

    /// Notes that a job has just ended. Returns the time of the end before.
    pub(crate) fn note_end(&self) -> Option<Instant> {
        lock(&self.0.last_end).replace(Instant::now())
    }

    /// Whether both are the same open file.
    #[must_use]
    pub fn is_same_file(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Device").field(&self.0.file).finish()
    }
}

/// Several open files of one device.
///
/// The mainline driver gives every file one place in the queue for cores, so one file keeps
/// at most one core busy: N cores need N files. A buffer object has an address only in its
/// own file, so several cores need a copy of shared data in each file.
#[derive(Clone, Debug)]
pub struct DevicePool {
    devices: Vec<Device>,
}

impl DevicePool {
    /// Opens a pool of `files` files (at least one), of which `device` is the first.
    ///
    /// # Errors
    /// An error of [`Device::reopen`].
    pub fn open(device: &Device, files: usize) -> Result<Self, Error> {
        let mut devices = vec![device.clone()];
        for _ in 1..files {
            devices.push(device.reopen()?);
        }
        Ok(Self { devices })
    }

    /// The files; at least one.
    #[must_use]
    pub fn devices(&self) -> &[Device] {
        &self.devices
    }
}
