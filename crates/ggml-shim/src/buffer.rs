// SPDX-License-Identifier: MIT OR Apache-2.0
//! The buffer type of ROCKET0: ordinary memory that the CPU reads too.
//!
//! Prompt products run on the NPU and the rest on the CPU, from the same
//! pages. A model that is mapped stays mapped: ggml hands over the mapping
//! with `buffer_from_host_ptr`. Weights are packed for the NPU when a product
//! first needs them, because with a mapping (and when ggml reads a file
//! straight into a buffer) nobody says when the data has arrived.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ffi::{c_char, c_void};
use std::ops::Range;
use std::ptr::{self, NonNull};

use npu_matmul::Weights;

use crate::abi::{Buffer, BufferType, Tensor};
use crate::device;
use crate::log::Level;
use crate::pack::Packed;
use crate::resident::Residents;
use crate::runtime::{Runtime, guard};

/// What ggml's CPU backend asks of tensor data (`TENSOR_ALIGNMENT`), and what
/// GGUF files give it.
const TENSOR_ALIGNMENT: usize = 32;
/// Alignment of memory allocated here: a cache line of the Cortex-A76.
const BUFFER_ALIGNMENT: usize = 64;

/// What is behind a buffer object of ours.
#[derive(Debug)]
pub(crate) struct State {
    data: NonNull<u8>,
    size: usize,
    /// How to free the data; `None` if it is not ours.
    owned: Option<Layout>,
    /// Weights packed from this buffer.
    residents: Residents<Packed<Weights>>,
}

// SAFETY: `data` is a plain address; what it points at is accessed only in the
// callbacks below, for which ggml keeps writers and readers apart.
unsafe impl Send for State {}
// SAFETY: as above; `residents` is Sync by itself.
unsafe impl Sync for State {}

impl State {
    fn range(&self) -> Range<usize> {
        let start = self.data.addr().get();
        start..start.saturating_add(self.size)
    }
}

impl Drop for State {
    fn drop(&mut self) {
        if let Some(layout) = self.owned {
            // SAFETY: `data` was allocated with this layout in `alloc`, and is
            // freed only here.
            unsafe { dealloc(self.data.as_ptr(), layout) };
        }
    }
}

/// The weights resident for `buffer`; `None` if it is not of our type.
///
/// # Safety
/// `buffer` is null or a live buffer of the host, and stays so for `'a`.
pub(crate) unsafe fn residents<'a>(
    runtime: &Runtime,
    buffer: *mut Buffer,
) -> Option<&'a Residents<Packed<Weights>>> {
    // SAFETY: the caller's promise is the callee's.
    unsafe { state(runtime, buffer) }.map(|state| &state.residents)
}

/// The address of the state behind `buffer`; `None` if it is not of our type,
/// or is an empty one that the host made by itself.
///
/// # Safety
/// `buffer` is null or a live buffer of the host.
unsafe fn state_address(runtime: &Runtime, buffer: *mut Buffer) -> Option<NonNull<State>> {
    if buffer.is_null() {
        return None;
    }
    // SAFETY: not null, hence live, by the caller's promise.
    if unsafe { runtime.host.buffer_type(buffer) } != runtime.buffer_type.get() {
        return None;
    }
    // SAFETY: as above; the host's layout is the one it was recognised by.
    let context = unsafe { runtime.host.layout().buffer_context(buffer) };
    NonNull::new(context.cast())
}

/// The state behind `buffer`; `None` as in [`state_address`].
///
/// # Safety
/// `buffer` is null or a live buffer of the host, and stays so for `'a`.
unsafe fn state<'a>(runtime: &Runtime, buffer: *mut Buffer) -> Option<&'a State> {
    // SAFETY: the caller's promise is the callee's.
    let address = unsafe { state_address(runtime, buffer) }?;
    // SAFETY: a buffer of our type with a context was made by `wrap`, whose
    // context is a leaked Box<State>; `free` takes it back only when the
    // buffer dies, which by the caller's promise is after 'a. Everybody else
    // has shared access only.
    Some(unsafe { address.as_ref() })
}

/// Makes a buffer object around memory that stays the host's.
pub(crate) fn borrow(runtime: &Runtime, data: *mut c_void, size: usize) -> *mut Buffer {
    match NonNull::new(data.cast()) {
        Some(data) => wrap(runtime, data, size, None),
        None => ptr::null_mut(),
    }
}

fn wrap(runtime: &Runtime, data: NonNull<u8>, size: usize, owned: Option<Layout>) -> *mut Buffer {
    let state = Box::into_raw(Box::new(State {
        data,
        size,
        owned,
        residents: Residents::default(),
    }));
    let layout = runtime.host.layout();
    let buffer = layout.new_buffer(&runtime.host, runtime.buffer_type.get(), state.cast(), size);
    if buffer.is_null() {
        // SAFETY: leaked just above, and the host did not keep it.
        drop(unsafe { Box::from_raw(state) });
    }
    buffer
}

pub(crate) unsafe extern "C" fn type_name(_type: *mut BufferType) -> *const c_char {
    device::NAME.as_ptr()
}

pub(crate) unsafe extern "C" fn alignment(_type: *mut BufferType) -> usize {
    TENSOR_ALIGNMENT
}

pub(crate) unsafe extern "C" fn is_host(_type: *mut BufferType) -> bool {
    true
}

pub(crate) unsafe extern "C" fn alloc(_type: *mut BufferType, size: usize) -> *mut Buffer {
    guard("alloc_buffer", ptr::null_mut(), |runtime| {
        // An allocation must have a byte; ggml asks for none only by mistake.
        let Ok(layout) = Layout::from_size_align(size.max(1), BUFFER_ALIGNMENT) else {
            return ptr::null_mut();
        };
        // SAFETY: the layout's size is not zero.
        match NonNull::new(unsafe { alloc_zeroed(layout) }) {
            Some(data) => wrap(runtime, data, size, Some(layout)),
            None => {
                let line = format!("no memory for a buffer of {size} bytes");
                runtime.log(Level::Error, &line);
                ptr::null_mut()
            }
        }
    })
}

pub(crate) unsafe extern "C" fn free(buffer: *mut Buffer) {
    guard("free_buffer", (), |runtime| {
        // SAFETY: ggml frees a live buffer, once.
        if let Some(state) = unsafe { state_address(runtime, buffer) } {
            // SAFETY: leaked by `wrap`; the buffer is not used after this
            // call, so nobody else holds the state.
            drop(unsafe { Box::from_raw(state.as_ptr()) });
        }
    });
}

pub(crate) unsafe extern "C" fn base(buffer: *mut Buffer) -> *mut c_void {
    guard("get_base", ptr::null_mut(), |runtime| {
        // SAFETY: ggml passes a live buffer.
        match unsafe { state(runtime, buffer) } {
            Some(state) => state.data.as_ptr().cast(),
            None => ptr::null_mut(),
        }
    })
}

/// The address of byte `offset` of `tensor`, if `size` bytes from there lie in
/// its buffer.
///
/// # Safety
/// `buffer` and `tensor` are live, and stay so for `'a`.
unsafe fn place<'a>(
    runtime: &Runtime,
    buffer: *mut Buffer,
    tensor: *const Tensor,
    offset: usize,
    size: usize,
) -> Option<(*mut u8, &'a State)> {
    // SAFETY: live, by the caller's promise.
    let state = unsafe { state(runtime, buffer) }?;
    // SAFETY: null or live, by the caller's promise.
    let data = unsafe { tensor.as_ref() }?.data.cast::<u8>();
    let start = data.addr().checked_add(offset)?;
    let range = state.range();
    if start < range.start || start.checked_add(size)? > range.end {
        let line =
            format!("access to {size} bytes at {offset} of a tensor leaves its buffer; ignored");
        runtime.log(Level::Error, &line);
        return None;
    }
    Some((data.wrapping_add(offset), state))
}

pub(crate) unsafe extern "C" fn memset_tensor(
    buffer: *mut Buffer,
    tensor: *mut Tensor,
    value: u8,
    offset: usize,
    size: usize,
) {
    guard("memset_tensor", (), |runtime| {
        // SAFETY: ggml passes a live buffer and tensor.
        if let Some((to, state)) = unsafe { place(runtime, buffer, tensor, offset, size) } {
            // SAFETY: `place` checked that the bytes lie in the buffer, and
            // ggml lets nobody else access them during the call.
            unsafe { to.write_bytes(value, size) };
            state.residents.forget(to.addr()..to.addr() + size);
        }
    });
}

pub(crate) unsafe extern "C" fn set_tensor(
    buffer: *mut Buffer,
    tensor: *mut Tensor,
    data: *const c_void,
    offset: usize,
    size: usize,
) {
    guard("set_tensor", (), |runtime| {
        // SAFETY: ggml passes a live buffer and tensor.
        if let Some((to, state)) = unsafe { place(runtime, buffer, tensor, offset, size) } {
            // SAFETY: `place` checked the target; ggml passes `size` readable
            // bytes; `copy` allows the two to overlap.
            unsafe { ptr::copy(data.cast::<u8>(), to, size) };
            state.residents.forget(to.addr()..to.addr() + size);
        }
    });
}

pub(crate) unsafe extern "C" fn get_tensor(
    buffer: *mut Buffer,
    tensor: *const Tensor,
    data: *mut c_void,
    offset: usize,
    size: usize,
) {
    guard("get_tensor", (), |runtime| {
        // SAFETY: ggml passes a live buffer and tensor.
        if let Some((from, _)) = unsafe { place(runtime, buffer, tensor, offset, size) } {
            // SAFETY: `place` checked the source; ggml passes room for `size`
            // bytes; `copy` allows the two to overlap.
            unsafe { ptr::copy(from, data.cast::<u8>(), size) };
        }
    });
}

pub(crate) unsafe extern "C" fn clear(buffer: *mut Buffer, value: u8) {
    guard("clear", (), |runtime| {
        // SAFETY: ggml passes a live buffer.
        if let Some(state) = unsafe { state(runtime, buffer) } {
            // SAFETY: the buffer's own bytes, which ggml lets nobody else
            // access during the call.
            unsafe { state.data.as_ptr().write_bytes(value, state.size) };
            state.residents.forget(state.range());
        }
    });
}
