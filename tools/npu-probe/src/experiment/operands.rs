// SPDX-License-Identifier: MIT OR Apache-2.0
//! Random operands as bytes; their sums are exact in every order.

use half::f16;

use crate::data::SplitMix64;

/// Bits of a random float operand, including its sign: multiples of 1/32 below 2. Sums
/// of 8192 products of these are exact in binary32.
const FLOAT_BITS: u32 = 7;
const FLOAT_STEP: f32 = 1.0 / 32.0;

/// Bits of a subnormal operand, including its sign: fp16 has ten mantissa bits.
const SUBNORMAL_BITS: u32 = 11;

/// Bits of a random operand of 16-bit integers.
const WORD_BITS: u32 = 12;

/// Random bytes: int8 operands, or pairs of int4 operands.
pub(crate) fn int8s(len: usize, seed: u64) -> Vec<u8> {
    let mut random = SplitMix64::new(seed);
    (0..len).map(|_| random.signed(8) as u8).collect()
}

pub(crate) fn int16s(len: usize, seed: u64) -> Vec<u8> {
    let mut random = SplitMix64::new(seed);
    let words = (0..len).map(|_| random.signed(WORD_BITS) as i16);
    words.flat_map(i16::to_le_bytes).collect()
}

/// Random operands of fp16 whose sums are exact in every order.
pub(crate) fn fp16s(len: usize, seed: u64) -> Vec<u8> {
    let mut random = SplitMix64::new(seed);
    let floats = (0..len).map(|_| random.signed(FLOAT_BITS) as f32 * FLOAT_STEP);
    floats
        .flat_map(|value| f16::from_f32(value).to_le_bytes())
        .collect()
}

/// Replaces fp16 operands with subnormal ones, if `of` accepts their index.
pub(crate) fn make_subnormal(bytes: &mut [u8], seed: u64, of: impl Fn(usize) -> bool) {
    let mut random = SplitMix64::new(seed);
    let operands = bytes.as_chunks_mut::<2>().0.iter_mut().enumerate();
    for (_, operand) in operands.filter(|(index, _)| of(*index)) {
        let value = random.signed(SUBNORMAL_BITS);
        let sign = u16::from(value < 0) << 15;
        *operand = (sign | value.unsigned_abs() as u16).to_le_bytes();
    }
}
