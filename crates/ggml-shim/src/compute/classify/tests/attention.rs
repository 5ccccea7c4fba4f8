// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests with attention like llama.cpp's: a view of the KV cache, and heads that lie side by side.

use super::*;
use crate::compute::attention::AttentionNode;
use crate::decide::offload::attention_shape;
use crate::ggml::abi::{OP_PARAM_WORDS, Tensor, flash_attn, prec};
use crate::ggml::footprint::Footprint;

const FLASH_ATTN: u32 = 70;

/// Places of the data in one array (in elements of f32): queries, keys, values, mask, sinks, output.
const PLACES: [usize; 6] = [0, 64, 128, 192, 256, 320];

/// Operands of four rows of two heads of 8 elements over six keys.
fn operands() -> [Tensor; 5] {
    [
        tensor(type_id::F32, [8, 4, 2, 1]),
        tensor(type_id::F16, [8, 6, 1, 1]),
        tensor(type_id::F16, [16, 6, 1, 1]),
        tensor(type_id::F16, [6, 4, 1, 1]),
        tensor(type_id::F32, [2, 1, 1, 1]),
    ]
}

fn node(operands: &[&Tensor]) -> Tensor {
    let mut node = result(FLASH_ATTN, [16, 2, 4, 1], operands);
    node.op_params[..3].copy_from_slice(&[0.25_f32, 8.0, 30.0].map(|x| x.to_bits().cast_signed()));
    node
}

fn query_of(tensor: &Tensor) -> Option<AttentionQuery> {
    match classify(host_tensor(tensor)) {
        NodeQuery::Attention(query) => Some(query),
        _ => None,
    }
}

#[test]
fn attention_is_seen_with_its_parameters() {
    let operands = operands();
    let query = query_of(&node(&operands.each_ref())).unwrap();
    let params = query.params;
    let numbers = [params.scale, params.max_bias, params.softcap];
    assert_eq!(numbers, [0.25, 8.0, 30.0]);
    assert!(query.is_readable && !query.has_more);
    assert_eq!(query.values.ne, [16, 6, 1, 1]);
    assert!(query.mask.is_some() && query.sinks.is_some());
    assert!(attention_shape(&query).is_ok());
    let query = query_of(&node(&operands.each_ref()[..3])).unwrap();
    assert!(query.mask.is_none() && query.sinks.is_none());
}

#[test]
fn attention_without_values_is_not_ours() {
    assert!(query_of(&node(&operands().each_ref()[..2])).is_none());
}

#[test]
fn operands_and_parameters_of_later_versions_are_seen() {
    let more = tensor(type_id::I32, [6, 1, 1, 1]);
    let [queries, keys, values, mask, sinks] = operands();
    let six = [&queries, &keys, &values, &mask, &sinks, &more];
    assert!(query_of(&node(&six)).unwrap().has_more);
    for word in flash_attn::SUMS..OP_PARAM_WORDS {
        for (param, is_known) in [
            (prec::F32, word <= flash_attn::MOST_KEYS),
            (prec::BF16, word == flash_attn::MOST_KEYS),
            (prec::F16, word == flash_attn::MOST_KEYS),
            (77, word == flash_attn::MOST_KEYS),
        ] {
            let operands = operands();
            let mut node = node(&operands.each_ref());
            node.op_params[word] = param;
            let has_more = query_of(&node).unwrap().has_more;
            assert_eq!(has_more, !is_known, "{param} in word {word}");
        }
    }
    let rearranged = REARRANGED.as_ptr().cast_mut().cast();
    for operand in 0..5 {
        let mut buffer = buffer(rearranged, 0, 4096);
        let mut operands = operands();
        operands[operand].buffer = (&raw mut buffer).cast();
        let query = query_of(&node(&operands.each_ref())).unwrap();
        assert!(!query.is_readable, "operand {operand}");
    }
}

/// Runs `body` with the data of [`node`], whose operands and output lie at these places.
fn with_data<T>(places: [usize; 6], body: impl FnOnce(AttentionNode<'_>) -> T) -> Option<T> {
    let mut array = vec![1.0_f32; 1024];
    let data = places.map(|place| array.as_mut_ptr().wrapping_add(place).cast());
    let mut operands = operands();
    for (operand, data) in operands.iter_mut().zip(data) {
        operand.data = data;
    }
    let mut tensor = node(&operands.each_ref());
    tensor.data = data[5];
    let query = query_of(&tensor).unwrap();
    let shape = attention_shape(&query).unwrap();
    let node = host_tensor(&tensor);
    let footprint = Footprint::of(node)?;
    // SAFETY: the array lives until the end of this function, each tensor lies within it, and
    // nobody else accesses it.
    let out = unsafe { footprint.output(node, None) }?;
    // SAFETY: as above.
    let data = unsafe { super::super::attention::attention_data(node, shape, out) };
    data.map(body)
}

#[test]
fn data_of_attention_is_seen_where_it_lies() {
    let lengths = with_data(PLACES, |mut attention| {
        attention.out.values_mut().fill(2.0);
        let (mask, sinks) = (attention.mask.unwrap(), attention.sinks.unwrap());
        let operands = [
            attention.queries,
            attention.keys,
            attention.values,
            mask,
            sinks,
        ];
        (
            operands.map(|operand| operand.bytes.len()),
            attention.out.values().len(),
        )
    });
    let operands = [4 * 8 * 4 * 2, 2 * 8 * 6, 2 * 16 * 6, 2 * 6 * 4, 4 * 2];
    assert_eq!(lengths, Some((operands, 16 * 2 * 4)));
}

#[test]
fn an_output_over_an_operand_of_attention_is_refused() {
    assert!(with_data(PLACES, |_| ()).is_some());
    for operand in 0..5 {
        let mut places = PLACES;
        places[operand] = PLACES[5] + 16 * 2 * 4 - 1;
        assert!(with_data(places, |_| ()).is_none(), "{operand}");
    }
}
