// SPDX-License-Identifier: MIT OR Apache-2.0
//! The layout of ggml 0.26 and later (API version 3).
//!
//! Offsets: ggml's `ggml-backend-impl.h` of 0.26.0, and for 0.27.0 the
//! accessor functions of Debian's binary, disassembled.

use std::ffi::{c_char, c_int, c_void};
use std::mem::{offset_of, size_of};
use std::ptr::{self, NonNull};

use crate::abi::{Backend, Buffer, BufferType, Device, Event, Graph, Tensor};
use crate::host::Host;
use crate::{backend, buffer};

/// `GGML_BACKEND_API_VERSION`.
pub(super) const API_VERSION: c_int = 3;

/// `struct ggml_backend_buffer_type_i`.
#[repr(C)]
struct BufferTypeInterface {
    get_name: unsafe extern "C" fn(*mut BufferType) -> *const c_char,
    alloc_buffer: unsafe extern "C" fn(*mut BufferType, usize) -> *mut Buffer,
    alloc_buffer_n:
        Option<unsafe extern "C" fn(*mut BufferType, *mut *mut Tensor, c_int) -> *mut Buffer>,
    get_alignment: unsafe extern "C" fn(*mut BufferType) -> usize,
    get_max_size: Option<unsafe extern "C" fn(*mut BufferType) -> usize>,
    get_alloc_size: Option<unsafe extern "C" fn(*mut BufferType, *const Tensor) -> usize>,
    get_alloc_size_n:
        Option<unsafe extern "C" fn(*mut BufferType, *mut *mut Tensor, c_int) -> usize>,
    is_host: Option<unsafe extern "C" fn(*mut BufferType) -> bool>,
}

/// `struct ggml_backend_buffer_type`.
#[repr(C)]
struct BufferTypeObject {
    iface: BufferTypeInterface,
    device: *mut Device,
    context: *mut c_void,
}

const _: () = {
    assert!(size_of::<BufferTypeObject>() == 80);
    assert!(offset_of!(BufferTypeInterface, get_alignment) == 0x18);
    assert!(offset_of!(BufferTypeInterface, is_host) == 0x38);
    assert!(offset_of!(BufferTypeObject, device) == 0x40);
    assert!(offset_of!(BufferTypeObject, context) == 0x48);
};

type Set2d = unsafe extern "C" fn(
    *mut Buffer,
    *mut Tensor,
    *const c_void,
    usize,
    usize,
    usize,
    usize,
    usize,
);
type Get2d = unsafe extern "C" fn(
    *mut Buffer,
    *const Tensor,
    *mut c_void,
    usize,
    usize,
    usize,
    usize,
    usize,
);

/// `struct ggml_backend_buffer_i`. Passed by value to
/// `ggml_backend_buffer_init`; larger than two registers, hence in memory.
#[repr(C)]
pub(crate) struct BufferInterface {
    free_buffer: Option<unsafe extern "C" fn(*mut Buffer)>,
    get_base: unsafe extern "C" fn(*mut Buffer) -> *mut c_void,
    init_tensor: Option<unsafe extern "C" fn(*mut Buffer, *mut Tensor) -> c_int>,
    memset_tensor: Option<unsafe extern "C" fn(*mut Buffer, *mut Tensor, u8, usize, usize)>,
    set_tensor: unsafe extern "C" fn(*mut Buffer, *mut Tensor, *const c_void, usize, usize),
    get_tensor: unsafe extern "C" fn(*mut Buffer, *const Tensor, *mut c_void, usize, usize),
    set_tensor_2d: Option<Set2d>,
    get_tensor_2d: Option<Get2d>,
    cpy_tensor: Option<unsafe extern "C" fn(*mut Buffer, *const Tensor, *mut Tensor) -> bool>,
    clear: unsafe extern "C" fn(*mut Buffer, u8),
    reset: Option<unsafe extern "C" fn(*mut Buffer)>,
}

/// `struct ggml_backend_buffer`; made by the host, only read here.
#[repr(C)]
struct BufferObject {
    iface: BufferInterface,
    buffer_type: *mut BufferType,
    context: *mut c_void,
    size: usize,
    usage: c_int,
}

const _: () = {
    assert!(size_of::<BufferObject>() == 120);
    assert!(offset_of!(BufferObject, buffer_type) == 0x58);
    assert!(offset_of!(BufferObject, context) == 0x60);
    assert!(offset_of!(BufferObject, size) == 0x68);
    assert!(offset_of!(BufferObject, usage) == 0x70);
};

type Set2dAsync = unsafe extern "C" fn(
    *mut Backend,
    *mut Tensor,
    *const c_void,
    usize,
    usize,
    usize,
    usize,
    usize,
);
type Get2dAsync = unsafe extern "C" fn(
    *mut Backend,
    *const Tensor,
    *mut c_void,
    usize,
    usize,
    usize,
    usize,
    usize,
);

/// `struct ggml_backend_i`.
#[repr(C)]
struct BackendInterface {
    get_name: unsafe extern "C" fn(*mut Backend) -> *const c_char,
    free: unsafe extern "C" fn(*mut Backend),
    set_tensor_async:
        Option<unsafe extern "C" fn(*mut Backend, *mut Tensor, *const c_void, usize, usize)>,
    get_tensor_async:
        Option<unsafe extern "C" fn(*mut Backend, *const Tensor, *mut c_void, usize, usize)>,
    set_tensor_2d_async: Option<Set2dAsync>,
    get_tensor_2d_async: Option<Get2dAsync>,
    cpy_tensor_async: Option<
        unsafe extern "C" fn(*mut Backend, *mut Backend, *const Tensor, *mut Tensor) -> bool,
    >,
    synchronize: Option<unsafe extern "C" fn(*mut Backend)>,
    graph_plan_create: Option<unsafe extern "C" fn(*mut Backend, *const Graph) -> *mut c_void>,
    graph_plan_free: Option<unsafe extern "C" fn(*mut Backend, *mut c_void)>,
    graph_plan_update: Option<unsafe extern "C" fn(*mut Backend, *mut c_void, *const Graph)>,
    graph_plan_compute: Option<unsafe extern "C" fn(*mut Backend, *mut c_void) -> c_int>,
    graph_compute: unsafe extern "C" fn(*mut Backend, *mut Graph) -> c_int,
    event_record: Option<unsafe extern "C" fn(*mut Backend, *mut Event)>,
    event_wait: Option<unsafe extern "C" fn(*mut Backend, *mut Event)>,
    graph_optimize: Option<unsafe extern "C" fn(*mut Backend, *mut Graph, *mut c_void)>,
}

/// `struct ggml_backend`.
#[repr(C)]
struct BackendObject {
    guid: *const [u8; 16],
    iface: BackendInterface,
    device: *mut Device,
    context: *mut c_void,
}

const _: () = {
    assert!(size_of::<BackendObject>() == 152);
    assert!(offset_of!(BackendObject, iface) == 8);
    assert!(offset_of!(BackendObject, device) == 0x88);
    assert!(offset_of!(BackendObject, context) == 0x90);
    // Counted from the start of the object, as the accessors do.
    assert!(8 + offset_of!(BackendInterface, synchronize) == 0x40);
    assert!(8 + offset_of!(BackendInterface, graph_compute) == 0x68);
    assert!(8 + offset_of!(BackendInterface, graph_optimize) == 0x80);
};

/// See [`super::Layout::new_buffer_type`].
pub(super) fn new_buffer_type(device: NonNull<Device>) -> NonNull<BufferType> {
    NonNull::from(Box::leak(Box::new(BufferTypeObject {
        iface: BufferTypeInterface {
            get_name: buffer::type_name,
            alloc_buffer: buffer::alloc,
            alloc_buffer_n: None,
            get_alignment: buffer::alignment,
            get_max_size: None,
            get_alloc_size: None,
            get_alloc_size_n: None,
            is_host: Some(buffer::is_host),
        },
        device: device.as_ptr(),
        context: ptr::null_mut(),
    })))
    .cast()
}

/// See [`super::Layout::new_backend`].
pub(super) fn new_backend(device: *mut Device) -> *mut Backend {
    Box::into_raw(Box::new(BackendObject {
        guid: &raw const backend::GUID,
        iface: BackendInterface {
            get_name: backend::name,
            free: backend::free,
            set_tensor_async: None,
            get_tensor_async: None,
            set_tensor_2d_async: None,
            get_tensor_2d_async: None,
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
    }))
    .cast()
}

/// See [`super::Layout::free_backend`].
///
/// # Safety
/// `backend` comes from [`new_backend`] and is not used again.
pub(super) unsafe fn free_backend(backend: *mut Backend) {
    // SAFETY: made by `Box::into_raw` of a `BackendObject` in `new_backend`,
    // and by the caller's promise freed only here and only once.
    drop(unsafe { Box::from_raw(backend.cast::<BackendObject>()) });
}

/// See [`super::Layout::new_buffer`].
pub(super) fn new_buffer(
    host: &Host,
    buffer_type: *mut BufferType,
    context: *mut c_void,
    size: usize,
) -> *mut Buffer {
    let interface = BufferInterface {
        free_buffer: Some(buffer::free),
        get_base: buffer::base,
        init_tensor: None,
        memset_tensor: Some(buffer::memset_tensor),
        set_tensor: buffer::set_tensor,
        get_tensor: buffer::get_tensor,
        set_tensor_2d: None,
        get_tensor_2d: None,
        cpy_tensor: None,
        clear: buffer::clear,
        reset: None,
    };
    host.buffer_init(buffer_type, interface, context, size)
}

/// See [`super::Layout::buffer_context`].
///
/// # Safety
/// `buffer` is a live buffer of a host with this layout.
pub(super) unsafe fn buffer_context(buffer: *const Buffer) -> *mut c_void {
    // SAFETY: by the caller's promise `buffer` points at a live
    // `struct ggml_backend_buffer` of this layout, which is a `BufferObject`;
    // its context never changes after `ggml_backend_buffer_init`.
    unsafe { (*buffer.cast::<BufferObject>()).context }
}
