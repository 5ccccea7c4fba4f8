// SPDX-License-Identifier: MIT OR Apache-2.0
//! Mappings of buffer objects in this process.

use std::any::Any;
use std::sync::Arc;

use memmap2::MmapRaw;
use rocket_uapi::MappedMemory;
use rustix::io::Errno;
use rustix::mm::ProtFlags;

use crate::objects::gem::GemObject;

/// A mapping of a buffer object.
///
/// It keeps the object alive until it is dropped: IOVA, mmap offset and pages
/// stay, even if the handle or the file is closed. The open file stays too,
/// behind its closed descriptor.
#[derive(Debug)]
pub struct Mapping {
    // Fields drop in this order: the object must be gone before the file.
    /// A separate mapping with the requested protection; `None` for the pages that the NPU
    /// side uses too.
    map: Option<MmapRaw>,
    /// Length in bytes, as asked for; never 0.
    len: usize,
    object: Arc<GemObject>,
    /// The open file that a mapping of the device node keeps alive.
    _file: Option<Arc<dyn Any + Send + Sync>>,
}

impl Mapping {
    /// Maps the whole object through the pages that the NPU side uses too.
    pub(crate) fn shared(object: Arc<GemObject>, file: Arc<dyn Any + Send + Sync>) -> Self {
        Self {
            map: None,
            len: object.pages.len(),
            object,
            _file: Some(file),
        }
    }

    /// Maps the first `whole` bytes, a multiple of the page size, anew. The
    /// client asked for `len` of them.
    ///
    /// # Errors
    /// The errno of mmap.
    pub(crate) fn own(
        object: &Arc<GemObject>,
        whole: usize,
        len: usize,
        prot: ProtFlags,
        file: Option<Arc<dyn Any + Send + Sync>>,
    ) -> Result<Self, Errno> {
        let pages = &object.pages;
        let map = if pages.is_heap() {
            None
        } else {
            Some(pages.map_again(whole, prot)?)
        };
        Ok(Self {
            map,
            len,
            object: Arc::clone(object),
            _file: file,
        })
    }
}

// SAFETY: the memory is all pages of an object or the first of them, zeroed when
// made. The address (a mapping or a boxed slice) is fixed while the mapping keeps
// the object: pages that move into a memfd keep theirs.
unsafe impl MappedMemory for Mapping {
    fn as_ptr(&self) -> *mut u8 {
        match &self.map {
            Some(map) => map.as_mut_ptr(),
            None => self.object.pages.as_ptr(),
        }
    }

    fn len(&self) -> usize {
        self.len
    }
}
