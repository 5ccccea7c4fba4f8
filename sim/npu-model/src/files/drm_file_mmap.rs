// SPDX-License-Identifier: MIT OR Apache-2.0
//! mmap of the device node: buffer objects by their offsets.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use rocket_uapi::MapRequest;
use rustix::io::Errno;
use rustix::mm::MapFlags;

use crate::base::memory::PAGE_BYTES;
use crate::files::drm_file::DrmFile;
use crate::files::shared_file::open_anew;
use crate::objects::gem::GemObject;
use crate::objects::mapping::Mapping;

impl DrmFile {
    /// mmap of this file. The offset is the one that CREATE_BO returned. The length
    /// may be less than the object's.
    ///
    /// With [`Backing::Heap`](crate::Backing::Heap) every mapping is the object's
    /// own pages, whatever the protection.
    ///
    /// # Errors
    /// `EINVAL` if no object starts at the offset, for length 0 or more than the
    /// object has pages, and for a private mapping; `EACCES` if the object has no
    /// handle in this file; `ENODEV` once the kernel is down.
    pub fn mmap(&self, request: &MapRequest) -> Result<Mapping, Errno> {
        let (object, whole) = self.mappable(request)?;
        let file = Arc::clone(&self.open);
        Mapping::own(&object, whole, request.len, request.prot, Some(file))
    }

    /// Maps a whole buffer object, readable and writable.
    ///
    /// # Errors
    /// `ENOENT` for an unknown handle.
    pub fn map_handle(&self, handle: u32) -> Result<Mapping, Errno> {
        self.check_device()?;
        let object = self.lookup(handle).ok_or(Errno::NOENT)?;
        let file = Arc::clone(&self.open);
        Ok(Mapping::shared(object, file))
    }

    /// mmap for another process: returns a file. The process maps its first bytes,
    /// as many as requested, shared. The object and the open file live until all
    /// descriptors and mappings of the returned file are gone, or a little longer;
    /// see [`Model::collect`].
    ///
    /// [`Model::collect`]: crate::Model::collect
    ///
    /// # Errors
    /// As [`mmap`](Self::mmap); `EOPNOTSUPP` with [`Backing::Heap`], `EMFILE`.
    ///
    /// [`Backing::Heap`]: crate::Backing::Heap
    pub fn mmap_file(&self, request: &MapRequest) -> Result<OwnedFd, Errno> {
        let (object, _) = self.mappable(request)?;
        let file = open_anew(object.pages.make_file()?, true)?;
        self.client_maps.add(object, &self.open, &file)?;
        Ok(file)
    }

    /// The object that mmap would map, and the length of the mapping in bytes,
    /// whole pages.
    fn mappable(&self, request: &MapRequest) -> Result<(Arc<GemObject>, usize), Errno> {
        self.check_device()?;
        let objects = &self.driver().objects;
        let object = objects.at_offset(request.offset).ok_or(Errno::INVAL)?;
        let whole = (request.len)
            .checked_next_multiple_of(PAGE_BYTES)
            .filter(|&whole| 0 < whole && whole <= object.pages.len())
            .ok_or(Errno::INVAL)?;
        if !self.has_handle(&object) {
            return Err(Errno::ACCESS);
        }
        // The kernel refuses every private mapping, also a read-only one, which
        // could become copy on write.
        if !request.flags.contains(MapFlags::SHARED) {
            return Err(Errno::INVAL);
        }
        Ok((object, whole))
    }
}
