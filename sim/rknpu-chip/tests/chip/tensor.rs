// SPDX-License-Identifier: MIT OR Apache-2.0
//! Operands in the NPU's layouts, element by element from the formulas, and the
//! expected results.

use families::matmul::OperandTypes;
use half::{bf16, f16};
use rknpu_regcmd::Precision;

/// A cheap source of numbers, the same on every machine.
#[derive(Clone, Debug)]
pub(crate) struct Numbers(u64);

impl Numbers {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed ^ 0x9e37_79b9_7f4a_7c15)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// A number of `low..=high`.
    pub(crate) fn int(&mut self, low: i64, high: i64) -> i64 {
        low + (self.next() >> 11) as i64 % (high - low + 1)
    }

    /// Numbers `i * 2^-fraction`, with `i` in `low..=high`.
    pub(crate) fn fractions(
        &mut self,
        len: usize,
        (low, high): (i64, i64),
        fraction: i32,
    ) -> Vec<f32> {
        let scale = (-fraction as f32).exp2();
        (0..len)
            .map(|_| self.int(low, high) as f32 * scale)
            .collect()
    }

    /// Numbers that fp16 holds, around 1.
    pub(crate) fn f16s(&mut self, len: usize) -> Vec<f16> {
        let values = self.fractions(len, (-2048, 2047), 9);
        values.into_iter().map(f16::from_f32).collect()
    }

    /// Values that the operands of a matmul hold exactly.
    pub(crate) fn values(&mut self, ty: OperandTypes, len: usize) -> Vec<f64> {
        let (low, high, fraction) = match operand(ty) {
            Precision::Fp16 => (-1024, 1023, 9),
            Precision::Bf16 => (-128, 127, 6),
            Precision::Tf32 => (-1024, 1023, 8),
            Precision::Int16 => (-32768, 32767, 0),
            Precision::Int4 => (-8, 7, 0),
            _ => (-128, 127, 0),
        };
        let values = self.fractions(len, (low, high), fraction);
        values.into_iter().map(f64::from).collect()
    }
}

/// Encodes values as fp16.
pub(crate) fn halves(values: &[f32]) -> Vec<u8> {
    let bytes = values.iter().flat_map(|&v| f16::from_f32(v).to_le_bytes());
    bytes.collect()
}

/// An element of fp16 in memory.
pub(crate) fn half_at(bytes: &[u8], index: usize) -> f32 {
    f16::from_le_bytes([bytes[2 * index], bytes[2 * index + 1]]).to_f32()
}

pub(crate) fn word_at(bytes: &[u8], index: usize) -> i32 {
    i32::from_le_bytes(bytes[4 * index..][..4].try_into().unwrap())
}

fn operand(ty: OperandTypes) -> Precision {
    Precision::from_code(ty.codes.0)
}

/// Puts an element at index `index` of `bytes`.
pub(crate) fn put(ty: OperandTypes, bytes: &mut [u8], index: usize, value: f64) {
    let mut store = |element: &[u8]| {
        bytes[index * element.len()..][..element.len()].copy_from_slice(element);
    };
    match operand(ty) {
        Precision::Fp16 => store(&f16::from_f64(value).to_le_bytes()),
        Precision::Bf16 => store(&bf16::from_f64(value).to_le_bytes()),
        Precision::Tf32 => store(&(value as f32).to_le_bytes()),
        Precision::Int16 => store(&(value as i16).to_le_bytes()),
        Precision::Int4 => bytes[index / 2] |= (value as i8 as u8 & 15) << (4 * (index % 2)),
        _ => store(&(value as i8).to_le_bytes()),
    }
}

/// Elements of a 16-byte atom.
pub(crate) fn per_atom(ty: OperandTypes) -> usize {
    128 / ty.bits as usize
}

/// Element index of channel `c` of a pixel in a cube of `pixels` pixels, with
/// atoms of `per_atom` elements.
pub(crate) fn cube_index(per_atom: usize, pixels: usize, pixel: usize, c: usize) -> usize {
    (c / per_atom * pixels + pixel) * per_atom + c % per_atom
}

/// Element index of a weight of kernel `n` among kernels of `channels` channels
/// and `taps` taps: kernel groups of G, channel groups of I.
pub(crate) fn weight_index(
    ty: OperandTypes,
    (channels, taps): (usize, usize),
    n: usize,
    (c, tap): (usize, usize),
) -> usize {
    let (i, g) = (ty.depth as usize, ty.group as usize);
    n / g * g * channels * taps + (c / i * taps + tap) * i * g + n % g * i + c % i
}

/// Compares element `index` of the results in memory with the exact sum.
#[track_caller]
pub(crate) fn check(
    ty: OperandTypes,
    bytes: &[u8],
    index: usize,
    (sum, magnitude): (f64, f64),
    place: &str,
) {
    // Floats may be added in any order.
    let close = |got: f64, rounding: f64| {
        let bound = magnitude * (-20f64).exp2() + rounding;
        assert!((got - sum).abs() <= bound, "{place}: {got} for {sum}");
    };
    let float = || f32::from_bits(word_at(bytes, index) as u32);
    match Precision::from_code(ty.codes.2) {
        Precision::Int32 => {
            let expected = sum.clamp(i32::MIN.into(), i32::MAX.into());
            assert_eq!(f64::from(word_at(bytes, index)), expected, "{place}");
        }
        Precision::Int16 => {
            let expected = sum.clamp(i16::MIN.into(), i16::MAX.into());
            let got = i16::from_le_bytes([bytes[2 * index], bytes[2 * index + 1]]);
            assert_eq!(f64::from(got), expected, "{place}");
        }
        Precision::Fp16 => close(
            half_at(bytes, index).into(),
            sum.abs() * (-11f64).exp2() + 1e-7,
        ),
        _ if !operand(ty).is_float() => assert_eq!(float(), sum as f32, "{place}"),
        _ => close(float().into(), sum.abs() * (-24f64).exp2()),
    }
}
