// SPDX-License-Identifier: MIT OR Apache-2.0
//! Elements in memory, and their conversion to the types of the pipelines.

pub(crate) use rknpu_regcmd::Precision;

/// Bytes of one atom: the unit of every cube in memory.
pub(crate) const ATOM: usize = rknpu_regcmd::ATOM_BYTES as usize;

/// Element `index` of the int4 values packed in `bytes`.
pub(crate) fn int4_at(bytes: &[u8], index: usize) -> i8 {
    let byte = bytes[index / 2] as i8;
    if index.is_multiple_of(2) {
        (byte << 4) >> 4
    } else {
        byte >> 4
    }
}

/// The bits of the 2-byte element at `index`.
pub(crate) fn u16_at(bytes: &[u8], index: usize) -> u16 {
    u16::from_le_bytes([bytes[2 * index], bytes[2 * index + 1]])
}

/// The bits of the 4-byte element at `index`.
pub(crate) fn u32_at(bytes: &[u8], index: usize) -> u32 {
    let at = 4 * index;
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

/// tf32 as the MAC array sees an fp32 word: the low 13 bits of the mantissa
/// are cut off (E-tf32-cut).
pub(crate) fn tf32_operand(bits: u32) -> f32 {
    const DROPPED: u32 = (1 << 13) - 1;
    f32::from_bits(bits & !DROPPED)
}

/// Rounds tf32 words to the nearest 10 bits of mantissa, ties to even, in
/// place. Infinities and NaNs stay.
pub(crate) fn round_tf32(bytes: &mut [u8]) {
    const DROPPED: u32 = (1 << 13) - 1;
    for word in bytes.as_chunks_mut::<4>().0 {
        let bits = u32::from_le_bytes(*word);
        if f32::from_bits(bits).is_finite() {
            let even = bits >> 13 & 1;
            *word = ((bits + DROPPED / 2 + even) & !DROPPED).to_le_bytes();
        }
    }
}

/// Replaces subnormal fp16 numbers by zeros of the same sign, in place.
pub(crate) fn flush_fp16(bytes: &mut [u8]) {
    const EXPONENT: u16 = 0x7c00;
    const SIGN: u16 = 0x8000;
    for half in bytes.as_chunks_mut::<2>().0 {
        let bits = u16::from_le_bytes(*half);
        if bits & EXPONENT == 0 {
            *half = (bits & SIGN).to_le_bytes();
        }
    }
}

/// Converts fp16 to fp32 exactly. It has no branch, so that loops over it
/// become vector code on any machine.
pub(crate) fn fp16_to_fp32(bits: u16) -> f32 {
    /// Moves fp16's mantissa to where fp32 has it.
    const SHIFT: u32 = 13;
    /// 2^112: the distance of the exponent biases, 127 - 15.
    const REBIAS: f32 = f32::from_bits((127 + 112) << 23);
    const EXPONENT: u32 = 0x7c00;
    let bits = u32::from(bits);
    let magnitude = f32::from_bits((bits & 0x7fff) << SHIFT) * REBIAS;
    // Infinities and NaNs are large numbers so far.
    let special = if bits & EXPONENT == EXPONENT {
        f32::INFINITY.to_bits()
    } else {
        0
    };
    f32::from_bits(magnitude.to_bits() | special | (bits & 0x8000) << 16)
}

/// Fills `out` with `value` of each element of `N` bytes; the rest stays.
/// Returns the number of elements.
pub(crate) fn each<const N: usize, T>(
    bytes: &[u8],
    out: &mut [T],
    value: impl Fn([u8; N]) -> T,
) -> usize {
    let elements = bytes.as_chunks::<N>().0;
    for (out, &element) in out.iter_mut().zip(elements) {
        *out = value(element);
    }
    elements.len().min(out.len())
}

/// [`each`] of int4, from element `first` on.
pub(crate) fn each_nibble<T: From<i8>>(bytes: &[u8], first: usize, out: &mut [T]) -> usize {
    let held = (bytes.len() * 2).saturating_sub(first).min(out.len());
    for (i, out) in out[..held].iter_mut().enumerate() {
        *out = int4_at(bytes, first + i).into();
    }
    held
}

/// Decodes integer elements, one for each slot of `out`.
///
/// Other types give their bits as signed numbers: a cube read with the wrong
/// precision is garbage, not an error.
pub(crate) fn decode_int(precision: Precision, bytes: &[u8], out: &mut [i32]) {
    let _held = match precision {
        Precision::Int4 => each_nibble(bytes, 0, out),
        Precision::Int8 => each(bytes, out, |b| i8::from_le_bytes(b).into()),
        Precision::Int16 | Precision::Fp16 | Precision::Bf16 => {
            each(bytes, out, |b| i16::from_le_bytes(b).into())
        }
        Precision::Int32 | Precision::Fp32 | Precision::Tf32 => {
            each(bytes, out, i32::from_le_bytes)
        }
    };
}

/// Decodes elements into the float pipeline; integer types are converted.
pub(crate) fn decode_float(precision: Precision, bytes: &[u8], out: &mut [f32]) {
    let _held = match precision {
        Precision::Int4 => each_nibble(bytes, 0, out),
        Precision::Int32 => each(bytes, out, |b| i32::from_le_bytes(b) as f32),
        Precision::Fp32 => each(bytes, out, f32::from_le_bytes),
        _ => decode_operand(precision, bytes, out),
    };
}

/// Decodes floats as the MAC array sees them. If precisions do not match,
/// integers of up to 16 bits count as numbers, and int32 as tf32. All are exact
/// in float32. Returns the number of elements.
pub(crate) fn decode_operand<T: Copy + From<f32>>(
    precision: Precision,
    bytes: &[u8],
    out: &mut [T],
) -> usize {
    match precision {
        Precision::Int8 | Precision::Int4 => {
            each(bytes, out, |b| f32::from(i8::from_le_bytes(b)).into())
        }
        Precision::Int16 => each(bytes, out, |b| f32::from(i16::from_le_bytes(b)).into()),
        Precision::Fp16 => each(bytes, out, |b| fp16_to_fp32(u16::from_le_bytes(b)).into()),
        Precision::Bf16 => each(bytes, out, |b| half::bf16::from_le_bytes(b).to_f32().into()),
        Precision::Tf32 | Precision::Fp32 | Precision::Int32 => {
            each(bytes, out, |b| tf32_operand(u32::from_le_bytes(b)).into())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nibbles_are_signed_and_low_first() {
        let bytes = [0x8f, 0x70];
        let values: Vec<i8> = (0..4).map(|i| int4_at(&bytes, i)).collect();
        assert_eq!(values, [-1, -8, 0, 7]);
    }

    #[test]
    fn every_fp16_converts_exactly() {
        for bits in 0..=u16::MAX {
            let expected = half::f16::from_bits(bits).to_f32();
            let got = fp16_to_fp32(bits);
            assert!(
                got.to_bits() == expected.to_bits() || got.is_nan() && expected.is_nan(),
                "{bits:#06x}: {got} for {expected}"
            );
        }
    }

    #[test]
    fn tf32_truncates() {
        let one_and_a_bit = f32::from_bits(1.0f32.to_bits() + (1 << 13) + 1);
        assert_eq!(
            tf32_operand(one_and_a_bit.to_bits()).to_bits(),
            1.0f32.to_bits() + (1 << 13)
        );
    }
}
