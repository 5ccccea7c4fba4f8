// SPDX-License-Identifier: MIT OR Apache-2.0
//! Raw ioctls with the arguments that rows need, good and bad ones.

use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use rocket_uapi::{Device, Errno, MapRequest, MappedMemory, OwnProcess, PlainArgument, sys};
use rustix::mm::{MapFlags, MprotectFlags, ProtFlags};
use zerocopy::IntoBytes;

use crate::check::NotPassed;

/// Bits of a request number that hold the size of its argument.
const SIZE_SHIFT: u32 = 16;
const SIZE_MASK: u32 = 0x3fff << SIZE_SHIFT;

/// SYNCOBJ_CREATE (drm.h): a handle and flags.
const SYNCOBJ_CREATE: u32 = 0xc008_64bf;
/// A driver ioctl that rocket does not have: number 4, 8 bytes, written.
const UNKNOWN_DRIVER_IOCTL: u32 = 0x4008_6444;
/// GET_UNIQUE (drm.h): a length and an address.
const GET_UNIQUE: u32 = 0xc010_6401;
/// GEM_FLINK (drm.h): a handle, and a name that the kernel writes.
const GEM_FLINK: u32 = 0xc008_640a;
/// An ioctl with a letter that is not DRM's, 8 bytes, written.
const NOT_DRM: u32 = 0x4008_7a44;

/// Room for each text of VERSION, bytes.
const TEXT_BYTES: usize = 64;

/// One open file, seen by its system calls.
#[derive(Clone, Debug)]
pub(crate) struct File {
    device: Device,
}

/// The driver's answer to VERSION.
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

    /// A second file of the same device.
    pub(crate) fn reopen(&self) -> Result<Self, NotPassed> {
        Ok(Self::new(&self.device.reopen()?))
    }

    /// ioctl with an argument of `arg.len()` bytes; `None` passes NULL.
    ///
    /// # Safety
    /// Addresses inside `arg`, and inside what they lead to, must be ones that
    /// the driver may read or write as the ioctl defines, or invalid. The
    /// request must not make the driver touch more than `arg` at `arg`.
    pub(crate) unsafe fn ioctl(&self, request: u32, arg: Option<&mut [u8]>) -> Result<i32, Errno> {
        // SAFETY: the addresses that it is asked for are those for which the
        // caller vouches. It lives for this call.
        let user = unsafe { OwnProcess::new() };
        let file = self.device.raw_file();
        // SAFETY: what the caller promises.
        unsafe { file.ioctl(request, arg.unwrap_or_default(), &user) }
    }

    /// As [`File::ioctl`], on a dma-buf or a sync_file that came from this device.
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

    /// An ioctl whose structure holds no address.
    fn plain<T: PlainArgument>(&self, request: u32, arg: &mut T) -> Result<i32, Errno> {
        assert!(
            T::REQUESTS.contains(&request),
            "{request:#x} takes another argument"
        );
        // SAFETY: `request` is one of `T`, which promises that the kernel stays
        // within its bytes, and follows no address in it.
        unsafe { self.ioctl(request, Some(arg.as_mut_bytes())) }
    }

    pub(crate) fn create(&self, size: u32) -> Result<sys::CreateBo, Errno> {
        let mut arg = sys::CreateBo {
            size,
            ..sys::CreateBo::default()
        };
        self.plain(sys::CREATE_BO, &mut arg)?;
        Ok(arg)
    }

    pub(crate) fn close(&self, handle: u32) -> Result<i32, Errno> {
        self.plain(sys::GEM_CLOSE, &mut sys::GemClose { handle, pad: 0 })
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
        self.plain(sys::PREP_BO, &mut arg)
    }

    pub(crate) fn fini(&self, handle: u32, reserved: u32) -> Result<i32, Errno> {
        self.plain(sys::FINI_BO, &mut sys::FiniBo { handle, reserved })
    }

    /// FINI_BO of `handle` with a structure of another size, 4 bytes at least.
    pub(crate) fn fini_sized(&self, handle: u32, size: usize) -> Result<i32, Errno> {
        // What is behind the real structure must not matter.
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
        self.plain(sys::GET_CAP, &mut arg)?;
        Ok(arg.value)
    }

    pub(crate) fn syncobj_create(&self) -> Result<i32, Errno> {
        self.eight_bytes(SYNCOBJ_CREATE)
    }

    pub(crate) fn unknown_driver_ioctl(&self) -> Result<i32, Errno> {
        self.eight_bytes(UNKNOWN_DRIVER_IOCTL)
    }

    pub(crate) fn not_drm(&self) -> Result<i32, Errno> {
        self.eight_bytes(NOT_DRM)
    }

    /// A name for an object.
    pub(crate) fn flink(&self, handle: u32) -> Result<u32, Errno> {
        let mut arg = [handle, 0];
        // SAFETY: the size in the request is 8, and no address is in it.
        unsafe { self.ioctl(GEM_FLINK, Some(arg.as_mut_bytes())) }?;
        Ok(arg[1])
    }

    /// Asks for a name, with room for none.
    pub(crate) fn get_unique(&self) -> Result<i32, Errno> {
        let mut arg = [0_u8; 16];
        // SAFETY: the size in the request is 16; with room for no bytes the
        // address is not followed.
        unsafe { self.ioctl(GET_UNIQUE, Some(&mut arg)) }
    }

    /// One of the requests above, which all take 8 bytes, with zeros.
    fn eight_bytes(&self, request: u32) -> Result<i32, Errno> {
        let mut arg = [0_u8; 8];
        // SAFETY: the size in each of the three requests is 8. Nobody knows
        // two of them; the third holds no address.
        unsafe { self.ioctl(request, Some(&mut arg)) }
    }

    pub(crate) fn version(&self) -> Result<VersionTexts, Errno> {
        let mut texts = [[0_u8; TEXT_BYTES]; 3];
        let [name, desc, date] = texts
            .each_mut()
            .map(|text| text.as_mut_ptr().expose_provenance() as u64);
        let room = TEXT_BYTES as u64;
        let mut arg = sys::Version {
            name_len: room,
            name,
            date_len: room,
            date,
            desc_len: room,
            desc,
            ..sys::Version::default()
        };
        // SAFETY: the request is that of the structure; its three addresses
        // are those of local arrays with as many bytes as the lengths say.
        unsafe { self.ioctl(sys::VERSION, Some(arg.as_mut_bytes())) }?;
        let text = |index: usize, len: u64| {
            let len = usize::try_from(len).map_or(TEXT_BYTES, |len| len.min(TEXT_BYTES));
            String::from_utf8_lossy(&texts[index][..len]).into_owned()
        };
        Ok(VersionTexts {
            version: (arg.version_major, arg.version_minor, arg.version_patchlevel),
            texts: [
                text(0, arg.name_len),
                text(1, arg.desc_len),
                text(2, arg.date_len),
            ],
        })
    }

    /// A dma-buf of a buffer object of this file.
    pub(crate) fn export(&self, handle: u32) -> Result<OwnedFd, Errno> {
        self.export_with(handle, sys::DRM_CLOEXEC | sys::DRM_RDWR)
    }

    pub(crate) fn export_with(&self, handle: u32, flags: u32) -> Result<OwnedFd, Errno> {
        let mut arg = sys::PrimeHandle {
            handle,
            flags,
            fd: -1,
        };
        self.plain(sys::PRIME_HANDLE_TO_FD, &mut arg)?;
        // SAFETY: the driver has put a new descriptor there, which nobody else
        // knows.
        Ok(unsafe { OwnedFd::from_raw_fd(arg.fd) })
    }

    /// The handle of a dma-buf in this file.
    pub(crate) fn import(&self, dma_buf: BorrowedFd<'_>) -> Result<u32, Errno> {
        self.import_number(dma_buf.as_raw_fd())
    }

    pub(crate) fn import_number(&self, fd: i32) -> Result<u32, Errno> {
        let mut arg = sys::PrimeHandle {
            handle: 0,
            flags: 0,
            fd,
        };
        self.plain(sys::PRIME_FD_TO_HANDLE, &mut arg)?;
        Ok(arg.handle)
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

    /// A shared mapping for reading and writing.
    pub(crate) fn map_shared(&self, offset: u64, len: usize) -> Result<Map, Errno> {
        let prot = ProtFlags::READ | ProtFlags::WRITE;
        self.map(offset, len, prot, MapFlags::SHARED)
    }
}

/// A mapping, readable at least.
#[derive(Debug)]
pub(crate) struct Map(Box<dyn MappedMemory>);

impl Map {
    /// One that is readable.
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
