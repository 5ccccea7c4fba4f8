// SPDX-License-Identifier: MIT OR Apache-2.0
//! The parts of ggml's C interface that are the same in every version from 0.9.1 on: the tensor,
//! the numbers of types and states, the device properties, and the types of the callbacks.
//!
//! ggml has no stable interface for backends, only its private header `ggml-backend-impl.h`. The
//! tensor below was compared with the public headers of ggml 0.9.1 to 0.27.0 and with the code of
//! Debian's 0.27.0. The parts that differ between versions (the order of the callbacks in their
//! tables) are in one module per layout, see [`crate::ggml::layout`].

use std::ffi::{c_char, c_int, c_void};
use std::mem::{align_of, offset_of, size_of};
use std::ptr;

// `GGML_MAX_DIMS` and so on.
pub(crate) const MAX_DIMS: usize = 4;
const MAX_SRC: usize = 10;
pub(crate) const MAX_NAME: usize = 64;
/// `GGML_MAX_OP_PARAMS`, in 32-bit words.
pub(crate) const OP_PARAM_WORDS: usize = 16;

/// Declares an opaque type of ggml, of which only the address is used here.
macro_rules! opaque {
    ($($(#[$doc:meta])* $name:ident;)+) => {$(
        $(#[$doc])*
        #[repr(C)]
        #[derive(Debug)]
        pub(crate) struct $name {
            _private: [u8; 0],
        }
    )+};
}

opaque! {
    /// `struct ggml_backend_buffer_type`
    BufferType;
    /// `struct ggml_backend_buffer`
    Buffer;
    /// `struct ggml_backend`
    Backend;
    /// `struct ggml_backend_device`
    Device;
    /// `struct ggml_backend_reg`
    Reg;
    /// `struct ggml_cgraph`
    Graph;
}

/// `struct ggml_tensor`.
#[repr(C)]
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Tensor {
    /// `enum ggml_type`; the numbers are stable.
    pub(crate) type_id: u32,
    /// The buffer that holds the data; null before allocation.
    pub(crate) buffer: *mut Buffer,
    /// Elements per dimension, fastest first.
    pub(crate) ne: [i64; MAX_DIMS],
    /// Bytes from one element to the next, per dimension.
    pub(crate) nb: [usize; MAX_DIMS],
    /// `enum ggml_op`; the numbers change between versions.
    pub(crate) op: u32,
    pub(crate) op_params: [i32; OP_PARAM_WORDS],
    /// A set of `enum ggml_tensor_flag`.
    pub(crate) flags: i32,
    /// Operands; unused ones are null.
    pub(crate) src: [*mut Tensor; MAX_SRC],
    /// For a view: the tensor that owns the data, which is not a view.
    pub(crate) view_src: *mut Tensor,
    pub(crate) view_offs: usize,
    pub(crate) data: *mut c_void,
    /// `char[]`, NUL-terminated.
    pub(crate) name: [u8; MAX_NAME],
    pub(crate) extra: *mut c_void,
    pub(crate) padding: [u8; 8],
}

impl Tensor {
    /// A tensor of one float, without data.
    pub(crate) const fn scalar() -> Self {
        Self {
            type_id: type_id::F32,
            buffer: ptr::null_mut(),
            ne: [1; MAX_DIMS],
            nb: [size_of::<f32>(); MAX_DIMS],
            op: 0,
            op_params: [0; OP_PARAM_WORDS],
            flags: 0,
            src: [ptr::null_mut(); MAX_SRC],
            view_src: ptr::null_mut(),
            view_offs: 0,
            data: ptr::null_mut(),
            name: [0; MAX_NAME],
            extra: ptr::null_mut(),
            padding: [0; 8],
        }
    }
}

const _: () = {
    assert!(size_of::<Tensor>() == 336);
    assert!(align_of::<Tensor>() == 8);
    assert!(offset_of!(Tensor, type_id) == 0);
    assert!(offset_of!(Tensor, buffer) == 8);
    assert!(offset_of!(Tensor, ne) == 16);
    assert!(offset_of!(Tensor, nb) == 48);
    assert!(offset_of!(Tensor, op) == 80);
    assert!(offset_of!(Tensor, op_params) == 84);
    assert!(offset_of!(Tensor, flags) == 148);
    assert!(offset_of!(Tensor, src) == 152);
    assert!(offset_of!(Tensor, view_src) == 232);
    assert!(offset_of!(Tensor, view_offs) == 240);
    assert!(offset_of!(Tensor, data) == 248);
    assert!(offset_of!(Tensor, name) == 256);
    assert!(offset_of!(Tensor, extra) == 320);
};

/// The values of `enum ggml_type` that are used here: `GGML_TYPE_F32` and so on.
pub(crate) mod type_id {
    pub(crate) const F32: u32 = 0;
    pub(crate) const F16: u32 = 1;
    pub(crate) const I32: u32 = 26;
}

/// Positions in [`Tensor::op_params`] of the parameters of `GGML_OP_FLASH_ATTN_EXT`, the same in
/// every version from 0.9.1 on. The first three are binary32.
pub(crate) mod flash_attn {
    pub(crate) const SCALE: usize = 0;
    pub(crate) const MAX_BIAS: usize = 1;
    /// `logit_softcap`
    pub(crate) const SOFTCAP: usize = 2;
    /// Least precision of the sums (`ggml_prec_set_acc`), an `enum ggml_prec`.
    pub(crate) const SUMS: usize = 3;
    /// Bound of the number of keys that a row sees: it changes no result. 0.25 added it.
    pub(crate) const MOST_KEYS: usize = 4;
    /// Number of known operands: queries, keys, values, mask, sinks.
    pub(crate) const OPERANDS: usize = 5;
}

/// Positions in [`Tensor::op_params`] of the parameters of `GGML_OP_MUL_MAT` and
/// `GGML_OP_MUL_MAT_ID`, and their values. Older versions have only some of them, at the same
/// positions; the other words are zero.
pub(crate) mod mul_mat {
    /// Least precision of the sums (`ggml_prec_set_acc`).
    pub(crate) const SUMS: usize = 0;
    /// `enum ggml_op_hint`: what is known about the weights.
    pub(crate) const HINT: usize = 1;
    /// Least precision to which src1 may be rounded (`ggml_prec_set_src`).
    pub(crate) const ACTIVATIONS: usize = 3;

    /// `GGML_HINT_NONE` and `GGML_HINT_SRC0_IS_HADAMARD`.
    pub(crate) const HINTS: [i32; 2] = [0, 1];
}

/// `enum ggml_prec`: `GGML_PREC_UNDEFINED` and so on.
pub(crate) mod prec {
    pub(crate) const UNDEFINED: i32 = 0;
    pub(crate) const F32: i32 = 10;
    pub(crate) const BF16: i32 = 15;
    pub(crate) const F16: i32 = 20;
    pub(crate) const Q8: i32 = 30;
    pub(crate) const Q4: i32 = 40;
}

/// `GGML_TENSOR_FLAG_INPUT`: a program sets its data before the graph is computed.
pub(crate) const FLAG_INPUT: i32 = 1;

/// `GGML_TENSOR_FLAG_PARAM`: a trained tensor, whose data changes in place.
pub(crate) const FLAG_PARAM: i32 = 4;

/// `GGML_TENSOR_FLAG_COMPUTE`: a node of a graph that is to be computed; see
/// [`crate::ggml::host::Host::marks_computed_nodes`].
pub(crate) const FLAG_COMPUTE: i32 = 16;

/// `enum ggml_status`: `GGML_STATUS_SUCCESS` and so on.
pub(crate) mod status {
    use std::ffi::c_int;
    pub(crate) const SUCCESS: c_int = 0;
    pub(crate) const ABORTED: c_int = 1;
    pub(crate) const ALLOC_FAILED: c_int = -2;
    pub(crate) const FAILED: c_int = -1;
}

/// `enum ggml_backend_buffer_usage`: `GGML_BACKEND_BUFFER_USAGE_WEIGHTS` and so on.
pub(crate) mod usage {
    use std::ffi::c_int;
    pub(crate) const WEIGHTS: c_int = 1;
    pub(crate) const COMPUTE: c_int = 2;
}

/// `GGML_BACKEND_DEVICE_TYPE_ACCEL`: used together with the CPU backend; the
/// layers stay assigned to the CPU.
pub(crate) const DEVICE_TYPE_ACCEL: c_int = 3;

/// `GGML_BACKEND_DEVICE_TYPE_GPU` and `GGML_BACKEND_DEVICE_TYPE_IGPU`
pub(crate) const DEVICE_TYPES_GPU: [c_int; 2] = [1, 2];

/// `struct ggml_backend_dev_caps`. ggml appended `mmap_support` without a new API version; in older
/// versions it falls into the padding of [`DeviceProps`].
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(crate) struct DeviceCaps {
    pub(crate) asynchronous: bool,
    pub(crate) host_buffer: bool,
    pub(crate) buffer_from_host_ptr: bool,
    pub(crate) events: bool,
    pub(crate) mmap_support: bool,
}

/// `struct ggml_backend_dev_props`.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct DeviceProps {
    pub(crate) name: *const c_char,
    pub(crate) description: *const c_char,
    pub(crate) memory_free: usize,
    pub(crate) memory_total: usize,
    pub(crate) device_type: c_int,
    pub(crate) device_id: *const c_char,
    pub(crate) caps: DeviceCaps,
}

const _: () = {
    assert!(size_of::<DeviceProps>() == 56);
    assert!(offset_of!(DeviceProps, device_type) == 32);
    assert!(offset_of!(DeviceProps, device_id) == 40);
    assert!(offset_of!(DeviceProps, caps) == 48);
    assert!(size_of::<DeviceCaps>() == 5);
};

/// A callback that this library neither provides nor calls, so that its arguments do not matter.
pub(crate) type Absent = Option<unsafe extern "C" fn()>;

/// `buffer_from_host_ptr` of `struct ggml_backend_device_i`.
pub(crate) type BufferFromHostPtr =
    unsafe extern "C" fn(*mut Device, *mut c_void, usize, usize) -> *mut Buffer;

/// `struct ggml_backend_device_i`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(crate) struct DeviceInterface {
    pub(crate) get_name: unsafe extern "C" fn(*mut Device) -> *const c_char,
    pub(crate) get_description: unsafe extern "C" fn(*mut Device) -> *const c_char,
    pub(crate) get_memory: unsafe extern "C" fn(*mut Device, *mut usize, *mut usize),
    pub(crate) get_type: unsafe extern "C" fn(*mut Device) -> c_int,
    pub(crate) get_props: unsafe extern "C" fn(*mut Device, *mut DeviceProps),
    pub(crate) init_backend: unsafe extern "C" fn(*mut Device, *const c_char) -> *mut Backend,
    pub(crate) get_buffer_type: unsafe extern "C" fn(*mut Device) -> *mut BufferType,
    pub(crate) get_host_buffer_type: Absent,
    pub(crate) buffer_from_host_ptr: Option<BufferFromHostPtr>,
    pub(crate) supports_op: unsafe extern "C" fn(*mut Device, *const Tensor) -> bool,
    pub(crate) supports_buft: unsafe extern "C" fn(*mut Device, *mut BufferType) -> bool,
    pub(crate) offload_op: Absent,
    pub(crate) event_new: Absent,
    pub(crate) event_free: Absent,
    pub(crate) event_synchronize: Absent,
}

/// `struct ggml_backend_device`.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct DeviceObject {
    pub(crate) iface: DeviceInterface,
    pub(crate) reg: *mut Reg,
    pub(crate) context: *mut c_void,
}

const _: () = {
    assert!(size_of::<DeviceInterface>() == 15 * 8);
    assert!(size_of::<DeviceObject>() == 136);
    assert!(offset_of!(DeviceInterface, buffer_from_host_ptr) == 0x40);
    assert!(offset_of!(DeviceInterface, supports_op) == 0x48);
    assert!(offset_of!(DeviceInterface, supports_buft) == 0x50);
    assert!(offset_of!(DeviceInterface, offload_op) == 0x58);
    assert!(offset_of!(DeviceObject, reg) == 0x78);
    assert!(offset_of!(DeviceObject, context) == 0x80);
};

/// `ggml_abort_callback`: returns true to stop.
pub(crate) type AbortCallback = unsafe extern "C" fn(*mut c_void) -> bool;

/// `struct ggml_backend_reg_i`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(crate) struct RegInterface {
    pub(crate) get_name: unsafe extern "C" fn(*mut Reg) -> *const c_char,
    pub(crate) get_device_count: unsafe extern "C" fn(*mut Reg) -> usize,
    pub(crate) get_device: unsafe extern "C" fn(*mut Reg, usize) -> *mut Device,
    pub(crate) get_proc_address:
        Option<unsafe extern "C" fn(*mut Reg, *const c_char) -> *mut c_void>,
}

/// `struct ggml_backend_feature`.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Feature {
    /// A null name ends a list.
    pub(crate) name: *const c_char,
    pub(crate) value: *const c_char,
}

/// `struct ggml_backend_reg`.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct RegObject {
    /// Must equal the host's `GGML_BACKEND_API_VERSION`.
    pub(crate) api_version: c_int,
    pub(crate) iface: RegInterface,
    pub(crate) context: *mut c_void,
}

const _: () = {
    assert!(size_of::<RegObject>() == 48);
    assert!(offset_of!(RegObject, iface) == 8);
    assert!(offset_of!(RegInterface, get_proc_address) == 0x18);
};
