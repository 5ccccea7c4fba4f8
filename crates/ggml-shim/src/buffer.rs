// SPDX-License-Identifier: MIT OR Apache-2.0
//! Looks at the buffers that the host's CPU makes.
//!
//! A buffer type of our own would take weights from the CPU's, and with them half
//! of its speed in token generation; and ggml takes a device that has one for a
//! device that can hold parts of tensors (`-sm tensor`). So there is none: the
//! host puts each weight where it would without us. What makes the CPU's buffers, in
//! plain memory, of mapped files and for rearranged weights, is replaced once by
//! these functions, which replace some callbacks of the buffers
//! ([`crate::weight_buffers`]).

use std::ffi::c_void;
use std::ptr;

use crate::abi::{Buffer, BufferType, Device};
use crate::reg;
use crate::runtime::{Runtime, guard};
use crate::weight_buffers::WeightOrder;

/// `alloc_buffer` of the CPU's buffer types, in place of their own.
pub(crate) unsafe extern "C" fn alloc(buffer_type: *mut BufferType, size: usize) -> *mut Buffer {
    guard("alloc_buffer", ptr::null_mut(), |runtime| {
        let Some(own) = runtime.cpu.own_alloc(buffer_type) else {
            return ptr::null_mut();
        };
        // SAFETY: the callback that the host gave this type, called as the host
        // wanted to call it.
        let buffer = unsafe { own(buffer_type, size) };
        let order = match runtime.cpu.is_extra(buffer_type) {
            true => WeightOrder::Rearranged,
            false => WeightOrder::Plain,
        };
        // SAFETY: just made by the host.
        unsafe { adopt(runtime, buffer, order) };
        buffer
    })
}

/// `buffer_from_host_ptr` of the CPU's device, in place of its own.
pub(crate) unsafe extern "C" fn from_host_ptr(
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
        let buffer = unsafe { own(device, data, size, largest) };
        // SAFETY: just made by the host.
        unsafe { adopt(runtime, buffer, WeightOrder::Plain) };
        buffer
    })
}

/// Looks at a buffer from now on.
///
/// # Safety
/// `buffer` is null or a buffer that the host just made.
unsafe fn adopt(runtime: &Runtime, buffer: *mut Buffer, order: WeightOrder) {
    // A program may have unloaded this backend.
    if !buffer.is_null() && runtime.host.has_backend(reg::NAME) {
        let (buffers, host) = (&runtime.weight_buffers, &runtime.host);
        // SAFETY: made by the host, and nobody else knows it yet.
        unsafe { buffers.adopt(host, buffer, order) };
    }
}
