// SPDX-License-Identifier: MIT OR Apache-2.0
//! How the elements of a row become bytes.

use half::f16;
use zerocopy::IntoBytes;

use crate::dtype::Precision;

/// An operand format: its host type, and how a run of elements is stored.
pub trait Format {
    /// What the caller's matrix holds.
    type Host: Copy + Send + Sync;

    /// The precision this format belongs to.
    const PRECISION: Precision;

    /// Stores `elements` from the start of `run` and fills the rest with
    /// zeros. Elements that do not fit are ignored.
    fn store(elements: &[Self::Host], run: &mut [u8]);
}

/// [`Precision::Int8`]: a byte an element.
#[derive(Clone, Copy, Debug)]
pub struct Int8;

/// [`Precision::Fp16`]: two bytes an element, little endian.
#[derive(Clone, Copy, Debug)]
pub struct Fp16;

/// [`Precision::Int4`]: two elements a byte, the even one in the low nibble.
/// The host type is `i8`; only the low four bits are kept, so the caller
/// checks the range first ([`first_beyond_int4`]).
#[derive(Clone, Copy, Debug)]
pub struct Int4;

/// Copies bytes and zeroes what is left of the run.
fn store_bytes(bytes: &[u8], run: &mut [u8]) {
    let len = bytes.len().min(run.len());
    let (data, padding) = run.split_at_mut(len);
    data.copy_from_slice(&bytes[..len]);
    padding.fill(0);
}

impl Format for Int8 {
    type Host = i8;
    const PRECISION: Precision = Precision::Int8;

    #[inline]
    fn store(elements: &[i8], run: &mut [u8]) {
        store_bytes(elements.as_bytes(), run);
    }
}

impl Format for Fp16 {
    type Host = f16;
    const PRECISION: Precision = Precision::Fp16;

    #[inline]
    fn store(elements: &[f16], run: &mut [u8]) {
        // In memory order: little endian, which lib.rs demands of the target.
        store_bytes(elements.as_bytes(), run);
    }
}

impl Format for Int4 {
    type Host = i8;
    const PRECISION: Precision = Precision::Int4;

    #[inline]
    fn store(elements: &[i8], run: &mut [u8]) {
        let (pairs, odd) = elements.as_chunks::<2>();
        let mut bytes = run.iter_mut();
        // In this order: zip asks its left side first, so that no byte is taken
        // and dropped when the pairs end.
        for (&[low, high], byte) in pairs.iter().zip(bytes.by_ref()) {
            *byte = nibble(low) | nibble(high) << 4;
        }
        // After the pairs comes an element without a partner, then padding.
        let odd = odd.iter().map(|&low| nibble(low));
        for (byte, last) in bytes.zip(odd.chain(std::iter::repeat(0))) {
            *byte = last;
        }
    }
}

/// The low four bits: the two's complement of -8..=7.
const fn nibble(value: i8) -> u8 {
    value.cast_unsigned() & 0x0f
}

/// The index of the first value outside -8..=7, if there is one.
#[must_use]
pub fn first_beyond_int4(values: &[i8]) -> Option<usize> {
    /// Elements tested at once: long enough to vectorise the test of the whole
    /// block, short enough to search it one by one when it fails.
    const BLOCK: usize = 256;
    let outside = |v: i8| !(-8..=7).contains(&v);
    values
        .chunks(BLOCK)
        .position(|block| block.iter().fold(false, |any, &v| any | outside(v)))
        .and_then(|block| {
            let start = block * BLOCK;
            values[start..]
                .iter()
                .position(|&v| outside(v))
                .map(|at| start + at)
        })
}
