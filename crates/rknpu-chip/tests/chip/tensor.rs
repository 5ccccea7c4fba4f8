// SPDX-License-Identifier: MIT OR Apache-2.0
//! Operands in the NPU's layouts, element by element from the formulas, and
//! the arithmetic to compare with.

use half::{bf16, f16};

use super::programs::MatType;

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

    pub(crate) fn i8s(&mut self, len: usize) -> Vec<i8> {
        (0..len).map(|_| self.int(-128, 127) as i8).collect()
    }

    /// Numbers that fp16 holds, around 1.
    pub(crate) fn f16s(&mut self, len: usize) -> Vec<f16> {
        (0..len)
            .map(|_| f16::from_f32(self.int(-2048, 2047) as f32 / 512.0))
            .collect()
    }
}

/// Bytes of one operand element, or its nibble.
pub(crate) fn element(ty: MatType, value: f64) -> Vec<u8> {
    match ty {
        MatType::Fp16Fp32 | MatType::Fp16Fp16 => f16::from_f64(value).to_le_bytes().to_vec(),
        MatType::Bf16Fp32 => bf16::from_f64(value).to_le_bytes().to_vec(),
        MatType::Tf32Fp32 => (value as f32).to_le_bytes().to_vec(),
        MatType::Int16Int32 => (value as i16).to_le_bytes().to_vec(),
        MatType::Int8Int32 | MatType::Int8Fp32 => vec![value as i8 as u8],
        MatType::Int4Int16 => vec![value as i8 as u8 & 15],
    }
}

/// A value that the type holds exactly.
pub(crate) fn value(ty: MatType, numbers: &mut Numbers) -> f64 {
    match ty {
        MatType::Fp16Fp32 | MatType::Fp16Fp16 => numbers.int(-1024, 1023) as f64 / 512.0,
        MatType::Bf16Fp32 => numbers.int(-128, 127) as f64 / 64.0,
        MatType::Tf32Fp32 => numbers.int(-1024, 1023) as f64 / 256.0,
        MatType::Int16Int32 => numbers.int(-32768, 32767) as f64,
        MatType::Int8Int32 | MatType::Int8Fp32 => numbers.int(-128, 127) as f64,
        MatType::Int4Int16 => numbers.int(-8, 7) as f64,
    }
}

/// Puts an element at index `index` of `bytes`.
pub(crate) fn put(ty: MatType, bytes: &mut [u8], index: usize, value: f64) {
    let element = element(ty, value);
    if ty == MatType::Int4Int16 {
        let shift = 4 * (index % 2);
        bytes[index / 2] |= element[0] << shift;
    } else {
        bytes[index * element.len()..][..element.len()].copy_from_slice(&element);
    }
}

/// Elements of a 16-byte atom.
pub(crate) fn per_atom(ty: MatType) -> usize {
    32 / ty.half_bytes()
}

/// Element index of weight (n, k): kernel groups of G, channel groups of I.
pub(crate) fn weight_index(ty: MatType, kp: usize, n: usize, k: usize) -> usize {
    let (i, g) = ty.multiples();
    (n / g) * g * kp + (k / i) * i * g + (n % g) * i + k % i
}

/// A as a native cube of `rows` rows.
pub(crate) fn pack_a(ty: MatType, rows: usize, kp: usize, a: &[f64]) -> Vec<u8> {
    let c2 = per_atom(ty);
    let mut bytes = vec![0; rows * kp * ty.half_bytes() / 2];
    for (i, &v) in a.iter().enumerate() {
        let (m, k) = (i / kp, i % kp);
        put(ty, &mut bytes, ((k / c2) * rows + m) * c2 + k % c2, v);
    }
    bytes
}

pub(crate) fn pack_b(ty: MatType, kp: usize, b: &[f64]) -> Vec<u8> {
    let mut bytes = vec![0; b.len() * ty.half_bytes() / 2];
    for (i, &v) in b.iter().enumerate() {
        put(ty, &mut bytes, weight_index(ty, kp, i / kp, i % kp), v);
    }
    bytes
}

/// Sum and sum of magnitudes of row m of A and row n of B.
pub(crate) fn dot(a: &[f64], b: &[f64], k: usize, m: usize, n: usize) -> (f64, f64) {
    let mut sums = (0.0, 0.0);
    for i in 0..k {
        let product = a[m * k + i] * b[n * k + i];
        sums.0 += product;
        sums.1 += product.abs();
    }
    sums
}

/// Compares an element as it lies in memory with the exact sum.
#[track_caller]
pub(crate) fn check(ty: MatType, bytes: &[u8], (sum, magnitude): (f64, f64), place: &str) {
    let word = || i32::from_le_bytes(bytes[..4].try_into().unwrap());
    let half = || u16::from_le_bytes(bytes[..2].try_into().unwrap());
    match ty {
        MatType::Int8Int32 | MatType::Int16Int32 => {
            let expected = sum.clamp(i32::MIN.into(), i32::MAX.into());
            assert_eq!(f64::from(word()), expected, "{place}");
        }
        MatType::Int4Int16 => {
            let expected = sum.clamp(i16::MIN.into(), i16::MAX.into());
            assert_eq!(f64::from(half() as i16), expected, "{place}");
        }
        MatType::Int8Fp32 => {
            assert_eq!(f32::from_bits(word() as u32), sum as f32, "{place}");
        }
        MatType::Fp16Fp32 | MatType::Bf16Fp32 | MatType::Tf32Fp32 => {
            let got = f64::from(f32::from_bits(word() as u32));
            let bound = magnitude * (-20f64).exp2() + sum.abs() * (-24f64).exp2();
            assert!((got - sum).abs() <= bound, "{place}: {got} for {sum}");
        }
        MatType::Fp16Fp16 => {
            let got = f16::from_bits(half()).to_f64();
            let bound = magnitude * (-20f64).exp2() + sum.abs() * (-11f64).exp2() + 1e-7;
            assert!((got - sum).abs() <= bound, "{place}: {got} for {sum}");
        }
    }
}
