// SPDX-License-Identifier: MIT OR Apache-2.0
//! Buffers in which the CPU rearranges weights.
//!
//! A buffer type of our own would take weights from the CPU's, and with them half
//! of its speed in token generation; and ggml takes a device that has one for a
//! device that can hold parts of tensors (`-sm tensor`). So there is none: the
//! host puts each weight where it would without us. The CPU's own buffers for
//! rearranged weights are made by [`alloc`], which has some of their callbacks
//! replaced (see [`crate::weight_buffers`]): what is written into them is packed
//! for the NPU first. All other weights stay in plain memory, usually in the
//! mapped file.

use std::cell::Cell;
use std::ptr;

use crate::abi::{Buffer, BufferType};
use crate::reg;
use crate::runtime::guard;
use crate::weight_buffers::WeightOrder;

thread_local! {
    /// Whether buffers that this thread makes are no model's.
    static UNWATCHED: Cell<bool> = const { Cell::new(false) };
}

/// Runs `body`, which makes buffers of weights that are not for the NPU.
pub(crate) fn unwatched<T>(body: impl FnOnce() -> T) -> T {
    struct Restore(bool);
    impl Drop for Restore {
        fn drop(&mut self) {
            UNWATCHED.set(self.0);
        }
    }
    let _restore = Restore(UNWATCHED.replace(true));
    body()
}

/// `alloc_buffer` of the CPU's extra buffer types, in place of their own.
pub(crate) unsafe extern "C" fn alloc(buffer_type: *mut BufferType, size: usize) -> *mut Buffer {
    guard("alloc_buffer", ptr::null_mut(), |runtime| {
        let Some(own) = runtime.cpu.own_alloc(buffer_type) else {
            return ptr::null_mut();
        };
        // SAFETY: the callback that the host gave this type, called as the host
        // wanted to call it.
        let buffer = unsafe { own(buffer_type, size) };
        // A program may have unloaded this backend.
        let is_watched = !UNWATCHED.get() && runtime.host.has_backend(reg::NAME);
        // SAFETY: ggml passes one of its buffer types, which live for ever.
        if !buffer.is_null() && is_watched && !unsafe { runtime.host.is_host(buffer_type) } {
            // SAFETY: just made by the host, and nobody else knows it yet.
            unsafe {
                runtime
                    .weight_buffers
                    .adopt(&runtime.host, buffer, WeightOrder::Rearranged)
            };
        }
        buffer
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_looks_again_after_what_was_no_models() {
        assert!(unwatched(|| UNWATCHED.get()));
        assert!(!UNWATCHED.get());
        let panicked = crate::runtime::contain(|| unwatched(|| panic!("a test of panics")));
        assert!(panicked.is_none() && !UNWATCHED.get());
    }
}
