// SPDX-License-Identifier: MIT OR Apache-2.0
//! The host's CPU backend, whose buffers are watched.
//!
//! Besides plain memory the CPU has "extra" buffer types (`CPU_REPACK`, `AMX`, ...), in which it
//! stores weights in another order. llama.cpp tries them one after the other for each weight. This
//! module replaces `alloc_buffer` of each type and, for mapped files, `buffer_from_host_ptr` of the
//! device. The replacements watch the buffers that are made (`buffer.rs`). They are set once, when
//! the device exists.

use std::cell::Cell;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr::{self, NonNull};
use std::sync::OnceLock;

use crate::ggml::abi::{BufferFromHostPtr, BufferType, Device, Reg};
use crate::ggml::cpu_ops::{CpuOps, CpuStream};
use crate::ggml::layout::{self, AllocBuffer};
use crate::ggml::shared::GgmlPtr;
use crate::ggml::symbols::{SymbolScope, as_function, function};
use crate::ggml::tensor_ref::TensorRef;

/// `GGML_BACKEND_DEVICE_TYPE_CPU`
const DEVICE_TYPE_CPU: c_int = 0;
/// The most extra buffer types that are read; ggml has five kinds, and a machine at most two of
/// them.
const MOST_EXTRAS: usize = 16;
/// Name in the CPU backend of the function that lists its extra buffer types.
pub(crate) const EXTRAS_NAME: &CStr = c"ggml_backend_dev_get_extra_bufts";

/// `ggml_backend_reg_get_proc_address`.
type ProcAddress = unsafe extern "C" fn(*mut Reg, *const c_char) -> *mut c_void;
/// `ggml_backend_dev_get_extra_bufts_t` of ggml-backend.h.
type Extras = unsafe extern "C" fn(*mut Device) -> *const *mut BufferType;

/// Replacements of the CPU's callbacks that make buffers.
#[derive(Debug, Clone, Copy)]
pub(crate) struct MakerHooks {
    /// `alloc_buffer` of its buffer types.
    pub(crate) alloc: AllocBuffer,
    /// `buffer_from_host_ptr` of its device.
    pub(crate) from_host_ptr: BufferFromHostPtr,
}

/// ggml's functions for its CPU backend, and the callbacks that were replaced.
#[derive(Debug)]
pub(crate) struct CpuBackend {
    cpu_buffer_type: unsafe extern "C" fn() -> *mut BufferType,
    device_reg: unsafe extern "C" fn(*mut Device) -> *mut Reg,
    proc_address: ProcAddress,
    /// The functions to compute on it; `None` if one is missing.
    ops: Option<CpuOps>,
    /// Replacements of the callbacks that make its buffers.
    hooks: MakerHooks,
    /// The original callbacks, once the CPU device exists.
    replaced: OnceLock<Replaced>,
}

/// The CPU's original callbacks that make buffers.
#[derive(Debug)]
struct Replaced {
    device: GgmlPtr<Device>,
    /// The type of buffers in plain memory; `None` if its `alloc_buffer` cannot be replaced.
    plain: Option<BufferMaker>,
    extras: Vec<BufferMaker>,
    from_host_ptr: Option<BufferFromHostPtr>,
}

#[derive(Debug)]
struct BufferMaker {
    buffer_type: GgmlPtr<BufferType>,
    /// Its original `alloc_buffer`.
    alloc: AllocBuffer,
}

impl CpuBackend {
    /// Finds the functions; `None` if one is missing.
    pub(crate) fn find(place: &SymbolScope, hooks: MakerHooks) -> Option<Self> {
        Some(Self {
            cpu_buffer_type: function!(place, c"ggml_backend_cpu_buffer_type")?,
            device_reg: function!(place, c"ggml_backend_dev_backend_reg")?,
            proc_address: function!(place, c"ggml_backend_reg_get_proc_address")?,
            ops: CpuOps::find(place),
            hooks,
            replaced: OnceLock::new(),
        })
    }

    /// The type of buffers in plain memory.
    pub(crate) fn buffer_type(&self) -> *mut BufferType {
        // SAFETY: takes nothing and returns a static object.
        unsafe { (self.cpu_buffer_type)() }
    }

    /// Whether the CPU rearranges weights in buffers of this type.
    pub(crate) fn is_extra(&self, buffer_type: *const BufferType) -> bool {
        let replaced = self.replaced.get();
        replaced.is_some_and(|replaced| replaced.extras.iter().any(|one| one.is(buffer_type)))
    }

    /// The original `alloc_buffer` of a buffer type; `None` for types that were not replaced.
    pub(crate) fn own_alloc(&self, buffer_type: *const BufferType) -> Option<AllocBuffer> {
        // A caller that comes during the replacement waits here until the originals are stored.
        let replaced = self.replaced()?;
        let mut makers = replaced.extras.iter().chain(&replaced.plain);
        Some(makers.find(|one| one.is(buffer_type))?.alloc)
    }

    /// Whether the CPU can compute `op` for us.
    pub(crate) fn computes(&self, op: TensorRef<'_>) -> bool {
        self.device()
            .is_some_and(|device| self.is_taken(device, op))
    }

    /// Creates a CPU backend for one stream; `None` if that fails.
    pub(crate) fn stream(&self) -> Option<CpuStream> {
        let (ops, device) = self.ops.zip(self.device())?;
        // SAFETY: the function behind this name has the type that `CpuOps::stream` takes.
        let threads = unsafe { self.own_function(device, c"ggml_backend_set_n_threads") };
        // SAFETY: as above.
        let abort = unsafe { self.own_function(device, c"ggml_backend_set_abort_callback") };
        ops.stream(device, threads, abort)
    }

    /// Whether `device`, any device of the host, supports `op`, as ggml asks.
    pub(crate) fn is_taken(&self, device: GgmlPtr<Device>, op: TensorRef<'_>) -> bool {
        // SAFETY: a device lives for ever; the tensor and its operands are live.
        let is_taken = |ops: CpuOps| unsafe { (ops.dev_supports)(device.get(), op.as_ptr()) };
        self.ops.is_some_and(is_taken)
    }

    /// The CPU's device, if it was found.
    fn device(&self) -> Option<GgmlPtr<Device>> {
        self.replaced.get().map(|replaced| replaced.device)
    }

    /// Returns a function that the CPU backend offers by name.
    ///
    /// # Safety
    /// `F` is the type of the function of this name.
    unsafe fn own_function<F: Copy>(&self, device: GgmlPtr<Device>, name: &CStr) -> Option<F> {
        // SAFETY: a live device of the host.
        let reg = NonNull::new(unsafe { (self.device_reg)(device.get()) })?;
        // SAFETY: a live registry object; the name is NUL-terminated.
        let function = unsafe { (self.proc_address)(reg.as_ptr(), name.as_ptr()) };
        // SAFETY: of that type, by the caller's promise.
        NonNull::new(function).map(|function| unsafe { as_function(function) })
    }

    /// The original `buffer_from_host_ptr` of the device.
    pub(crate) fn own_host_ptr(&self) -> Option<BufferFromHostPtr> {
        self.replaced()?.from_host_ptr
    }

    /// Finds the CPU device, if it exists by now, and watches the buffers that are made from then
    /// on. Must not be called before this process has its [`crate::compute::runtime::Runtime`].
    pub(crate) fn watch(&self) {
        thread_local! {
            static IS_LOOKING: Cell<bool> = const { Cell::new(false) };
        }
        // To find the CPU's device, ggml asks each device for its type, including ours, which calls
        // this function.
        if self.replaced.get().is_none() && !IS_LOOKING.replace(true) {
            self.replaced();
            IS_LOOKING.set(false);
        }
    }

    fn replaced(&self) -> Option<&Replaced> {
        if let Some(known) = self.replaced.get() {
            return Some(known);
        }
        // It is in libggml, unlike all others, which are in libggml-base.
        let by_type: unsafe extern "C" fn(c_int) -> *mut Device = SymbolScope::candidates()
            .iter()
            .find_map(|place| function!(place, c"ggml_backend_dev_by_type"))?;
        // SAFETY: reads the list of devices.
        let device = GgmlPtr::new(unsafe { by_type(DEVICE_TYPE_CPU) })?;
        Some(self.replaced.get_or_init(|| self.replace(device)))
    }

    fn replace(&self, device: GgmlPtr<Device>) -> Replaced {
        Replaced {
            device,
            plain: BufferMaker::replace(self.buffer_type(), self.hooks.alloc),
            extras: self.extras(device),
            // SAFETY: a device that the host has registered, which it never frees; `from_host_ptr`
            // calls the original, and waits until that is stored.
            from_host_ptr: unsafe { layout::hook_host_ptr(device.get(), self.hooks.from_host_ptr) },
        }
    }

    /// Replaces `alloc_buffer` of the extra buffer types.
    fn extras(&self, device: GgmlPtr<Device>) -> Vec<BufferMaker> {
        // SAFETY: the function behind this name has that type.
        let Some(extras) = (unsafe { self.own_function::<Extras>(device, EXTRAS_NAME) }) else {
            return Vec::new();
        };
        // SAFETY: the CPU device, whose function it is.
        let first = unsafe { extras(device.get()) };
        if first.is_null() {
            return Vec::new();
        }
        // SAFETY: it is lazy, and `take_while` below stops at the null that ends the array.
        let types = (0..MOST_EXTRAS).map(|index| unsafe { first.wrapping_add(index).read() });
        types
            .take_while(|buffer_type| !buffer_type.is_null())
            .filter_map(|buffer_type| BufferMaker::replace(buffer_type, self.hooks.alloc))
            .collect()
    }
}

impl BufferMaker {
    /// Replaces `alloc_buffer` of this type of the host.
    fn replace(buffer_type: *mut BufferType, alloc: AllocBuffer) -> Option<Self> {
        let buffer_type = GgmlPtr::new(buffer_type)?;
        // SAFETY: a buffer type of the CPU's device, which the host never frees; `alloc` calls the
        // original of this type, and waits until that is stored.
        let alloc = unsafe { layout::hook_alloc(buffer_type.get(), alloc) }?;
        Some(Self { buffer_type, alloc })
    }

    fn is(&self, buffer_type: *const BufferType) -> bool {
        ptr::eq(self.buffer_type.get(), buffer_type)
    }
}

#[cfg(test)]
mod tests;
