// SPDX-License-Identifier: MIT OR Apache-2.0
//! Watches the buffers that the host's CPU backend makes.
//!
//! A buffer type of our own would take weights from the CPU's, and with them half of its speed in
//! token generation. Also, ggml assumes that a device with a buffer type can hold parts of tensors
//! (`-sm tensor`). So this device has no buffer type, and the host puts each weight where it would
//! without us. The functions here replace, once, the CPU's callbacks that make buffers: in plain
//! memory, of mapped files and for rearranged weights. For each buffer they replace some of its
//! callbacks ([`crate::weights::watched_buffers`]).

use std::cell::Cell;
use std::ffi::c_void;
use std::ptr;

use crate::compute::runtime::{Runtime, guard};
use crate::entry::buffer_hooks;
use crate::ggml::abi::{Buffer, BufferType, Device};
use crate::ggml::cpu::MakerHooks;
use crate::ggml::log::NAME;
use crate::weights::watched_buffers::WeightOrder;

/// Replacements of the CPU's callbacks that make buffers.
pub(crate) const HOOKS: MakerHooks = MakerHooks {
    alloc,
    from_host_ptr,
};

thread_local! {
    /// Whether this thread is in one of the functions below. They nest, because the CPU makes a
    /// buffer for rearranged weights of one in plain memory.
    static IS_MAKING: Cell<bool> = const { Cell::new(false) };
}

/// Runs `make`, which calls the host. Also returns whether this is the outermost such call.
fn making<T>(make: impl FnOnce() -> T) -> (T, bool) {
    let was_making = IS_MAKING.replace(true);
    let made = make();
    IS_MAKING.set(was_making);
    (made, !was_making)
}

/// `alloc_buffer` of the CPU's buffer types, in place of their own.
unsafe extern "C" fn alloc(buffer_type: *mut BufferType, size: usize) -> *mut Buffer {
    guard("alloc_buffer", ptr::null_mut(), |runtime| {
        let Some(own) = runtime.cpu.own_alloc(buffer_type) else {
            return ptr::null_mut();
        };
        let order = if runtime.cpu.is_extra(buffer_type) {
            WeightOrder::Rearranged
        } else {
            WeightOrder::Plain
        };
        // SAFETY: the callback that the host gave this type, called as the host
        // wanted to call it.
        let make = || unsafe { own(buffer_type, size) };
        // SAFETY: it makes a buffer of the host.
        unsafe { watched(runtime, order, make) }
    })
}

/// `buffer_from_host_ptr` of the CPU's device, in place of its own.
unsafe extern "C" fn from_host_ptr(
    device: *mut Device,
    data: *mut c_void,
    size: usize,
    largest: usize,
) -> *mut Buffer {
    guard("buffer_from_host_ptr", ptr::null_mut(), |runtime| {
        let Some(own) = runtime.cpu.own_host_ptr() else {
            return ptr::null_mut();
        };
        // SAFETY: the callback that the host gave its device, called as the host wanted
        // to call it.
        let make = || unsafe { own(device, data, size, largest) };
        // SAFETY: it makes a buffer of the host.
        unsafe { watched(runtime, WeightOrder::Plain, make) }
    })
}

/// Runs `make`, and watches its buffer from now on unless it is part of another.
///
/// # Safety
/// `make` returns null or a buffer that the host just made.
unsafe fn watched(
    runtime: &Runtime,
    order: WeightOrder,
    make: impl FnOnce() -> *mut Buffer,
) -> *mut Buffer {
    let (buffer, is_outermost) = making(make);
    // A program may have unloaded this backend. A child of fork has nothing to pack weights for.
    let is_watched = is_outermost && !buffer.is_null() && !runtime.is_forked();
    if is_watched && runtime.host.has_backend(NAME) {
        let (buffers, host) = (&runtime.weight_buffers, &runtime.host);
        // SAFETY: made by the host, and nobody else knows it yet.
        unsafe { buffers.adopt(host, buffer, order, buffer_hooks::hooks()) };
    }
    buffer
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_outermost_buffer_is_looked_at() {
        for _ in 0..2 {
            let (inner, outer) = making(|| making(|| ()).1);
            assert!(outer && !inner);
        }
    }
}
