// SPDX-License-Identifier: MIT OR Apache-2.0
//! The typed calls as ioctls: values into the uAPI's structures, and out of them
//! again.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rknpu_regcmd::Iova;
use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::backend::{Backend, DeviceInfo, RawBo, RawJob};
use crate::error::{Call, Error};
use crate::file::FileOperations;
use crate::mapped::MappedMemory;
use crate::raw::RawDevice;
use crate::shared_files::{SharedFiles, map};
use crate::sharing::{Access, Sharing};
use crate::submit::{place_job, place_jobs};
use crate::sync_file::SyncFile;
use crate::units::{ByteLen, Deadline, Handle};
use crate::user::{Arena, UserMemory};
use crate::{Errno, sys};

/// Room for each text of VERSION, bytes; the driver's are at most 10 long.
const TEXT_BYTES: usize = 64;

/// The typed calls of an open file.
#[derive(Debug)]
pub struct IoctlBackend {
    file: Arc<dyn FileOperations>,
    raw: RawDevice,
    info: DeviceInfo,
    /// What it says to VERSION.
    version: Result<(), Errno>,
}

/// Structures in which a driver finds no address to follow.
pub(crate) trait WithoutAddresses: FromBytes + IntoBytes + Immutable {}
impl WithoutAddresses for sys::CreateBo {}
impl WithoutAddresses for sys::PrepBo {}
impl WithoutAddresses for sys::FiniBo {}
impl WithoutAddresses for sys::GemClose {}
impl WithoutAddresses for sys::PrimeHandle {}

impl IoctlBackend {
    /// The calls of `file`, which is asked by VERSION what it is.
    #[must_use]
    pub fn new(file: Arc<dyn FileOperations>) -> Self {
        let about = file.about();
        let mut info = DeviceInfo {
            name: about.name,
            driver: String::new(),
            version: (0, 0, 0),
            description: String::new(),
            is_model: about.is_model,
            cores: about.cores,
        };
        let version = ask_version(&*file, &mut info);
        Self {
            raw: RawDevice::new(Arc::clone(&file)),
            file,
            info,
            version,
        }
    }

    /// Whether it takes VERSION, as all DRM devices do.
    pub(crate) fn check_version(&self) -> Result<(), Errno> {
        self.version
    }

    /// One without addresses.
    fn plain<T: WithoutAddresses>(&self, request: u32, arg: &mut T) -> Result<(), Errno> {
        // SAFETY: there are none, and none of these is SUBMIT.
        unsafe { ioctl(&*self.file, request, arg, &Arena::new()) }.map(drop)
    }
}

/// An ioctl with its structure, started again whenever a signal handler
/// interrupts it. PREP_BO's deadline is absolute, so it does not move.
///
/// # Errors
/// What the driver says.
///
/// # Safety
/// The addresses in `arg`, and in what they lead to, are null or `arena`'s; what
/// SUBMIT makes the NPU do is subject to [`Backend::submit`].
pub unsafe fn ioctl<F, T>(file: &F, request: u32, arg: &mut T, arena: &Arena) -> Result<i32, Errno>
where
    F: FileOperations + ?Sized,
    T: FromBytes + IntoBytes + Immutable,
{
    debug_assert_eq!(sys::arg_len(request), size_of::<T>());
    loop {
        // SAFETY: `arena` lives, and lets its memory be read and written.
        match unsafe { file.ioctl(request, arg.as_mut_bytes(), arena) } {
            Err(Errno::INTR) => {}
            other => return other,
        }
    }
}

/// VERSION, into `info`.
fn ask_version(file: &dyn FileOperations, info: &mut DeviceInfo) -> Result<(), Errno> {
    let arena = Arena::new();
    let [name, desc] = [(); 2].map(|()| arena.push(&[0; TEXT_BYTES]));
    let mut version = sys::Version {
        name_len: TEXT_BYTES as u64,
        name,
        desc_len: TEXT_BYTES as u64,
        desc,
        ..sys::Version::default()
    };
    // SAFETY: two addresses of `arena`'s with the lengths of what is there; with
    // room for no date its address is not followed.
    unsafe { ioctl(file, sys::VERSION, &mut version, &arena) }?;
    let text = |addr, len: u64| {
        let mut bytes = [0; TEXT_BYTES];
        let len = usize::try_from(len).map_or(TEXT_BYTES, |len| len.min(TEXT_BYTES));
        let read = arena.read(addr, &mut bytes[..len]);
        read.map_err(|_| Errno::FAULT)?;
        Ok(String::from_utf8_lossy(&bytes[..len]).into_owned())
    };
    info.driver = text(name, version.name_len)?;
    info.description = text(desc, version.desc_len)?;
    info.version = (
        version.version_major,
        version.version_minor,
        version.version_patchlevel,
    );
    Ok(())
}

// SAFETY: what `FileOperations` promises. The pages of a BO are written by jobs
// that use it and by holders of the pointer alone: the handle is this file's, and
// a `DmaBuf`, by which others could, ends all CPU access through this crate.
unsafe impl Backend for IoctlBackend {
    fn info(&self) -> DeviceInfo {
        self.info.clone()
    }

    fn create_bo(&self, len: ByteLen) -> Result<RawBo, Error> {
        let mut bo = sys::CreateBo {
            // Below 2 GiB, so it fits.
            size: len.get() as u32,
            ..sys::CreateBo::default()
        };
        let refused = |call, handle, errno| match errno {
            // ENOSPC is what the address allocator says when it is full.
            Errno::NOMEM | Errno::NOSPC => Error::OutOfMemory { len },
            _ => Error::of(call, handle, errno),
        };
        self.plain(sys::CREATE_BO, &mut bo)
            .map_err(|errno| refused(Call::CreateBo, None, errno))?;
        let handle =
            Handle::new(bo.handle).ok_or_else(|| Error::of(Call::CreateBo, None, Errno::BADMSG))?;
        let made = u32::try_from(bo.dma_address)
            .map_err(|_| Error::AddressTooHigh {
                address: bo.dma_address,
            })
            .and_then(|iova| {
                let mapped = self.file.map_bo(&bo, len.page_rounded().get());
                let memory = mapped.map_err(|errno| refused(Call::Mmap, Some(handle), errno))?;
                Ok((iova, memory))
            });
        match made {
            Ok((iova, memory)) => Ok(RawBo {
                handle,
                iova: Iova(iova),
                memory,
            }),
            Err(error) => {
                if let Err(error) = self.close_bo(handle) {
                    tracing::error!(%error, "cannot close a buffer object that could not be used");
                }
                Err(error)
            }
        }
    }

    fn close_bo(&self, handle: Handle) -> Result<(), Error> {
        let mut bo = sys::GemClose {
            handle: handle.get(),
            pad: 0,
        };
        self.plain(sys::GEM_CLOSE, &mut bo)
            .map_err(|errno| Error::of(Call::GemClose, Some(handle), errno))
    }

    fn prep_bo(&self, handle: Handle, until: Deadline) -> Result<(), Error> {
        let mut bo = sys::PrepBo {
            handle: handle.get(),
            reserved: 0,
            timeout_ns: until.as_nanos(),
        };
        self.plain(sys::PREP_BO, &mut bo)
            .map_err(|errno| match errno {
                // EBUSY where the deadline had passed before the call.
                Errno::BUSY | Errno::TIMEDOUT => Error::TimedOut { handle },
                _ => Error::of(Call::PrepBo, Some(handle), errno),
            })
    }

    fn fini_bo(&self, handle: Handle) -> Result<(), Error> {
        let mut bo = sys::FiniBo {
            handle: handle.get(),
            reserved: 0,
        };
        self.plain(sys::FINI_BO, &mut bo)
            .map_err(|errno| Error::of(Call::FiniBo, Some(handle), errno))
    }

    unsafe fn submit(&self, jobs: &[RawJob<'_>]) -> Result<(), Error> {
        let arena = Arena::new();
        let submitted = place(jobs, &arena).and_then(|mut submit| {
            // SAFETY: all addresses in it are those of arrays in `arena`, with
            // as many elements as the counts beside them say; SUBMIT copies from
            // them before it returns. The rest is the caller's promise.
            unsafe { ioctl(&*self.file, sys::SUBMIT, &mut submit, &arena) }
        });
        let submitted = submitted.map(drop);
        submitted.map_err(|errno| Error::of(Call::Submit, None, errno))
    }

    fn export_bo(&self, handle: Handle) -> Result<OwnedFd, Error> {
        let call = Call::PrimeExport;
        export(&*self.file, handle.get()).map_err(|errno| match errno {
            Errno::OPNOTSUPP => Error::Unsupported { call },
            _ => Error::of(call, Some(handle), errno),
        })
    }

    fn was_accepted(&self, handle: Handle) -> Result<bool, Error> {
        match self.file.was_accepted(handle.get()) {
            Some(known) => known.map_err(|errno| Error::of(Call::PrepBo, Some(handle), errno)),
            None => match self.prep_bo(handle, Deadline::NOW) {
                Ok(()) => Ok(false),
                Err(Error::TimedOut { .. }) => Ok(true),
                Err(error) => Err(error),
            },
        }
    }

    fn was_killed(&self, handle: Handle, since: Instant) -> Option<bool> {
        self.file.was_killed(handle.get(), since)
    }

    fn import_bo(&self, dma_buf: BorrowedFd<'_>) -> Result<Handle, Error> {
        let refused = |errno| Error::of(Call::PrimeImport, None, errno);
        let mut prime = sys::PrimeHandle {
            handle: 0,
            flags: 0,
            fd: dma_buf.as_raw_fd(),
        };
        self.plain(sys::PRIME_FD_TO_HANDLE, &mut prime)
            .map_err(refused)?;
        Handle::new(prime.handle).ok_or_else(|| refused(Errno::BADMSG))
    }

    fn map_dma_buf(&self, dma_buf: BorrowedFd<'_>) -> Result<Box<dyn MappedMemory>, Error> {
        map(&*self.file.shared_files(), dma_buf)
    }

    fn sharing(&self) -> Option<Arc<dyn Sharing>> {
        Some(Arc::new(SharedFiles(self.file.shared_files())))
    }

    fn reopen(&self) -> Result<Arc<dyn Backend>, Error> {
        Ok(Arc::new(Self::new(self.file.reopen()?)))
    }

    fn settle(&self) -> Duration {
        self.file.about().settle
    }

    fn raw(&self) -> Option<&RawDevice> {
        Some(&self.raw)
    }
}

/// SUBMIT's argument, with all that it leads to in `arena`.
fn place(jobs: &[RawJob<'_>], arena: &Arena) -> Result<sys::Submit, Errno> {
    let numbers = |list: &[Handle]| -> Vec<u32> { list.iter().map(|bo| bo.get()).collect() };
    let placed = jobs
        .iter()
        .map(|job| place_job(job.tasks, &numbers(job.reads), &numbers(job.writes), arena));
    place_jobs(&placed.collect::<Result<Vec<_>, _>>()?, arena)
}

/// PRIME export: a dma-buf of a BO, to be read and written: the first export of
/// an object decides for all later ones.
fn export<F: FileOperations + ?Sized>(file: &F, handle: u32) -> Result<OwnedFd, Errno> {
    let mut prime = sys::PrimeHandle {
        handle,
        flags: sys::DRM_CLOEXEC | sys::DRM_RDWR,
        fd: -1,
    };
    // SAFETY: there is no address in it.
    unsafe { ioctl(file, sys::PRIME_HANDLE_TO_FD, &mut prime, &Arena::new()) }?;
    // SAFETY: PRIME_HANDLE_TO_FD succeeded, so `fd` is a new descriptor of this
    // process, which nobody else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(prime.fd) })
}

/// A sync_file of the jobs that write a BO: how they end, which PREP_BO does not
/// tell. The kernel leaves out those that have ended.
///
/// # Errors
/// An unknown handle; no file descriptor left; no dma-bufs on this device.
pub fn write_fence<F: FileOperations + ?Sized>(file: &F, handle: u32) -> Result<SyncFile, Error> {
    let refused = |errno| Error::of(Call::PrimeExport, Handle::new(handle), errno);
    let dma_buf = export(file, handle).map_err(refused)?;
    let files = SharedFiles(file.shared_files());
    let fence = files.export_sync_file(dma_buf.as_fd(), Access::Read)?;
    Ok(SyncFile::new(fence, Arc::new(files)))
}
