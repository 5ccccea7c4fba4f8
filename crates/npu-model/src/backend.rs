// SPDX-License-Identifier: MIT OR Apache-2.0
//! The model behind `rocket-uapi`'s seam: values in, values out, over the
//! same ioctl bytes that any other client would send.

use std::fmt;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rocket_uapi::{
    Backend, BoMemory, ByteLen, Call, Deadline, DeviceInfo, Errno, Error, Handle, Iova, RawBo,
    RawDevice, RawJob, RawMap, SharedMemory, Sharing,
};
use rustix::fs::SeekFrom;
use rustix::mm::{MapFlags, ProtFlags};
use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::driver::abi::{self, Request};
use crate::driver::{Arena, Bug, Caller, DrmFile, Mapping, OwnProcess, SharedFile, UserMemory};
use crate::sharing::{self, ModelFiles};

/// What [`DeviceInfo::name`] says of the model.
const MODEL_NAME: &str = "software model";

/// Bytes asked for of each string of VERSION; the real ones are shorter.
const VERSION_TEXT_BYTES: usize = 64;

/// One open file of the model.
pub(crate) struct ModelBackend {
    file: DrmFile,
    cores: u32,
}

impl fmt::Debug for ModelBackend {
    /// Not the device behind it, which prints CBUF and all.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { file: _, cores } = self;
        f.debug_struct("ModelBackend")
            .field("cores", cores)
            .finish_non_exhaustive()
    }
}

impl ModelBackend {
    pub(crate) fn new(file: DrmFile, cores: u32) -> Self {
        if !file.options().bugs.contains(Bug::UseAfterClose) {
            // Its clients wait as long as `settle` says.
            file.need_not_settle();
        }
        Self { file, cores }
    }

    /// One ioctl with a structure as argument.
    fn ioctl<T: FromBytes + IntoBytes + Immutable>(
        &self,
        request: Request,
        arg: &mut T,
        user: &dyn Caller,
    ) -> Result<(), Errno> {
        self.file
            .ioctl(request.0, arg.as_mut_bytes(), user)
            .map(drop)
    }

    /// Name and description, as VERSION gives them.
    fn version(&self) -> Result<(abi::Version, String, String), Errno> {
        let arena = Arena::new();
        let [name, date, desc] = [(); 3].map(|()| arena.push(&[0; VERSION_TEXT_BYTES]));
        let room = VERSION_TEXT_BYTES as u64;
        let mut version = abi::Version {
            name,
            date,
            desc,
            name_len: room,
            date_len: room,
            desc_len: room,
            ..abi::Version::default()
        };
        self.ioctl(abi::VERSION, &mut version, &arena)?;
        let text = |at, len: u64| {
            let mut bytes = vec![0; len.min(room) as usize];
            arena.read(at, &mut bytes).map_err(|_| Errno::FAULT)?;
            Ok(String::from_utf8_lossy(&bytes).into_owned())
        };
        let name = text(name, version.name_len)?;
        let desc = text(desc, version.desc_len)?;
        Ok((version, name, desc))
    }
}

// SAFETY: the driver half gives each handle and address once while the BO lives,
// and translates an address to the BO's own pages; PREP_BO waits for the fences
// of the jobs that write it, which are signalled when the core has ended the
// job.
unsafe impl Backend for ModelBackend {
    fn info(&self) -> DeviceInfo {
        let (version, driver, description) = self.version().unwrap_or_default();
        DeviceInfo {
            name: MODEL_NAME.to_owned(),
            driver,
            version: (version.major, version.minor, version.patchlevel),
            description,
            is_model: true,
            cores: self.cores,
        }
    }

    fn create_bo(&self, len: ByteLen) -> Result<RawBo, Error> {
        let mut arg = abi::CreateBo {
            size: len.get() as u32,
            ..abi::CreateBo::default()
        };
        self.ioctl(abi::CREATE_BO, &mut arg, &Arena::new())
            .map_err(|errno| match errno {
                Errno::NOMEM | Errno::NOSPC => Error::OutOfMemory { len },
                _ => Error::of(Call::CreateBo, None, errno),
            })?;
        let refused = |errno| Error::of(Call::Mmap, Handle::new(arg.handle), errno);
        let handle = Handle::new(arg.handle).ok_or_else(|| refused(Errno::INVAL))?;
        let close = |error| {
            if let Err(error) = self.close_bo(handle) {
                tracing::warn!(%handle, %error, "a buffer object could not be closed");
            }
            error
        };
        let iova = u32::try_from(arg.dma_address).map_err(|_| {
            close(Error::AddressTooHigh {
                address: arg.dma_address,
            })
        })?;
        let mapped = self.file.map_handle(arg.handle);
        let mapping = mapped.map_err(|errno| close(refused(errno)))?;
        Ok(RawBo {
            handle,
            iova: Iova(iova),
            memory: Box::new(BoMapping(mapping)),
        })
    }

    fn close_bo(&self, handle: Handle) -> Result<(), Error> {
        let mut arg = abi::GemClose {
            handle: handle.get(),
            ..abi::GemClose::default()
        };
        self.ioctl(abi::GEM_CLOSE, &mut arg, &Arena::new())
            .map_err(|errno| Error::of(Call::GemClose, Some(handle), errno))
    }

    fn prep_bo(&self, handle: Handle, until: Deadline) -> Result<(), Error> {
        let mut arg = abi::PrepBo {
            handle: handle.get(),
            timeout_ns: until.as_nanos(),
            ..abi::PrepBo::default()
        };
        loop {
            return match self.ioctl(abi::PREP_BO, &mut arg, &Arena::new()) {
                // The deadline is absolute, so waiting goes on as before.
                Err(Errno::INTR) => continue,
                Err(Errno::BUSY | Errno::TIMEDOUT) => Err(Error::TimedOut { handle }),
                Err(errno) => Err(Error::of(Call::PrepBo, Some(handle), errno)),
                Ok(()) => Ok(()),
            };
        }
    }

    fn fini_bo(&self, handle: Handle) -> Result<(), Error> {
        let mut arg = abi::FiniBo {
            handle: handle.get(),
            ..abi::FiniBo::default()
        };
        self.ioctl(abi::FINI_BO, &mut arg, &Arena::new())
            .map_err(|errno| Error::of(Call::FiniBo, Some(handle), errno))
    }

    unsafe fn submit(&self, jobs: &[RawJob<'_>]) -> Result<(), Error> {
        let refused = |errno| Error::of(Call::Submit, None, errno);
        let arena = Arena::new();
        let placed = jobs
            .iter()
            .map(|job| place(job, &arena))
            .collect::<Result<Vec<_>, _>>()
            .map_err(refused)?;
        let mut arg = abi::Submit {
            jobs: arena.push(placed.as_bytes()),
            job_count: count(placed.len()).map_err(refused)?,
            job_struct_size: size_of::<abi::Job>() as u32,
            reserved: 0,
        };
        self.ioctl(abi::SUBMIT, &mut arg, &arena).map_err(refused)
    }

    fn export_bo(&self, handle: Handle) -> Result<OwnedFd, Error> {
        let call = Call::PrimeExport;
        self.file
            .prime_export(handle.get())
            .map_err(|errno| match errno {
                Errno::OPNOTSUPP => Error::Unsupported { call },
                _ => Error::of(call, Some(handle), errno),
            })
    }

    fn was_accepted(&self, handle: Handle) -> Result<bool, Error> {
        // A job that is over by now was taken all the same: this device knows.
        self.file
            .was_accepted(handle.get())
            .map_err(|errno| Error::of(Call::PrepBo, Some(handle), errno))
    }

    fn was_killed(&self, handle: Handle, _: Instant) -> Option<bool> {
        // The host's clock says nothing about jobs in modelled time.
        self.file.was_killed(handle.get())
    }

    fn import_bo(&self, dma_buf: BorrowedFd<'_>) -> Result<Handle, Error> {
        let refused = |errno| Error::of(Call::PrimeImport, None, errno);
        let handle = self
            .file
            .prime_import(dma_buf.as_raw_fd())
            .map_err(refused)?;
        Handle::new(handle).ok_or_else(|| refused(Errno::BADMSG))
    }

    fn map_dma_buf(&self, dma_buf: BorrowedFd<'_>) -> Result<Box<dyn SharedMemory>, Error> {
        sharing::map(dma_buf)
    }

    fn sharing(&self) -> Option<Arc<dyn Sharing>> {
        Some(Arc::new(ModelFiles))
    }

    fn reopen(&self) -> Result<Arc<dyn Backend>, Error> {
        Ok(Arc::new(Self::new(self.file.reopen(), self.cores)))
    }

    fn settle(&self) -> Duration {
        let options = self.file.options();
        if options.bugs.contains(Bug::UseAfterClose) {
            options.profile.free_delay
        } else {
            Duration::ZERO
        }
    }

    fn raw(&self) -> Option<&dyn RawDevice> {
        Some(self)
    }
}

/// Writes one job's arrays into `arena`.
fn place(job: &RawJob<'_>, arena: &Arena) -> Result<abi::Job, Errno> {
    let tasks: Vec<_> = job
        .tasks
        .iter()
        .map(|task| abi::Task {
            regcmd: task.regcmd.0,
            regcmd_count: task.words,
        })
        .collect();
    let handles = |list: &[Handle]| -> Vec<u32> { list.iter().map(|bo| bo.get()).collect() };
    Ok(abi::Job {
        tasks: arena.push(tasks.as_bytes()),
        in_bo_handles: arena.push(handles(job.reads).as_bytes()),
        out_bo_handles: arena.push(handles(job.writes).as_bytes()),
        task_count: count(tasks.len())?,
        task_struct_size: size_of::<abi::Task>() as u32,
        in_bo_handle_count: count(job.reads.len())?,
        out_bo_handle_count: count(job.writes.len())?,
    })
}

/// A length as the uAPI's 32-bit counts; what does not fit is what the kernel
/// would call too much memory.
fn count(len: usize) -> Result<u32, Errno> {
    u32::try_from(len).map_err(|_| Errno::NOMEM)
}

/// The CPU's view of a buffer object.
#[derive(Debug)]
struct BoMapping(Mapping);

// SAFETY: `Mapping::shared`, which `map_handle` returns, gives the start and
// the page-rounded length of the object's pages. They are zeroed when made,
// readable and writable, at a fixed place (a memfd mapping or a boxed slice),
// and live as long as the object, which the mapping keeps alive. Within this
// process the model writes them only on behalf of jobs, that is as the NPU.
unsafe impl BoMemory for BoMapping {
    fn as_ptr(&self) -> *mut u8 {
        self.0.as_ptr()
    }

    fn len(&self) -> usize {
        self.0.len()
    }
}

impl RawMap for Mapping {
    fn as_ptr(&self) -> *mut u8 {
        self.as_ptr()
    }

    fn len(&self) -> usize {
        self.len()
    }
}

impl RawDevice for ModelBackend {
    unsafe fn ioctl(&self, request: u32, arg: Option<&mut [u8]>) -> Result<i32, Errno> {
        // SAFETY: whoever calls promises for the addresses in `arg` and
        // behind it just what `OwnProcess` asks for. It lives for this call.
        let user = unsafe { OwnProcess::new() };
        self.file.ioctl(request, arg.unwrap_or_default(), &user)
    }

    unsafe fn file_ioctl(
        &self,
        file: BorrowedFd<'_>,
        request: u32,
        arg: Option<&mut [u8]>,
    ) -> Result<i32, Errno> {
        let file = SharedFile::of(file.as_raw_fd())?.ok_or(Errno::NOTTY)?;
        let arg = arg.map_or(0, |bytes| bytes.as_mut_ptr().expose_provenance() as u64);
        // SAFETY: as in `ioctl`; and `arg` is exclusively ours to lend.
        let user = unsafe { OwnProcess::new() };
        file.ioctl(request, arg, &user)
    }

    fn file_seek(&self, file: BorrowedFd<'_>, to: SeekFrom) -> Result<u64, Errno> {
        let file = SharedFile::of(file.as_raw_fd())?.ok_or(Errno::SPIPE)?;
        file.seek(to)
    }

    fn mmap(
        &self,
        offset: u64,
        len: usize,
        prot: ProtFlags,
        flags: MapFlags,
    ) -> Result<Box<dyn RawMap>, Errno> {
        let mapping = self.file.mmap(offset, len, prot, flags)?;
        Ok(Box::new(mapping))
    }

    fn poll(&self) -> Result<i16, Errno> {
        Ok(self.file.poll().bits() as i16)
    }

    fn read(&self, into: &mut [u8]) -> Result<usize, Errno> {
        self.file.read_nonblocking(into)
    }
}
