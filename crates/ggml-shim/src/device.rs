// SPDX-License-Identifier: MIT OR Apache-2.0
//! The device object ROCKET0.
//!
//! Its type is ACCEL: an accelerator used together with the CPU backend. ggml
//! then keeps the layers, the KV cache and flash attention with the CPU, and
//! places the weights that the device supports in the device's buffer type,
//! ahead of the CPU's repacked ones, without any flag.

use std::ffi::{c_char, c_int, c_void};
use std::ptr::{self, NonNull};

use crate::abi::{
    Backend, Buffer, BufferType, DEVICE_TYPE_ACCEL, Device, DeviceCaps, DeviceInterface,
    DeviceObject, DeviceProps, Reg, Tensor,
};
use crate::buffer;
use crate::reason::Reason;
use crate::runtime::guard;
use crate::supports;
use crate::tensor::{self, Node};

/// Name of the device, and of its buffer type and backends.
pub(crate) const NAME: &std::ffi::CStr = c"ROCKET0";

/// Makes the device object of `reg`, for ever.
pub(crate) fn new(reg: NonNull<Reg>) -> NonNull<Device> {
    NonNull::from(Box::leak(Box::new(DeviceObject {
        iface: DeviceInterface {
            get_name: name,
            get_description: description,
            get_memory: memory,
            get_type: device_type,
            get_props: props,
            init_backend,
            get_buffer_type: buffer_type,
            get_host_buffer_type: None,
            buffer_from_host_ptr: Some(buffer_from_host_ptr),
            supports_op,
            supports_buft,
            offload_op: None,
            event_new: None,
            event_free: None,
            event_synchronize: None,
        },
        reg: reg.as_ptr(),
        context: ptr::null_mut(),
    })))
    .cast()
}

unsafe extern "C" fn name(_device: *mut Device) -> *const c_char {
    NAME.as_ptr()
}

unsafe extern "C" fn description(_device: *mut Device) -> *const c_char {
    guard("get_description", NAME.as_ptr(), |runtime| {
        runtime.description.as_ptr()
    })
}

unsafe extern "C" fn memory(_device: *mut Device, free: *mut usize, total: *mut usize) {
    // The NPU has no memory of its own; zero means: see the host's.
    for out in [free, total] {
        if !out.is_null() {
            // SAFETY: not null, and ggml passes the addresses of two size_t
            // for us to write.
            unsafe { out.write(0) };
        }
    }
}

unsafe extern "C" fn device_type(_device: *mut Device) -> c_int {
    DEVICE_TYPE_ACCEL
}

unsafe extern "C" fn props(device: *mut Device, out: *mut DeviceProps) {
    if out.is_null() {
        return;
    }
    let props = DeviceProps {
        name: NAME.as_ptr(),
        // SAFETY: `description` ignores its argument.
        description: unsafe { description(device) },
        memory_free: 0,
        memory_total: 0,
        device_type: DEVICE_TYPE_ACCEL,
        device_id: ptr::null(),
        caps: DeviceCaps {
            asynchronous: false,
            host_buffer: false,
            // Weights stay in the mapped file, where the CPU finds them too.
            buffer_from_host_ptr: true,
            events: false,
            mmap_support: true,
        },
    };
    // SAFETY: not null, and ggml passes the address of a `struct
    // ggml_backend_dev_props`, which has this layout, for us to write.
    unsafe { out.write(props) };
}

unsafe extern "C" fn init_backend(_device: *mut Device, _params: *const c_char) -> *mut Backend {
    guard("init_backend", ptr::null_mut(), |runtime| {
        let layout = runtime.host.layout();
        layout.new_backend(runtime.device.get())
    })
}

unsafe extern "C" fn buffer_type(_device: *mut Device) -> *mut BufferType {
    guard("get_buffer_type", ptr::null_mut(), |runtime| {
        runtime.buffer_type.get()
    })
}

unsafe extern "C" fn buffer_from_host_ptr(
    _device: *mut Device,
    data: *mut c_void,
    size: usize,
    _largest_tensor: usize,
) -> *mut Buffer {
    guard("buffer_from_host_ptr", ptr::null_mut(), |runtime| {
        buffer::borrow(runtime, data, size)
    })
}

unsafe extern "C" fn supports_op(_device: *mut Device, op: *const Tensor) -> bool {
    guard("supports_op", false, |runtime| {
        // SAFETY: ggml passes a live tensor whose operands are live, and waits
        // for the answer.
        let node = unsafe { tensor::classify(&runtime.context(), op) };
        let answer = match node {
            Node::NoWork => return true,
            Node::Other => Err(Reason::NotAProduct),
            Node::Product(product) => supports::decide(&product, runtime.config.policy),
        };
        match answer {
            Ok(_) => true,
            Err(reason) => {
                runtime.stats.declined(reason);
                false
            }
        }
    })
}

unsafe extern "C" fn supports_buft(_device: *mut Device, buffer_type: *mut BufferType) -> bool {
    guard("supports_buft", false, |runtime| {
        !buffer_type.is_null()
            && (buffer_type == runtime.buffer_type.get()
                // SAFETY: not null, and ggml passes one of its buffer types,
                // which live for ever.
                || unsafe { runtime.host.is_host(buffer_type) })
    })
}
