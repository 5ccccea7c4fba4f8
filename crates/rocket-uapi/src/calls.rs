// SPDX-License-Identifier: MIT OR Apache-2.0
//! Typed ioctls on any open file.

use std::ffi::OsString;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;

use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::arena::Arena;
use crate::caller::Caller;
use crate::error::Error;
use crate::file::{DeviceInfo, FileOperations};
use crate::raw_job::{RawJob, place};
use crate::units::Deadline;
use crate::{Errno, sys};

/// Buffer size for each string of VERSION, bytes; the driver's strings have at most 10.
const TEXT_BYTES: usize = 256;

/// Requests that any caller may make: their arguments hold numbers, handles and descriptors,
/// and no address. GEM_CLOSE is not one: it could close the handle of a live [`crate::Bo`].
pub const PLAIN_REQUESTS: [u32; 11] = [
    sys::CREATE_BO,
    sys::PREP_BO,
    sys::FINI_BO,
    sys::GET_CAP,
    sys::PRIME_HANDLE_TO_FD,
    sys::PRIME_FD_TO_HANDLE,
    sys::EXPORT_SYNC_FILE,
    sys::IMPORT_SYNC_FILE,
    sys::DMA_BUF_SYNC,
    sys::SYNC_MERGE,
    sys::SW_SYNC_CREATE_FENCE,
];

/// Makes an ioctl with the bytes of its structure, as many as the caller knows, and
/// restarts it when a signal handler interrupts it. PREP_BO's deadline is absolute, so a
/// restart does not move it.
///
/// # Errors
/// The errno of the driver.
///
/// # Safety
/// Addresses in `arg`, and in the memory behind them, are null or belong to `arena`. SUBMIT
/// and GEM_CLOSE keep the promise of [`FileOperations::ioctl`].
pub unsafe fn ioctl_bytes<F>(
    file: &F,
    request: u32,
    arg: &mut [u8],
    arena: &Arena,
) -> Result<i32, Errno>
where
    F: FileOperations + ?Sized,
{
    // SAFETY: `arena` outlives the call, and its memory may be read and written. The caller
    // promises the rest.
    restarted(|| unsafe { file.ioctl(request, arg, arena) })
}

/// Repeats a call as long as a signal handler interrupts it.
pub(crate) fn restarted(mut call: impl FnMut() -> Result<i32, Errno>) -> Result<i32, Errno> {
    loop {
        match call() {
            Err(Errno::INTR) => {}
            other => return other,
        }
    }
}

/// Like [`ioctl_bytes`], with a typed structure.
///
/// # Errors
/// The errno of the driver; `EINVAL` if the structure's size differs from the request's.
///
/// # Safety
/// As for [`ioctl_bytes`].
pub unsafe fn ioctl<F, T>(file: &F, request: u32, arg: &mut T, arena: &Arena) -> Result<i32, Errno>
where
    F: FileOperations + ?Sized,
    T: FromBytes + IntoBytes + Immutable,
{
    if sys::arg_len(request) != size_of::<T>() {
        return Err(Errno::INVAL);
    }
    // SAFETY: what the caller promises.
    unsafe { ioctl_bytes(file, request, arg.as_mut_bytes(), arena) }
}

/// Like [`ioctl`], for one of [`PLAIN_REQUESTS`].
///
/// # Errors
/// The errno of the driver; `EINVAL` for another request, or one with an argument of another
/// size.
pub fn plain_ioctl<F, T>(file: &F, request: u32, arg: &mut T) -> Result<i32, Errno>
where
    F: FileOperations + ?Sized,
    T: FromBytes + IntoBytes + Immutable,
{
    if !PLAIN_REQUESTS.contains(&request) {
        return Err(Errno::INVAL);
    }
    // SAFETY: the driver follows no address in the arguments of `PLAIN_REQUESTS`, and neither
    // SUBMIT nor GEM_CLOSE is one of them.
    unsafe { ioctl(file, request, arg, &Arena::new()) }
}

/// VERSION: its structure, and the driver's name, date and description, truncated to the
/// buffers. The addresses in the structure are invalid.
///
/// # Errors
/// The errno of the driver.
pub fn version<F: FileOperations + ?Sized>(
    file: &F,
) -> Result<(sys::Version, [Vec<u8>; 3]), Errno> {
    let arena = Arena::new();
    let places = [(); 3].map(|()| arena.push(&[0; TEXT_BYTES]));
    let room = TEXT_BYTES as u64;
    let mut structure = sys::Version {
        name_len: room,
        name: places[0],
        date_len: room,
        date: places[1],
        desc_len: room,
        desc: places[2],
        ..sys::Version::default()
    };
    // SAFETY: the three addresses belong to `arena`, with the lengths of their buffers.
    unsafe { ioctl(file, sys::VERSION, &mut structure, &arena) }?;
    let lens = [structure.name_len, structure.date_len, structure.desc_len];
    let mut texts = lens.map(|len| vec![0; len.min(room) as usize]);
    for (text, place) in texts.iter_mut().zip(places) {
        arena.read(place, text)?;
    }
    Ok((structure, texts))
}

/// Description of a device: the answer of VERSION, or defaults if it fails, and the given
/// values.
pub fn device_info<F: FileOperations + ?Sized>(
    file: &F,
    name: String,
    is_model: bool,
    cores: u32,
) -> DeviceInfo {
    let (numbers, texts) = version(file).unwrap_or_default();
    let [driver, date, desc] = texts.map(OsString::from_vec);
    DeviceInfo {
        name,
        driver: drm::Driver {
            version: (
                numbers.version_major,
                numbers.version_minor,
                numbers.version_patchlevel,
            ),
            name: driver,
            date,
            desc,
        },
        is_model,
        cores,
    }
}

/// PREP_BO: waits until no job writes a BO, and gives it to the CPU.
///
/// # Errors
/// `EBUSY` or `ETIMEDOUT` at the deadline, `ENOENT` for an unknown handle.
pub fn prep_bo<F>(file: &F, handle: u32, until: Deadline) -> Result<(), Errno>
where
    F: FileOperations + ?Sized,
{
    let mut bo = sys::PrepBo {
        handle,
        reserved: 0,
        timeout_ns: until.as_nanos(),
    };
    plain_ioctl(file, sys::PREP_BO, &mut bo).map(drop)
}

/// Whether PREP_BO failed with this because jobs still write the BO: EBUSY if the deadline had
/// passed before the call, ETIMEDOUT if it passed meanwhile.
#[must_use]
pub fn is_unfinished(errno: Errno) -> bool {
    matches!(errno, Errno::BUSY | Errno::TIMEDOUT)
}

/// Whether a job writes a BO: PREP_BO without waiting.
///
/// # Errors
/// `ENOENT` for an unknown handle.
pub fn is_busy<F: FileOperations + ?Sized>(file: &F, handle: u32) -> Result<bool, Errno> {
    match prep_bo(file, handle, Deadline::NOW) {
        Ok(()) => Ok(false),
        Err(errno) if is_unfinished(errno) => Ok(true),
        Err(errno) => Err(errno),
    }
}

/// SUBMIT. Success does not mean that a job runs.
///
/// # Safety
/// The programs keep the promise of [`FileOperations::ioctl`] for SUBMIT.
pub(crate) unsafe fn submit(file: &dyn FileOperations, jobs: &[RawJob<'_>]) -> Result<(), Error> {
    let arena = Arena::new();
    let submitted = place(jobs, &arena).and_then(|mut submit| {
        // SAFETY: all its addresses are those of arrays in `arena`, with as many elements
        // as the counts beside them state. SUBMIT copies from them before it returns. The
        // caller promises the rest.
        unsafe { ioctl(file, sys::SUBMIT, &mut submit, &arena) }
    });
    submitted.map_err(|errno| Error::of("SUBMIT", None, errno))?;
    Ok(())
}

/// PRIME export: returns a dma-buf of a BO.
///
/// # Errors
/// The errno of the driver.
pub fn export<F>(file: &F, handle: u32, flags: u32) -> Result<OwnedFd, Errno>
where
    F: FileOperations + ?Sized,
{
    let mut prime = sys::PrimeHandle {
        handle,
        flags,
        fd: -1,
    };
    plain_ioctl(file, sys::PRIME_HANDLE_TO_FD, &mut prime)?;
    // SAFETY: PRIME_HANDLE_TO_FD succeeded, so `fd` is a new descriptor of this process
    // without another owner.
    Ok(unsafe { OwnedFd::from_raw_fd(prime.fd) })
}

/// PRIME import: returns the handle of a dma-buf.
///
/// # Errors
/// `EINVAL` for a dma-buf of another device, or a file that is no dma-buf.
pub fn import<F>(file: &F, dma_buf: BorrowedFd<'_>) -> Result<u32, Errno>
where
    F: FileOperations + ?Sized,
{
    let mut prime = sys::PrimeHandle {
        handle: 0,
        flags: 0,
        fd: dma_buf.as_raw_fd(),
    };
    plain_ioctl(file, sys::PRIME_FD_TO_HANDLE, &mut prime)?;
    Ok(prime.handle)
}

/// Flags of a readable and writable dma-buf: the first export of an object fixes the access
/// for all later ones.
pub(crate) const EXPORT_FLAGS: u32 = sys::DRM_CLOEXEC | sys::DRM_RDWR;
