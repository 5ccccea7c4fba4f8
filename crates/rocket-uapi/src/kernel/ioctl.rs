// SPDX-License-Identifier: MIT OR Apache-2.0
//! ioctls with their arguments: which structure goes with which request.

use std::ffi::c_void;
use std::os::fd::BorrowedFd;
use std::ptr;

use rustix::ioctl::{Ioctl, IoctlOutput, Opcode};

use crate::Errno;
use crate::sys;

/// An ioctl's argument and the one request that takes it.
///
/// # Safety
/// The kernel takes `REQUEST` with a structure of exactly this layout, and
/// reads and writes no byte beyond its size there.
pub(super) unsafe trait Argument {
    /// The request number, whose bits 16..30 are the size of `Self`.
    const REQUEST: u32;
}

// SAFETY (each): layout and request number are those of the kernel's header,
// asserted in `sys` and compared with the header by CI; the DRM core and the
// dma-buf and sync_file code copy the number of bytes in the request, which is
// the structure's size (drm_ioctl.c, dma-buf.c, sync_file.c; Linux 7.2).
// SAFETY: see above.
unsafe impl Argument for sys::CreateBo {
    const REQUEST: u32 = sys::CREATE_BO;
}
// SAFETY: see above.
unsafe impl Argument for sys::Submit {
    const REQUEST: u32 = sys::SUBMIT;
}
// SAFETY: see above.
unsafe impl Argument for sys::PrepBo {
    const REQUEST: u32 = sys::PREP_BO;
}
// SAFETY: see above.
unsafe impl Argument for sys::FiniBo {
    const REQUEST: u32 = sys::FINI_BO;
}
// SAFETY: see above.
unsafe impl Argument for sys::Version {
    const REQUEST: u32 = sys::VERSION;
}
// SAFETY: see above.
unsafe impl Argument for sys::GemClose {
    const REQUEST: u32 = sys::GEM_CLOSE;
}
// SAFETY: see above.
unsafe impl Argument for sys::PrimeHandle {
    const REQUEST: u32 = sys::PRIME_HANDLE_TO_FD;
}
// SAFETY: see above; the same structure in the other direction.
unsafe impl Argument for PrimeToHandle {
    const REQUEST: u32 = sys::PRIME_FD_TO_HANDLE;
}
// SAFETY: see above.
unsafe impl Argument for sys::ImportSyncFile {
    const REQUEST: u32 = sys::IMPORT_SYNC_FILE;
}
// SAFETY: see above.
unsafe impl Argument for sys::SyncMergeData {
    const REQUEST: u32 = sys::SYNC_MERGE;
}
// SAFETY: see above.
unsafe impl Argument for sys::ExportSyncFile {
    const REQUEST: u32 = sys::EXPORT_SYNC_FILE;
}
// SAFETY: see above.
unsafe impl Argument for sys::SyncFileInfo {
    const REQUEST: u32 = sys::SYNC_FILE_INFO;
}

/// The argument of PRIME_FD_TO_HANDLE: the structure that PRIME_HANDLE_TO_FD
/// has, as an argument has one request here.
#[repr(transparent)]
#[derive(Debug)]
pub(super) struct PrimeToHandle(pub(super) sys::PrimeHandle);

/// A request number with a pointer.
pub(super) struct Request {
    pub(super) number: u32,
    pub(super) argument: *mut c_void,
}

// SAFETY: `as_ptr` is the argument as given; nothing is made of the pointer
// afterwards; `IS_MUTATING` claims nothing. Whether number and pointer fit is
// the promise of whoever calls `rustix::ioctl::ioctl`, which is unsafe.
unsafe impl Ioctl for Request {
    type Output = IoctlOutput;

    const IS_MUTATING: bool = true;

    fn opcode(&self) -> Opcode {
        self.number as Opcode
    }

    fn as_ptr(&mut self) -> *mut c_void {
        self.argument
    }

    unsafe fn output_from_ptr(out: IoctlOutput, _: *mut c_void) -> Result<IoctlOutput, Errno> {
        Ok(out)
    }
}

/// An ioctl, started again whenever a signal handler interrupts it. PREP_BO's
/// deadline is absolute, so it does not move.
///
/// # Safety
/// Every address in `argument`, and in what it leads to, must be valid for
/// what the request does there, for the duration of the call.
pub(super) unsafe fn ioctl<T: Argument>(fd: BorrowedFd<'_>, argument: &mut T) -> Result<(), Errno> {
    loop {
        let request = Request {
            number: T::REQUEST,
            argument: ptr::from_mut(argument).cast(),
        };
        // SAFETY: the file may be any: an ioctl that it does not know fails.
        // For one that knows it, `Argument` says that the kernel touches
        // `size_of::<T>()` bytes at the pointer, which the exclusive borrow
        // covers, and the caller vouches for addresses inside.
        match unsafe { rustix::ioctl::ioctl(fd, request) } {
            Err(Errno::INTR) => {}
            other => return other.map(drop),
        }
    }
}

/// An ioctl whose argument holds no addresses.
pub(super) fn plain_ioctl<T: Argument + WithoutAddresses>(
    fd: BorrowedFd<'_>,
    argument: &mut T,
) -> Result<(), Errno> {
    // SAFETY: `WithoutAddresses`.
    unsafe { ioctl(fd, argument) }
}

/// Structures in which the kernel finds no address to follow.
pub(super) trait WithoutAddresses {}
impl WithoutAddresses for sys::CreateBo {}
impl WithoutAddresses for sys::PrepBo {}
impl WithoutAddresses for sys::FiniBo {}
impl WithoutAddresses for sys::GemClose {}
impl WithoutAddresses for sys::PrimeHandle {}
impl WithoutAddresses for PrimeToHandle {}
impl WithoutAddresses for sys::ExportSyncFile {}
impl WithoutAddresses for sys::ImportSyncFile {}
impl WithoutAddresses for sys::SyncMergeData {}
