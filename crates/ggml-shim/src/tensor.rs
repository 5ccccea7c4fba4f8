// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reads ggml's tensors: the one file that follows their pointers.

pub(crate) mod attention;
mod memory;

use std::ffi::CStr;
use std::ops::Range;
use std::slice;

use npu_offload::NumberFormat;

pub(crate) use self::memory::{
    Footprint, TensorContext, buffer_of, footprint, output, overlap, written,
};
use self::memory::{is_evident, is_readable};
use crate::abi::{self, Buffer, Tensor, usage};
use crate::descriptor::TensorDescriptor;
use crate::host::Host;
use crate::mul_mat::{MulMat, StoredWeights};
use crate::node_output::NodeOutput;
use crate::supports::{AttentionQuery, MulMatQuery, Offload, WeightLocation, WeightOrigin};
use crate::tensor_bytes::TensorBytes;
use crate::types::FormatTable;

/// What a node of a graph is to us.
#[derive(Debug)]
pub(crate) enum GraphNode {
    /// Nothing to compute: a stored tensor, or a view.
    NoWork,
    /// A matrix product.
    MulMat(MulMatQuery),
    /// Attention.
    Attention(AttentionQuery),
    /// An operation of the CPU on the rows of the product `node`, which reads nothing else but stored
    /// tensors and inputs.
    RowOp {
        /// Live as long as the operation is.
        node: *const Tensor,
        product: MulMatQuery,
    },
    /// Anything else.
    Other,
}

/// Looks at one node.
///
/// # Safety
/// `tensor` is null or a live tensor of the host; so are its operands and
/// their buffers; nobody changes them meanwhile.
pub(crate) unsafe fn classify(context: &TensorContext<'_>, tensor: *const Tensor) -> GraphNode {
    // SAFETY: null or live, by the caller's promise.
    let Some(tensor) = (unsafe { tensor.as_ref() }) else {
        return GraphNode::Other;
    };
    let ops = context.host.ops();
    if tensor.op == ops.none || ops.views.contains(&tensor.op) {
        return GraphNode::NoWork;
    }
    if tensor.op == ops.flash_attn {
        // SAFETY: live, by the caller's promise, as its operands are.
        let query = unsafe { attention::query(context, tensor) };
        return query.map_or(GraphNode::Other, GraphNode::Attention);
    }
    if tensor.op != ops.mul_mat && tensor.op != ops.mul_mat_id {
        // SAFETY: live, by the caller's promise, as what it is computed from.
        let Some(node) = (unsafe { product_of_rows(context, tensor) }) else {
            return GraphNode::Other;
        };
        // SAFETY: as above.
        return match unsafe { classify(context, node) } {
            GraphNode::MulMat(product) => GraphNode::RowOp { node, product },
            _ => GraphNode::Other,
        };
    }
    // SAFETY: null or live, by the caller's promise.
    let ids = unsafe { ids(context, tensor) };
    if tensor.op == ops.mul_mat_id && ids.is_none() {
        return GraphNode::Other;
    }
    // SAFETY: the operands are null or live, by the caller's promise.
    let Some((weights, activations)) = (unsafe { operands(tensor) }) else {
        return GraphNode::Other;
    };
    // SAFETY: live, by the caller's promise.
    let mut origin = unsafe { origin(context.host, weights) };
    // SAFETY: as above.
    let place = unsafe { place(context, weights) };
    let is_view = origin == WeightOrigin::Stored && !weights.view_src.is_null();
    // SAFETY: as above.
    if is_view && place == WeightLocation::Elsewhere && unsafe { is_readable(context, weights) } {
        origin = WeightOrigin::Cache;
    }
    GraphNode::MulMat(MulMatQuery {
        // SAFETY: as above.
        weights: unsafe { weights.operand(context.types) },
        origin,
        place,
        // SAFETY: as above.
        activations: unsafe { activations.operand(context.types) },
        // SAFETY: as above.
        viewed_rows: unsafe { viewed_rows(context.host, activations) },
        // SAFETY: as above.
        ids: ids.map(|ids| unsafe { ids.operand(context.types) }),
        // SAFETY: as above.
        output: unsafe { tensor.operand(context.types) },
    })
}

/// Most operations between a product and its last row operation: views, bias, norm, scale, position.
const ROW_OPS: usize = 8;

/// The product whose rows the operation `tensor` works on: by positions or biases, or on heads, which
/// are parts of rows. Other norms are not between a query's product and a value's.
///
/// # Safety
/// As [`classify`], and so are the operands of operands.
unsafe fn product_of_rows<'a>(
    context: &TensorContext<'_>,
    tensor: &'a Tensor,
) -> Option<&'a Tensor> {
    let ops = context.host.ops();
    let mut normed = i64::MIN;
    let mut at = tensor;
    for _ in 0..ROW_OPS {
        if at.op == ops.mul_mat {
            return (normed < at.ne[0]).then_some(at);
        }
        if !ops.views.contains(&at.op) {
            if at.op == ops.rms_norm {
                normed = normed.max(at.ne[0]);
            } else if at.op != ops.rope && !ops.elementwise.contains(&at.op) {
                return None;
            }
            let is_stored = |operand: &*mut Tensor| {
                // SAFETY: null or live, by the caller's promise.
                let operand = unsafe { operand.as_ref() };
                operand.is_none_or(|operand| operand.op == ops.none)
            };
            if !at.src[1..].iter().all(is_stored) {
                return None;
            }
        }
        // SAFETY: null or live, by the caller's promise.
        at = unsafe { at.src[0].as_ref() }?;
    }
    None
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

/// The third operand of a product whose rows choose their weights.
///
/// # Safety
/// It is null or live, and nobody changes it meanwhile.
unsafe fn ids<'a>(context: &TensorContext<'_>, tensor: &'a Tensor) -> Option<&'a Tensor> {
    if tensor.op != context.host.ops().mul_mat_id {
        return None;
    }
    // SAFETY: null or live, by the caller's promise.
    unsafe { tensor.src[2].as_ref() }
}

/// Rows of the result that `activations` is a view of, if they are longer than its own.
///
/// # Safety
/// What it is a view of is null or live.
unsafe fn viewed_rows(host: &Host, activations: &Tensor) -> Option<usize> {
    // SAFETY: null or live, by the caller's promise.
    let root = unsafe { activations.view_src.as_ref() }?;
    if root.op == host.ops().none || root.ne[0] <= activations.ne[0] {
        return None;
    }
    let mut rows = root.ne[1..].iter().map(|size| usize::try_from(*size).ok());
    rows.try_fold(1_usize, |rows, size| rows.checked_mul(size?))
}

/// The weights that the operation `tensor` writes, if its result lies in them: their buffer, the
/// name of the tensor, and its addresses. ggml has no operation that writes what it is no view of.
///
/// # Safety
/// As [`classify`].
pub(crate) unsafe fn written_weights(
    context: &TensorContext<'_>,
    tensor: *const Tensor,
) -> Option<(*mut Buffer, String, Range<usize>)> {
    // SAFETY: null or live, by the caller's promise.
    let node = unsafe { tensor.as_ref() }?;
    let ops = context.host.ops();
    if node.op == ops.none || ops.views.contains(&node.op) {
        return None;
    }
    // SAFETY: as above.
    let root = unsafe { node.view_src.as_ref() }?;
    if root.buffer.is_null() {
        return None;
    }
    // SAFETY: not null, hence a live buffer, by the caller's promise.
    if unsafe { context.host.buffer_usage(root.buffer) } != usage::WEIGHTS {
        return None;
    }
    // SAFETY: a tensor of the host, by the caller's promise.
    let format = unsafe { context.types.format(root.type_id) };
    Some((root.buffer, root.name(), root.range(&format)?))
}

/// Whether `weights` is stored, or a view of what is.
///
/// # Safety
/// As [`classify`].
unsafe fn origin(host: &Host, weights: &Tensor) -> WeightOrigin {
    let ops = host.ops();
    // SAFETY: null or live, by the caller's promise.
    let root = unsafe { weights.view_src.as_ref() };
    if root.unwrap_or(weights).flags & abi::FLAG_INPUT != 0 {
        return WeightOrigin::Input;
    }
    let stored = match root {
        None => weights.op == ops.none,
        Some(root) => {
            root.op == ops.none && (weights.op == ops.none || ops.views.contains(&weights.op))
        }
    };
    if stored {
        WeightOrigin::Stored
    } else {
        WeightOrigin::Computed
    }
}

/// Where `weights` lies.
///
/// # Safety
/// As [`classify`].
unsafe fn place(context: &TensorContext<'_>, weights: &Tensor) -> WeightLocation {
    let host = context.host;
    // SAFETY: null or live, by the caller's promise.
    let buffer = unsafe { buffer_of(weights) };
    if buffer.is_null() {
        return WeightLocation::Unallocated;
    }
    // SAFETY: not null, hence a live buffer, by the caller's promise.
    let buffer_type = unsafe { host.buffer_type(buffer) };
    // llama.cpp asks how much memory a model will take with an empty buffer in
    // place of the real one.
    // SAFETY: as above.
    let is_empty = unsafe { host.buffer_size(buffer) } == 0;
    // SAFETY: as above.
    let is_host = unsafe { host.is_host(buffer_type) };
    // SAFETY: as above.
    let usage = unsafe { host.buffer_usage(buffer) };
    if is_empty && is_host {
        // It asks for a place in the same way, but of a buffer that it calls nothing yet.
        return match usage {
            usage::WEIGHTS => WeightLocation::Unallocated,
            _ => WeightLocation::Asked,
        };
    }
    match (usage, is_host) {
        (usage::WEIGHTS, true) => WeightLocation::Plain,
        (usage::WEIGHTS, false) => WeightLocation::Rearranged,
        // SAFETY: as above.
        (_, true) if unsafe { is_evident(context, weights, buffer) } => WeightLocation::Plain,
        _ => WeightLocation::Elsewhere,
    }
}

/// The data of the product `tensor`; `None` if it is missing, or the output overlaps an operand. With
/// memory `aside` for its outputs, its own is not touched.
///
/// # Safety
/// `tensor` is a live tensor for which [`classify`] gave the product that
/// `offload` was computed from, and [`footprint`] this `footprint`; it and its operands are allocated, and during `'a` nobody
/// else writes to any of them, nor reads the output unless outputs are set aside.
pub(crate) unsafe fn product_data<'a>(
    context: &TensorContext<'_>,
    tensor: *const Tensor,
    offload: Offload,
    footprint: &Footprint,
    aside: Option<Vec<f32>>,
) -> Option<MulMat<'a>> {
    if footprint.is_in_place() {
        return None;
    }
    // SAFETY: live, by the caller's promise.
    let output: &'a Tensor = unsafe { tensor.as_ref() }?;
    // SAFETY: a product's operands are live, by the caller's promise.
    let (weights, activations) = unsafe { operands(output) }?;
    // SAFETY: the type of a tensor of the host, by the caller's promise.
    let [weight_format, activation_format] =
        [weights, activations].map(|tensor| unsafe { context.types.format(tensor.type_id) });
    // SAFETY: as above.
    let decoder = unsafe { context.types.decoder(weights.type_id) }?;
    // SAFETY: live, by the caller's promise.
    let weights_rows = if unsafe { is_readable(context, weights) } {
        // SAFETY: allocated and not written to meanwhile, by the caller's
        // promise.
        unsafe { weights.rows(&weight_format) }?
    } else {
        TensorBytes {
            bytes: &[],
            row_bytes: weights.row_bytes(&weight_format)?,
            nb: weights.nb,
        }
    };
    // SAFETY: null or live, by the caller's promise.
    let ids = match unsafe { ids(context, output) } {
        None => None,
        Some(ids) => {
            // SAFETY: a tensor of the host, by the caller's promise.
            let format = unsafe { context.types.format(ids.type_id) };
            // SAFETY: allocated and not written to meanwhile, by the caller's
            // promise.
            Some(unsafe { ids.rows(&format) }?)
        }
    };
    let stored = StoredWeights {
        // SAFETY: a tensor of the host, by the caller's promise.
        operand: unsafe { weights.operand(context.types) },
        address: weights.data.addr(),
    };
    // SAFETY: as above.
    let activation_rows = unsafe { activations.rows(&activation_format) }?;
    let out = match aside {
        Some(values) => NodeOutput::Aside(values),
        // SAFETY: by the caller's promise, and it overlaps none of the slices above.
        None => NodeOutput::InPlace(unsafe { self::output(context, tensor) }?),
    };
    Some(MulMat {
        offload,
        decoder,
        weights: weights_rows,
        stored,
        kept: None,
        activations: activation_rows,
        ids,
        out,
        errors: None,
    })
}

impl Tensor {
    /// Format, dimensions and strides.
    ///
    /// # Safety
    /// It is a tensor of the host that `types` comes from.
    pub(crate) unsafe fn operand(&self, types: FormatTable) -> TensorDescriptor {
        TensorDescriptor {
            // SAFETY: the caller's promise is the callee's.
            format: unsafe { types.format(self.type_id) },
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

    /// Addresses from the first element to behind the last one.
    fn range(&self, format: &NumberFormat) -> Option<Range<usize>> {
        let mut len = self.row_bytes(format)?;
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

    /// Bytes from its first element to behind the last one.
    ///
    /// # Safety
    /// It is a tensor of the host that `types` comes from.
    pub(crate) unsafe fn byte_len(&self, types: FormatTable) -> Option<usize> {
        // SAFETY: the caller's promise is the callee's.
        let format = unsafe { types.format(self.type_id) };
        self.range(&format).map(|range| range.len())
    }

    /// Bytes of one row of elements.
    fn row_bytes(&self, format: &NumberFormat) -> Option<usize> {
        format.row_bytes(usize::try_from(self.ne[0]).ok()?)
    }

    /// Its data; `None` if it has none.
    ///
    /// # Safety
    /// The tensor is allocated, and nobody writes to it while the rows live.
    unsafe fn rows(&self, format: &NumberFormat) -> Option<TensorBytes<'_>> {
        let range = self.range(format)?;
        Some(TensorBytes {
            // SAFETY: an allocated tensor's bytes reach from `data` to behind
            // its last element, which `range` computes from its strides; the
            // length is at most isize::MAX; not written to, by the caller's
            // promise.
            bytes: unsafe { slice::from_raw_parts(self.data.cast::<u8>(), range.len()) },
            row_bytes: self.row_bytes(format)?,
            nb: self.nb,
        })
    }
}

#[cfg(test)]
pub(crate) mod tests;
