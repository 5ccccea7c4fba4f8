// SPDX-License-Identifier: MIT OR Apache-2.0
//! The typed calls as ioctls.

use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rknpu_regcmd::Iova;

use crate::backend::{Backend, DeviceInfo, RawBo, RawJob};
use crate::calls::{
    EXPORT_FLAGS, PlainArgument, export, gem_close, import, ioctl, plain_ioctl, prep_bo, version,
};
use crate::error::{Call, Error};
use crate::file::FileOperations;
use crate::mapped::MappedMemory;
use crate::raw::RawDevice;
use crate::shared_files::{SharedFiles, map};
use crate::submit::{place_job, place_jobs};
use crate::units::{ByteLen, Deadline, Handle};
use crate::user::Arena;
use crate::{Errno, sys};

/// The typed calls of an open file.
#[derive(Debug)]
pub struct IoctlBackend {
    file: Arc<dyn FileOperations>,
    raw: RawDevice,
    info: DeviceInfo,
    /// Whether it answered VERSION, and with which errno if not.
    version: Result<(), Errno>,
}

impl IoctlBackend {
    /// The calls of `file`, which is asked by VERSION what it is.
    #[must_use]
    pub fn new(file: Arc<dyn FileOperations>) -> Self {
        let about = file.about();
        let version = version(&*file);
        let [driver, _, description] = match &version {
            Ok(version) => version
                .texts
                .each_ref()
                .map(|text| String::from_utf8_lossy(text).into_owned()),
            Err(_) => Default::default(),
        };
        let numbers = version
            .as_ref()
            .map_or_else(|_| sys::Version::default(), |version| version.structure);
        Self {
            raw: RawDevice::new(Arc::clone(&file)),
            file,
            info: DeviceInfo {
                name: about.name,
                driver,
                version: (
                    numbers.version_major,
                    numbers.version_minor,
                    numbers.version_patchlevel,
                ),
                description,
                is_model: about.is_model,
                cores: about.cores,
            },
            version: version.map(drop),
        }
    }

    /// Whether it takes VERSION, as all DRM devices do.
    pub(crate) fn check_version(&self) -> Result<(), Errno> {
        self.version
    }

    fn plain<T: PlainArgument>(&self, request: u32, arg: &mut T) -> Result<(), Errno> {
        plain_ioctl(&*self.file, request, arg).map(drop)
    }
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
        gem_close(&*self.file, handle.get())
            .map_err(|errno| Error::of(Call::GemClose, Some(handle), errno))
    }

    fn prep_bo(&self, handle: Handle, until: Deadline) -> Result<(), Error> {
        prep_bo(&*self.file, handle.get(), until).map_err(|errno| match errno {
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
        export(&*self.file, handle.get(), EXPORT_FLAGS).map_err(|errno| match errno {
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
        let handle = import(&*self.file, dma_buf).map_err(refused)?;
        Handle::new(handle).ok_or_else(|| refused(Errno::BADMSG))
    }

    fn map_dma_buf(&self, dma_buf: BorrowedFd<'_>) -> Result<Box<dyn MappedMemory>, Error> {
        map(&*self.file.shared_files(), dma_buf)
    }

    fn shared_files(&self) -> Option<SharedFiles> {
        Some(SharedFiles::new(self.file.shared_files()))
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
