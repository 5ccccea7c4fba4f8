// SPDX-License-Identifier: MIT OR Apache-2.0
//! The output converter, and the cast to the type in memory.
//!
//! Integers: scale, shift, round, add the offset, saturate. The order is
//! confirmed by a captured run (int8 depthwise, offset -123); ties to even
//! were measured on the sibling RK3576. Floats: see [`OutCvt::float`].

use half::{bf16, f16};
use rknpu_regcmd::RegisterFile;
use rknpu_regcmd::regs::dpu;

use super::super::Contested;
use super::super::contested::OtherSide;
use super::super::mac_array::{Ties, one_nan, saturate_i32, shift_right_rounded};
use super::super::precision::{ATOM, Precision};
use super::tile::Values;

/// Mask of the exponent field of fp16, and its lowest bit.
const FP16_EXPONENT: (u16, u16) = (0x1f, 10);

/// Faults of a tile's values in the output conversion.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ValueFaults {
    /// An exponent wrapped around.
    pub(crate) wrapped: bool,
    /// A value did not fit int16.
    pub(crate) saturated: bool,
}

/// The converter as the registers describe it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OutCvt {
    pub(crate) offset: i32,
    /// Signed 16 bits (contested: output-scale).
    pub(crate) scale: i32,
    pub(crate) shift: u32,
    pub(crate) minus_exp: u32,
    pub(crate) ties: Ties,
    pub(crate) add_first: bool,
    /// Type in memory.
    pub(crate) precision: Precision,
    /// Whether shifted integers are rounded down instead of to nearest.
    pub(crate) floor: bool,
    /// Whether MINUS_EXP wraps within the exponent field; else it gives zero.
    pub(crate) exponent_wraps: bool,
    /// FP32TOFP16_EN, or a pipeline that already holds 16-bit floats: values
    /// are narrowed. Without it a 16-bit type gets the low half of fp32.
    pub(crate) narrow: bool,
}

impl OutCvt {
    pub(crate) fn decode(
        regs: &RegisterFile,
        pipeline_is_16_bit: bool,
        contested: Contested,
    ) -> Self {
        let precision = Precision::from_code(regs.get::<dpu::DataFormat>().out_precision());
        let wide = precision.per_atom() == ATOM / size_of::<u32>();
        let scale = regs.get::<dpu::OutCvtScale>();
        let shift = regs.get::<dpu::OutCvtShift>();
        Self {
            offset: regs.get::<dpu::OutCvtOffset>().out_cvt_offset(),
            scale: if contested.has(OtherSide::OutputScaleUnsigned) {
                i32::from(scale.out_cvt_scale() as u16)
            } else {
                scale.out_cvt_scale()
            },
            shift: shift.out_cvt_shift(),
            minus_exp: shift.minus_exp(),
            ties: match (shift.cvt_round(), contested.has(OtherSide::OutputTiesUp)) {
                (1, false) => Ties::Away,
                (1, true) => Ties::Up,
                _ => Ties::Even,
            },
            add_first: shift.cvt_type() == 1,
            precision,
            floor: wide && shift.cvt_type() == 1 && contested.has(OtherSide::WideRoundingFloor),
            exponent_wraps: !contested.has(OtherSide::SmallExponentFlushes),
            narrow: scale.fp32tofp16_en() == 1 || pipeline_is_16_bit,
        }
    }

    /// Converts an integer, before the cast.
    fn int(&self, x: i32) -> i64 {
        let (x, offset) = (i64::from(x), i64::from(self.offset));
        let scaled = |x: i64| {
            let product = x * i64::from(self.scale);
            if self.floor {
                product >> self.shift.min(i64::BITS - 1)
            } else {
                shift_right_rounded(product, self.shift, self.ties)
            }
        };
        if self.add_first {
            scaled(x + offset)
        } else {
            scaled(x) + offset
        }
    }

    /// Converts a float, before it is narrowed: `x * SCALE + OFFSET`, or
    /// `(x + OFFSET) * SCALE` with CVT_TYPE 1. The neutral values of known
    /// programs (1 and 0) leave every bit unchanged.
    fn float(&self, x: f32) -> f32 {
        let add = |x: f32| {
            if self.offset == 0 {
                x
            } else {
                one_nan(x + self.offset as f32)
            }
        };
        let scale = |x: f32| {
            if self.scale == 1 {
                x
            } else {
                one_nan(x * self.scale as f32)
            }
        };
        if self.add_first {
            scale(add(x))
        } else {
            add(scale(x))
        }
    }

    /// fp16, with MINUS_EXP subtracted from the exponent field.
    ///
    /// The subtraction wraps within the five bits: a zero becomes
    /// 2^(17 - MINUS_EXP). Inferred; it gives all four anomalies that
    /// rockchip-npu-notes measured.
    fn fp16(&self, x: f32, faults: &mut ValueFaults) -> u16 {
        let bits = f16::from_f32(x).to_bits();
        let (mask, at) = FP16_EXPONENT;
        let exponent = bits >> at & mask;
        let less = self.minus_exp as u16;
        if less <= exponent {
            return bits - (less << at);
        }
        if !self.exponent_wraps {
            return bits & f16::NEG_ZERO.to_bits();
        }
        faults.wrapped = true;
        let exponent = exponent.wrapping_sub(less) & mask;
        bits & !(mask << at) | exponent << at
    }

    /// Converts values and appends their bytes to `out`.
    pub(crate) fn encode(&self, values: &Values, out: &mut Vec<u8>) -> ValueFaults {
        let mut faults = ValueFaults::default();
        match values {
            Values::Int(values) => self.encode_int(values, out, &mut faults),
            Values::Float(values) => self.encode_float(values, out, &mut faults),
        }
        faults
    }

    /// Appends converted values, saturated to the integer type in memory. Returns
    /// whether one does not fit int16, if that is the type.
    fn saturate<T: Copy>(&self, values: &[T], out: &mut Vec<u8>, wide: impl Fn(T) -> i64) -> bool {
        let mut saturated = false;
        match self.precision {
            Precision::Int4 => encode_nibbles(out, values.iter().map(|&x| wide(x))),
            Precision::Int8 => extend(out, values, |x| {
                [wide(x).clamp(i8::MIN.into(), i8::MAX.into()) as u8]
            }),
            Precision::Int16 => extend(out, values, |x| {
                let wide = wide(x);
                let kept = wide.clamp(i16::MIN.into(), i16::MAX.into());
                saturated |= kept != wide;
                (kept as i16).to_le_bytes()
            }),
            Precision::Int32 => extend(out, values, |x| saturate_i32(wide(x)).to_le_bytes()),
            // The callers convert to these.
            Precision::Fp16 | Precision::Bf16 | Precision::Fp32 | Precision::Tf32 => {}
        }
        saturated
    }

    fn encode_int(&self, values: &[i32], out: &mut Vec<u8>, faults: &mut ValueFaults) {
        let identity = self.scale == 1 && self.shift == 0 && self.offset == 0;
        match self.precision {
            Precision::Int32 if identity => extend(out, values, i32::to_le_bytes),
            // Integer to float: the exact value, rounded once (measured:
            // MINUS_EXP and CVT_TYPE do nothing here).
            Precision::Fp32 | Precision::Tf32 => extend(out, values, |x| {
                (saturate_i32(self.int(x)) as f32).to_le_bytes()
            }),
            Precision::Fp16 => extend(out, values, |x| {
                f16::from_f64(f64::from(saturate_i32(self.int(x)))).to_le_bytes()
            }),
            Precision::Bf16 => extend(out, values, |x| {
                bf16::from_f64(f64::from(saturate_i32(self.int(x)))).to_le_bytes()
            }),
            Precision::Int4 | Precision::Int8 | Precision::Int16 | Precision::Int32 => {
                faults.saturated = self.saturate(values, out, |x| self.int(x));
            }
        }
    }

    fn encode_float(&self, values: &[f32], out: &mut Vec<u8>, faults: &mut ValueFaults) {
        let nearest = |x: f32| i64::from(saturate_i32(self.float(x).round_ties_even() as i64));
        match self.precision {
            // A 32-bit float is not converted: programs that write a scale of
            // 0, or none, get their sums (allbilly).
            Precision::Fp32 | Precision::Tf32 => extend(out, values, f32::to_le_bytes),
            Precision::Fp16 if self.narrow => {
                extend(out, values, |x| {
                    self.fp16(self.float(x), faults).to_le_bytes()
                });
            }
            Precision::Bf16 if self.narrow => {
                extend(out, values, |x| bf16::from_f32(self.float(x)).to_le_bytes());
            }
            Precision::Fp16 | Precision::Bf16 => extend(out, values, |x| {
                (self.float(x).to_bits() as u16).to_le_bytes()
            }),
            Precision::Int4 | Precision::Int8 | Precision::Int16 | Precision::Int32 => {
                // Floats that saturate are not reported: T38 is about sums of integers.
                self.saturate(values, out, nearest);
            }
        }
    }
}

fn extend<T: Copy, const N: usize>(
    out: &mut Vec<u8>,
    values: &[T],
    mut encode: impl FnMut(T) -> [u8; N],
) {
    let start = out.len();
    out.resize(start + values.len() * N, 0);
    for (bytes, &value) in out[start..].as_chunks_mut::<N>().0.iter_mut().zip(values) {
        *bytes = encode(value);
    }
}

/// Encodes saturated int4, the first of two in the low nibble.
fn encode_nibbles(out: &mut Vec<u8>, values: impl Iterator<Item = i64>) {
    let mut pending = None;
    for value in values {
        let nibble = value.clamp(-8, 7) as u8 & 15;
        match pending.take() {
            None => pending = Some(nibble),
            Some(low) => out.push(low | nibble << 4),
        }
    }
    out.extend(pending);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cvt(precision: Precision) -> OutCvt {
        OutCvt {
            offset: 0,
            scale: 1,
            shift: 0,
            minus_exp: 0,
            ties: Ties::Even,
            add_first: false,
            precision,
            floor: false,
            exponent_wraps: true,
            narrow: true,
        }
    }

    #[test]
    fn integers_are_scaled_and_rounded() {
        let last = OutCvt {
            offset: 3,
            scale: 2,
            shift: 2,
            ..cvt(Precision::Int32)
        };
        let first = OutCvt {
            add_first: true,
            ..last
        };
        assert_eq!([last.int(5), first.int(5)], [5, 4]);
        // Wide results may round down.
        let floor = OutCvt {
            floor: true,
            ..first
        };
        assert_eq!([0, -6, 2].map(|x| floor.int(x)), [1, -2, 2]);
    }

    #[test]
    fn values_become_bytes_of_their_type() {
        let big = 16_777_216f32;
        for (precision, values, bytes) in [
            (
                Precision::Fp32,
                Values::Int(vec![1 << 24]),
                &big.to_le_bytes()[..],
            ),
            (
                Precision::Fp32,
                Values::Int(vec![-3]),
                &(-3f32).to_le_bytes(),
            ),
            (Precision::Int4, Values::Int(vec![9, -9, 3]), &[0x87, 0x03]),
            // Doing nothing keeps the sign of zero.
            (
                Precision::Fp32,
                Values::Float(vec![-0.0]),
                &(-0f32).to_le_bytes(),
            ),
        ] {
            let mut out = Vec::new();
            cvt(precision).encode(&values, &mut out);
            assert_eq!(out, bytes, "{values:?}");
        }
    }

    #[test]
    fn a_subtracted_exponent_wraps_at_zero() {
        for (minus_exp, expected) in [(15, 4.0), (13, 16.0), (11, 64.0), (10, 128.0)] {
            let cvt = OutCvt {
                minus_exp,
                add_first: true,
                ..cvt(Precision::Fp16)
            };
            let mut faults = ValueFaults::default();
            let mut got = |x: f32| f16::from_bits(cvt.fp16(cvt.float(x), &mut faults)).to_f32();
            assert_eq!(got(1024.0), 1024.0 * (-(minus_exp as f32)).exp2());
            assert_eq!(got(0.0), expected);
            assert!(faults.wrapped);
            let flushes = OutCvt {
                exponent_wraps: false,
                ..cvt
            };
            assert_eq!(flushes.fp16(0.0, &mut faults), 0);
        }
    }
}
