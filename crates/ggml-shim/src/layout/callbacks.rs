// SPDX-License-Identifier: MIT OR Apache-2.0
//! The callbacks of ggml's backends and buffers that this library provides or replaces.

use std::ffi::{c_char, c_int, c_void};

use crate::abi::{Backend, Buffer, BufferType, Graph, Tensor};

/// `alloc_buffer` of `struct ggml_backend_buffer_type_i`.
pub(crate) type AllocBuffer = unsafe extern "C" fn(*mut BufferType, usize) -> *mut Buffer;
/// `free_buffer` of `struct ggml_backend_buffer_i`.
pub(crate) type FreeBuffer = unsafe extern "C" fn(*mut Buffer);
/// `init_tensor` of that struct.
pub(crate) type InitTensor = unsafe extern "C" fn(*mut Buffer, *mut Tensor) -> c_int;
/// `memset_tensor` of that struct.
pub(crate) type MemsetTensor = unsafe extern "C" fn(*mut Buffer, *mut Tensor, u8, usize, usize);
/// `set_tensor` of that struct.
pub(crate) type SetTensor =
    unsafe extern "C" fn(*mut Buffer, *mut Tensor, *const c_void, usize, usize);
/// `cpy_tensor` of that struct.
pub(crate) type CopyTensor = unsafe extern "C" fn(*mut Buffer, *const Tensor, *mut Tensor) -> bool;
/// `clear` of that struct.
pub(crate) type Clear = unsafe extern "C" fn(*mut Buffer, u8);

#[derive(Debug, Clone, Copy)]
pub(crate) struct BackendCallbacks {
    /// Identifies our backends.
    pub(crate) guid: &'static [u8; 16],
    pub(crate) name: unsafe extern "C" fn(*mut Backend) -> *const c_char,
    pub(crate) free: unsafe extern "C" fn(*mut Backend),
    pub(crate) graph_compute: unsafe extern "C" fn(*mut Backend, *mut Graph) -> c_int,
}

/// The callbacks with which ggml fills, changes or frees a buffer. Any may be missing.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct BufferCallbacks {
    pub(crate) free_buffer: Option<FreeBuffer>,
    pub(crate) init_tensor: Option<InitTensor>,
    pub(crate) memset_tensor: Option<MemsetTensor>,
    pub(crate) set_tensor: Option<SetTensor>,
    pub(crate) cpy_tensor: Option<CopyTensor>,
    pub(crate) clear: Option<Clear>,
}
