// SPDX-License-Identifier: MIT OR Apache-2.0
//! The kernel driver behind the seam: the only file with ioctls and mappings.

use std::fs::{File, OpenOptions};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use memmap2::{MmapOptions, MmapRaw};
use rknpu_regcmd::{ChipProfile, Iova};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::ioctl::{Opcode, Setter, Updater, ioctl};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use crate::Errno;
use crate::backend::{Backend, BoMemory, DeviceInfo, Fence, FenceStatus, RawBo, RawJob, RawTask};
use crate::error::{Call, Error};
use crate::raw::{RawDevice, RawMap};
use crate::sys;
use crate::units::{ByteLen, Deadline, Handle};

/// How long after a job's end the driver's scheduler may still drop references
/// to BOs through the file (kernel bug, docs/uapi.md): 20 ms were enough in
/// 300 of 300 runs on Linux 7.2 in QEMU, 50 ms is also the autosuspend delay.
const SETTLE: Duration = Duration::from_millis(50);

/// Room for the strings of DRM_IOCTL_VERSION; the driver's are shorter.
const NAME_ROOM: usize = 64;

/// An open `/dev/accel/accelN`.
#[derive(Debug)]
pub(crate) struct Kernel {
    file: File,
    path: PathBuf,
    version: DriverVersion,
}

/// What DRM_IOCTL_VERSION tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DriverVersion {
    pub(crate) name: String,
    pub(crate) description: String,
    pub(crate) version: (i32, i32, i32),
}

/// Name of the driver (`rocket_drv.c`).
pub(crate) const DRIVER_NAME: &str = "rocket";

impl Kernel {
    /// Opens the node and makes sure who drives it.
    pub(crate) fn open(path: &Path) -> Result<Self, Error> {
        let (file, version) = open_drm(path)?;
        if version.name != DRIVER_NAME {
            return Err(Error::OtherDriver {
                driver: version.name,
            });
        }
        Ok(Self {
            file,
            path: path.to_owned(),
            version,
        })
    }

    /// An ioctl that only reads its argument.
    fn set<const REQUEST: Opcode, T>(&self, argument: T) -> Result<(), Errno> {
        set::<REQUEST, T>(&self.file, argument)
    }

    fn map(&self, len: ByteLen, offset: u64) -> Result<MmapRaw, Errno> {
        MmapOptions::new()
            .len(len.get())
            .offset(offset)
            .map_raw(&self.file)
            .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::NOMEM))
    }

    fn close(&self, handle: u32) -> Result<(), Errno> {
        self.set::<{ sys::GEM_CLOSE }, _>(sys::GemClose { handle, padding: 0 })
    }
}

/// Opens a DRM node and asks for its driver.
pub(crate) fn open_drm(path: &Path) -> Result<(File, DriverVersion), Error> {
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .open(path)
        .map_err(|error| {
            let errno = Errno::from_io_error(&error).unwrap_or(Errno::IO);
            Error::of(Call::Open, None, errno)
        })?;
    let version = version(&file).map_err(|errno| Error::of(Call::Version, None, errno))?;
    Ok((file, version))
}

fn version(file: &File) -> Result<DriverVersion, Errno> {
    let mut name = [0_u8; NAME_ROOM];
    let mut description = [0_u8; NAME_ROOM];
    let mut argument = sys::Version {
        name_len: NAME_ROOM as u64,
        name: name.as_mut_ptr() as u64,
        desc_len: NAME_ROOM as u64,
        desc: description.as_mut_ptr() as u64,
        ..sys::Version::default()
    };
    update::<{ sys::VERSION }, _>(file, &mut argument)?;
    let text = |bytes: &[u8], len: u64| {
        let len = usize::try_from(len).unwrap_or(NAME_ROOM).min(NAME_ROOM);
        String::from_utf8_lossy(&bytes[..len])
            .trim_end_matches('\0')
            .to_owned()
    };
    Ok(DriverVersion {
        name: text(&name, argument.name_len),
        description: text(&description, argument.desc_len),
        version: (
            argument.version_major,
            argument.version_minor,
            argument.version_patchlevel,
        ),
    })
}

/// An ioctl that reads its argument; restarted when a signal interrupts it.
fn set<const REQUEST: Opcode, T>(fd: impl AsFd, argument: T) -> Result<(), Errno> {
    let argument = std::mem::ManuallyDrop::new(argument);
    loop {
        // SAFETY: a bitwise copy of plain old data (every caller passes a
        // struct of `sys`), which has no drop glue and is valid as it is.
        let copy = unsafe { std::ptr::read(&*argument) };
        // SAFETY: `REQUEST` is made from the size of `T` in `sys`, where both
        // are compared with the kernel's numbers; the kernel reads that many
        // bytes of `copy`. Pointers inside it are the caller's to prove.
        let request = unsafe { Setter::<REQUEST, T>::new(copy) };
        // SAFETY: `fd` is an open file of the driver (or a dma-buf, a
        // sync_file) that defines `REQUEST`; the result is checked.
        match unsafe { ioctl(&fd, request) } {
            Err(Errno::INTR) => {}
            result => return result,
        }
    }
}

/// An ioctl that reads and writes its argument; restarted when interrupted.
fn update<const REQUEST: Opcode, T>(fd: impl AsFd, argument: &mut T) -> Result<(), Errno> {
    loop {
        // SAFETY: `REQUEST` is made from the size of `T` in `sys`, where both
        // are compared with the kernel's numbers; the kernel reads and writes
        // that many bytes of `argument`, all of whose bit patterns are valid.
        let request = unsafe { Updater::<REQUEST, T>::new(argument) };
        // SAFETY: as in `set`.
        match unsafe { ioctl(&fd, request) } {
            Err(Errno::INTR) => {}
            result => return result,
        }
    }
}

#[derive(Debug)]
struct KernelMemory(MmapRaw);

// SAFETY: `MmapRaw` maps `len` bytes at a fixed place, readable and writable,
// until it is dropped. Pages of a GEM object are zeroed when it is created
// (`drm_gem_shmem_helper.c`), hence initialised, and stay alive while mapped.
// The mapping is of an object that this process just created and that only
// this crate's types can export.
unsafe impl BoMemory for KernelMemory {
    fn as_ptr(&self) -> *mut u8 {
        self.0.as_mut_ptr()
    }

    fn len(&self) -> usize {
        self.0.len()
    }
}

impl Backend for Kernel {
    fn info(&self) -> DeviceInfo {
        DeviceInfo {
            name: self.path.display().to_string(),
            driver: self.version.name.clone(),
            version: self.version.version,
            description: self.version.description.clone(),
            is_model: false,
            cores: ChipProfile::RK3588.cores,
        }
    }

    fn create_bo(&self, len: ByteLen) -> Result<RawBo, Error> {
        let len = len.page_rounded();
        let mut argument = sys::CreateBo {
            size: len.get() as u32,
            ..sys::CreateBo::default()
        };
        update::<{ sys::CREATE_BO }, _>(&self.file, &mut argument).map_err(
            |errno| match errno {
                Errno::NOMEM | Errno::NOSPC => Error::OutOfMemory { len },
                _ => Error::of(Call::CreateBo, None, errno),
            },
        )?;
        let close = |error| {
            if let Err(errno) = self.close(argument.handle) {
                tracing::warn!(handle = argument.handle, %errno, "GEM_CLOSE failed");
            }
            error
        };
        let handle = Handle::new(argument.handle)
            .ok_or_else(|| Error::of(Call::CreateBo, None, Errno::INVAL))?;
        let iova = u32::try_from(argument.dma_address).map_err(|_| {
            close(Error::AddressTooHigh {
                address: argument.dma_address,
            })
        })?;
        let memory = self
            .map(len, argument.offset)
            .map_err(|errno| close(Error::of(Call::Mmap, Some(handle), errno)))?;
        Ok(RawBo {
            handle,
            iova: Iova(iova),
            memory: Box::new(KernelMemory(memory)),
        })
    }

    fn close_bo(&self, handle: Handle) -> Result<(), Error> {
        self.close(handle.get())
            .map_err(|errno| Error::of(Call::GemClose, Some(handle), errno))
    }

    fn prep_bo(&self, handle: Handle, until: Deadline) -> Result<(), Error> {
        let argument = sys::PrepBo {
            handle: handle.get(),
            reserved: 0,
            timeout_ns: until.as_nanos(),
        };
        self.set::<{ sys::PREP_BO }, _>(argument)
            .map_err(|errno| match errno {
                Errno::BUSY | Errno::TIMEDOUT => Error::TimedOut { handle },
                _ => Error::of(Call::PrepBo, Some(handle), errno),
            })
    }

    fn fini_bo(&self, handle: Handle) -> Result<(), Error> {
        let argument = sys::FiniBo {
            handle: handle.get(),
            reserved: 0,
        };
        self.set::<{ sys::FINI_BO }, _>(argument)
            .map_err(|errno| Error::of(Call::FiniBo, Some(handle), errno))
    }

    fn submit(&self, jobs: &[RawJob<'_>]) -> Result<(), Error> {
        let tasks: Vec<Vec<sys::Task>> = jobs.iter().map(|job| tasks(job.tasks)).collect();
        let raw: Vec<sys::Job> = jobs
            .iter()
            .zip(&tasks)
            .map(|(job, tasks)| sys::Job {
                tasks: tasks.as_ptr() as u64,
                in_bo_handles: job.reads.as_ptr() as u64,
                out_bo_handles: job.writes.as_ptr() as u64,
                task_count: tasks.len() as u32,
                task_struct_size: size_of::<sys::Task>() as u32,
                in_bo_handle_count: job.reads.len() as u32,
                out_bo_handle_count: job.writes.len() as u32,
            })
            .collect();
        // The kernel copies all of it before it returns; the arrays live until
        // then. `Handle` is one u32 wide and transparent.
        self.set::<{ sys::SUBMIT }, _>(sys::Submit {
            jobs: raw.as_ptr() as u64,
            job_count: raw.len() as u32,
            job_struct_size: size_of::<sys::Job>() as u32,
            reserved: 0,
        })
        .map_err(|errno| Error::of(Call::Submit, None, errno))
    }

    fn export_bo(&self, handle: Handle) -> Result<OwnedFd, Error> {
        let mut argument = sys::PrimeHandle {
            handle: handle.get(),
            flags: sys::DRM_CLOEXEC | sys::DRM_RDWR,
            fd: -1,
        };
        update::<{ sys::PRIME_HANDLE_TO_FD }, _>(&self.file, &mut argument)
            .map_err(|errno| Error::of(Call::PrimeExport, Some(handle), errno))?;
        // SAFETY: the ioctl succeeded, so the kernel has put a new file
        // descriptor there, which nobody else owns.
        Ok(unsafe { OwnedFd::from_raw_fd(argument.fd) })
    }

    fn write_fence(&self, handle: Handle) -> Result<Box<dyn Fence>, Error> {
        let dma_buf = self.export_bo(handle)?;
        let mut argument = sys::ExportSyncFile {
            flags: sys::DMA_BUF_SYNC_READ,
            fd: -1,
        };
        update::<{ sys::EXPORT_SYNC_FILE }, _>(&dma_buf, &mut argument)
            .map_err(|errno| Error::of(Call::ExportSyncFile, Some(handle), errno))?;
        // SAFETY: as in `export_bo`.
        let sync_file = unsafe { OwnedFd::from_raw_fd(argument.fd) };
        Ok(Box::new(SyncFile(sync_file)))
    }

    fn reopen(&self) -> Result<Arc<dyn Backend>, Error> {
        Ok(Arc::new(Self::open(&self.path)?))
    }

    fn settle(&self) -> Duration {
        SETTLE
    }

    fn raw(&self) -> Option<&dyn RawDevice> {
        Some(self)
    }
}

fn tasks(tasks: &[RawTask]) -> Vec<sys::Task> {
    tasks
        .iter()
        .map(|task| sys::Task {
            regcmd: task.regcmd.0,
            regcmd_count: task.words,
        })
        .collect()
}

/// A sync_file: the fences of a dma-buf at the moment it was made.
#[derive(Debug)]
struct SyncFile(OwnedFd);

impl Fence for SyncFile {
    fn status(&self) -> Result<FenceStatus, Error> {
        let mut argument = sys::SyncFileInfo::default();
        update::<{ sys::SYNC_FILE_INFO }, _>(&self.0, &mut argument)
            .map_err(|errno| Error::of(Call::SyncFileInfo, None, errno))?;
        Ok(match argument.status {
            0 => FenceStatus::Active,
            status if status > 0 => FenceStatus::Signaled,
            negative => FenceStatus::Failed(Errno::from_raw_os_error(-negative)),
        })
    }
}

impl RawDevice for Kernel {
    unsafe fn ioctl(&self, request: u32, arg: Option<&mut [u8]>) -> Result<i32, Errno> {
        let pointer = arg.map_or(std::ptr::null_mut(), |arg| arg.as_mut_ptr());
        // SAFETY: the file is open; the caller promises that the request stays
        // within `arg`. The result is checked.
        let result = unsafe { libc::ioctl(self.file.as_raw_fd(), request.into(), pointer) };
        if result < 0 {
            let error = std::io::Error::last_os_error();
            return Err(Errno::from_io_error(&error).unwrap_or(Errno::IO));
        }
        Ok(result)
    }

    fn mmap(
        &self,
        offset: u64,
        len: usize,
        prot: ProtFlags,
        flags: MapFlags,
    ) -> Result<Box<dyn RawMap>, Errno> {
        // SAFETY: the kernel chooses the place, so that no other mapping is
        // replaced (a fixed place is masked out), and no reference is made.
        let start = unsafe {
            mmap(
                std::ptr::null_mut(),
                len,
                prot,
                flags & (MapFlags::SHARED | MapFlags::PRIVATE),
                &self.file,
                offset,
            )
        }?;
        Ok(Box::new(KernelMap {
            start: start.cast(),
            len,
        }))
    }

    fn poll(&self) -> Result<i16, Errno> {
        let mut fds = [PollFd::new(&self.file, PollFlags::IN | PollFlags::OUT)];
        poll(&mut fds, Some(&rustix::time::Timespec::default()))?;
        Ok(fds[0].revents().bits() as i16)
    }

    fn read(&self, into: &mut [u8]) -> Result<usize, Errno> {
        rustix::fs::fcntl_setfl(&self.file, rustix::fs::OFlags::NONBLOCK)?;
        rustix::io::read(&self.file, into)
    }
}

#[derive(Debug)]
struct KernelMap {
    start: *mut u8,
    len: usize,
}

// SAFETY: a mapping belongs to the process, not to a thread.
unsafe impl Send for KernelMap {}

impl RawMap for KernelMap {
    fn as_ptr(&self) -> *mut u8 {
        self.start
    }

    fn len(&self) -> usize {
        self.len
    }
}

impl Drop for KernelMap {
    fn drop(&mut self) {
        // SAFETY: exactly the range that `mmap` gave; nothing else knows it.
        if let Err(errno) = unsafe { munmap(self.start.cast(), self.len) } {
            tracing::warn!(%errno, "munmap failed");
        }
    }
}
