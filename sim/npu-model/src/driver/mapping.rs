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
/// It keeps the object alive: IOVA, mmap offset and pages stay as they are
/// when the handle is closed, and even when the file is, until this is
/// dropped. The file too stays open behind its closed descriptor so long.
#[derive(Debug)]
pub struct Mapping {
    // Dropped in this order: the object must be gone when the file goes.
    memory: Memory,
    len: usize,
    object: Arc<GemObject>,
    _file: Option<Arc<dyn KeptFile>>,
}

/// What a mapping of the device node keeps: its open file.
pub(super) trait KeptFile: fmt::Debug + Send + Sync {}

#[derive(Debug)]
enum Memory {
    /// A mapping of its own, with the protection asked for.
    Own(MmapRaw),
    /// The pages that the NPU side uses too.
    Shared,
}

impl Mapping {
    /// The whole object, through the pages that the NPU side uses.
    pub(super) fn shared(object: Arc<GemObject>, file: Arc<dyn KeptFile>) -> Self {
        Self {
            memory: Memory::Shared,
            len: object.pages().len(),
            object,
            _file: Some(file),
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

    /// First byte. Valid for `len()` bytes as long as the mapping lives, for
    /// writes only where it was made writable.
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
