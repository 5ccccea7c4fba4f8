// SPDX-License-Identifier: MIT OR Apache-2.0
//! Random matrices from a seed, the same on every machine.

use half::f16;
use npu_matmul::{Dtype, Engine, Error, PackedWeights, Weights};

use crate::base::flags::OperandDtypes;

/// SplitMix64: "Fast splittable pseudorandom number generators", Steele, Lea and Flood,
/// OOPSLA 2014. It uses only integer arithmetic, so a seed gives the same numbers
/// everywhere.
#[derive(Clone, Debug)]
pub(crate) struct SplitMix64(u64);

impl SplitMix64 {
    pub(crate) const fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `bound`, which is not 0.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    /// The highest `bits` bits of the next number, as a signed integer.
    pub(crate) fn signed(&mut self, bits: u32) -> i64 {
        self.next().cast_signed() >> (64 - bits)
    }

    fn vectors<T>(&mut self, lengths: [usize; 2], one: impl Fn(&mut Self) -> T) -> [Vec<T>; 2] {
        lengths.map(|len| (0..len).map(|_| one(self)).collect())
    }
}

/// Two hexadecimal digits per byte.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A and B of a matmul.
#[derive(Clone, Debug)]
pub(crate) enum MatmulOperands {
    /// INT8 or INT4 operands, one byte each.
    Integers([Vec<i8>; 2]),
    /// FP16 operands.
    Floats([Vec<f16>; 2]),
    /// Floats to quantise to W8A8.
    Quantised([Vec<f32>; 2]),
}

/// Fraction bits of random floats: multiples of 1/1024 from -2 up to 2, all exact in
/// binary16.
const FRACTION_BITS: i32 = 10;

/// Bits of a random float as an integer, including its sign.
const FLOAT_BITS: u32 = 12;

impl MatmulOperands {
    /// Random A, then B: row by row, one number per element. INT8: -128 to 127; INT4: -8 to
    /// 7; FP16 and W8A8: -2 to 2 in steps of 1/1024.
    pub(crate) fn random(kind: OperandDtypes, lengths: [usize; 2], seed: u64) -> Self {
        let mut random = SplitMix64::new(seed);
        let bits = kind.dtype().input_bits() as u32;
        let integer = |random: &mut SplitMix64| random.signed(bits) as i8;
        let step = 2.0_f32.powi(-FRACTION_BITS);
        let float = |random: &mut SplitMix64| random.signed(FLOAT_BITS) as f32 * step;
        let half = |random: &mut SplitMix64| f16::from_f32(float(random));
        match kind {
            OperandDtypes::Int8 | OperandDtypes::Int4 => {
                Self::Integers(random.vectors(lengths, integer))
            }
            OperandDtypes::Fp16 => Self::Floats(random.vectors(lengths, half)),
            OperandDtypes::W8a8 => Self::Quantised(random.vectors(lengths, float)),
        }
    }
}

/// Limit of the sum of weight magnitudes in a tile. Times an activation of -8 it fits 16
/// bits.
const MAGNITUDES_MAX: usize = i16::MAX as usize / INT4_MAGNITUDE_MAX;

/// Largest magnitude of four signed bits.
const INT4_MAGNITUDE_MAX: usize = 8;

impl MatmulOperands {
    /// Changes integer weights with rows of `k` so that no sum of INT4 saturates: the first row is
    /// as large as that allows, and no other row is larger.
    ///
    /// Each channel adds to a budget, and its magnitude is subtracted. The budget never
    /// exceeds one weight, so a row uses at most its own budget and one weight.
    pub(crate) fn in_one_tile(mut self, k: usize) -> Self {
        let Self::Integers([_, b]) = &mut self else {
            return self;
        };
        // The budget counts in units of 1/`k`.
        let income = MAGNITUDES_MAX - INT4_MAGNITUDE_MAX;
        let saved = INT4_MAGNITUDE_MAX * k;
        for (index, row) in b.chunks_mut(k).enumerate() {
            let mut left = 0;
            for weight in row {
                left = left.min(saved) + income;
                let most = (left / k).min(INT4_MAGNITUDE_MAX);
                let magnitude = match index {
                    0 => most,
                    _ => most.min(weight.unsigned_abs().into()),
                };
                // A magnitude is at most 8, and 8 only with a negative sign.
                let negative = index == 0 || *weight < 0;
                *weight = if negative { -1 } else { 1 } * magnitude as i8;
                left -= magnitude * k;
            }
        }
        self
    }

    /// Loads B, `n x k`.
    pub(crate) fn load(
        &self,
        engine: &Engine,
        dtype: Dtype,
        n: usize,
        k: usize,
    ) -> Result<PackedWeights, Error> {
        engine.load(match self {
            Self::Floats([_, b]) => Weights::f16(n, k, b),
            Self::Integers([_, b]) if dtype == Dtype::Int4 => Weights::i4(n, k, b),
            Self::Integers([_, b]) => Weights::i8(n, k, b),
            Self::Quantised([_, b]) => Weights::w8a8(n, k, b),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use npu_matmul::plan::int4_depth;

    use super::*;

    #[test]
    fn weights_in_one_tile_are_as_large_as_they_may_be() {
        for k in [1_usize, 64, 481, 500, 511, 512, 600, 1152, 4096, 14336] {
            let any = MatmulOperands::random(OperandDtypes::Int4, [1, 3 * k], 1);
            let MatmulOperands::Integers([_, b]) = any.in_one_tile(k) else {
                panic!("int4 is an integer");
            };
            assert!(int4_depth(k, &b) >= k, "{k}");
            assert!(b.iter().all(|weight| (-8..=7).contains(weight)));
            let first = b[..k]
                .iter()
                .map(|weight| usize::from(weight.unsigned_abs()));
            let most = MAGNITUDES_MAX.min(INT4_MAGNITUDE_MAX * k);
            assert!(first.sum::<usize>() + 2 * INT4_MAGNITUDE_MAX >= most, "{k}");
        }
    }

    #[test]
    fn splitmix64_gives_its_published_numbers() {
        // First outputs for seed 1234567, as in the reference implementation.
        let mut random = SplitMix64::new(1_234_567);
        assert_eq!(random.next(), 6_457_827_717_110_365_317);
        assert_eq!(random.next(), 3_203_168_211_198_807_973);
    }

    #[test]
    fn every_value_appears_and_none_beyond() {
        let floats = |operands| match operands {
            MatmulOperands::Integers(both) => both.map(|x| x.into_iter().map(f32::from).collect()),
            MatmulOperands::Floats(both) => both.map(|x| x.into_iter().map(f32::from).collect()),
            MatmulOperands::Quantised(both) => both,
        };
        for (kind, [least, most], count) in [
            (OperandDtypes::Int4, [-8.0, 7.0], 16),
            (OperandDtypes::Int8, [-128.0, 127.0], 256),
            (OperandDtypes::Fp16, [-2.0, 2.0], 3000),
            (OperandDtypes::W8a8, [-2.0, 2.0], 3000),
        ] {
            for values in floats(MatmulOperands::random(kind, [9000; 2], 3)) {
                let values: Vec<f32> = values;
                assert!(values.iter().all(|x| (least..=most).contains(x)), "{kind}");
                assert!(values.iter().any(|x| *x < least + 0.1), "{kind}");
                assert!(values.iter().any(|x| *x > most - 0.1), "{kind}");
                let distinct: BTreeSet<u32> = values.iter().map(|x| x.to_bits()).collect();
                assert!(distinct.len() >= count, "{kind}");
            }
        }
    }
}
