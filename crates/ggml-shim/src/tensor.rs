// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reads ggml's tensors: the one file that follows their pointers.

use std::ffi::CStr;
use std::ops::Range;
use std::slice;

use zerocopy::FromBytes;

use crate::abi::{BufferType, Tensor, type_id, usage};
use crate::host::Host;
use crate::mul_mat::{MulMat, Rows};
use crate::quants::{Q8_0_BYTES, Q8_0_ELEMENTS};
use crate::supports::{Offload, Operand, Origin, Place, Product};

/// What a node of a graph is to us.
#[derive(Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "passed once by value; a box would cost an allocation per question"
)]
pub(crate) enum Node {
    /// Nothing to compute: a stored tensor, or a view.
    NoWork,
    /// A matrix product.
    Product(Product),
    /// Anything else.
    Other,
}

/// Looks at one node; `ours` is the buffer type of our device.
///
/// # Safety
/// `tensor` is null or a live tensor of the host; so are its operands and
/// their buffers; nobody changes them meanwhile.
pub(crate) unsafe fn classify(host: &Host, ours: *const BufferType, tensor: *const Tensor) -> Node {
    // SAFETY: null or live, by the caller's promise.
    let Some(tensor) = (unsafe { tensor.as_ref() }) else {
        return Node::Other;
    };
    let ops = host.ops();
    if tensor.op == ops.none || ops.views.contains(&tensor.op) {
        return Node::NoWork;
    }
    if tensor.op != ops.mul_mat {
        return Node::Other;
    }
    // SAFETY: the operands are null or live, by the caller's promise.
    let Some((weights, activations)) = (unsafe { operands(tensor) }) else {
        return Node::Other;
    };
    Node::Product(Product {
        weights: weights.operand(),
        // SAFETY: live, by the caller's promise.
        origin: unsafe { origin(host, weights) },
        // SAFETY: live, by the caller's promise.
        place: unsafe { place(host, ours, weights) },
        activations: activations.operand(),
        output: tensor.operand(),
    })
}

/// The first two operands of `tensor`, if it has them.
///
/// # Safety
/// They are null or live, and nobody changes them meanwhile.
unsafe fn operands(tensor: &Tensor) -> Option<(&Tensor, &Tensor)> {
    // SAFETY: null or live, by the caller's promise.
    let first = unsafe { tensor.src[0].as_ref() }?;
    // SAFETY: as above.
    let second = unsafe { tensor.src[1].as_ref() }?;
    Some((first, second))
}

/// Whether `weights` is stored, or a view of what is.
///
/// # Safety
/// As [`classify`].
unsafe fn origin(host: &Host, weights: &Tensor) -> Origin {
    let ops = host.ops();
    // SAFETY: null or live, by the caller's promise.
    let root = unsafe { weights.view_src.as_ref() };
    let stored = match root {
        None => weights.op == ops.none,
        Some(root) => {
            root.op == ops.none && (weights.op == ops.none || ops.views.contains(&weights.op))
        }
    };
    if stored {
        Origin::Stored
    } else {
        Origin::Computed
    }
}

/// Where `weights` lies.
///
/// # Safety
/// As [`classify`].
unsafe fn place(host: &Host, ours: *const BufferType, weights: &Tensor) -> Place {
    let mut buffer = weights.buffer;
    if buffer.is_null() {
        // SAFETY: null or live, by the caller's promise.
        if let Some(root) = unsafe { weights.view_src.as_ref() } {
            buffer = root.buffer;
        }
    }
    if buffer.is_null() {
        return Place::Unallocated;
    }
    // SAFETY: not null, hence a live buffer, by the caller's promise.
    let buffer_type = unsafe { host.buffer_type(buffer) };
    if buffer_type.cast_const() != ours {
        return Place::Elsewhere;
    }
    // SAFETY: as above.
    let usage = unsafe { host.buffer_usage(buffer) };
    // llama.cpp asks where to put a tensor with an empty buffer in its place,
    // which has no usage yet.
    // SAFETY: as above.
    let is_question = unsafe { host.buffer_size(buffer) } == 0;
    if usage == usage::WEIGHTS || is_question {
        Place::OurWeights
    } else {
        Place::Elsewhere
    }
}

/// Calls `body` with the data of the product `tensor`; `None` if the data is
/// missing, or the output overlaps an operand.
///
/// # Safety
/// `tensor` is a live tensor for which [`classify`] gave the product that
/// `offload` was computed from; it and its operands are allocated, and nobody
/// else writes to any of them meanwhile, nor reads the output.
pub(crate) unsafe fn with_data<T>(
    tensor: *const Tensor,
    offload: Offload,
    body: impl FnOnce(&mut MulMat<'_>) -> T,
) -> Option<T> {
    // SAFETY: live, by the caller's promise.
    let output = unsafe { tensor.as_ref() }?;
    // SAFETY: a product's operands are live, by the caller's promise.
    let (weights, activations) = unsafe { operands(output) }?;
    let output_range = output.range()?;
    for operand in [weights, activations] {
        let range = operand.range()?;
        if range.start < output_range.end && output_range.start < range.end {
            return None;
        }
    }
    // SAFETY: allocated and not written to meanwhile, by the caller's promise.
    let weights_bytes = unsafe { weights.bytes() }?;
    // SAFETY: as above.
    let activations_bytes = unsafe { activations.bytes() }?;
    // SAFETY: the range is that of the output, all of whose bytes are
    // allocated by the caller's promise and overlap none of the slices above;
    // nobody else accesses them meanwhile. Every byte pattern is a valid u8.
    let output_bytes =
        unsafe { slice::from_raw_parts_mut(output.data.cast::<u8>(), output_range.len()) };
    let out = <[f32]>::mut_from_bytes(output_bytes).ok()?;
    Some(body(&mut MulMat {
        offload,
        weight_type: weights.type_id,
        weights: Rows {
            bytes: weights_bytes,
            row_bytes: weights.row_bytes()?,
            nb: weights.nb,
        },
        activations: Rows {
            bytes: activations_bytes,
            row_bytes: activations.row_bytes()?,
            nb: activations.nb,
        },
        out,
    }))
}

impl Tensor {
    /// Type, dimensions and strides.
    fn operand(&self) -> Operand {
        Operand {
            type_id: self.type_id,
            ne: self.ne,
            nb: self.nb,
        }
    }

    /// Its name, for messages.
    pub(crate) fn name(&self) -> String {
        match CStr::from_bytes_until_nul(&self.name) {
            Ok(name) => name.to_string_lossy().into_owned(),
            Err(_) => String::from_utf8_lossy(&self.name).into_owned(),
        }
    }

    /// Bytes of one row of elements; `None` for types not used here.
    fn row_bytes(&self) -> Option<usize> {
        let elements = usize::try_from(self.ne[0]).ok()?;
        match self.type_id {
            type_id::F32 => elements.checked_mul(size_of::<f32>()),
            type_id::F16 => elements.checked_mul(size_of::<half::f16>()),
            type_id::Q8_0 => (elements / Q8_0_ELEMENTS).checked_mul(Q8_0_BYTES),
            _ => None,
        }
    }

    /// Addresses from the first element to behind the last one.
    fn range(&self) -> Option<Range<usize>> {
        let mut len = self.row_bytes()?;
        for (size, stride) in self.ne.iter().zip(self.nb).skip(1) {
            let steps = usize::try_from(*size).ok()?.checked_sub(1)?;
            len = len.checked_add(steps.checked_mul(stride)?)?;
        }
        isize::try_from(len).ok()?;
        let start = self.data.addr();
        if start == 0 {
            return None;
        }
        Some(start..start.checked_add(len)?)
    }

    /// Its data; `None` if it has none.
    ///
    /// # Safety
    /// The tensor is allocated, and nobody writes to it while the slice lives.
    unsafe fn bytes(&self) -> Option<&[u8]> {
        let range = self.range()?;
        // SAFETY: an allocated tensor's bytes reach from `data` to behind its
        // last element, which `range` computes from its strides; the length is
        // at most isize::MAX; not written to, by the caller's promise.
        Some(unsafe { slice::from_raw_parts(self.data.cast::<u8>(), range.len()) })
    }
}

#[cfg(test)]
mod tests;
