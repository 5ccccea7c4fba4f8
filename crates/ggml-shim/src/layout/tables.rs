// SPDX-License-Identifier: MIT OR Apache-2.0
//! The structs of ggml that differ between versions, generic over the difference: `TWO_D`, the
//! number of slots of strided copies, `set_tensor_2d` and `get_tensor_2d`, in the tables of buffers
//! and (`_async`) of backends. It is 0 before 0.10, then [`slots::TWO_D`].
//!
//! An array of no elements takes no room in C's layout, so one declaration
//! serves all versions. Offsets: ggml's `ggml-backend-impl.h` of 0.9.1, 0.10,
//! 0.25.3 and 0.26.0, and for 0.27.0 the accessor functions of Debian's
//! binary, disassembled.

use std::ffi::{c_char, c_int, c_void};
use std::mem::{self, offset_of, size_of};
use std::ptr::{self, NonNull};

use super::slot;
use crate::abi::{
    Absent, Backend, Buffer, BufferFromHostPtr, BufferType, Device, DeviceObject, Graph, Tensor,
};
use crate::stream::Stream;

/// Number of slots of an addition, in versions that have it; 0 in the others.
pub(super) mod slots {
    /// Strided copies: one to set, one to get.
    pub(crate) const TWO_D: usize = 2;
}

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
    pub(crate) clear: Option<Clear>,
}

/// The beginning of `struct ggml_backend_buffer_type`, which all versions share.
#[repr(C)]
struct BufferTypeHead {
    get_name: Absent,
    alloc_buffer: *mut c_void,
}

/// `struct ggml_backend_buffer_i`.
#[repr(C)]
pub(super) struct BufferInterface<const TWO_D: usize> {
    pub(super) free_buffer: Option<FreeBuffer>,
    pub(super) get_base: Absent,
    pub(super) init_tensor: Option<InitTensor>,
    pub(super) memset_tensor: Option<MemsetTensor>,
    pub(super) set_tensor: Option<SetTensor>,
    pub(super) get_tensor: Absent,
    pub(super) two_d: [Absent; TWO_D],
    pub(super) cpy_tensor: Absent,
    pub(super) clear: Option<Clear>,
    pub(super) reset: Absent,
}

/// `struct ggml_backend_buffer`; made by the host.
#[repr(C)]
pub(super) struct BufferObject<const TWO_D: usize> {
    pub(super) iface: BufferInterface<TWO_D>,
    pub(super) buffer_type: *mut BufferType,
    pub(super) context: *mut c_void,
    pub(super) size: usize,
    pub(super) usage: c_int,
}

/// `struct ggml_backend_i`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct BackendInterface<const TWO_D: usize> {
    pub(super) get_name: unsafe extern "C" fn(*mut Backend) -> *const c_char,
    pub(super) free: unsafe extern "C" fn(*mut Backend),
    pub(super) set_tensor_async: Absent,
    pub(super) get_tensor_async: Absent,
    pub(super) two_d_async: [Absent; TWO_D],
    pub(super) cpy_tensor_async: Absent,
    pub(super) synchronize: Absent,
    pub(super) graph_plan_create: Absent,
    pub(super) graph_plan_free: Absent,
    pub(super) graph_plan_update: Absent,
    pub(super) graph_plan_compute: Absent,
    pub(super) graph_compute: unsafe extern "C" fn(*mut Backend, *mut Graph) -> c_int,
    pub(super) event_record: Absent,
    pub(super) event_wait: Absent,
    pub(super) graph_optimize: Absent,
}

/// `struct ggml_backend`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct BackendObject<const TWO_D: usize> {
    pub(super) guid: *const [u8; 16],
    pub(super) iface: BackendInterface<TWO_D>,
    pub(super) device: *mut Device,
    pub(super) context: *mut c_void,
}

/// Size of a pointer, in which the shifts below are counted.
const P: usize = 8;

/// Asserts the offsets in a buffer with this number of slots.
const fn check_buffer<const TWO_D: usize>() {
    assert!(size_of::<BufferInterface<TWO_D>>() == (9 + TWO_D) * P);
    assert!(size_of::<BufferObject<TWO_D>>() == 104 + TWO_D * P);
    assert!(offset_of!(BufferInterface<TWO_D>, get_base) == 0x08);
    assert!(offset_of!(BufferInterface<TWO_D>, init_tensor) == 0x10);
    assert!(offset_of!(BufferInterface<TWO_D>, memset_tensor) == 0x18);
    assert!(offset_of!(BufferInterface<TWO_D>, set_tensor) == 0x20);
    assert!(offset_of!(BufferInterface<TWO_D>, get_tensor) == 0x28);
    assert!(offset_of!(BufferInterface<TWO_D>, cpy_tensor) == 0x30 + TWO_D * P);
    assert!(offset_of!(BufferInterface<TWO_D>, clear) == 0x38 + TWO_D * P);
    assert!(offset_of!(BufferInterface<TWO_D>, reset) == 0x40 + TWO_D * P);
    assert!(offset_of!(BufferObject<TWO_D>, buffer_type) == 0x48 + TWO_D * P);
    assert!(offset_of!(BufferObject<TWO_D>, context) == 0x50 + TWO_D * P);
    assert!(offset_of!(BufferObject<TWO_D>, size) == 0x58 + TWO_D * P);
    assert!(offset_of!(BufferObject<TWO_D>, usage) == 0x60 + TWO_D * P);
}

/// Asserts the offsets in a backend, from the start of the object like the accessors.
const fn check_backend<const TWO_D: usize>() {
    let table = offset_of!(BackendObject<TWO_D>, iface);
    assert!(table == 8);
    assert!(size_of::<BackendInterface<TWO_D>>() == (14 + TWO_D) * P);
    assert!(size_of::<BackendObject<TWO_D>>() == 136 + TWO_D * P);
    assert!(table + offset_of!(BackendInterface<TWO_D>, free) == 0x10);
    assert!(table + offset_of!(BackendInterface<TWO_D>, synchronize) == 0x30 + TWO_D * P);
    assert!(table + offset_of!(BackendInterface<TWO_D>, graph_compute) == 0x58 + TWO_D * P);
    assert!(table + offset_of!(BackendInterface<TWO_D>, graph_optimize) == 0x70 + TWO_D * P);
    assert!(offset_of!(BackendObject<TWO_D>, device) == 0x78 + TWO_D * P);
    assert!(offset_of!(BackendObject<TWO_D>, context) == 0x80 + TWO_D * P);
}

const _: () = {
    assert!(size_of::<*const c_void>() == P);
    assert!(offset_of!(BufferTypeHead, alloc_buffer) == 0x08);
    check_buffer::<0>();
    check_buffer::<{ slots::TWO_D }>();
    check_backend::<0>();
    check_backend::<{ slots::TWO_D }>();
};

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
    let hook = NonNull::new(hook as *mut c_void)?;
    // SAFETY: `struct ggml_backend_buffer_type` begins so in every version.
    let slot = unsafe { &raw mut (*buffer_type.cast::<BufferTypeHead>()).alloc_buffer };
    // SAFETY: the caller's promise is the callee's.
    let own = unsafe { slot::replace(slot, hook) }?;
    // SAFETY: the callback of this slot; a function pointer has the size of a data pointer on
    // every Linux target.
    Some(unsafe { mem::transmute::<NonNull<c_void>, AllocBuffer>(own) })
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
    let hook = NonNull::new(hook as *mut c_void)?;
    let object = device.cast::<DeviceObject>();
    // SAFETY: a `struct ggml_backend_device`, in which the slot lies.
    let slot = unsafe { &raw mut (*object).iface.buffer_from_host_ptr };
    // SAFETY: the caller's promise is the callee's; an `Option` of a function pointer is a
    // pointer that may be null.
    let own = unsafe { slot::replace(slot.cast(), hook) }?;
    // SAFETY: as in `hook_alloc`.
    Some(unsafe { mem::transmute::<NonNull<c_void>, BufferFromHostPtr>(own) })
}

/// A backend of ours: ggml's object, and behind it our stream, at the same place in each layout.
#[repr(C)]
struct OwnBackend {
    object: AnyBackend,
    stream: Stream,
}

/// A `struct ggml_backend` of either layout. Only ggml reads it.
#[repr(C)]
pub(super) union AnyBackend {
    /// Before 0.10.
    pub(super) old: BackendObject<0>,
    pub(super) new: BackendObject<{ slots::TWO_D }>,
}

impl<const TWO_D: usize> BackendObject<TWO_D> {
    pub(super) fn new(device: *mut Device, callbacks: &BackendCallbacks) -> Self {
        Self {
            guid: callbacks.guid,
            iface: BackendInterface {
                get_name: callbacks.name,
                free: callbacks.free,
                set_tensor_async: None,
                get_tensor_async: None,
                two_d_async: [None; TWO_D],
                cpy_tensor_async: None,
                synchronize: None,
                graph_plan_create: None,
                graph_plan_free: None,
                graph_plan_update: None,
                graph_plan_compute: None,
                graph_compute: callbacks.graph_compute,
                event_record: None,
                event_wait: None,
                graph_optimize: None,
            },
            device,
            context: ptr::null_mut(),
        }
    }
}

/// Creates a backend of ours, with a new stream.
pub(super) fn new_backend(object: AnyBackend) -> *mut Backend {
    let stream = Stream::default();
    Box::into_raw(Box::new(OwnBackend { object, stream })).cast()
}

/// Returns the program's settings of a backend.
///
/// # Safety
/// `backend` comes from [`super::TableLayout::new_backend`], and is not freed during `'a`.
pub(crate) unsafe fn stream<'a>(backend: *mut Backend) -> &'a Stream {
    // SAFETY: by the caller's promise a live object of that type, which only `free_backend` takes
    // back. The host changes at most its own part; this part has only shared users.
    unsafe { &(*backend.cast::<OwnBackend>()).stream }
}

/// Frees a backend.
///
/// # Safety
/// `backend` comes from [`super::TableLayout::new_backend`] and is not used again.
pub(crate) unsafe fn free_backend(backend: *mut Backend) {
    // SAFETY: made by `Box::into_raw` of such an object in `new_backend`, and
    // by the caller's promise freed only here and only once.
    drop(unsafe { Box::from_raw(backend.cast::<OwnBackend>()) });
}

/// See [`super::TableLayout::hook`].
///
/// # Safety
/// `buffer` is a live buffer of a host whose buffers have `TWO_D` such slots,
/// and nobody else looks at its callbacks meanwhile.
pub(super) unsafe fn hook<const TWO_D: usize>(
    buffer: *mut Buffer,
    hooks: BufferCallbacks,
) -> BufferCallbacks {
    // SAFETY: by the caller's promise `buffer` points at a live
    // `struct ggml_backend_buffer` of this layout, which is a `BufferObject`,
    // and nobody else accesses its table.
    let iface = unsafe { &mut (*buffer.cast::<BufferObject<TWO_D>>()).iface };
    // Without these ggml copies with `set_tensor` and `get_tensor`, row by row.
    iface.two_d = [None; TWO_D];
    iface.cpy_tensor = None;
    BufferCallbacks {
        free_buffer: mem::replace(&mut iface.free_buffer, hooks.free_buffer),
        init_tensor: mem::replace(&mut iface.init_tensor, hooks.init_tensor),
        memset_tensor: mem::replace(&mut iface.memset_tensor, hooks.memset_tensor),
        set_tensor: mem::replace(&mut iface.set_tensor, hooks.set_tensor),
        clear: mem::replace(&mut iface.clear, hooks.clear),
    }
}

/// A buffer of no bytes, without callbacks.
#[cfg(test)]
pub(super) fn fake_buffer<const TWO_D: usize>() -> Box<dyn std::any::Any> {
    // SAFETY: its callbacks may be missing, its pointers null, its numbers 0.
    Box::new(unsafe { mem::zeroed::<BufferObject<TWO_D>>() })
}

/// A buffer type with only the beginning of the struct.
#[cfg(test)]
pub(crate) struct FakeBufferType(Box<std::cell::UnsafeCell<BufferTypeHead>>);

#[cfg(test)]
impl FakeBufferType {
    /// Creates a type whose buffers `alloc` makes.
    pub(crate) fn new(alloc: AllocBuffer) -> Self {
        Self(Box::new(std::cell::UnsafeCell::new(BufferTypeHead {
            get_name: None,
            alloc_buffer: alloc as *mut c_void,
        })))
    }

    pub(crate) fn address(&self) -> *mut BufferType {
        self.0.get().cast()
    }

    /// The callback that makes its buffers now.
    pub(crate) fn alloc(&self) -> AllocBuffer {
        // SAFETY: nobody writes it during this call.
        let address = NonNull::new(unsafe { (*self.0.get()).alloc_buffer }).unwrap();
        // SAFETY: only functions of this type are stored there.
        unsafe { mem::transmute::<NonNull<c_void>, AllocBuffer>(address) }
    }
}
