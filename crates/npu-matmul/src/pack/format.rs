// SPDX-License-Identifier: MIT OR Apache-2.0
//! How the elements of a row become bytes.

use npu_kernels::pack::{Bytes, Encode, Halves, LowNibbles, SplitNibbles};

use crate::dtype::Dtype;

/// An operand format: the precision that an encoding is for.
pub trait Format: Encode + Default + 'static {
    /// The precision this format belongs to.
    const DTYPE: Dtype;
}

/// [`Dtype::Int8`]: a byte an element.
pub type Int8 = Bytes;

/// [`Dtype::Fp16`]: two bytes an element, little endian.
pub type Fp16 = Halves;

/// [`Dtype::Int4`]: two elements a byte, the even one in the low nibble.
/// The host type is `i8`; only the low four bits are kept, so the caller
/// checks the range first ([`npu_kernels::nibble::first_outside`]).
pub type Int4 = LowNibbles;

/// 8-bit activations of [`Dtype::Int4`] products, -128 to 119: each row is
/// there twice, with the high nibbles and with the low ones
/// ([`npu_kernels::nibble`]).
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
