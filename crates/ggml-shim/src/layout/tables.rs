// SPDX-License-Identifier: MIT OR Apache-2.0
//! The structs of ggml that differ between versions, generic over what
//! differs: how many slots each of two additions has.
//!
//! * `TWO_D`: the slots of strided copies, `set_tensor_2d` and
//!   `get_tensor_2d`, in the tables of buffers and (`_async`) of backends:
//!   none before 0.10, then [`slots::TWO_D`].
//! * `BATCH`: in the table of buffer types, one slot each for
//!   `alloc_buffer_n` and `get_alloc_size_n`: none before 0.26, then
//!   [`slots::BATCH`].
//!
//! An array of no elements takes no room in C's layout, so one declaration
//! serves all versions. Offsets: ggml's `ggml-backend-impl.h` of 0.9.1, 0.10,
//! 0.25.3 and 0.26.0, and for 0.27.0 the accessor functions of Debian's
//! binary, disassembled.

use std::ffi::{c_char, c_int, c_void};
use std::mem::{self, offset_of, size_of};
use std::ptr::{self, NonNull};

use super::{BufferCallbacks, Clear, CopyTensor, FreeBuffer, InitTensor, MemsetTensor, SetTensor};
use crate::abi::{Backend, Buffer, BufferType, Device, Graph, Tensor};
use crate::stream::Stream;
use crate::{backend, buffer};

/// How many slots an addition has in versions that have it; 0 in the others.
pub(super) mod slots {
    /// Strided copies: one to set, one to get.
    pub(crate) const TWO_D: usize = 2;
    /// Several tensors at once.
    pub(crate) const BATCH: usize = 1;
}

/// A callback that this library neither has nor calls, so that its arguments do
/// not matter.
type Absent = Option<unsafe extern "C" fn()>;

/// `struct ggml_backend_buffer_type_i`.
#[repr(C)]
struct BufferTypeInterface<const BATCH: usize> {
    get_name: unsafe extern "C" fn(*mut BufferType) -> *const c_char,
    alloc_buffer: unsafe extern "C" fn(*mut BufferType, usize) -> *mut Buffer,
    alloc_buffer_n: [Absent; BATCH],
    get_alignment: unsafe extern "C" fn(*mut BufferType) -> usize,
    get_max_size: Absent,
    get_alloc_size: Option<unsafe extern "C" fn(*mut BufferType, *const Tensor) -> usize>,
    get_alloc_size_n: [Absent; BATCH],
    is_host: Option<unsafe extern "C" fn(*mut BufferType) -> bool>,
}

/// `struct ggml_backend_buffer_type`.
#[repr(C)]
struct BufferTypeObject<const BATCH: usize> {
    iface: BufferTypeInterface<BATCH>,
    device: *mut Device,
    context: *mut c_void,
}

/// `struct ggml_backend_buffer_i`.
#[repr(C)]
struct BufferInterface<const TWO_D: usize> {
    free_buffer: Option<FreeBuffer>,
    get_base: Absent,
    init_tensor: Option<InitTensor>,
    memset_tensor: Option<MemsetTensor>,
    set_tensor: Option<SetTensor>,
    get_tensor: Absent,
    two_d: [Absent; TWO_D],
    cpy_tensor: Option<CopyTensor>,
    clear: Option<Clear>,
    reset: Absent,
}

/// `struct ggml_backend_buffer`; made by the host.
#[repr(C)]
struct BufferObject<const TWO_D: usize> {
    iface: BufferInterface<TWO_D>,
    buffer_type: *mut BufferType,
    context: *mut c_void,
    size: usize,
    usage: c_int,
}

/// `struct ggml_backend_i`.
#[repr(C)]
struct BackendInterface<const TWO_D: usize> {
    get_name: unsafe extern "C" fn(*mut Backend) -> *const c_char,
    free: unsafe extern "C" fn(*mut Backend),
    set_tensor_async: Absent,
    get_tensor_async: Absent,
    two_d_async: [Absent; TWO_D],
    cpy_tensor_async: Absent,
    synchronize: Absent,
    graph_plan_create: Absent,
    graph_plan_free: Absent,
    graph_plan_update: Absent,
    graph_plan_compute: Absent,
    graph_compute: unsafe extern "C" fn(*mut Backend, *mut Graph) -> c_int,
    event_record: Absent,
    event_wait: Absent,
    graph_optimize: Absent,
}

/// `struct ggml_backend`.
#[repr(C)]
struct BackendObject<const TWO_D: usize> {
    guid: *const [u8; 16],
    iface: BackendInterface<TWO_D>,
    device: *mut Device,
    context: *mut c_void,
}

/// Size of a pointer, in which the shifts below are counted.
const P: usize = 8;

/// Asserts the places in a buffer type, given the number of its slots.
const fn check_buffer_type<const BATCH: usize>() {
    assert!(size_of::<BufferTypeInterface<BATCH>>() == (6 + 2 * BATCH) * P);
    assert!(size_of::<BufferTypeObject<BATCH>>() == 64 + 2 * BATCH * P);
    assert!(offset_of!(BufferTypeInterface<BATCH>, alloc_buffer) == 0x08);
    assert!(offset_of!(BufferTypeInterface<BATCH>, get_alignment) == 0x10 + BATCH * P);
    assert!(offset_of!(BufferTypeInterface<BATCH>, get_max_size) == 0x18 + BATCH * P);
    assert!(offset_of!(BufferTypeInterface<BATCH>, get_alloc_size) == 0x20 + BATCH * P);
    assert!(offset_of!(BufferTypeInterface<BATCH>, is_host) == 0x28 + 2 * BATCH * P);
    assert!(offset_of!(BufferTypeObject<BATCH>, device) == 0x30 + 2 * BATCH * P);
    assert!(offset_of!(BufferTypeObject<BATCH>, context) == 0x38 + 2 * BATCH * P);
}

/// The same for a buffer.
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

/// The same for a backend, counted from the start of the object, as the
/// accessors do.
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
    check_buffer_type::<0>();
    check_buffer_type::<{ slots::BATCH }>();
    check_buffer::<0>();
    check_buffer::<{ slots::TWO_D }>();
    check_backend::<0>();
    check_backend::<{ slots::TWO_D }>();
};

/// See [`super::TableLayout::new_buffer_type`].
pub(super) fn new_buffer_type<const BATCH: usize>(device: NonNull<Device>) -> NonNull<BufferType> {
    NonNull::from(Box::leak(Box::new(BufferTypeObject::<BATCH> {
        iface: BufferTypeInterface {
            get_name: buffer::type_name,
            alloc_buffer: buffer::alloc,
            alloc_buffer_n: [None; BATCH],
            get_alignment: buffer::alignment,
            get_max_size: None,
            get_alloc_size: Some(buffer::alloc_size),
            get_alloc_size_n: [None; BATCH],
            is_host: Some(buffer::is_host),
        },
        device: device.as_ptr(),
        context: ptr::null_mut(),
    })))
    .cast()
}

/// A backend of ours: what ggml sees, and what is behind it.
#[repr(C)]
struct OwnBackend<const TWO_D: usize> {
    object: BackendObject<TWO_D>,
    stream: Stream,
}

/// See [`super::TableLayout::new_backend`].
pub(super) fn new_backend<const TWO_D: usize>(device: *mut Device) -> *mut Backend {
    let object = BackendObject {
        guid: &raw const backend::GUID,
        iface: BackendInterface {
            get_name: backend::name,
            free: backend::free,
            set_tensor_async: None,
            get_tensor_async: None,
            two_d_async: [None; TWO_D],
            cpy_tensor_async: None,
            synchronize: None,
            graph_plan_create: None,
            graph_plan_free: None,
            graph_plan_update: None,
            graph_plan_compute: None,
            graph_compute: backend::graph_compute,
            event_record: None,
            event_wait: None,
            graph_optimize: None,
        },
        device,
        context: ptr::null_mut(),
    };
    let stream = Stream::default();
    Box::into_raw(Box::new(OwnBackend::<TWO_D> { object, stream })).cast()
}

/// See [`super::TableLayout::stream`].
///
/// # Safety
/// `backend` comes from [`new_backend`] with the same `TWO_D`, and is not freed
/// during `'a`.
pub(super) unsafe fn stream<'a, const TWO_D: usize>(backend: *mut Backend) -> &'a Stream {
    let own = backend.cast::<OwnBackend<TWO_D>>();
    // SAFETY: by the caller's promise a live object of that type, which only
    // `free_backend` takes back. The host changes its part at most; this one
    // has shared users only.
    unsafe { &(*own).stream }
}

/// See [`super::TableLayout::free_backend`].
///
/// # Safety
/// `backend` comes from [`new_backend`] with the same `TWO_D` and is not used
/// again.
pub(super) unsafe fn free_backend<const TWO_D: usize>(backend: *mut Backend) {
    // SAFETY: made by `Box::into_raw` of such an object in `new_backend`, and
    // by the caller's promise freed only here and only once.
    drop(unsafe { Box::from_raw(backend.cast::<OwnBackend<TWO_D>>()) });
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
    BufferCallbacks {
        free_buffer: mem::replace(&mut iface.free_buffer, hooks.free_buffer),
        init_tensor: mem::replace(&mut iface.init_tensor, hooks.init_tensor),
        memset_tensor: mem::replace(&mut iface.memset_tensor, hooks.memset_tensor),
        set_tensor: mem::replace(&mut iface.set_tensor, hooks.set_tensor),
        cpy_tensor: mem::replace(&mut iface.cpy_tensor, hooks.cpy_tensor),
        clear: mem::replace(&mut iface.clear, hooks.clear),
    }
}

/// A buffer of no bytes.
#[cfg(test)]
pub(super) fn fake_buffer<const TWO_D: usize>(
    callbacks: BufferCallbacks,
) -> Box<dyn std::any::Any> {
    Box::new(BufferObject::<TWO_D> {
        iface: BufferInterface {
            free_buffer: callbacks.free_buffer,
            get_base: None,
            init_tensor: callbacks.init_tensor,
            memset_tensor: callbacks.memset_tensor,
            set_tensor: callbacks.set_tensor,
            get_tensor: None,
            two_d: [None; TWO_D],
            cpy_tensor: callbacks.cpy_tensor,
            clear: callbacks.clear,
            reset: None,
        },
        buffer_type: ptr::null_mut(),
        context: ptr::null_mut(),
        size: 0,
        usage: 0,
    })
}
