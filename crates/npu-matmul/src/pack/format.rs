// SPDX-License-Identifier: MIT OR Apache-2.0
//! Encodings of operands, one for each precision.

use npu_kernels::pack::{Bytes, Encode, Halves, LowNibbles, SplitNibbles};

use crate::dtype::Dtype;

/// An encoding of operands.
pub trait Format: Encode + Default + 'static {
    /// Precision of this encoding.
    const DTYPE: Dtype;
}

/// [`Dtype::Int8`]: one byte for each element.
pub type Int8 = Bytes;

/// [`Dtype::Fp16`]: two bytes for each element, little endian.
pub type Fp16 = Halves;

/// [`Dtype::Int4`]: two elements in a byte, the even index in the low nibble. The host type is
/// `i8`. Only the low four bits are kept; check the range before
/// ([`npu_kernels::nibble::first_outside`]).
pub type Int4 = LowNibbles;

/// 8-bit activations of [`Dtype::Int4`] matmuls, from -128 to 119. Each row becomes two: its high
/// nibbles and its low nibbles ([`npu_kernels::nibble`]).
pub type SplitInt8 = SplitNibbles;

impl Format for Int8 {
    const DTYPE: Dtype = Dtype::Int8;
}

impl Format for Fp16 {
    const DTYPE: Dtype = Dtype::Fp16;
}

impl Format for Int4 {
    const DTYPE: Dtype = Dtype::Int4;
}

impl Format for SplitInt8 {
    const DTYPE: Dtype = Dtype::Int4;
}
