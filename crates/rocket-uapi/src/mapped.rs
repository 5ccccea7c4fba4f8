// SPDX-License-Identifier: MIT OR Apache-2.0
//! Memory of buffer objects and dma-bufs, mapped for the CPU.

use std::fmt;
use std::slice;
use std::sync::atomic::AtomicU64;

/// A mapping. Dropping it unmaps.
///
/// # Safety
/// `as_ptr` is the start of a page. From there `len` bytes are mapped until the
/// value is dropped, with the protection that was asked for; they are
/// initialised, and stay where they are.
#[allow(clippy::len_without_is_empty, reason = "it is never empty")]
pub unsafe trait MappedMemory: fmt::Debug + Send + Sync {
    /// Address of the first byte.
    fn as_ptr(&self) -> *mut u8;

    /// Length in bytes.
    fn len(&self) -> usize;

    /// Its whole words, where others may change them at any time. What the
    /// protection forbids ends the process with a signal.
    fn words(&self) -> &[AtomicU64] {
        let count = self.len() / size_of::<AtomicU64>();
        // SAFETY: as many initialised words, aligned to a page, as long as the
        // mapping lives, which outlasts the borrow of `self`. Others may change
        // them, as atomics allow. No plain slice of the bytes exists meanwhile:
        // only the guards of `access` make one, of a `Bo` that they borrow, and
        // this is called only for a `DmaBuf`, which owns the `Bo` that it exported
        // and lends it to no guard, and has none of what it imported.
        unsafe { slice::from_raw_parts(self.as_ptr().cast(), count) }
    }
}
