// SPDX-License-Identifier: MIT OR Apache-2.0
//! The host's buffers of which the NPU has packed weights.
//!
//! Packed weights must go when the bytes go that they were made from: ggml
//! frees models and reuses addresses. Nobody tells a backend about buffers of
//! others, but each buffer object carries its own callbacks, and those of a
//! buffer that holds weights of ours are replaced here by hooks that keep the
//! table and then do what they replaced.

use std::collections::HashMap;
use std::ffi::c_void;
use std::slice;
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use npu_matmul::PackedWeights;

use crate::abi::{Buffer, Tensor};
use crate::budget::WeightDecision;
use crate::engine;
use crate::host::Host;
use crate::layout::BufferCallbacks;
use crate::load;
use crate::log::LogLevel;
use crate::pack::PackedMatrix;
use crate::pieces::TensorPieces;
use crate::resident::{MatrixKey, ResidentMatrices};
use crate::runtime::{Runtime, contain, guard};
use crate::supports::{self, TensorDescriptor};

/// The order in which weights lie in a buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WeightOrder {
    /// As in the model file. They are packed when a product first needs them,
    /// because with a mapped file nobody says when they have arrived.
    Plain,
    /// In an order of the CPU's own. They are packed while they are written.
    Rearranged,
}

/// A buffer of the host with weights, and what was packed from it.
#[derive(Debug)]
pub(crate) struct WeightBuffer {
    order: WeightOrder,
    originals: BufferCallbacks,
    /// Weights packed from it.
    pub(crate) residents: ResidentMatrices<PackedMatrix<PackedWeights>>,
    /// For each of its tensors, whether it may be on the NPU.
    decisions: Mutex<HashMap<(MatrixKey, usize), Arc<WeightDecision>>>,
    /// Parts of tensors that are not there in whole yet.
    pieces: Mutex<TensorPieces>,
}

impl WeightBuffer {
    /// Whether `tensor`, which is `weights` in this buffer, may be on the NPU:
    /// asked of the budget at the first time, and the same answer from then
    /// on. `None` if it can never be.
    pub(crate) fn decide(
        &self,
        runtime: &Runtime,
        tensor: &Tensor,
        weights: &TensorDescriptor,
    ) -> Option<Arc<WeightDecision>> {
        let first = weights.key(tensor.data.addr(), [0, 0])?;
        let (precision, [k, n, b2, b3]) = supports::storable(weights, &runtime.policy).ok()?;
        let matrices = b2.checked_mul(b3)?;
        let decisions = self.decisions.lock();
        let mut decisions = decisions.unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = decisions.get(&(first, matrices)) {
            return Some(Arc::clone(known));
        }
        let plan = engine::plan(&*runtime.engine()?, precision, n, k)?;
        let wanted = runtime.config.tensors.include(&tensor.name());
        let decision = runtime.budget.decide(wanted, vec![plan; matrices]);
        decisions.insert((first, matrices), Arc::clone(&decision));
        if decision.is_yes() {
            // SAFETY: the type of a tensor of the host.
            let name = unsafe { runtime.types.name(weights.format.id) };
            let chooser = &runtime.policy.chooser;
            chooser.note(&name, weights.format, [n, k], matrices);
        }
        Some(decision)
    }
}

/// All buffers of the host with weights for the NPU, by address.
#[derive(Debug, Default)]
pub(crate) struct WeightBuffers {
    entries: RwLock<HashMap<usize, Arc<WeightBuffer>>>,
}

impl WeightBuffers {
    /// What is known about `buffer`; `None` if it has no such weights.
    pub(crate) fn get(&self, buffer: *const Buffer) -> Option<Arc<WeightBuffer>> {
        let entries = self.entries.read().unwrap_or_else(PoisonError::into_inner);
        entries.get(&buffer.addr()).cloned()
    }

    /// Hooks `buffer`, unless it is.
    ///
    /// # Safety
    /// `buffer` is a live buffer of the host, with callbacks, and nobody frees
    /// it or writes to it meanwhile.
    pub(crate) unsafe fn adopt(
        &self,
        host: &Host,
        buffer: *mut Buffer,
        order: WeightOrder,
    ) -> Arc<WeightBuffer> {
        if let Some(known) = self.get(buffer) {
            return known;
        }
        let mut entries = self.entries.write().unwrap_or_else(PoisonError::into_inner);
        let adopt = || {
            let hooks = BufferCallbacks {
                free_buffer: Some(free),
                memset_tensor: Some(memset_tensor),
                set_tensor: Some(set_tensor),
                // Without it ggml copies with `set_tensor`.
                cpy_tensor: None,
                clear: Some(clear),
            };
            Arc::new(WeightBuffer {
                order,
                // SAFETY: live, and its callbacks are not called, by the
                // caller's promise; the lock keeps other threads from here.
                originals: unsafe { host.layout().hook(buffer, hooks) },
                residents: ResidentMatrices::default(),
                decisions: Mutex::default(),
                pieces: Mutex::default(),
            })
        };
        Arc::clone(entries.entry(buffer.addr()).or_insert_with(adopt))
    }

    fn remove(&self, buffer: *const Buffer) -> Option<Arc<WeightBuffer>> {
        let mut entries = self.entries.write().unwrap_or_else(PoisonError::into_inner);
        entries.remove(&buffer.addr())
    }
}

/// The entry of a buffer whose hook was called. It has one from before the
/// hook was set to after it was called for the last time.
fn entry(runtime: &Runtime, buffer: *const Buffer) -> Option<Arc<WeightBuffer>> {
    let entry = runtime.weight_buffers.get(buffer);
    if entry.is_none() {
        let line = "a buffer was changed that is not known any more; please report it";
        runtime.log(LogLevel::Error, line);
    }
    entry
}

unsafe extern "C" fn free(buffer: *mut Buffer) {
    guard("free_buffer", (), |runtime| {
        let Some(entry) = runtime.weight_buffers.remove(buffer) else {
            return;
        };
        if let Some(original) = entry.originals.free_buffer {
            // SAFETY: the callback that the host gave this buffer, called as
            // the host wanted to call it.
            unsafe { original(buffer) };
        }
    });
}

unsafe extern "C" fn memset_tensor(
    buffer: *mut Buffer,
    tensor: *mut Tensor,
    value: u8,
    offset: usize,
    size: usize,
) {
    guard("memset_tensor", (), |runtime| {
        let Some(entry) = entry(runtime, buffer) else {
            return;
        };
        // SAFETY: ggml passes a live tensor.
        forget(&entry, unsafe { tensor.as_ref() }, offset, size);
        if let Some(original) = entry.originals.memset_tensor {
            // SAFETY: as in `free`.
            unsafe { original(buffer, tensor, value, offset, size) };
        }
    });
}

unsafe extern "C" fn clear(buffer: *mut Buffer, value: u8) {
    guard("clear", (), |runtime| {
        let Some(entry) = entry(runtime, buffer) else {
            return;
        };
        entry.residents.forget(0..usize::MAX);
        if let Some(original) = entry.originals.clear {
            // SAFETY: as in `free`.
            unsafe { original(buffer, value) };
        }
    });
}

unsafe extern "C" fn set_tensor(
    buffer: *mut Buffer,
    tensor: *mut Tensor,
    data: *const c_void,
    offset: usize,
    size: usize,
) {
    guard("set_tensor", (), |runtime| {
        let Some(entry) = entry(runtime, buffer) else {
            return;
        };
        let Some(original) = entry.originals.set_tensor else {
            return;
        };
        // SAFETY: ggml passes a live tensor.
        let target = unsafe { tensor.as_ref() };
        forget(&entry, target, offset, size);
        let write = |data: *const c_void, offset, size| {
            // SAFETY: as in `free`; the data are the host's own, or all of the
            // pieces that it gave.
            unsafe { original(buffer, tensor, data, offset, size) };
        };
        let whole = target.and_then(|tensor| {
            // SAFETY: a tensor of the host.
            unsafe { tensor.byte_len(runtime.types) }
        });
        let (WeightOrder::Rearranged, Some(tensor), Some(len)) = (entry.order, target, whole)
        else {
            return write(data, offset, size);
        };
        // SAFETY: ggml passes `size` readable bytes, which nobody changes
        // during the call.
        let bytes = unsafe { slice::from_raw_parts(data.cast::<u8>(), size) };
        if offset == 0 && size == len {
            pack(runtime, &entry, tensor, bytes);
            return write(data, 0, len);
        }
        // The CPU rearranges whole tensors only.
        let complete = {
            let mut pieces = entry.pieces.lock().unwrap_or_else(PoisonError::into_inner);
            pieces.add(tensor.data.addr(), len, offset, bytes)
        };
        match complete {
            Ok(None) => {}
            Ok(Some(bytes)) => {
                pack(runtime, &entry, tensor, &bytes);
                write(bytes.as_ptr().cast(), 0, len);
            }
            Err(error) => runtime.log(LogLevel::Error, &format!("{}: {error}", tensor.name())),
        }
    });
}

/// Packs a tensor; whatever goes wrong, the CPU still gets its data.
fn pack(runtime: &Runtime, entry: &WeightBuffer, tensor: &Tensor, bytes: &[u8]) {
    contain(|| {
        // SAFETY: a tensor of the host.
        let weights = unsafe { tensor.operand(runtime.types) };
        let decision = entry.decide(runtime, tensor, &weights);
        let Some(decision) = decision.filter(|decision| decision.is_yes()) else {
            return;
        };
        if let Err(why) = load::pack_tensor(runtime, &entry.residents, tensor, &weights, bytes) {
            decision.failed();
            let line = format!("{} stays on the CPU: {why}", tensor.name());
            runtime.log(LogLevel::Warn, &line);
        }
    });
}

/// Forgets what was packed from bytes of `tensor`.
fn forget(entry: &WeightBuffer, tensor: Option<&Tensor>, offset: usize, size: usize) {
    if let Some(tensor) = tensor {
        let start = tensor.data.addr().saturating_add(offset);
        entry.residents.forget(start..start.saturating_add(size));
    }
}
