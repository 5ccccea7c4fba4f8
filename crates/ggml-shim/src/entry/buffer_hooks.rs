// SPDX-License-Identifier: MIT OR Apache-2.0
//! The callbacks of watched buffers: they update what is known about the buffer, and call the
//! originals.

use std::ffi::{c_int, c_void};
use std::mem;
use std::ops::Range;
use std::slice;
use std::sync::Arc;

use crate::compute::runtime::{Runtime, contain, guard};
use crate::entry::load;
use crate::ggml::abi::{Buffer, Tensor, status};
use crate::ggml::layout::BufferCallbacks;
use crate::ggml::log::LogLevel;
use crate::ggml::shared::lock;
use crate::ggml::tensor_ref::TensorRef;
use crate::weights::packed_tensor::PackedTensor;
use crate::weights::pieces::PieceError;
use crate::weights::watched_buffers::{PlacedWeights, WatchedBuffer, WeightOrder};

pub(crate) fn hooks() -> BufferCallbacks {
    BufferCallbacks {
        free_buffer: Some(free),
        init_tensor: Some(init_tensor),
        memset_tensor: Some(memset_tensor),
        set_tensor: Some(set_tensor),
        clear: Some(clear),
    }
}

/// Runs the body of a hook of `buffer` with the buffer's entry, which exists from before anybody
/// else knows the buffer until [`free`].
fn with_entry<T: Copy>(
    hook: &'static str,
    buffer: *const Buffer,
    fallback: T,
    body: impl FnOnce(&Runtime, &WatchedBuffer) -> T,
) -> T {
    guard(hook, fallback, |runtime| {
        if let Some(entry) = runtime.weight_buffers.get(buffer) {
            return body(runtime, &entry);
        }
        let line = "internal error: ggml uses a buffer that this backend does not know; please \
                    report it";
        runtime.log(LogLevel::Error, line);
        fallback
    })
}

unsafe extern "C" fn free(buffer: *mut Buffer) {
    guard("free_buffer", (), |runtime| {
        let Some(entry) = runtime.weight_buffers.remove(buffer) else {
            return;
        };
        if let Some(evidence) = &runtime.host.evidence {
            evidence.freed(buffer);
        }
        if let Some(original) = entry.originals.free_buffer {
            // SAFETY: the callback that the host gave this buffer, called as
            // the host wanted to call it.
            unsafe { original(buffer) };
        }
        if runtime.is_forked() {
            // What was packed is the parent's: freeing it would free it there.
            mem::forget(entry);
        }
    });
}

unsafe extern "C" fn init_tensor(buffer: *mut Buffer, tensor: *mut Tensor) -> c_int {
    with_entry("init_tensor", buffer, status::FAILED, |runtime, entry| {
        let status = match entry.originals.init_tensor {
            // SAFETY: as in `free`.
            Some(original) => unsafe { original(buffer, tensor) },
            None => status::SUCCESS,
        };
        // SAFETY: ggml passes a live tensor of this buffer, and waits.
        let tensor = unsafe { TensorRef::new(&runtime.host, tensor) };
        // Weights that only evidence identifies are decided about when they are used.
        let is_placed = runtime.host.evidence.is_none() && !runtime.is_forked();
        if let Some(tensor) = tensor.filter(|_| is_placed) {
            contain(|| entry.place(&runtime.weight_context(), tensor));
        }
        status
    })
}

unsafe extern "C" fn memset_tensor(
    buffer: *mut Buffer,
    tensor: *mut Tensor,
    value: u8,
    offset: usize,
    size: usize,
) {
    with_entry("memset_tensor", buffer, (), |runtime, entry| {
        // SAFETY: ggml passes a live tensor of this buffer, and waits.
        let target = unsafe { TensorRef::new(&runtime.host, tensor) };
        let range = forget(runtime, entry, target, offset, size);
        if let Some((evidence, range)) = runtime.host.evidence.as_ref().zip(range) {
            evidence.filled(buffer, &range);
        }
        if let Some(original) = entry.originals.memset_tensor {
            // SAFETY: as in `free`.
            unsafe { original(buffer, tensor, value, offset, size) };
        }
    });
}

unsafe extern "C" fn clear(buffer: *mut Buffer, value: u8) {
    with_entry("clear", buffer, (), |runtime, entry| {
        forget_range(runtime, entry, &(0..usize::MAX));
        if let Some(evidence) = &runtime.host.evidence {
            evidence.filled(buffer, &(0..usize::MAX));
        }
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
    with_entry("set_tensor", buffer, (), |runtime, entry| {
        let Some(original) = entry.originals.set_tensor else {
            return;
        };
        // SAFETY: ggml passes a live tensor of this buffer, and waits.
        let target = unsafe { TensorRef::new(&runtime.host, tensor) };
        let range = forget(runtime, entry, target, offset, size);
        if let Some((evidence, range)) = runtime.host.evidence.as_ref().zip(range) {
            evidence.given(buffer, &range);
        }
        // Data comes after all tensors of a model are placed.
        if entry.is_waiting() && !runtime.is_forked() {
            contain(|| runtime.weight_buffers.settle(&runtime.weight_context()));
        }
        let write = |data: *const c_void, offset, size| {
            // SAFETY: as in `free`; the data are the host's own, or all of the
            // pieces that it gave.
            unsafe { original(buffer, tensor, data, offset, size) };
        };
        let whole = target.and_then(|tensor| Some(tensor.range()?.len()));
        let (WeightOrder::Rearranged, Some(tensor), Some(len)) = (entry.order, target, whole)
        else {
            return write(data, offset, size);
        };
        // SAFETY: ggml passes `size` readable bytes, which nobody changes
        // during the call.
        let bytes = unsafe { slice::from_raw_parts(data.cast::<u8>(), size) };
        if offset == 0 && size == len {
            pack(runtime, entry, tensor, bytes);
            return write(data, 0, len);
        }
        // The CPU rearranges whole tensors only.
        let piece_of = (tensor.descriptor(), len);
        let complete = lock(&entry.pieces).add(tensor.address(), piece_of, offset, bytes);
        match complete {
            Ok(None) => {}
            Ok(Some(bytes)) => {
                pack(runtime, entry, tensor, &bytes);
                write(bytes.as_ptr().cast(), 0, len);
            }
            Err(error) => {
                runtime.log(LogLevel::Error, &format!("{}: {error}", tensor.name()));
                // The host, which takes no pieces either, says so in its own way.
                if matches!(error, PieceError::Memory(_)) {
                    write(data, offset, size);
                }
            }
        }
    });
}

/// Packs a tensor. If that fails, the CPU still gets its data, and the next report of weights has the
/// reason.
fn pack(runtime: &Runtime, entry: &WatchedBuffer, tensor: TensorRef<'_>, bytes: &[u8]) {
    contain(|| {
        let weights = entry.decided(PlacedWeights::of(tensor));
        let may_pack =
            |weights: &Arc<PackedTensor>| weights.decision.is_accepted() && !runtime.is_forked();
        let Some(weights) = weights.filter(may_pack) else {
            return;
        };
        if let Err(why) = load::pack_tensor(runtime, &weights, tensor, bytes) {
            let why = format!("{}: {why}", tensor.name());
            weights.decision.fail(&why);
        }
    });
}

/// Forgets what was packed from bytes of `tensor`. Returns the addresses of these bytes.
fn forget(
    runtime: &Runtime,
    entry: &WatchedBuffer,
    tensor: Option<TensorRef<'_>>,
    offset: usize,
    size: usize,
) -> Option<Range<usize>> {
    let start = tensor?.address().saturating_add(offset);
    let range = start..start.saturating_add(size);
    forget_range(runtime, entry, &range);
    Some(range)
}

/// Forgets what was packed from bytes in `range`. A child of fork packs nothing and uses nothing
/// packed, and must not free what its parent uses.
fn forget_range(runtime: &Runtime, entry: &WatchedBuffer, range: &Range<usize>) {
    if !runtime.is_forked() {
        entry.forget(range);
    }
}
