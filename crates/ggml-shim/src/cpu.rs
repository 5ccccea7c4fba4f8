// SPDX-License-Identifier: MIT OR Apache-2.0
//! The host's CPU backend: the buffer types that it has, and which weights it
//! would rearrange for its own kernels.
//!
//! Besides plain memory the CPU has "extra" buffer types (`CPU_REPACK`, `AMX`,
//! ...), into which it puts weights in another order. llama.cpp tries them one
//! after the other for each weight, after the buffer types of accelerators.

use std::collections::HashMap;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr::{self, NonNull};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use crate::abi::{Buffer, BufferType, Device, MAX_DIMS, Reg, Tensor, usage};
use crate::cpu_time;
use crate::shared::GgmlPtr;
use crate::symbols::{SymbolScope, function};

/// `GGML_BACKEND_DEVICE_TYPE_CPU`
const DEVICE_TYPE_CPU: c_int = 0;
/// How many extra buffer types are looked at; ggml has five kinds, and a
/// machine two of them at most.
const MOST_EXTRAS: usize = 16;
/// The CPU backend's own name of its list.
const EXTRAS_NAME: &CStr = c"ggml_backend_dev_get_extra_bufts";

type CpuBufferType = unsafe extern "C" fn() -> *mut BufferType;
type Alloc = unsafe extern "C" fn(*mut BufferType, usize) -> *mut Buffer;
type Alignment = unsafe extern "C" fn(*mut BufferType) -> usize;
type AllocSize = unsafe extern "C" fn(*mut BufferType, *const Tensor) -> usize;
type GetBase = unsafe extern "C" fn(*mut Buffer) -> *mut c_void;
type SetUsage = unsafe extern "C" fn(*mut Buffer, c_int);
type FreeBuffer = unsafe extern "C" fn(*mut Buffer);
type TensorAlloc = unsafe extern "C" fn(*mut Buffer, *mut Tensor, *mut c_void) -> c_int;
type DevSupportsOp = unsafe extern "C" fn(*mut Device, *const Tensor) -> bool;
type DevByType = unsafe extern "C" fn(c_int) -> *mut Device;
type DevReg = unsafe extern "C" fn(*mut Device) -> *mut Reg;
type ProcAddress = unsafe extern "C" fn(*mut Reg, *const c_char) -> *mut c_void;
type Extras = unsafe extern "C" fn(*mut Device) -> *const *mut BufferType;

/// The functions of ggml about its CPU backend, and what that said so far.
#[derive(Debug)]
pub(crate) struct CpuBackend {
    cpu_buffer_type: CpuBufferType,
    alloc: Alloc,
    alignment: Alignment,
    alloc_size: AllocSize,
    get_base: GetBase,
    set_usage: SetUsage,
    free: FreeBuffer,
    tensor_alloc: TensorAlloc,
    supports_op: DevSupportsOp,
    device_reg: DevReg,
    proc_address: ProcAddress,
    /// The CPU device, once it is there, and its extra buffer types.
    extras: OnceLock<(GgmlPtr<Device>, Vec<Extra>)>,
    /// The extra buffer type of which the host's buffers for our weights are.
    chosen: OnceLock<GgmlPtr<BufferType>>,
    /// What the CPU said about weights that the host asked about: the place of
    /// their type in the list of extra ones.
    answers: Mutex<HashMap<Weights, usize>>,
}

/// What the CPU's answer about weights depends on: their type and dimensions.
type Weights = (u32, [i64; MAX_DIMS]);

/// Kinds of weights whose answers are kept: those of many models.
const ANSWERS: usize = 4096;

/// An extra buffer type of the CPU.
#[derive(Debug)]
struct Extra {
    buffer_type: GgmlPtr<BufferType>,
    /// A buffer of no bytes, for questions.
    empty: GgmlPtr<Buffer>,
}

impl CpuBackend {
    /// Finds the functions; `None` if one is missing.
    pub(crate) fn find(place: &SymbolScope) -> Option<Self> {
        Some(Self {
            cpu_buffer_type: function!(place, c"ggml_backend_cpu_buffer_type", CpuBufferType)?,
            alloc: function!(place, c"ggml_backend_buft_alloc_buffer", Alloc)?,
            alignment: function!(place, c"ggml_backend_buft_get_alignment", Alignment)?,
            alloc_size: function!(place, c"ggml_backend_buft_get_alloc_size", AllocSize)?,
            get_base: function!(place, c"ggml_backend_buffer_get_base", GetBase)?,
            set_usage: function!(place, c"ggml_backend_buffer_set_usage", SetUsage)?,
            free: function!(place, c"ggml_backend_buffer_free", FreeBuffer)?,
            tensor_alloc: function!(place, c"ggml_backend_tensor_alloc", TensorAlloc)?,
            supports_op: function!(place, c"ggml_backend_dev_supports_op", DevSupportsOp)?,
            device_reg: function!(place, c"ggml_backend_dev_backend_reg", DevReg)?,
            proc_address: function!(place, c"ggml_backend_reg_get_proc_address", ProcAddress)?,
            extras: OnceLock::new(),
            chosen: OnceLock::new(),
            answers: Mutex::default(),
        })
    }

    /// The type of buffers in plain memory.
    pub(crate) fn buffer_type(&self) -> *mut BufferType {
        // SAFETY: takes nothing and returns a static object.
        unsafe { (self.cpu_buffer_type)() }
    }

    /// Where our weights go: the chosen extra buffer type, or plain memory
    /// before one is chosen.
    fn target(&self) -> *mut BufferType {
        match self.chosen.get() {
            Some(chosen) => chosen.get(),
            None => self.buffer_type(),
        }
    }

    /// Whether weights of ours may lie in buffers of this type: the chosen one
    /// or, once it is chosen, another extra one.
    pub(crate) fn is_chosen(&self, buffer_type: *const BufferType) -> bool {
        let Some(chosen) = self.chosen.get() else {
            return false;
        };
        let extras = self.extras.get().map_or(&[][..], |(_, extras)| extras);
        let mut types = extras.iter().map(|extra| extra.buffer_type.get());
        ptr::eq(chosen.get(), buffer_type) || types.any(|known| ptr::eq(known, buffer_type))
    }

    /// The extra buffer type where the CPU wants `weights`, if it is another
    /// than that of the buffers that are made for ours.
    pub(crate) fn other_type(&self, weights: &Tensor) -> Option<GgmlPtr<BufferType>> {
        let answer = *self.answers().get(&(weights.type_id, weights.ne))?;
        let (_, extras) = self.extras.get()?;
        let wanted = extras.get(answer)?.buffer_type;
        (self.chosen.get()?.get() != wanted.get()).then_some(wanted)
    }

    /// Moves a tensor without data into a buffer of its own, of another type:
    /// that buffer, and what initialising the tensor there said. `None` if the
    /// host has no memory.
    ///
    /// # Safety
    /// `tensor` is a live tensor of the host, and nobody else accesses it
    /// meanwhile.
    pub(crate) unsafe fn relocate(
        &self,
        tensor: *mut Tensor,
        buffer_type: GgmlPtr<BufferType>,
    ) -> Option<(GgmlPtr<Buffer>, c_int)> {
        // SAFETY: a buffer type of the host, and a tensor by the caller's
        // promise.
        let size = unsafe { (self.alloc_size)(buffer_type.get(), tensor) };
        // SAFETY: a buffer type of the host.
        let alignment = unsafe { (self.alignment)(buffer_type.get()) }.max(1);
        let size = size.checked_add(alignment)?;
        // SAFETY: as above.
        let buffer = GgmlPtr::new(unsafe { (self.alloc)(buffer_type.get(), size) })?;
        // The host would say it of a buffer that it knows.
        // SAFETY: just made by the host.
        unsafe { (self.set_usage)(buffer.get(), usage::WEIGHTS) };
        // SAFETY: as above.
        let base = unsafe { (self.get_base)(buffer.get()) };
        let padding = base.addr().next_multiple_of(alignment) - base.addr();
        // SAFETY: live and unshared, by the caller's promise.
        if let Some(tensor) = unsafe { tensor.as_mut() } {
            // `ggml_backend_tensor_alloc` insists that it is nowhere yet.
            tensor.buffer = ptr::null_mut();
            tensor.data = ptr::null_mut();
        }
        // SAFETY: the buffer was just made with room for the tensor behind the
        // padding.
        let status =
            unsafe { (self.tensor_alloc)(buffer.get(), tensor, base.wrapping_byte_add(padding)) };
        Some((buffer, status))
    }

    /// Frees a buffer of [`Self::relocate`].
    ///
    /// # Safety
    /// It is not used again.
    pub(crate) unsafe fn free(&self, buffer: *mut Buffer) {
        // SAFETY: by the caller's promise.
        unsafe { (self.free)(buffer) };
    }

    fn answers(&self) -> MutexGuard<'_, HashMap<Weights, usize>> {
        self.answers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Where the CPU computes with weights: rearranged ones, or plain ones.
    /// `None` while there is no CPU device, and for rearranged ones if it has
    /// several types of buffers for them.
    pub(crate) fn place(&self, rearranged: bool) -> Option<cpu_time::TimingPlace> {
        let (device, extras) = self.extras()?;
        if rearranged && extras.len() > 1 {
            return None;
        }
        Some(cpu_time::TimingPlace {
            device: device.get(),
            weights: match rearranged {
                true => self.target(),
                false => self.buffer_type(),
            },
            plain: self.buffer_type(),
        })
    }

    /// Makes a buffer for our weights; null if the host has no memory.
    pub(crate) fn alloc(&self, size: usize) -> *mut Buffer {
        // SAFETY: a buffer type of the host.
        unsafe { (self.alloc)(self.target(), size) }
    }

    /// The alignment of tensors in it.
    pub(crate) fn alignment(&self) -> usize {
        // SAFETY: a buffer type of the host.
        unsafe { (self.alignment)(self.target()) }
    }

    /// The bytes that `tensor` takes in it.
    ///
    /// # Safety
    /// `tensor` is a live tensor of the host.
    pub(crate) unsafe fn alloc_size(&self, tensor: *const Tensor) -> usize {
        // SAFETY: a buffer type of the host, and a tensor by the caller's
        // promise.
        unsafe { (self.alloc_size)(self.target(), tensor) }
    }

    /// Whether the CPU, asked next, would rearrange the weights of `product`
    /// into one of its extra buffer types. Which one is remembered; the first
    /// one ever is that of the buffers for our weights.
    ///
    /// # Safety
    /// `product` is a live tensor of the host with live operands.
    pub(crate) unsafe fn rearranges(&self, product: &Tensor) -> bool {
        // SAFETY: null or live, by the caller's promise.
        let Some(weights) = (unsafe { product.src[0].as_ref() }) else {
            return false;
        };
        let Some((device, extras)) = self.extras() else {
            return false;
        };
        let mut asked_weights = weights.clone();
        let mut asked = product.clone();
        asked.src[0] = &raw mut asked_weights;
        for (index, extra) in extras.iter().enumerate() {
            asked_weights.buffer = extra.empty.get();
            asked.src[0] = &raw mut asked_weights;
            // SAFETY: the CPU device, and a tensor like `product` with
            // operands like its own, all live until the answer.
            if unsafe { (self.supports_op)(device.get(), &raw const asked) } {
                self.chosen.get_or_init(|| extra.buffer_type);
                let mut answers = self.answers();
                if answers.len() >= ANSWERS {
                    answers.clear();
                }
                answers.insert((weights.type_id, weights.ne), index);
                return true;
            }
        }
        false
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
            // SAFETY: a buffer type of the host; a buffer of no bytes is made
            // without asking it.
            let empty = unsafe { (self.alloc)(buffer_type.get(), 0) };
            if let Some(empty) = GgmlPtr::new(empty) {
                found.push(Extra { buffer_type, empty });
            }
        }
        found
    }
}

#[cfg(test)]
mod tests;
