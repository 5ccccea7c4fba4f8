// SPDX-License-Identifier: MIT OR Apache-2.0
//! Heap pages that the CPU guards and the mock's "NPU" share.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

use rocket_uapi::{MappedMemory, PAGE_BYTES};

const WORD_BYTES: usize = size_of::<AtomicU64>();
const PAGE_WORDS: usize = PAGE_BYTES / WORD_BYTES;

#[derive(Debug)]
#[repr(C, align(4096))]
struct Page([AtomicU64; PAGE_WORDS]);

#[derive(Debug)]
pub(super) struct Pages(Box<[Page]>);

impl Pages {
    pub(super) fn new(len: usize) -> Self {
        let page = || Page([const { AtomicU64::new(0) }; PAGE_WORDS]);
        Self((0..len.div_ceil(PAGE_BYTES)).map(|_| page()).collect())
    }

    /// Fills the pages from byte `offset` on, which begins a word.
    pub(super) fn fill_from(&self, offset: usize, byte: u8) {
        let len = PAGE_BYTES * self.0.len();
        assert!(offset.is_multiple_of(WORD_BYTES) && offset <= len);
        let words = self.0.iter().flat_map(|page| &page.0);
        for word in words.skip(offset / WORD_BYTES) {
            word.store(u64::from_ne_bytes([byte; WORD_BYTES]), Ordering::Relaxed);
        }
    }
}

type Callback = Box<dyn Fn() + Send + Sync>;

/// A "mapping" that calls back when it ends.
pub(super) struct Mapping {
    pages: std::sync::Arc<Pages>,
    unmapped: Callback,
}

impl Mapping {
    pub(super) fn new(pages: std::sync::Arc<Pages>, unmapped: Callback) -> Self {
        Self { pages, unmapped }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        (self.unmapped)();
    }
}

impl fmt::Debug for Mapping {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Mapping")
    }
}

// SAFETY: zeroed, whole, aligned pages of one allocation of atomics, which the mapping
// keeps alive and in place. Only the mock writes them as the NPU: in SUBMIT, while the job
// owns the BO and no guard exists, and never while another thread of a test copies.
unsafe impl MappedMemory for Mapping {
    fn as_ptr(&self) -> *mut u8 {
        self.pages.0.as_ptr().cast_mut().cast()
    }

    fn len(&self) -> usize {
        size_of_val(&*self.pages.0)
    }
}
