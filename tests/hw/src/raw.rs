// SPDX-License-Identifier: MIT OR Apache-2.0
//! Raw ioctls with the arguments that rows need, good and bad ones.

use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

use rocket_uapi::{
    Device, Errno, FileOperations, MapRequest, MappedMemory, OwnProcess, plain_ioctl, sys,
};
use rustix::mm::MprotectFlags;
use zerocopy::{FromBytes, IntoBytes};

use crate::check::NotPassed;
use crate::request::plain;

/// Bits of a request number that hold the size of its argument.
const SIZE_SHIFT: u32 = 16;
const SIZE_MASK: u32 = 0x3fff << SIZE_SHIFT;

/// GET_UNIQUE (drm.h): a length and an address.
const GET_UNIQUE: u32 = 0xc010_6401;

/// An open file, with its raw system calls.
#[derive(Clone, Debug)]
pub(crate) struct File {
    device: Device,
}

impl File {
    pub(crate) fn new(device: &Device) -> Self {
        let device = device.clone();
        Self { device }
    }

    pub(crate) fn device(&self) -> &Device {
        &self.device
    }

    pub(crate) fn raw(&self) -> &dyn FileOperations {
        // SAFETY: rows access memory by the guards of their own buffers, which end before a
        // job or another mapping writes it, and close no handle of a live `Bo`.
        unsafe { self.device.raw_file() }
    }

    pub(crate) fn reopen(&self) -> Result<Self, NotPassed> {
        Ok(Self::new(&self.device.reopen()?))
    }

    /// ioctl with an argument of `arg.len()` bytes; `None` passes NULL.
    ///
    /// # Safety
    /// Addresses inside `arg`, and inside the data that they point to, must be
    /// invalid, or ones that the driver may read or write as the ioctl defines. The
    /// request must not make the driver touch more than `arg` at `arg`.
    pub(crate) unsafe fn ioctl(&self, request: u32, arg: Option<&mut [u8]>) -> Result<(), Errno> {
        // SAFETY: it is asked only for addresses for which the caller vouches. It
        // lives for this call.
        let user = unsafe { OwnProcess::new() };
        // SAFETY: what the caller promises.
        unsafe { self.raw().ioctl(request, arg.unwrap_or_default(), &user) }.map(drop)
    }

    /// Like [`File::ioctl`], on a dma-buf or a sync_file that came from this device.
    ///
    /// # Safety
    /// As for [`File::ioctl`].
    pub(crate) unsafe fn file_ioctl(
        &self,
        file: BorrowedFd<'_>,
        request: u32,
        arg: Option<&mut [u8]>,
    ) -> Result<(), Errno> {
        let arg = arg.map_or(0, |bytes| bytes.as_mut_ptr().expose_provenance() as u64);
        // SAFETY: as in `ioctl`; and `arg` is exclusively ours to lend.
        let user = unsafe { OwnProcess::new() };
        let files = self.raw().shared_files();
        // SAFETY: what the caller promises.
        unsafe { files.ioctl(file, request, arg, &user) }.map(drop)
    }

    /// An ioctl whose argument holds no address.
    pub(crate) fn call<T>(&self, request: u32, arg: &mut T) -> Result<(), Errno>
    where
        T: FromBytes + IntoBytes,
    {
        // SAFETY: `plain` checks it. No row closes the handle of a `Bo`.
        unsafe { self.ioctl(request, Some(plain(request, arg))) }
    }

    pub(crate) fn create(&self, size: u32) -> Result<sys::CreateBo, Errno> {
        let mut arg = sys::CreateBo {
            size,
            ..sys::CreateBo::default()
        };
        self.call(sys::CREATE_BO, &mut arg)?;
        Ok(arg)
    }

    pub(crate) fn close(&self, handle: u32) -> Result<(), Errno> {
        self.call(sys::GEM_CLOSE, &mut sys::GemClose { handle, pad: 0 })
    }

    pub(crate) fn prep(&self, handle: u32, timeout_ns: i64) -> Result<(), Errno> {
        self.prep_reserved(handle, 0, timeout_ns)
    }

    pub(crate) fn prep_reserved(
        &self,
        handle: u32,
        reserved: u32,
        timeout_ns: i64,
    ) -> Result<(), Errno> {
        let mut arg = sys::PrepBo {
            handle,
            reserved,
            timeout_ns,
        };
        self.call(sys::PREP_BO, &mut arg)
    }

    pub(crate) fn fini(&self, handle: u32, reserved: u32) -> Result<(), Errno> {
        self.call(sys::FINI_BO, &mut sys::FiniBo { handle, reserved })
    }

    /// FINI_BO of `handle` with a structure of another size, 4 bytes at least.
    pub(crate) fn fini_sized(&self, handle: u32, size: usize) -> Result<(), Errno> {
        let mut arg = [handle.to_ne_bytes(), [0; 4]].concat();
        // The bytes after the real structure must not matter.
        arg.resize(size, 0xff);
        let request = sys::FINI_BO & !SIZE_MASK | (size as u32) << SIZE_SHIFT;
        // SAFETY: the size in the request is that of `arg`, and FINI_BO
        // follows no address.
        unsafe { self.ioctl(request, Some(&mut arg)) }
    }

    pub(crate) fn fini_null(&self) -> Result<(), Errno> {
        // SAFETY: nothing can be read or written at NULL.
        unsafe { self.ioctl(sys::FINI_BO, None) }
    }

    pub(crate) fn get_cap(&self, capability: u64) -> Result<u64, Errno> {
        let mut arg = sys::GetCap {
            capability,
            value: u64::MAX,
        };
        self.call(sys::GET_CAP, &mut arg)?;
        Ok(arg.value)
    }

    /// Asks for a name, with no room for it.
    pub(crate) fn get_unique(&self) -> Result<(), Errno> {
        let mut arg = [0_u8; 16];
        // SAFETY: the size in the request is 16; with room for no bytes the
        // address is not followed.
        unsafe { self.ioctl(GET_UNIQUE, Some(&mut arg)) }
    }

    /// VERSION with these buffers for the name, the description and the date.
    pub(crate) fn version_in(&self, rooms: [&mut [u8]; 3]) -> Result<sys::Version, Errno> {
        let [name_len, desc_len, date_len] = rooms.each_ref().map(|room| room.len() as u64);
        let [name, desc, date] = rooms.map(|room| room.as_mut_ptr().expose_provenance() as u64);
        let mut arg = sys::Version {
            name_len,
            name,
            date_len,
            date,
            desc_len,
            desc,
            ..sys::Version::default()
        };
        // SAFETY: the request is that of the structure; its three addresses are those
        // of exclusive slices with as many bytes as the lengths say.
        unsafe { self.ioctl(sys::VERSION, Some(arg.as_mut_bytes())) }?;
        Ok(arg)
    }

    pub(crate) fn export(&self, handle: u32) -> Result<OwnedFd, Errno> {
        self.export_with(handle, sys::DRM_CLOEXEC | sys::DRM_RDWR)
    }

    pub(crate) fn export_with(&self, handle: u32, flags: u32) -> Result<OwnedFd, Errno> {
        rocket_uapi::export(self.raw(), handle, flags)
    }

    pub(crate) fn import(&self, dma_buf: BorrowedFd<'_>) -> Result<u32, Errno> {
        self.import_number(dma_buf.as_raw_fd())
    }

    pub(crate) fn import_number(&self, fd: i32) -> Result<u32, Errno> {
        let mut arg = sys::PrimeHandle {
            fd,
            ..sys::PrimeHandle::default()
        };
        plain_ioctl(self.raw(), sys::PRIME_FD_TO_HANDLE, &mut arg)?;
        Ok(arg.handle)
    }

    pub(crate) fn map(&self, request: &MapRequest) -> Result<Map, Errno> {
        self.raw().mmap(request).map(Map)
    }

    pub(crate) fn map_shared(&self, offset: u64, len: usize) -> Result<Map, Errno> {
        self.map(&MapRequest::shared(offset, len))
    }
}

/// A mapping, readable at least.
#[derive(Debug)]
pub(crate) struct Map(pub(crate) Box<dyn MappedMemory>);

impl Map {
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    fn at(&self, offset: usize) -> *mut u8 {
        assert!(offset < self.0.len(), "offset {offset} outside a mapping");
        self.0.as_ptr().wrapping_add(offset)
    }

    pub(crate) fn get(&self, offset: usize) -> u8 {
        let byte = self.at(offset);
        // SAFETY: `at` checked that the byte is inside; every row maps for
        // reading; volatile, because other mappings show the same pages.
        unsafe { byte.read_volatile() }
    }

    /// Writes a byte of a mapping that was made, or made again, writable.
    pub(crate) fn set(&self, offset: usize, value: u8) {
        let byte = self.at(offset);
        // SAFETY: `at` checked that the byte is inside, and rows call this for
        // writable mappings only (else the process ends with a signal, which
        // is no undefined behaviour).
        unsafe { byte.write_volatile(value) }
    }

    pub(crate) fn is_zero(&self) -> bool {
        (0..self.len()).all(|offset| self.get(offset) == 0)
    }

    pub(crate) fn make_writable(&self) -> Result<(), Errno> {
        let flags = MprotectFlags::READ | MprotectFlags::WRITE;
        // SAFETY: exactly the pages of this mapping, to which no reference
        // exists, and reading stays allowed.
        unsafe { rustix::mm::mprotect(self.0.as_ptr().cast(), self.0.len(), flags) }
    }
}
