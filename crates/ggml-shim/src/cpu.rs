// SPDX-License-Identifier: MIT OR Apache-2.0
//! The host's CPU backend: the buffer types that it has.
//!
//! Besides plain memory the CPU has "extra" buffer types (`CPU_REPACK`, `AMX`,
//! ...), into which it puts weights in another order. llama.cpp tries them one
//! after the other for each weight. Each has its `alloc_buffer` replaced, once,
//! by one that looks at the buffers that it makes: see [`crate::buffer`].

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr::{self, NonNull};
use std::sync::OnceLock;

use crate::abi::{BufferType, Device, Reg};
use crate::layout::{self, AllocBuffer};
use crate::shared::GgmlPtr;
use crate::symbols::{SymbolScope, function};
use crate::{buffer, cpu_time};

/// `GGML_BACKEND_DEVICE_TYPE_CPU`
const DEVICE_TYPE_CPU: c_int = 0;
/// How many extra buffer types are looked at; ggml has five kinds, and a
/// machine two of them at most.
const MOST_EXTRAS: usize = 16;
/// The CPU backend's own name of its list.
const EXTRAS_NAME: &CStr = c"ggml_backend_dev_get_extra_bufts";

type CpuBufferType = unsafe extern "C" fn() -> *mut BufferType;
type DevByType = unsafe extern "C" fn(c_int) -> *mut Device;
type DevReg = unsafe extern "C" fn(*mut Device) -> *mut Reg;
type ProcAddress = unsafe extern "C" fn(*mut Reg, *const c_char) -> *mut c_void;
type Extras = unsafe extern "C" fn(*mut Device) -> *const *mut BufferType;

/// The functions of ggml about its CPU backend, and what that said so far.
#[derive(Debug)]
pub(crate) struct CpuBackend {
    cpu_buffer_type: CpuBufferType,
    device_reg: DevReg,
    proc_address: ProcAddress,
    /// The CPU device, once it is there, and its extra buffer types.
    extras: OnceLock<(GgmlPtr<Device>, Vec<Extra>)>,
}

/// An extra buffer type of the CPU.
#[derive(Debug)]
struct Extra {
    buffer_type: GgmlPtr<BufferType>,
    /// Its own `alloc_buffer`.
    alloc: AllocBuffer,
}

impl CpuBackend {
    /// Finds the functions; `None` if one is missing.
    pub(crate) fn find(place: &SymbolScope) -> Option<Self> {
        Some(Self {
            cpu_buffer_type: function!(place, c"ggml_backend_cpu_buffer_type", CpuBufferType)?,
            device_reg: function!(place, c"ggml_backend_dev_backend_reg", DevReg)?,
            proc_address: function!(place, c"ggml_backend_reg_get_proc_address", ProcAddress)?,
            extras: OnceLock::new(),
        })
    }

    /// The type of buffers in plain memory.
    pub(crate) fn buffer_type(&self) -> *mut BufferType {
        // SAFETY: takes nothing and returns a static object.
        unsafe { (self.cpu_buffer_type)() }
    }

    /// Whether the CPU rearranges weights in buffers of this type.
    pub(crate) fn is_extra(&self, buffer_type: *const BufferType) -> bool {
        self.extra(buffer_type).is_some()
    }

    /// The `alloc_buffer` that an extra buffer type had; `None` for others.
    pub(crate) fn own_alloc(&self, buffer_type: *const BufferType) -> Option<AllocBuffer> {
        // Whoever comes while they are being replaced waits here until all is
        // written down.
        self.watch();
        self.extra(buffer_type).map(|extra| extra.alloc)
    }

    fn extra(&self, buffer_type: *const BufferType) -> Option<&Extra> {
        let (_, extras) = self.extras.get()?;
        extras
            .iter()
            .find(|extra| ptr::eq(extra.buffer_type.get(), buffer_type))
    }

    /// Where the CPU computes with weights: rearranged ones, or plain ones.
    /// `None` while there is no CPU device, and for rearranged ones unless it has
    /// one type of buffers for them.
    pub(crate) fn place(&self, rearranged: bool) -> Option<cpu_time::TimingPlace> {
        let (device, extras) = self.extras()?;
        Some(cpu_time::TimingPlace {
            device: device.get(),
            weights: match (rearranged, &extras[..]) {
                (false, _) => self.buffer_type(),
                (true, [only]) => only.buffer_type.get(),
                (true, _) => return None,
            },
            plain: self.buffer_type(),
        })
    }

    /// Finds the CPU device and its extra buffer types, once they are there, and
    /// has the buffers looked at that are made from then on. Not before this
    /// process has its [`crate::runtime::Runtime`].
    pub(crate) fn watch(&self) {
        self.extras();
    }

    /// The CPU device and its extra buffer types; `None` while there is none.
    fn extras(&self) -> Option<&(GgmlPtr<Device>, Vec<Extra>)> {
        if let Some(known) = self.extras.get() {
            return Some(known);
        }
        // In libggml, not in libggml-base like everything else.
        let by_type = SymbolScope::candidates()
            .iter()
            .find_map(|place| function!(place, c"ggml_backend_dev_by_type", DevByType))?;
        // SAFETY: reads the list of devices.
        let device = GgmlPtr::new(unsafe { by_type(DEVICE_TYPE_CPU) })?;
        Some(self.extras.get_or_init(|| (device, self.list(device))))
    }

    fn list(&self, device: GgmlPtr<Device>) -> Vec<Extra> {
        // SAFETY: a live device of the host.
        let reg = unsafe { (self.device_reg)(device.get()) };
        if reg.is_null() {
            return Vec::new();
        }
        // SAFETY: a live registry object; the name is NUL-terminated.
        let extras = unsafe { (self.proc_address)(reg, EXTRAS_NAME.as_ptr()) };
        let Some(extras) = NonNull::new(extras) else {
            return Vec::new();
        };
        // SAFETY: `ggml_backend_dev_get_extra_bufts_t` of ggml-backend.h is
        // what is behind this name; a function pointer has the size of a data
        // pointer on every Linux target.
        let extras = unsafe { std::mem::transmute::<NonNull<c_void>, Extras>(extras) };
        // SAFETY: the CPU device, whose function it is.
        let first = unsafe { extras(device.get()) };
        if first.is_null() {
            return Vec::new();
        }
        let mut found = Vec::new();
        for index in 0..MOST_EXTRAS {
            // SAFETY: the array ends with a null, behind which nothing is
            // read.
            let Some(buffer_type) = GgmlPtr::new(unsafe { first.wrapping_add(index).read() })
            else {
                break;
            };
            // SAFETY: a buffer type of the host, which lives for ever; `alloc`
            // does what this one's own did.
            let alloc = unsafe { layout::hook_alloc(buffer_type.get(), buffer::alloc) };
            if let Some(alloc) = alloc {
                found.push(Extra { buffer_type, alloc });
            }
        }
        found
    }
}

#[cfg(test)]
mod tests;
