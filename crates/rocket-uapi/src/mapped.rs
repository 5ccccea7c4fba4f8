// SPDX-License-Identifier: MIT OR Apache-2.0
//! CPU mappings of buffer objects and dma-bufs.

use std::fmt;
use std::slice;
use std::sync::atomic::AtomicU64;

/// A CPU mapping. Dropping it unmaps the memory.
///
/// # Safety
/// `as_ptr` returns the start of a page. From there `len` bytes are mapped, with the
/// requested protection, until the value is dropped. They are initialised and do not move.
#[allow(clippy::len_without_is_empty, reason = "it is never empty")]
pub unsafe trait MappedMemory: fmt::Debug + Send + Sync {
    /// Address of the first byte.
    fn as_ptr(&self) -> *mut u8;

    /// Length in bytes.
    fn len(&self) -> usize;

    /// All whole words of the mapping; others may change them at any time. An access that
    /// the protection forbids ends the process with a signal.
    fn words(&self) -> &[AtomicU64] {
        let count = self.len() / size_of::<AtomicU64>();
        // SAFETY: the words are initialised and aligned to a page. They live as long as the
        // mapping, which outlives the borrow of `self`. Others may change them, which
        // atomics allow. No plain slice of the bytes exists meanwhile: only the guards of
        // `access` make one, from a `Bo` that they borrow. This function is called only for
        // a `DmaBuf`. A `DmaBuf` owns the `Bo` that it exported and lends it to no guard;
        // an imported one has no `Bo`.
        unsafe { slice::from_raw_parts(self.as_ptr().cast(), count) }
    }
}
