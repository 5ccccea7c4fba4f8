// SPDX-License-Identifier: MIT OR Apache-2.0
//! Mappings of buffer objects in this process.

use std::fmt;
use std::sync::Arc;

use memmap2::MmapRaw;
use rustix::io::Errno;
use rustix::mm::ProtFlags;

use super::gem::GemObject;

/// A mapping of a buffer object.
///
/// It keeps the object alive until it is dropped: IOVA, mmap offset and pages
/// stay, even if the handle or the file is closed. The open file stays too,
/// behind its closed descriptor.
#[derive(Debug)]
pub struct Mapping {
    // Fields drop in this order: the object must be gone before the file.
    memory: Memory,
    len: usize,
    object: Arc<GemObject>,
    _file: Option<Arc<dyn KeptFile>>,
}

/// The open file that a mapping of the device node keeps alive.
pub(super) trait KeptFile: fmt::Debug + Send + Sync {}

#[derive(Debug)]
enum Memory {
    /// A mapping of its own, with the protection asked for.
    Own(MmapRaw),
    /// The pages that the NPU side uses too.
    Shared,
}

impl Mapping {
    /// Maps the whole object through the pages that the NPU side uses too.
    pub(super) fn shared(object: Arc<GemObject>, file: Arc<dyn KeptFile>) -> Self {
        Self {
            memory: Memory::Shared,
            len: object.pages().len(),
            object,
            _file: Some(file),
        }
    }

    /// Maps the first `whole` bytes, a multiple of the page size, anew. The
    /// client asked for `len` of them.
    ///
    /// # Errors
    /// The errno of mmap.
    pub(super) fn own(
        object: &Arc<GemObject>,
        whole: usize,
        len: usize,
        prot: ProtFlags,
        file: Option<Arc<dyn KeptFile>>,
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
            _file: file,
        })
    }

    /// First byte. Valid for `len()` bytes as long as the mapping lives, and
    /// for writes only if the mapping is writable.
    #[must_use]
    pub fn as_ptr(&self) -> *mut u8 {
        match &self.memory {
            Memory::Own(map) => map.as_mut_ptr(),
            Memory::Shared => self.object.pages().as_ptr(),
        }
    }

    /// Length in bytes, as asked for; never 0.
    #[must_use]
    #[allow(clippy::len_without_is_empty, reason = "it is never empty")]
    pub fn len(&self) -> usize {
        self.len
    }
}
