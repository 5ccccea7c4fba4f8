// SPDX-License-Identifier: MIT OR Apache-2.0
//! Operands of the MAC array: rows of numbers of equal length, in the type that
//! the precision computes with.

use super::dma;
use super::precision::{Precision, decode_operand, each, each_nibble, fp16_to_fp32, u16_at};
use super::trap::Stop;
use super::vectors::{self, Loop, Vectors};

/// A number that the MAC array multiplies: `i16` for the integer precisions,
/// `f32` for fp16, `f64` for the other float ones.
pub(crate) trait MacOperand: Copy + Default + PartialEq + std::fmt::Debug {
    /// Decodes `out.len()` elements of `bytes`, from element `first` on.
    /// Elements that `bytes` does not hold are 0.
    fn decode(precision: Precision, bytes: &[u8], first: usize, out: &mut [Self]);
}

/// The part of `bytes` from element `first` on, for types of whole bytes.
fn from_element(bytes: &[u8], first: usize, size: usize) -> &[u8] {
    bytes.get(first * size..).unwrap_or_default()
}

impl MacOperand for i16 {
    fn decode(precision: Precision, bytes: &[u8], first: usize, out: &mut [Self]) {
        let held = match precision {
            Precision::Int4 => each_nibble(bytes, first, out),
            Precision::Int8 => each(from_element(bytes, first, 1), out, |b| {
                i8::from_le_bytes(b).into()
            }),
            // Float types occur only if precisions do not match; they give
            // 16-bit patterns.
            _ => each(from_element(bytes, first, 2), out, i16::from_le_bytes),
        };
        out[held..].fill(0);
    }
}

/// `f32` is the operand of fp16 only (`conv.rs`).
impl MacOperand for f32 {
    fn decode(precision: Precision, bytes: &[u8], first: usize, out: &mut [Self]) {
        debug_assert_eq!(precision, Precision::Fp16);
        let halves = from_element(bytes, first, 2);
        let (out, rest) = out.split_at_mut((halves.len() / 2).min(out.len()));
        vectors::run(Vectors::detect(), Widen { halves, out });
        rest.fill(0.0);
    }
}

/// Converts fp16 in memory to numbers. The bits of a NaN depend on the host.
struct Widen<'a> {
    halves: &'a [u8],
    out: &'a mut [f32],
}

impl Loop for Widen<'_> {
    #[inline(always)]
    fn run(self, vectors: Vectors) {
        let halves = self.halves.as_chunks::<16>().0;
        let (out, last) = self.out.as_chunks_mut::<8>();
        for (out, halves) in out.iter_mut().zip(halves) {
            *out = match vectors {
                #[cfg(target_arch = "x86_64")]
                Vectors::Avx2(host) => host.widen(halves),
                _ => std::array::from_fn(|i| fp16_to_fp32(u16_at(halves, i))),
            };
        }
        let rest = &self.halves[out.len() * 16..];
        for (out, half) in last.iter_mut().zip(rest.chunks_exact(2)) {
            *out = fp16_to_fp32(u16_at(half, 0));
        }
    }
}

impl MacOperand for f64 {
    fn decode(precision: Precision, bytes: &[u8], first: usize, out: &mut [Self]) {
        // int4 counts as bytes.
        let size = (precision.bits() as usize).div_ceil(8);
        let held = decode_operand(precision, from_element(bytes, first, size), out);
        out[held..].fill(0.0);
    }
}

/// Rows are padded to a multiple of this many elements.
pub(crate) const ROW_ELEMENTS: usize = 16;

/// Bytes after which the sets of a first-level cache repeat.
const CACHE_WAY: usize = 4096;
/// Distance of the starts of long rows, modulo a way: equal parts of successive
/// rows then lie in different sets.
const ROW_SHIFT: usize = 1024 + 64;

/// Rows of equal length, padded with zeros.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct OperandRows<T> {
    data: Vec<T>,
    count: usize,
    /// Elements asked for; `len` includes the padding.
    asked: usize,
    len: usize,
    /// Elements between the starts of two rows.
    stride: usize,
}

impl<T: MacOperand> OperandRows<T> {
    /// Becomes `count` rows of `len` elements. Their contents are unspecified;
    /// the padding is 0.
    pub(crate) fn reshape(&mut self, count: usize, len: usize) -> Result<(), Stop> {
        if (self.count, self.asked) != (count, len) {
            // Free the old memory before the new is allocated.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_pattern_widens_alike() {
        let source: Vec<u8> = (0..=u16::MAX).flat_map(u16::to_le_bytes).collect();
        // Whole vectors, a rest, and missing elements.
        let mut fast = vec![1.0f32; (1 << 16) + 2];
        f32::decode(Precision::Fp16, &source, 3, &mut fast);
        for (bits, fast) in (3..=u16::MAX).zip(&fast) {
            let slow = fp16_to_fp32(bits);
            let same = fast.to_bits() == slow.to_bits() || fast.is_nan() && slow.is_nan();
            assert!(same, "{bits:#06x}: {fast} for {slow}");
        }
        assert_eq!(fast[(1 << 16) - 3..], [0.0; 5]);
    }
}
