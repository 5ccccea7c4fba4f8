// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests with tensors like those of llama.cpp and test-backend-ops, on a small fake host.

mod attention;

use std::ffi::c_int;
use std::ptr;

use super::*;
use crate::decide::offload;
use crate::ggml::abi::{BufferType, MAX_NAME, Tensor, type_id};
use crate::ggml::footprint::Footprint;
use crate::ggml::host::tests::{FAKE_HOST, FakeBuffer, REARRANGED};
use crate::ggml::reason::DeclineReason;
use crate::ggml::types::tests::Q8_0;
use npu_offload::ComputeType;

/// Numbers of operations in the fake host.
const MUL_MAT: u32 = 29;
const VIEW: u32 = 36;
const ADD: u32 = 2;

/// Its address stands for the buffer type of plain memory.
static PLAIN: u8 = 0;

fn plain_type() -> *mut BufferType {
    ptr::from_ref(&PLAIN).cast_mut().cast()
}

fn buffer(buffer_type: *mut BufferType, usage: c_int, size: usize) -> FakeBuffer {
    FakeBuffer {
        buffer_type,
        usage,
        size,
    }
}

/// A tensor of a test, which lives as long as the test needs it.
pub(crate) fn host_tensor(tensor: &Tensor) -> TensorRef<'_> {
    // SAFETY: live while it is borrowed; a test's operands and buffers are its own variables, which
    // live until the test ends.
    unsafe { TensorRef::new(&FAKE_HOST, tensor) }.unwrap()
}

pub(crate) fn tensor(type_id: u32, ne: [i64; 4]) -> Tensor {
    let operand = offload::tests::packed(type_id, ne);
    let mut name = [0; MAX_NAME];
    name[..12].copy_from_slice(b"blk.0.ffn_up");
    Tensor {
        type_id,
        ne,
        nb: operand.nb,
        name,
        ..Tensor::scalar()
    }
}

/// The result of an operation, without data. It must not outlive its operands.
fn result(op: u32, ne: [i64; 4], operands: &[&Tensor]) -> Tensor {
    let mut result = tensor(type_id::F32, ne);
    result.op = op;
    for (to, from) in result.src.iter_mut().zip(operands) {
        *to = ptr::from_ref::<Tensor>(from).cast_mut();
    }
    result
}

/// A view of `root`, which it must not outlive.
fn view(root: &Tensor, ne: [i64; 4]) -> Tensor {
    Tensor {
        op: VIEW,
        view_src: ptr::from_ref(root).cast_mut(),
        ..tensor(root.type_id, ne)
    }
}

/// Classifies `weights` times 64 rows of F32 activations.
fn classify_matmul(weights: &Tensor) -> MatmulQuery {
    let (k, n) = (weights.ne[0], weights.ne[1]);
    let activations = result(ADD, [k, 64, 1, 1], &[]);
    let output = result(MUL_MAT, [n, 64, 1, 1], &[weights, &activations]);
    match classify(host_tensor(&output)) {
        NodeQuery::MatmulNode(matmul) => matmul,
        other => panic!("{other:?}"),
    }
}

fn decide(weights: &Tensor) -> Result<ComputeType, DeclineReason> {
    offload::decide(&classify_matmul(weights), &offload::tests::policy(32))
        .map(|offload| offload.precision)
}

const SHAPE: [i64; 4] = [64, 96, 1, 1];

fn origin_of(buffer_type: *mut BufferType, usage: c_int, size: usize) -> WeightOrigin {
    let mut buffer = buffer(buffer_type, usage, size);
    let mut weights = tensor(Q8_0, SHAPE);
    weights.buffer = (&raw mut buffer).cast();
    classify_matmul(&weights).origin
}

#[test]
fn llama_cpp_asks_with_an_empty_buffer_and_then_with_the_weights() {
    let rearranged = REARRANGED.as_ptr().cast_mut().cast();
    for (buffer_type, usage, size, origin) in [
        (plain_type(), usage::WEIGHTS, 0, WeightOrigin::Unallocated),
        (plain_type(), 0, 0, WeightOrigin::Asked),
        (plain_type(), usage::WEIGHTS, 4096, WeightOrigin::Plain),
        (rearranged, usage::WEIGHTS, 0, WeightOrigin::Unallocated),
        (rearranged, 0, 0, WeightOrigin::Elsewhere),
        (rearranged, usage::WEIGHTS, 4096, WeightOrigin::Rearranged),
        (rearranged, 0, 4096, WeightOrigin::Elsewhere),
        (plain_type(), 0, 4096, WeightOrigin::Elsewhere),
    ] {
        assert_eq!(origin_of(buffer_type, usage, size), origin);
    }
}

/// A test asks before it allocates. llama.cpp so asks about the rotations of a quantised KV cache,
/// which are inputs.
#[test]
fn a_view_of_a_tensor_without_data_is_what_that_tensor_is() {
    let stored = tensor(type_id::F16, [128, 96, 1, 1]);
    let mut input = tensor(type_id::F32, SHAPE);
    input.flags = abi::FLAG_INPUT;
    let computed = result(ADD, SHAPE, &[]);
    for (root, decision) in [
        (&stored, Ok(ComputeType::Fp16)),
        (&input, Err(DeclineReason::Input)),
        (&computed, Err(DeclineReason::Computed)),
    ] {
        let mut view = view(root, SHAPE);
        view.nb = root.nb;
        for weights in [root, &view] {
            assert_eq!(decide(weights), decision);
        }
    }
}

#[test]
fn rows_of_what_is_viewed_are_seen_where_they_are_longer() {
    // Two tokens of 32 heads, as they were computed, and head by head.
    let computed = result(ADD, [64 * 32, 2, 1, 1], &[]);
    // Patches that are merged into longer rows, and memory that the program provides.
    let patches = result(ADD, [16, 256, 1, 1], &[]);
    let stored = tensor(type_id::F32, [64 * 32 * 2, 1, 1, 1]);
    let heads = [64, 32, 2, 1];
    let rows = |heads: &Tensor| viewed_rows(host_tensor(heads));
    assert_eq!(rows(&tensor(type_id::F32, heads)), None);
    for (root, expected) in [(&computed, Some(2)), (&patches, None), (&stored, None)] {
        assert_eq!(rows(&view(root, heads)), expected);
    }
}

#[test]
fn operations_that_write_weights_are_seen() {
    const COPY: u32 = 5;
    let mut array = [0_u8; 2 * 64 * 96];
    let written = |op: u32, usage: c_int, data: *mut u8| {
        let mut buffer = buffer(plain_type(), usage, 1 << 20);
        let mut weights = tensor(type_id::F16, SHAPE);
        weights.buffer = (&raw mut buffer).cast();
        weights.data = data.cast();
        let mut node = view(&weights, SHAPE);
        node.op = op;
        let found = written_weights(host_tensor(&node));
        found.map(|(_, name, range)| (name, range))
    };
    let data = array.as_mut_ptr();
    let whole = data.addr()..data.addr() + array.len();
    let name = "blk.0.ffn_up".to_owned();
    assert_eq!(written(COPY, usage::WEIGHTS, data), Some((name, whole)));
    for (op, usage) in [(VIEW, usage::WEIGHTS), (0, usage::WEIGHTS), (COPY, 0)] {
        assert_eq!(written(op, usage, data), None, "{op}");
    }
    let alone = tensor(type_id::F16, SHAPE);
    assert!(written_weights(host_tensor(&alone)).is_none());
}

/// A KV cache is a stored tensor too, and attention without flash attention multiplies by a view of
/// it; it lies in plain memory, but in no buffer of weights.
#[test]
fn views_of_a_kv_cache_are_no_weights() {
    let mut buffer = buffer(plain_type(), 0, 1 << 20);
    let mut cache = tensor(type_id::F16, [64, 4096, 1, 1]);
    cache.buffer = (&raw mut buffer).cast();
    let keys = view(&cache, SHAPE);
    assert_eq!(classify_matmul(&keys).origin, WeightOrigin::Cache);
    assert_eq!(decide(&keys), Ok(ComputeType::Fp16));
    // Other tensors there are not weights either.
    let mut scratch = tensor(type_id::F16, SHAPE);
    scratch.buffer = cache.buffer;
    assert_eq!(decide(&scratch), Err(DeclineReason::Elsewhere));
    // Views of weights are weights.
    let mut weights = self::buffer(plain_type(), usage::WEIGHTS, 1 << 20);
    cache.buffer = (&raw mut weights).cast();
    let part = view(&cache, SHAPE);
    assert_eq!(classify_matmul(&part).origin, WeightOrigin::Plain);
}

#[test]
fn stored_tensors_and_views_need_no_work_and_the_rest_is_not_ours() {
    for (op, no_work) in [(0, true), (VIEW, true), (ADD, false), (u32::MAX, false)] {
        let node = result(op, SHAPE, &[]);
        let found = classify(host_tensor(&node));
        assert_eq!(matches!(found, NodeQuery::NoWork), no_work, "op {op}");
    }
    let no_operands = result(MUL_MAT, SHAPE, &[]);
    let found = classify(host_tensor(&no_operands));
    assert!(matches!(found, NodeQuery::Other));
}

/// Runs `body` with a matmul of 2 rows and its data in one array: weights, activations and output
/// at these places (in elements of f32).
fn with_array<T>(places: [usize; 3], body: impl FnOnce(&mut MatmulNode<'_>) -> T) -> Option<T> {
    let mut array = vec![1.0_f32; 512];
    let base = array.as_mut_ptr();
    let at = |tensor: Tensor, place| Tensor {
        data: base.wrapping_add(place).cast(),
        ..tensor
    };
    let weights = at(tensor(type_id::F16, [64, 4, 1, 1]), places[0]);
    let activations = at(tensor(type_id::F32, [64, 2, 1, 1]), places[1]);
    let output = result(MUL_MAT, [4, 2, 1, 1], &[&weights, &activations]);
    let output = at(output, places[2]);
    let mut matmul = offload::tests::matmul(type_id::F16, 2, 4, 64);
    matmul.origin = WeightOrigin::Unallocated;
    let offload = offload::computable(&matmul, &offload::tests::policy(1)).unwrap();
    let output = host_tensor(&output);
    let footprint = Footprint::of(output)?;
    // SAFETY: the array lives until the end of this function, each tensor lies within the array,
    // and nobody else accesses it.
    let out = unsafe { footprint.output(output, None) }?;
    // SAFETY: as above.
    let matmul = unsafe { matmul_data(output, offload, out) };
    matmul.map(|mut matmul| body(&mut matmul))
}

#[test]
fn data_is_seen_where_it_lies() {
    let sizes = with_array([0, 128, 256], |matmul| {
        matmul.out.values_mut().fill(2.0);
        let operands = [&matmul.weights, &matmul.activations].map(|rows| rows.bytes.len());
        (operands, matmul.out.values().len())
    });
    assert_eq!(sizes, Some(([64 * 4 * 2, 64 * 2 * 4], 8)));
}

#[test]
fn an_output_over_an_operand_is_refused() {
    for output in [0, 127, 128, 255] {
        assert_eq!(with_array([0, 128, output], |_| ()), None, "{output}");
    }
    assert!(with_array([8, 136, 0], |_| ()).is_some());
}

/// Query and key of a layer are biased, normed by head and rotated before the value's matmul. Sums
/// of two matmuls, and norms of whole rows, come after the last matmul of a layer.
#[test]
fn operations_on_a_matmuls_rows_are_told_from_others() {
    const ROPE: u32 = 50;
    const RMS_NORM: u32 = 24;
    let weights = tensor(type_id::F16, SHAPE);
    let activations = result(ADD, [64, 32, 1, 1], &[]);
    let (whole, heads) = ([96, 32, 1, 1], [24, 4, 32, 1]);
    let matmul = result(MUL_MAT, whole, &[&weights, &activations]);
    let is_row_op = |operation: &Tensor| {
        let node = classify(host_tensor(operation));
        matches!(node, NodeQuery::RowOp { matmul, .. } if matmul.output.ne == whole)
    };
    let bias = tensor(type_id::F32, [96, 1, 1, 1]);
    let biased = result(ADD, whole, &[&matmul, &bias]);
    let split = result(VIEW, heads, &[&biased]);
    let normed = result(RMS_NORM, heads, &[&split]);
    let positions = tensor(type_id::I32, [32, 1, 1, 1]);
    let mut rotated = result(ROPE, heads, &[&normed, &positions]);
    for row_op in [&biased, &normed, &rotated] {
        assert!(is_row_op(row_op));
    }
    for (op, operands) in [
        (RMS_NORM, &[&matmul][..]),
        (ADD, &[&matmul, &activations]),
        (ROPE, &[&activations, &positions]),
        (ROPE, &[&bias, &positions]),
    ] {
        assert!(!is_row_op(&result(op, whole, operands)));
    }
    // An endless chain is not followed for ever.
    let at = &raw mut rotated;
    rotated.src[0] = at;
    assert!(!is_row_op(&rotated));
}

/// The order matters only if one matmul writes what the other reads or writes.
#[test]
fn matmuls_depend_on_each_other_by_what_they_write() {
    let matmul = |reads: [Range<usize>; 2], writes| Footprint {
        reads: reads.into(),
        writes,
    };
    let first = matmul([0..100, 200..300], 400..500);
    let follows = |reads, writes| {
        let second = matmul(reads, writes);
        (second.needs(&first), second.overwrites(&first))
    };
    // With the same activations, and with the same weights.
    assert_eq!(follows([100..200, 200..300], 500..600), (false, false));
    assert_eq!(follows([0..100, 600..700], 300..400), (false, false));
    // It reads what the first writes, writes what the first reads, or writes the same.
    assert_eq!(follows([100..200, 499..510], 600..700), (true, false));
    assert_eq!(follows([100..200, 600..700], 299..310), (false, true));
    assert_eq!(follows([100..200, 600..700], 99..110), (false, true));
    assert_eq!(follows([100..200, 600..700], 450..460), (false, true));
}

#[test]
fn a_tensor_without_data_is_refused() {
    let mut weights = tensor(type_id::F16, SHAPE);
    assert_eq!(host_tensor(&weights).range(), None);
    weights.data = ptr::without_provenance_mut(64);
    weights.nb[1] = usize::MAX / 2;
    assert_eq!(host_tensor(&weights).range(), None);
}

#[test]
fn names_end_at_the_nul_or_with_the_field() {
    let mut weights = tensor(type_id::F16, SHAPE);
    assert_eq!(host_tensor(&weights).name(), "blk.0.ffn_up");
    weights.name = [b'x'; MAX_NAME];
    assert_eq!(host_tensor(&weights).name().len(), MAX_NAME);
}
