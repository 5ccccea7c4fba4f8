// SPDX-License-Identifier: MIT OR Apache-2.0
//! BS and BN: an ALU, a multiplier and a rectifier with an operand for each
//! channel, or one for all.
//!
//! BS adds first (measured on the sibling RK3576: products saturate). BN
//! multiplies first (measured with librocketnpu's look-up programs, which
//! otherwise could not hit their index).

use super::super::Contested;
use super::super::contested::OtherSide;
use super::super::mac_array::{Ties, greater, lesser, one_nan, saturate_i32, shift_right_rounded};
use super::tile::{DpuTile, Values};

/// Operation of the ALU (codes: RK3588 TRM).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AluOp {
    Max,
    Min,
    /// Like MAX and MIN, but a NaN and a number give the NaN.
    MaxNan,
    MinNan,
    Add,
    Div,
    Minus,
    Abs,
    Neg,
    Floor,
    Ceil,
    /// A code without known meaning; passes its input on.
    Unknown(u32),
}

impl AluOp {
    pub(crate) fn from_code(code: u32, contested: Contested) -> Self {
        match code {
            0 if contested.has(OtherSide::NanCompareNan) => Self::MaxNan,
            1 if contested.has(OtherSide::NanCompareNan) => Self::MinNan,
            0 => Self::Max,
            1 => Self::Min,
            2 => Self::Add,
            3 => Self::Div,
            4 => Self::Minus,
            5 => Self::Abs,
            6 => Self::Neg,
            7 => Self::Floor,
            8 => Self::Ceil,
            other => Self::Unknown(other),
        }
    }

    /// Integer pipeline: saturates. Division truncates; by zero it saturates
    /// towards the sign of the dividend (not characterised).
    pub(crate) fn int(self, x: i32, operand: i32) -> i32 {
        let (wide, other) = (i64::from(x), i64::from(operand));
        match self {
            Self::Max | Self::MaxNan => x.max(operand),
            Self::Min | Self::MinNan => x.min(operand),
            Self::Add => saturate_i32(wide + other),
            Self::Minus => saturate_i32(wide - other),
            Self::Div => wide
                .checked_div(other)
                .map_or(if x < 0 { i32::MIN } else { i32::MAX }, saturate_i32),
            // The smallest integer stays unchanged (measured by allbilly).
            Self::Abs => x.wrapping_abs(),
            Self::Neg => x.wrapping_neg(),
            Self::Floor | Self::Ceil | Self::Unknown(_) => x,
        }
    }

    /// Float pipeline: IEEE fp32.
    pub(crate) fn float(self, x: f32, operand: f32) -> f32 {
        match self {
            Self::MaxNan | Self::MinNan if x.is_nan() || operand.is_nan() => f32::NAN,
            Self::Max | Self::MaxNan => greater(x, operand),
            Self::Min | Self::MinNan => lesser(x, operand),
            Self::Add => one_nan(x + operand),
            Self::Minus => one_nan(x - operand),
            Self::Div => one_nan(x / operand),
            Self::Abs => x.abs(),
            Self::Neg => -x,
            Self::Floor => x.floor(),
            Self::Ceil => x.ceil(),
            Self::Unknown(_) => x,
        }
    }
}

/// Rectifier at the end of a stage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Relu {
    #[default]
    Off,
    /// `max(x, 0)`
    On,
    /// `min(max(x, 0), bound)`; int32 or fp32 bits.
    Clipped(u32),
}

impl Relu {
    /// Decodes the bypass and enable bits and the compare register.
    pub(crate) fn new(bypass: u32, clip: u32, bound: u32) -> Self {
        match (bypass, clip) {
            (1, _) => Self::Off,
            (_, 1) => Self::Clipped(bound),
            _ => Self::On,
        }
    }

    pub(crate) fn int(self, x: i32) -> i32 {
        match self {
            Self::Off => x,
            Self::On => x.max(0),
            Self::Clipped(bound) => x.max(0).min(bound as i32),
        }
    }

    pub(crate) fn float(self, x: f32) -> f32 {
        match self {
            Self::Off => x,
            Self::On => greater(x, 0.0),
            Self::Clipped(bound) => lesser(greater(x, 0.0), f32::from_bits(bound)),
        }
    }
}

/// An operand word for each channel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ChannelOperand {
    /// From a register: the same for all.
    Scalar(u32),
    /// From a read engine. Channels it did not read are 0.
    Array(Vec<u32>),
}

impl ChannelOperand {
    pub(crate) fn at(&self, channel: usize) -> u32 {
        match self {
            Self::Scalar(value) => *value,
            Self::Array(values) => values.get(channel).copied().unwrap_or(0),
        }
    }
}

/// The multiplier of a stage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StageMultiplier {
    /// int16, or fp16 bits in the float pipeline: the low half of each word.
    pub(crate) operand: ChannelOperand,
    /// Right shift of integer products that are not negative, rounded half to
    /// even (rockchip-npu-notes, measured).
    pub(crate) shift: ChannelOperand,
    /// Right shift of negative products: DATA_FORMAT's *_MUL_SHIFT_VALUE_NEG.
    pub(crate) negative_shift: u32,
    /// Whether only negative values are multiplied.
    pub(crate) prelu: bool,
}

impl StageMultiplier {
    /// Mask of the register's shift field.
    const SHIFT_MASK: u32 = 0x3f;

    fn int(&self, x: i32, channel: usize) -> i32 {
        if self.prelu && x >= 0 {
            return x;
        }
        let operand = self.operand.at(channel) as i16;
        // The product keeps its full width and saturates after the shift.
        let product = i64::from(x) * i64::from(operand);
        let shift = if product < 0 {
            self.negative_shift
        } else {
            self.shift.at(channel) & Self::SHIFT_MASK
        };
        saturate_i32(shift_right_rounded(product, shift, Ties::Even))
    }

    fn float(&self, x: f32, channel: usize) -> f32 {
        if self.prelu && x >= 0.0 {
            return x;
        }
        one_nan(x * half::f16::from_bits(self.operand.at(channel) as u16).to_f32())
    }
}

/// BS or BN.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DpuStage {
    pub(crate) alu: Option<(AluOp, ChannelOperand)>,
    pub(crate) multiplier: Option<StageMultiplier>,
    pub(crate) relu: Relu,
    /// BN multiplies before its ALU, BS after.
    pub(crate) multiply_first: bool,
}

impl DpuStage {
    /// Computes one value with the multiplier and ALU functions of its type.
    #[inline(always)]
    fn value<T>(
        &self,
        mut x: T,
        channel: usize,
        multiply: fn(&StageMultiplier, T, usize) -> T,
        alu: impl Fn(AluOp, T, u32) -> T,
    ) -> T {
        if let (true, Some(multiplier)) = (self.multiply_first, &self.multiplier) {
            x = multiply(multiplier, x, channel);
        }
        if let Some((op, operand)) = &self.alu {
            x = alu(*op, x, operand.at(channel));
        }
        if let (false, Some(multiplier)) = (self.multiply_first, &self.multiplier) {
            x = multiply(multiplier, x, channel);
        }
        x
    }

    fn int(&self, x: i32, channel: usize) -> i32 {
        let alu = |op: AluOp, x, operand| op.int(x, operand as i32);
        self.relu
            .int(self.value(x, channel, StageMultiplier::int, alu))
    }

    fn float(&self, x: f32, channel: usize) -> f32 {
        let alu = |op: AluOp, x, operand| op.float(x, f32::from_bits(operand));
        self.relu
            .float(self.value(x, channel, StageMultiplier::float, alu))
    }

    pub(crate) fn apply(&self, tile: &mut DpuTile) {
        let is_idle = self.alu.is_none() && self.multiplier.is_none() && self.relu == Relu::Off;
        if is_idle || tile.channels == 0 {
            return;
        }
        let (first, channels) = (tile.channel, tile.channels);
        // Most convolutions have only a bias, so that has a separate loop.
        if let (Values::Int(values), Some((AluOp::Add, operand)), None) =
            (&mut tile.values, &self.alu, &self.multiplier)
        {
            let sum = |x: i32, c| x.saturating_add(operand.at(first + c) as i32);
            return each_channel(values, channels, |x, c| self.relu.int(sum(x, c)));
        }
        match &mut tile.values {
            Values::Int(values) => each_channel(values, channels, |x, c| self.int(x, first + c)),
            Values::Float(values) => {
                each_channel(values, channels, |x, c| self.float(x, first + c));
            }
        }
    }
}

fn each_channel<T: Copy>(values: &mut [T], channels: usize, value: impl Fn(T, usize) -> T) {
    for pixel in values.chunks_exact_mut(channels) {
        for (c, x) in pixel.iter_mut().enumerate() {
            *x = value(*x, c);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn multiplier(operand: u32, shift: u32, negative_shift: u32) -> StageMultiplier {
        StageMultiplier {
            operand: ChannelOperand::Scalar(operand),
            shift: ChannelOperand::Scalar(shift),
            negative_shift,
            prelu: false,
        }
    }

    #[test]
    fn the_stages_differ_in_their_order() {
        let [bs, bn] = [false, true].map(|multiply_first| DpuStage {
            alu: Some((AluOp::Add, ChannelOperand::Array(vec![1, 10]))),
            multiplier: Some(multiplier(3, 1, 1)),
            relu: Relu::On,
            multiply_first,
        });
        assert_eq!([bs.int(3, 0), bs.int(3, 1)], [6, 20]);
        // 4.5 goes to the even 4.
        assert_eq!([bn.int(3, 0), bn.int(3, 1), bn.int(-100, 0)], [5, 14, 0]);
    }

    #[test]
    fn a_maximum_takes_the_number_or_the_nan() {
        let mut facts = Contested::default();
        let max = |facts, x| AluOp::from_code(0, facts).float(x, 1.0);
        assert_eq!(max(facts, f32::NAN), 1.0);
        facts.set("nan-compare=nan").unwrap();
        assert!(max(facts, f32::NAN).is_nan());
        assert_eq!(max(facts, 2.0), 2.0);
    }

    #[test]
    fn nans_and_zeros_are_the_same_on_every_host() {
        let facts = Contested::default();
        let op = |code, x: f32, y: f32| AluOp::from_code(code, facts).float(x, y).to_bits();
        let (max, min, add, minus) = (0, 1, 2, 4);
        let one = f32::NAN.to_bits();
        assert_eq!(op(add, f32::INFINITY, f32::NEG_INFINITY), one);
        assert_eq!(op(minus, f32::INFINITY, f32::INFINITY), one);
        assert_eq!(op(max, -f32::NAN, -f32::NAN), one);
        let signalling = f32::from_bits(0x7f80_0001);
        for (x, y) in [(signalling, 1.0), (1.0, signalling)] {
            assert_eq!(op(max, x, y), 1.0f32.to_bits());
            assert_eq!(op(min, x, y), 1.0f32.to_bits());
        }
        for (x, y) in [(0.0, -0.0), (-0.0, 0.0)] {
            assert_eq!(op(max, x, y), 0.0f32.to_bits());
            assert_eq!(op(min, x, y), (-0.0f32).to_bits());
        }
        assert_eq!(Relu::On.float(-0.0).to_bits(), 0.0f32.to_bits());
    }

    #[test]
    fn products_are_shifted_by_their_sign() {
        let multiplier = multiplier(0x4000, 14, 12);
        assert_eq!(multiplier.int(100, 0), 100);
        assert_eq!(multiplier.int(-100, 0), -400);
        // Full width before the shift, saturated after it.
        assert_eq!(multiplier.int(i32::MAX, 0), i32::MAX);
        assert_eq!(multiplier.int(i32::MIN, 0), i32::MIN);
    }

    #[test]
    fn integers_saturate() {
        assert_eq!(AluOp::Add.int(i32::MAX, 1), i32::MAX);
        assert_eq!(AluOp::Minus.int(i32::MIN, 1), i32::MIN);
        assert_eq!(AluOp::Neg.int(i32::MIN, 0), i32::MIN);
        assert_eq!(AluOp::Abs.int(i32::MIN, 0), i32::MIN);
        assert_eq!(AluOp::Abs.int(-5, 0), 5);
        assert_eq!(Relu::Clipped(7).int(9), 7);
        assert_eq!(AluOp::Div.int(-5, 0), i32::MIN);
        assert_eq!(AluOp::Div.int(i32::MIN, -1), i32::MAX);
        let multiplier = StageMultiplier {
            prelu: true,
            ..multiplier(0x7fff, 0, 0)
        };
        assert_eq!(multiplier.int(i32::MIN, 0), i32::MIN);
        assert_eq!(multiplier.int(5, 0), 5);
        assert_eq!(multiplier.float(5.0, 0), 5.0);
    }

    #[test]
    fn floats_take_fp16_multipliers_and_fp32_addends() {
        let stage = DpuStage {
            alu: Some((AluOp::Add, ChannelOperand::Scalar(8192.0f32.to_bits()))),
            multiplier: Some(multiplier(0x6400, 0, 0)),
            relu: Relu::Clipped(9000.0f32.to_bits()),
            multiply_first: true,
        };
        assert_eq!(stage.float(0.5, 0), 8704.0);
        assert_eq!(stage.float(4.0, 0), 9000.0);
        assert_eq!(stage.float(-10.0, 0), 0.0);
    }
}
