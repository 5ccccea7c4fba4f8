// SPDX-License-Identifier: MIT OR Apache-2.0
//! Raw ioctls with the arguments that rows need, good and bad ones.

use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use rocket_uapi::{Device, Errno, MapRequest, MappedMemory, OwnProcess, sys};
use rustix::mm::{MapFlags, MprotectFlags, ProtFlags};
use zerocopy::IntoBytes;

use crate::check::NotPassed;
use crate::request::{FdToHandle, GemFlink, HandleToFd, Request, ShortCreateBo};

/// Bits of a request number that hold the size of its argument.
const SIZE_SHIFT: u32 = 16;
const SIZE_MASK: u32 = 0x3fff << SIZE_SHIFT;

/// GET_UNIQUE (drm.h): a length and an address.
const GET_UNIQUE: u32 = 0xc010_6401;

/// Room for each text of VERSION, bytes.
const TEXT_BYTES: usize = 64;

/// An open file, with its raw system calls.
#[derive(Clone, Debug)]
pub(crate) struct File {
    device: Device,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct VersionTexts {
    pub(crate) version: (i32, i32, i32),
    /// Name, description, date.
    pub(crate) texts: [String; 3],
}

impl File {
    pub(crate) fn new(device: &Device) -> Self {
        let device = device.clone();
        Self { device }
    }

    pub(crate) fn device(&self) -> &Device {
        &self.device
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
    pub(crate) unsafe fn ioctl(&self, request: u32, arg: Option<&mut [u8]>) -> Result<i32, Errno> {
        // SAFETY: it is asked only for addresses for which the caller vouches. It
        // lives for this call.
        let user = unsafe { OwnProcess::new() };
        let file = self.device.raw_file();
        // SAFETY: what the caller promises.
        unsafe { file.ioctl(request, arg.unwrap_or_default(), &user) }
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
    ) -> Result<i32, Errno> {
        let arg = arg.map_or(0, |bytes| bytes.as_mut_ptr().expose_provenance() as u64);
        // SAFETY: as in `ioctl`; and `arg` is exclusively ours to lend.
        let user = unsafe { OwnProcess::new() };
        let files = self.device.raw_file().shared_files();
        // SAFETY: what the caller promises.
        unsafe { files.ioctl(file, request, arg, &user) }
    }

    /// An ioctl whose argument holds no address.
    pub(crate) fn call<T: Request>(&self, arg: &mut T) -> Result<i32, Errno> {
        // SAFETY: `Request` promises that the kernel stays within the bytes of `T`.
        unsafe { self.ioctl(T::NR, Some(arg.as_mut_bytes())) }
    }

    pub(crate) fn create(&self, size: u32) -> Result<sys::CreateBo, Errno> {
        let mut arg = sys::CreateBo {
            size,
            ..sys::CreateBo::default()
        };
        self.call(&mut arg)?;
        Ok(arg)
    }

    pub(crate) fn close(&self, handle: u32) -> Result<i32, Errno> {
        self.call(&mut sys::GemClose { handle, pad: 0 })
    }

    pub(crate) fn prep(&self, handle: u32, timeout_ns: i64) -> Result<i32, Errno> {
        self.prep_reserved(handle, 0, timeout_ns)
    }

    pub(crate) fn prep_reserved(
        &self,
        handle: u32,
        reserved: u32,
        timeout_ns: i64,
    ) -> Result<i32, Errno> {
        let mut arg = sys::PrepBo {
            handle,
            reserved,
            timeout_ns,
        };
        self.call(&mut arg)
    }

    pub(crate) fn fini(&self, handle: u32, reserved: u32) -> Result<i32, Errno> {
        self.call(&mut sys::FiniBo { handle, reserved })
    }

    /// FINI_BO of `handle` with a structure of another size, 4 bytes at least.
    pub(crate) fn fini_sized(&self, handle: u32, size: usize) -> Result<i32, Errno> {
        // The bytes after the real structure must not matter.
        let mut arg = vec![0xff; size];
        for (byte, value) in arg
            .iter_mut()
            .zip(handle.to_ne_bytes().into_iter().chain([0; 4]))
        {
            *byte = value;
        }
        let request = sys::FINI_BO & !SIZE_MASK | (size as u32) << SIZE_SHIFT;
        // SAFETY: the size in the request is that of `arg`, and FINI_BO
        // follows no address.
        unsafe { self.ioctl(request, Some(&mut arg)) }
    }

    pub(crate) fn fini_null(&self) -> Result<i32, Errno> {
        // SAFETY: nothing can be read or written at NULL.
        unsafe { self.ioctl(sys::FINI_BO, None) }
    }

    pub(crate) fn get_cap(&self, capability: u64) -> Result<u64, Errno> {
        let mut arg = sys::GetCap {
            capability,
            value: u64::MAX,
        };
        self.call(&mut arg)?;
        Ok(arg.value)
    }

    /// CREATE_BO whose request has 8 bytes. Returns size, handle, and the word after
    /// them, where the address would be.
    pub(crate) fn create_short(&self, size: u32, behind: u32) -> Result<[u32; 3], Errno> {
        let mut arg = ShortCreateBo([size, 0, behind]);
        self.call(&mut arg)?;
        Ok(arg.0)
    }

    pub(crate) fn flink(&self, handle: u32) -> Result<u32, Errno> {
        let mut arg = GemFlink([handle, 0]);
        self.call(&mut arg)?;
        Ok(arg.0[1])
    }

    /// Asks for a name, with no room for it.
    pub(crate) fn get_unique(&self) -> Result<i32, Errno> {
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

    pub(crate) fn version(&self) -> Result<VersionTexts, Errno> {
        let mut texts = [[0_u8; TEXT_BYTES]; 3];
        let arg = self.version_in(texts.each_mut().map(|text| &mut text[..]))?;
        let lens = [arg.name_len, arg.desc_len, arg.date_len];
        let mut texts = texts.iter().zip(lens).map(|(text, len)| {
            let len = usize::try_from(len).map_or(TEXT_BYTES, |len| len.min(TEXT_BYTES));
            String::from_utf8_lossy(&text[..len]).into_owned()
        });
        Ok(VersionTexts {
            version: (arg.version_major, arg.version_minor, arg.version_patchlevel),
            texts: std::array::from_fn(|_| texts.next().unwrap_or_default()),
        })
    }

    pub(crate) fn export(&self, handle: u32) -> Result<OwnedFd, Errno> {
        self.export_with(handle, sys::DRM_CLOEXEC | sys::DRM_RDWR)
    }

    pub(crate) fn export_with(&self, handle: u32, flags: u32) -> Result<OwnedFd, Errno> {
        let mut arg = HandleToFd(sys::PrimeHandle {
            handle,
            flags,
            fd: -1,
        });
        self.call(&mut arg)?;
        // SAFETY: the driver has put a new descriptor there, which no other code
        // knows.
        Ok(unsafe { OwnedFd::from_raw_fd(arg.0.fd) })
    }

    pub(crate) fn import(&self, dma_buf: BorrowedFd<'_>) -> Result<u32, Errno> {
        self.import_number(dma_buf.as_raw_fd())
    }

    pub(crate) fn import_number(&self, fd: i32) -> Result<u32, Errno> {
        let mut arg = FdToHandle(sys::PrimeHandle {
            handle: 0,
            flags: 0,
            fd,
        });
        self.call(&mut arg)?;
        Ok(arg.0.handle)
    }

    pub(crate) fn poll(&self) -> Result<i16, Errno> {
        self.device.raw_file().poll()
    }

    pub(crate) fn read(&self) -> Result<usize, Errno> {
        self.device.raw_file().read(&mut [0; 64])
    }

    pub(crate) fn map(
        &self,
        offset: u64,
        len: usize,
        prot: ProtFlags,
        flags: MapFlags,
    ) -> Result<Map, Errno> {
        let map = self.device.raw_file().mmap(&MapRequest {
            offset,
            len,
            prot,
            flags,
        })?;
        Ok(Map(map))
    }

    pub(crate) fn map_shared(&self, offset: u64, len: usize) -> Result<Map, Errno> {
        let prot = ProtFlags::READ | ProtFlags::WRITE;
        self.map(offset, len, prot, MapFlags::SHARED)
    }
}

/// A mapping, readable at least.
#[derive(Debug)]
pub(crate) struct Map(Box<dyn MappedMemory>);

impl Map {
    pub(crate) fn new(map: Box<dyn MappedMemory>) -> Self {
        Self(map)
    }

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
