// SPDX-License-Identifier: MIT OR Apache-2.0
//! The registry object: one device, no further functions.

use std::ffi::{c_char, c_int};
use std::ptr::{self, NonNull};

use crate::abi::{Device, Reg, RegInterface, RegObject};
use crate::runtime::guard;

/// Makes the registry object, for ever.
pub(crate) fn new(api_version: c_int) -> NonNull<Reg> {
    NonNull::from(Box::leak(Box::new(RegObject {
        api_version,
        iface: RegInterface {
            get_name: name,
            get_device_count: device_count,
            get_device: device,
            get_proc_address: None,
        },
        context: ptr::null_mut(),
    })))
    .cast()
}

unsafe extern "C" fn name(_reg: *mut Reg) -> *const c_char {
    c"ROCKET".as_ptr()
}

unsafe extern "C" fn device_count(_reg: *mut Reg) -> usize {
    1
}

unsafe extern "C" fn device(_reg: *mut Reg, index: usize) -> *mut Device {
    guard("get_device", ptr::null_mut(), |runtime| match index {
        0 => runtime.device.get(),
        _ => ptr::null_mut(),
    })
}
