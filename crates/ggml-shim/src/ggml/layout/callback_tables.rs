// SPDX-License-Identifier: MIT OR Apache-2.0
//! The objects of ggml that differ between versions, as words of 8 bytes: callbacks, pointers and a
//! few numbers. They differ in `two_d`, the number of slots of strided copies, `set_tensor_2d` and
//! `get_tensor_2d`, in the tables of buffers and (`_async`) of backends. It is 0 before 0.10, then
//! [`TWO_D`]. Another new slot also changes [`trial`](super::trial), which knows `two_d` only.
//!
//! Positions: ggml's `ggml-backend-impl.h` of 0.9.1, 0.10, 0.25.3 and 0.26.0, and for 0.27.0 the
//! accessor functions of Debian's binary, disassembled.

use std::ffi::{c_char, c_int, c_void};
use std::mem::offset_of;
use std::ptr;

use super::slot;
use crate::ggml::abi::{
    Absent, Backend, Buffer, BufferFromHostPtr, BufferType, Device, DeviceObject, Graph, Tensor,
};
use crate::ggml::stream::Stream;

/// Slots of strided copies in versions that have them: one to set, one to get.
pub(super) const TWO_D: usize = 2;

const _: () = assert!(size_of::<*mut c_void>() == 8 && size_of::<Absent>() == 8);

/// A layout of the callback tables, named after the first version with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TableLayout {
    V0_9_1,
    V0_10,
    V0_26,
}

/// Positions in `struct ggml_backend_buffer`, which begins with `struct ggml_backend_buffer_i`.
pub(super) mod buffer_words {
    pub(crate) const FREE_BUFFER: usize = 0;
    // get_base
    pub(crate) const INIT_TENSOR: usize = 2;
    pub(crate) const MEMSET_TENSOR: usize = 3;
    pub(crate) const SET_TENSOR: usize = 4;
    // get_tensor
    /// Of the first strided copy. The positions below are those without copies; `two_d` is added.
    pub(crate) const COPIES: usize = 6;
    pub(crate) const CPY_TENSOR: usize = 6;
    pub(crate) const CLEAR: usize = 7;
    // reset
    pub(crate) const BUFFER_TYPE: usize = 9;
    // context, size, usage
}

/// Positions in `struct ggml_backend`, whose second field is `struct ggml_backend_i`.
pub(super) mod backend_words {
    pub(crate) const GUID: usize = 0;
    pub(crate) const GET_NAME: usize = 1;
    pub(crate) const FREE: usize = 2;
    // set_tensor_async, get_tensor_async, the strided copies
    // `two_d` is added to the positions below.
    // cpy_tensor_async
    pub(crate) const SYNCHRONIZE: usize = 6;
    // graph_plan_create, graph_plan_free, graph_plan_update, graph_plan_compute
    pub(crate) const GRAPH_COMPUTE: usize = 11;
    // event_record, event_wait, graph_optimize
    pub(crate) const DEVICE: usize = 15;
    // context
    pub(crate) const WORDS: usize = 17;
}

/// `alloc_buffer` of `struct ggml_backend_buffer_type_i`.
pub(crate) type AllocBuffer = unsafe extern "C" fn(*mut BufferType, usize) -> *mut Buffer;

#[derive(Debug, Clone, Copy)]
pub(crate) struct BackendCallbacks {
    /// Identifies our backends.
    pub(crate) guid: &'static [u8; 16],
    pub(crate) name: unsafe extern "C" fn(*mut Backend) -> *const c_char,
    pub(crate) free: unsafe extern "C" fn(*mut Backend),
    pub(crate) graph_compute: unsafe extern "C" fn(*mut Backend, *mut Graph) -> c_int,
}

/// The callbacks of `struct ggml_backend_buffer_i` with which ggml fills, changes or frees a
/// buffer. Any may be missing.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct BufferCallbacks {
    pub(crate) free_buffer: Option<unsafe extern "C" fn(*mut Buffer)>,
    pub(crate) init_tensor: Option<unsafe extern "C" fn(*mut Buffer, *mut Tensor) -> c_int>,
    pub(crate) memset_tensor:
        Option<unsafe extern "C" fn(*mut Buffer, *mut Tensor, u8, usize, usize)>,
    pub(crate) set_tensor:
        Option<unsafe extern "C" fn(*mut Buffer, *mut Tensor, *const c_void, usize, usize)>,
    pub(crate) clear: Option<unsafe extern "C" fn(*mut Buffer, u8)>,
}

/// The beginning of `struct ggml_backend_buffer_type`, which all versions share.
#[repr(C)]
struct BufferTypeHead {
    get_name: Absent,
    alloc_buffer: Option<AllocBuffer>,
}

/// Replaces the `alloc_buffer` of a buffer type; returns the original. Returns `None`, and changes
/// nothing, if it has none or cannot be written.
///
/// # Safety
/// `buffer_type` is a buffer type of the host that is not freed. From now on any thread may call
/// `hook` in place of the original callback, or still the original.
pub(crate) unsafe fn hook_alloc(
    buffer_type: *mut BufferType,
    hook: AllocBuffer,
) -> Option<AllocBuffer> {
    // SAFETY: `struct ggml_backend_buffer_type` begins so in every version.
    let slot = unsafe { &raw mut (*buffer_type.cast::<BufferTypeHead>()).alloc_buffer };
    // SAFETY: the caller's promise is the callee's.
    unsafe { slot::replace(slot, hook) }
}

/// Replaces the `buffer_from_host_ptr` of a device; returns the original. Returns `None`, and
/// changes nothing, if it has none or cannot be written.
///
/// # Safety
/// `device` is a device of the host that is not freed. From now on any thread may call `hook` in
/// place of the original callback, or still the original.
pub(crate) unsafe fn hook_host_ptr(
    device: *mut Device,
    hook: BufferFromHostPtr,
) -> Option<BufferFromHostPtr> {
    let object = device.cast::<DeviceObject>();
    // SAFETY: a `struct ggml_backend_device`, in which the slot lies.
    let slot = unsafe { &raw mut (*object).iface.buffer_from_host_ptr };
    // SAFETY: the caller's promise is the callee's.
    unsafe { slot::replace(slot, hook) }
}

/// A backend of ours: ggml's object, and behind it our stream, at the same place in each layout.
#[repr(C)]
struct OwnBackend {
    /// A `struct ggml_backend` of either layout. Only ggml reads it.
    object: [*mut c_void; backend_words::WORDS + TWO_D],
    stream: Stream,
}

// `struct ggml_backend` has 136 bytes without strided copies.
const _: () = assert!(offset_of!(OwnBackend, stream) == 136 + 8 * TWO_D);

impl TableLayout {
    /// Number of slots of strided copies.
    pub(super) const fn two_d(self) -> usize {
        match self {
            Self::V0_9_1 => 0,
            Self::V0_10 | Self::V0_26 => TWO_D,
        }
    }

    /// Creates a backend (ggml's word for a stream) on `device`.
    pub(crate) fn new_backend(
        self,
        device: *mut Device,
        callbacks: &BackendCallbacks,
    ) -> *mut Backend {
        let mut object = [ptr::null_mut(); _];
        object[backend_words::GUID] = ptr::from_ref(callbacks.guid).cast_mut().cast();
        object[backend_words::GET_NAME] = callbacks.name as *mut c_void;
        object[backend_words::FREE] = callbacks.free as *mut c_void;
        object[backend_words::GRAPH_COMPUTE + self.two_d()] =
            callbacks.graph_compute as *mut c_void;
        object[backend_words::DEVICE + self.two_d()] = device.cast();
        let stream = Stream::default();
        Box::into_raw(Box::new(OwnBackend { object, stream })).cast()
    }

    /// Replaces callbacks of `buffer`, and removes those that copy; returns the originals.
    ///
    /// # Safety
    /// `buffer` is a live buffer of a host with this layout, and nobody else
    /// looks at its callbacks meanwhile.
    pub(crate) unsafe fn hook(
        self,
        buffer: *mut Buffer,
        hooks: BufferCallbacks,
    ) -> BufferCallbacks {
        /// # Safety
        /// This word of `buffer` is a callback of type `F` that may be missing; the rest as above.
        unsafe fn replace<F>(buffer: *mut Buffer, word: usize, hook: Option<F>) -> Option<F> {
            const { assert!(size_of::<Option<F>>() == size_of::<*mut c_void>()) }
            let slot = buffer.cast::<*mut c_void>().wrapping_add(word);
            let slot = slot.cast::<Option<F>>();
            // SAFETY: it lies in a live object, and nobody else accesses it, by the caller's
            // promise.
            unsafe { slot.replace(hook) }
        }
        // Without these ggml copies with `set_tensor` and `get_tensor`, row by row.
        for word in buffer_words::COPIES..=buffer_words::CPY_TENSOR + self.two_d() {
            // SAFETY: a callback, by its position; the rest by the caller's promise.
            unsafe { replace::<unsafe extern "C" fn()>(buffer, word, None) };
        }
        BufferCallbacks {
            // SAFETY: as above, and of this type.
            free_buffer: unsafe { replace(buffer, buffer_words::FREE_BUFFER, hooks.free_buffer) },
            // SAFETY: as above.
            init_tensor: unsafe { replace(buffer, buffer_words::INIT_TENSOR, hooks.init_tensor) },
            // SAFETY: as above.
            memset_tensor: unsafe {
                replace(buffer, buffer_words::MEMSET_TENSOR, hooks.memset_tensor)
            },
            // SAFETY: as above.
            set_tensor: unsafe { replace(buffer, buffer_words::SET_TENSOR, hooks.set_tensor) },
            // SAFETY: as above.
            clear: unsafe { replace(buffer, buffer_words::CLEAR + self.two_d(), hooks.clear) },
        }
    }
}

/// Returns the program's settings of `backend`; `None` for null.
///
/// # Safety
/// `backend` is null or comes from [`TableLayout::new_backend`], and is not freed during `'a`.
pub(crate) unsafe fn stream<'a>(backend: *mut Backend) -> Option<&'a Stream> {
    if backend.is_null() {
        return None;
    }
    // SAFETY: by the caller's promise a live object of that type, which only `free_backend` takes
    // back. The host changes at most its own part; this part has only shared users.
    Some(unsafe { &(*backend.cast::<OwnBackend>()).stream })
}

/// Frees a backend.
///
/// # Safety
/// `backend` comes from [`TableLayout::new_backend`] and is not used again.
pub(crate) unsafe fn free_backend(backend: *mut Backend) {
    // SAFETY: made by `Box::into_raw` of such an object in `new_backend`, and
    // by the caller's promise freed only here and only once.
    drop(unsafe { Box::from_raw(backend.cast::<OwnBackend>()) });
}
