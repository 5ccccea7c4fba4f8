// SPDX-License-Identifier: MIT OR Apache-2.0
//! Replaces a callback in an object of ggml that other threads may read at the same time.
//!
//! ggml does not promise that its objects can be written, or when it reads them. So:
//!
//! * The memory is looked up before it is written: ggml could make such an object constant, and
//!   then it would lie in pages that the loader made read-only.
//! * The readers are ggml's compiled code. It loads a callback with one instruction, and aligned
//!   loads and stores of 64 bits are whole on `AArch64` and x86-64: a reader gets the old
//!   callback or the new one. Either may be called, by the caller's promise.

use std::ffi::c_void;
use std::mem;
use std::ptr::NonNull;
use std::slice;
use std::sync::atomic::{AtomicPtr, Ordering};

use crate::ggml::symbols::{as_function, each_loaded};

/// Stores `hook` in `slot`; returns the callback that was there. Returns `None`, and leaves the
/// slot as it is, if there was none or if the memory cannot be written.
///
/// # Safety
/// `F` is a pointer that is not null, such as a function. `slot` is a callback of an object that is
/// not freed. From now on any thread may call `hook` in place of that callback, and that callback
/// in place of `hook`.
pub(super) unsafe fn replace<F: Copy>(slot: *mut Option<F>, hook: F) -> Option<F> {
    const { assert!(size_of::<Option<F>>() == size_of::<*mut c_void>()) }
    if !slot.is_aligned() || !is_writable(slot.addr()) {
        return None;
    }
    // SAFETY: `F` is a pointer that is not null, and an `Option` of it one that may be null.
    // Aligned and writable, as was just checked, and not freed, by the caller's promise. In this
    // library only this function accesses it; for ggml see the top of this file.
    let slot = unsafe { AtomicPtr::from_ptr(slot.cast::<*mut c_void>()) };
    // SAFETY: as above.
    let hook = unsafe { mem::transmute_copy::<F, *mut c_void>(&hook) };
    let if_any = |own: *mut c_void| (!own.is_null()).then_some(hook);
    let replaced = slot.fetch_update(Ordering::AcqRel, Ordering::Acquire, if_any);
    // SAFETY: the function of this slot.
    NonNull::new(replaced.ok()?).map(|own| unsafe { as_function(own) })
}

/// Whether an address of a live object can be written. In a program or a library it can if its
/// segment can and the loader does not protect it after relocation (`PT_GNU_RELRO`). Any other
/// address was allocated.
fn is_writable(address: usize) -> bool {
    let mut is_writable = true;
    each_loaded(|info| {
        if info.dlpi_phdr.is_null() {
            return;
        }
        // SAFETY: there are so many headers, which stay as long as the object that they describe is
        // loaded.
        let headers = unsafe { slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into()) };
        for header in headers {
            let start = (info.dlpi_addr as usize).wrapping_add(header.p_vaddr as usize);
            let is_inside = address.wrapping_sub(start) < header.p_memsz as usize;
            is_writable &= match header.p_type {
                libc::PT_LOAD if is_inside => header.p_flags & libc::PF_W != 0,
                libc::PT_GNU_RELRO => !is_inside,
                _ => true,
            };
        }
    });
    is_writable
}

#[cfg(test)]
mod tests {
    use std::ptr;

    use super::*;

    /// A constant object with a pointer, which the loader writes before it protects the page.
    struct Constant(*mut c_void);

    // SAFETY: it is only read.
    unsafe impl Sync for Constant {}

    static CONSTANT: Constant = Constant((&raw const WORDS).cast_mut().cast());
    static WORDS: [usize; 2] = [1, 2];
    static CHANGED: AtomicPtr<c_void> = AtomicPtr::new((&raw const WORDS).cast_mut().cast());

    fn hook() -> NonNull<c_void> {
        NonNull::from(&WORDS[1]).cast()
    }

    fn replaced(slot: *mut *mut c_void) -> Option<NonNull<c_void>> {
        // SAFETY: a pointer that nobody calls and that is not freed during the call.
        unsafe { replace(slot.cast(), hook()) }
    }

    #[test]
    fn writable_slots_are_replaced() {
        let own = NonNull::from(&WORDS).cast();
        assert_eq!(replaced(CHANGED.as_ptr()), Some(own));
        assert_eq!(CHANGED.load(Ordering::Acquire), hook().as_ptr());
        let mut allocated = Box::new(own.as_ptr());
        assert_eq!(replaced(&raw mut *allocated), Some(own));
        assert_eq!(*allocated, hook().as_ptr());
    }

    #[test]
    fn a_constant_object_is_left_alone() {
        assert_eq!(replaced((&raw const CONSTANT.0).cast_mut()), None);
        assert_eq!(replaced((&raw const WORDS).cast_mut().cast()), None);
        assert_eq!(CONSTANT.0, (&raw const WORDS).cast_mut().cast());
        let code = replaced as fn(_) -> _;
        assert!(!is_writable(code as usize));
    }

    #[test]
    fn missing_and_unaligned_slots_are_unchanged() {
        let mut none = ptr::null_mut();
        assert_eq!(replaced(&raw mut none), None);
        assert!(none.is_null());
        let mut words = [usize::MAX; 2];
        let between = (&raw mut words).cast::<u8>().wrapping_add(4).cast();
        assert_eq!(replaced(between), None);
        assert_eq!(words, [usize::MAX; 2]);
    }
}
