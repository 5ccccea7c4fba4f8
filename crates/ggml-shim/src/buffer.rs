// SPDX-License-Identifier: MIT OR Apache-2.0
//! The buffer type of our device: a ticket to the CPU's own.
//!
//! llama.cpp offers each weight to the buffer types of accelerators first, and
//! the CPU then computes from where the weight lies. A buffer type of our own
//! would hence take its rearranged weights from the CPU, and with them half of
//! its speed in token generation. So this one takes only those weights that
//! the CPU would rearrange, and makes the CPU's buffer for them, with one
//! callback replaced (see [`crate::weight_buffers`]): what is written into it is
//! packed for the NPU first, and then goes where it would have gone without
//! us. All other weights stay in plain memory, usually in the mapped file.

use std::ffi::c_char;
use std::ptr;

use crate::abi::{Buffer, BufferType, Tensor};
use crate::device;
use crate::runtime::guard;
use crate::weight_buffers::WeightOrder;

/// What ggml's CPU backend asks of tensor data (`TENSOR_ALIGNMENT`).
const TENSOR_ALIGNMENT: usize = 32;

pub(crate) unsafe extern "C" fn type_name(_type: *mut BufferType) -> *const c_char {
    device::own_name()
}

pub(crate) unsafe extern "C" fn alignment(_type: *mut BufferType) -> usize {
    guard("get_alignment", TENSOR_ALIGNMENT, |runtime| {
        runtime.cpu.alignment()
    })
}

pub(crate) unsafe extern "C" fn alloc_size(_type: *mut BufferType, tensor: *const Tensor) -> usize {
    // No tensor has so many bytes, so that the allocation fails.
    guard("get_alloc_size", usize::MAX, |runtime| {
        // SAFETY: ggml passes a live tensor.
        unsafe { runtime.cpu.alloc_size(tensor) }
    })
}

/// The model loader estimates memory by it: what is taken is the host's.
pub(crate) unsafe extern "C" fn is_host(_type: *mut BufferType) -> bool {
    true
}

pub(crate) unsafe extern "C" fn alloc(_type: *mut BufferType, size: usize) -> *mut Buffer {
    guard("alloc_buffer", ptr::null_mut(), |runtime| {
        let buffer = runtime.cpu.alloc(size);
        if !buffer.is_null() {
            // SAFETY: just made by the host, and nobody else knows it yet.
            let order = match unsafe { runtime.host.buffer_type(buffer) } {
                rearranged if runtime.cpu.is_chosen(rearranged) => WeightOrder::Rearranged,
                _ => WeightOrder::Plain,
            };
            // SAFETY: as above.
            unsafe { runtime.weight_buffers.adopt(&runtime.host, buffer, order) };
        }
        buffer
    })
}
