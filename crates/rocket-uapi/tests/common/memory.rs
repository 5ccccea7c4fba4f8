// SPDX-License-Identifier: MIT OR Apache-2.0
//! Heap pages that the CPU guards and the mock's "NPU" share.

use std::cell::UnsafeCell;
use std::fmt;

use rocket_uapi::{MappedMemory, PAGE_BYTES};

#[repr(C, align(4096))]
struct Page([u8; PAGE_BYTES]);

pub(super) struct Pages(Box<[UnsafeCell<Page>]>);

// SAFETY: the CPU's slices and the mock's accesses never overlap in time: the mock accesses
// a BO in SUBMIT only, while the job owns it and no guard exists.
unsafe impl Send for Pages {}
// SAFETY: see above.
unsafe impl Sync for Pages {}

impl Pages {
    pub(super) fn new(len: usize) -> Self {
        let page = || UnsafeCell::new(Page([0; PAGE_BYTES]));
        Self((0..len.div_ceil(PAGE_BYTES)).map(|_| page()).collect())
    }

    fn len(&self) -> usize {
        self.0.len() * PAGE_BYTES
    }

    fn as_ptr(&self) -> *mut u8 {
        self.0.as_ptr().cast_mut().cast()
    }

    pub(super) fn fill(&self, byte: u8) {
        self.fill_from(0, byte);
    }

    pub(super) fn fill_from(&self, offset: usize, byte: u8) {
        assert!(offset <= self.len());
        // SAFETY: within the allocation that `self` keeps.
        let at = unsafe { self.as_ptr().add(offset) };
        // SAFETY: the rest of the allocation, inside `UnsafeCell`; no reference to it
        // exists now (see `Sync`).
        unsafe { std::ptr::write_bytes(at, byte, self.len() - offset) }
    }
}

impl fmt::Debug for Pages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Pages({})", self.len())
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
        self.pages.fmt(f)
    }
}

// SAFETY: `len` zeroed bytes in whole aligned pages of one allocation inside `UnsafeCell`,
// which the mapping keeps alive and in place. Only the mock writes them as the NPU, in
// SUBMIT, never while another thread of a test copies.
unsafe impl MappedMemory for Mapping {
    fn as_ptr(&self) -> *mut u8 {
        self.pages.as_ptr()
    }

    fn len(&self) -> usize {
        self.pages.len()
    }
}
