// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where a tensor's data lie, and which memory a node reads and writes.

use std::ops::Range;
use std::slice;

use zerocopy::FromBytes;

use crate::abi::{Buffer, Tensor};
use crate::evidence::Evidence;
use crate::host::Host;
use crate::types::FormatTable;

/// What is needed to look at tensors.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TensorContext<'a> {
    /// The ggml whose tensors they are.
    pub(crate) host: &'a Host,
    /// The host's number formats.
    pub(crate) types: FormatTable,
    /// What are weights, if the host does not say so.
    pub(crate) evidence: Option<&'a Evidence>,
}

/// The buffer of `tensor`, or of what it is a view of; null if it has none.
///
/// # Safety
/// Its root is null or live.
pub(crate) unsafe fn buffer_of(tensor: &Tensor) -> *mut Buffer {
    if !tensor.buffer.is_null() {
        return tensor.buffer;
    }
    // SAFETY: null or live, by the caller's promise.
    let root = unsafe { tensor.view_src.as_ref() };
    root.map_or(std::ptr::null_mut(), |root| root.buffer)
}

/// Whether the data of `tensor` can be read in place.
///
/// # Safety
/// As [`super::classify`].
pub(super) unsafe fn is_readable(context: &TensorContext<'_>, tensor: &Tensor) -> bool {
    // SAFETY: null or live, by the caller's promise.
    let buffer = unsafe { buffer_of(tensor) };
    if buffer.is_null() {
        return true;
    }
    // SAFETY: not null, hence a live buffer, by the caller's promise.
    let buffer_type = unsafe { context.host.buffer_type(buffer) };
    // SAFETY: as above.
    unsafe { context.host.is_host(buffer_type) }
}

/// Whether `weights` in `buffer` are that by the evidence.
///
/// # Safety
/// It is a tensor of the host.
pub(super) unsafe fn is_evident(
    context: &TensorContext<'_>,
    weights: &Tensor,
    buffer: *const Buffer,
) -> bool {
    // SAFETY: the caller's promise is the callee's.
    let format = unsafe { context.types.format(weights.type_id) };
    let seen = context.evidence.zip(weights.range(&format));
    seen.is_some_and(|(evidence, range)| evidence.are_weights(buffer, &range))
}

/// The buffer that a node writes, and which addresses; `None` if it computes nothing, or nowhere.
///
/// # Safety
/// As [`super::classify`].
pub(crate) unsafe fn written(
    context: &TensorContext<'_>,
    tensor: *const Tensor,
) -> Option<(*mut Buffer, Range<usize>)> {
    // SAFETY: null or live, by the caller's promise.
    let node = unsafe { tensor.as_ref() }?;
    let ops = context.host.ops();
    if node.op == ops.none || ops.views.contains(&node.op) {
        return None;
    }
    // SAFETY: as above.
    let buffer = unsafe { buffer_of(node) };
    // SAFETY: a tensor of the host, by the caller's promise.
    let format = unsafe { context.types.format(node.type_id) };
    Some((buffer, node.range(&format)?)).filter(|_| !buffer.is_null())
}

/// The addresses that a node reads and writes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Footprint {
    /// Of each operand.
    pub(super) reads: Vec<Range<usize>>,
    pub(super) writes: Range<usize>,
}

impl Footprint {
    /// Whether it reads what it writes.
    pub(super) fn is_in_place(&self) -> bool {
        self.reads.iter().any(|read| overlap(read, &self.writes))
    }

    /// Whether it reads what `earlier` writes.
    pub(crate) fn needs(&self, earlier: &Self) -> bool {
        self.reads.iter().any(|read| overlap(read, &earlier.writes))
    }

    /// Whether it writes what `earlier` reads or writes.
    pub(crate) fn overwrites(&self, earlier: &Self) -> bool {
        let mut others = earlier.reads.iter().chain([&earlier.writes]);
        others.any(|other| overlap(&self.writes, other))
    }
}

/// Whether two ranges of addresses have one in common.
pub(crate) fn overlap(one: &Range<usize>, other: &Range<usize>) -> bool {
    one.start < other.end && other.start < one.end
}

/// What `tensor` reads and writes; `None` if it or an operand has no data.
///
/// # Safety
/// As [`super::classify`].
pub(crate) unsafe fn footprint(
    context: &TensorContext<'_>,
    tensor: *const Tensor,
) -> Option<Footprint> {
    // SAFETY: null or live, by the caller's promise.
    let output = unsafe { tensor.as_ref() }?;
    let range = |tensor: &Tensor| {
        // SAFETY: the type of a tensor of the host, by the caller's promise.
        let format = unsafe { context.types.format(tensor.type_id) };
        tensor.range(&format)
    };
    // SAFETY: null or live, by the caller's promise.
    let operands = output
        .src
        .iter()
        .filter_map(|operand| unsafe { operand.as_ref() });
    Some(Footprint {
        reads: operands.map(range).collect::<Option<_>>()?,
        writes: range(output)?,
    })
}

/// Where the outputs of the product, or attention, `tensor` belong; `None` if they are no binary32 numbers in memory.
///
/// # Safety
/// `tensor` is a live and allocated tensor of the host, and nobody else accesses its data during `'a`.
pub(crate) unsafe fn output<'a>(
    context: &TensorContext<'_>,
    tensor: *const Tensor,
) -> Option<&'a mut [f32]> {
    // SAFETY: live, by the caller's promise.
    let output = unsafe { tensor.as_ref() }?;
    // SAFETY: a tensor of the host, by the caller's promise.
    let format = unsafe { context.types.format(output.type_id) };
    let range = output.range(&format)?;
    // SAFETY: the range is that of the tensor, all of whose bytes are allocated; nobody else accesses
    // them, by the caller's promise. Every byte pattern is a valid u8.
    let bytes = unsafe { slice::from_raw_parts_mut(output.data.cast::<u8>(), range.len()) };
    <[f32]>::mut_from_bytes(bytes).ok()
}
