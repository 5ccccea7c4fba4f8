// SPDX-License-Identifier: MIT OR Apache-2.0
//! mmap of the device node: buffer objects by their offsets.

use std::sync::Arc;

use memmap2::MmapRaw;
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags};

use super::file::DrmFile;
use super::gem::GemObject;
use super::memory::PAGE_BYTES;
use super::release::FileState;

/// A mapping of a buffer object.
///
/// It keeps the object alive: IOVA, mmap offset and pages stay as they are
/// when the handle is closed, and even when the file is, until this is
/// dropped. The file too stays open behind its closed descriptor so long.
#[derive(Debug)]
pub struct Mapping {
    // Dropped in this order: the object must be gone when the file goes.
    memory: Memory,
    len: usize,
    object: Arc<GemObject>,
    /// Of a mapping of the device node.
    file: Option<Arc<FileState>>,
}

#[derive(Debug)]
enum Memory {
    /// A mapping of its own, with the protection asked for.
    Own(MmapRaw),
    /// The pages that the NPU side uses too.
    Shared,
}

impl Mapping {
    /// What it maps, and by which open file.
    pub(super) fn of(&self) -> (&Arc<GemObject>, Option<&Arc<FileState>>) {
        (&self.object, self.file.as_ref())
    }

    /// The whole object, through the pages that the NPU side uses.
    pub(super) fn shared(object: Arc<GemObject>, file: Arc<FileState>) -> Self {
        Self {
            memory: Memory::Shared,
            len: object.pages().len(),
            object,
            file: Some(file),
        }
    }

    /// The first `whole` bytes, which are pages, mapped anew; `len` of them
    /// were asked for.
    ///
    /// # Errors
    /// The errno that mmap gives.
    pub(super) fn own(
        object: &Arc<GemObject>,
        whole: usize,
        len: usize,
        prot: ProtFlags,
    ) -> Result<Self, Errno> {
        let pages = object.pages();
        let memory = if pages.is_heap() {
            Memory::Shared
        } else {
            Memory::Own(pages.map_again(whole, prot)?)
        };
        Ok(Self {
            memory,
            len,
            object: Arc::clone(object),
            file: None,
        })
    }

    /// First byte. Valid for `len()` bytes as long as the mapping lives, for
    /// writes only where it was made writable.
    #[must_use]
    pub fn as_ptr(&self) -> *mut u8 {
        match &self.memory {
            Memory::Own(map) => map.as_mut_ptr(),
            Memory::Shared => self.object.pages().as_ptr(),
        }
    }

    /// Length in bytes, as asked for.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Never: nothing can be mapped with length 0.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

impl DrmFile {
    /// mmap with this file: `offset` is what CREATE_BO returned, `len` may
    /// be less than the object.
    ///
    /// With [`Backing::Heap`](super::Backing::Heap) the mapping is always
    /// the one set of pages, whatever `prot` says.
    ///
    /// # Errors
    /// `EINVAL` where no object starts at `offset`, for length 0 or more
    /// than the object has pages, and for a private mapping; `EACCES` where
    /// the object has no handle in this file; `ENODEV` once the kernel is
    /// down.
    pub fn mmap(
        &self,
        offset: u64,
        len: usize,
        prot: ProtFlags,
        flags: MapFlags,
    ) -> Result<Mapping, Errno> {
        let (object, whole) = self.mappable(offset, len, flags)?;
        let mut mapping = Mapping::own(&object, whole, len, prot)?;
        mapping.file = Some(Arc::clone(self.open()));
        Ok(mapping)
    }

    /// The object that mmap would map, and how much of it, bytes.
    pub(super) fn mappable(
        &self,
        offset: u64,
        len: usize,
        flags: MapFlags,
    ) -> Result<(Arc<GemObject>, usize), Errno> {
        self.check_device()?;
        let offsets = &self.device().offsets;
        let object = offsets.lookup(offset).ok_or(Errno::INVAL)?;
        let pages = object.pages();
        let whole = len
            .checked_next_multiple_of(PAGE_BYTES)
            .filter(|&whole| 0 < whole && whole <= pages.len())
            .ok_or(Errno::INVAL)?;
        if !self.has_handle(&object) {
            return Err(Errno::ACCESS);
        }
        // Copy on write is refused even where it is only possible, that is
        // for private read-only mappings too.
        if !flags.contains(MapFlags::SHARED) {
            return Err(Errno::INVAL);
        }
        Ok((object, whole))
    }
}
