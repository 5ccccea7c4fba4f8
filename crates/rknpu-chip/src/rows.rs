// SPDX-License-Identifier: MIT OR Apache-2.0
//! Operands of the MAC array: rows of numbers, all of one length, in the type
//! that the precision computes with.

use super::dma;
use super::halves;
use super::precision::{Precision, fp16_to_fp32, int4_at, tf32_operand, u16_at, u32_at};
use super::trap::Stop;

/// A number that the MAC array multiplies: `i16` for the integer precisions,
/// `f32` for fp16, `f64` for the other float ones.
pub(crate) trait Operand: Copy + Default + PartialEq + std::fmt::Debug {
    /// Decodes `out.len()` elements of `bytes`, from element `first` on.
    /// Elements that `bytes` does not hold are 0.
    fn decode(precision: Precision, bytes: &[u8], first: usize, out: &mut [Self]);
}

/// The part of `bytes` from element `first` on, for types of whole bytes.
fn from_element(bytes: &[u8], first: usize, size: usize) -> &[u8] {
    bytes.get(first * size..).unwrap_or_default()
}

impl Operand for i16 {
    fn decode(precision: Precision, bytes: &[u8], first: usize, out: &mut [Self]) {
        match precision {
            Precision::Int4 => {
                let held = (bytes.len() * 2).saturating_sub(first).min(out.len());
                for (i, value) in out[..held].iter_mut().enumerate() {
                    *value = int4_at(bytes, first + i).into();
                }
                out[held..].fill(0);
            }
            Precision::Int8 => {
                let source = from_element(bytes, first, 1);
                let held = source.len().min(out.len());
                for (value, &byte) in out.iter_mut().zip(source) {
                    *value = (byte as i8).into();
                }
                out[held..].fill(0);
            }
            // The float types do not come here; as 16-bit patterns they are
            // what a mismatch of precisions deserves.
            _ => {
                let source = from_element(bytes, first, 2);
                let held = (source.len() / 2).min(out.len());
                for (value, pair) in out.iter_mut().zip(source.chunks_exact(2)) {
                    *value = i16::from_le_bytes([pair[0], pair[1]]);
                }
                out[held..].fill(0);
            }
        }
    }
}

impl Operand for f32 {
    fn decode(precision: Precision, bytes: &[u8], first: usize, out: &mut [Self]) {
        if precision == Precision::Fp16 {
            let source = from_element(bytes, first, 2);
            let held = (source.len() / 2).min(out.len());
            let (out, rest) = out.split_at_mut(held);
            halves::widen(source, out);
            rest.fill(0.0);
        } else {
            decode_float(precision, bytes, first, out);
        }
    }
}

impl Operand for f64 {
    fn decode(precision: Precision, bytes: &[u8], first: usize, out: &mut [Self]) {
        decode_float(precision, bytes, first, out);
    }
}

/// Floats as the MAC array sees them, and integers where precisions do not
/// match. All of them are exact in float32.
fn decode_float<T: Copy + From<f32>>(
    precision: Precision,
    bytes: &[u8],
    first: usize,
    out: &mut [T],
) {
    let size = match precision {
        Precision::Fp16 | Precision::Bf16 | Precision::Int16 => 2,
        Precision::Tf32 | Precision::Fp32 | Precision::Int32 => 4,
        Precision::Int8 | Precision::Int4 => 1,
    };
    let number = |element: &[u8]| match precision {
        Precision::Fp16 => fp16_to_fp32(u16_at(element, 0)),
        Precision::Bf16 => half::bf16::from_bits(u16_at(element, 0)).to_f32(),
        Precision::Int16 => (u16_at(element, 0) as i16).into(),
        Precision::Tf32 | Precision::Fp32 | Precision::Int32 => tf32_operand(u32_at(element, 0)),
        Precision::Int8 | Precision::Int4 => (element[0] as i8).into(),
    };
    let source = from_element(bytes, first, size);
    let held = (source.len() / size).min(out.len());
    let (out, rest) = out.split_at_mut(held);
    for (value, element) in out.iter_mut().zip(source.chunks_exact(size)) {
        *value = number(element).into();
    }
    rest.fill(0.0.into());
}

/// Rows are padded to a multiple of this many elements.
pub(crate) const ROW_ELEMENTS: usize = 16;

/// Bytes after which the sets of a first-level cache repeat.
const CACHE_WAY: usize = 4096;
/// Where in a way a long row begins, counted from the one before: equal parts
/// of successive rows then lie in different sets.
const ROW_SHIFT: usize = 1024 + 64;

/// Rows of equal length, padded with zeros.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Rows<T> {
    data: Vec<T>,
    count: usize,
    /// Elements asked for, and with what pads them.
    asked: usize,
    len: usize,
    /// Elements between the starts of two rows.
    stride: usize,
}

impl<T: Operand> Rows<T> {
    /// Becomes `count` rows of `len` elements. What the elements are is left
    /// open; what pads the rows is 0.
    pub(crate) fn reshape(&mut self, count: usize, len: usize) -> Result<(), Stop> {
        if (self.count, self.asked) != (count, len) {
            // The old memory goes before the new is asked for.
            *self = Self::default();
            *self = Self::zeroed(count, len)?;
        }
        Ok(())
    }

    /// `count` rows of `len` zeros.
    pub(crate) fn zeroed(count: usize, len: usize) -> Result<Self, Stop> {
        let asked = len;
        let len = len.next_multiple_of(ROW_ELEMENTS);
        let bytes = len * size_of::<T>();
        let padded = if bytes > ROW_SHIFT {
            (bytes - ROW_SHIFT).next_multiple_of(CACHE_WAY) + ROW_SHIFT
        } else {
            bytes
        };
        let stride = padded / size_of::<T>();
        Ok(Self {
            data: dma::buffer(count * stride)?,
            count,
            asked,
            len,
            stride,
        })
    }

    pub(crate) fn row(&self, index: usize) -> &[T] {
        &self.data[index * self.stride..][..self.len]
    }

    pub(crate) fn row_mut(&mut self, index: usize) -> &mut [T] {
        &mut self.data[index * self.stride..][..self.len]
    }
}
