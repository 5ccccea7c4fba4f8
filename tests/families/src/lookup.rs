// SPDX-License-Identifier: MIT OR Apache-2.0
//! Activations by look-up: the program form of librocketnpu, which does not write
//! every register, with the tables of each kind of function that it has.

use std::ops::Range;

use super::{FLYING, Words};
use half::f16;
use rknpu_regcmd::Word;

/// Entries of a table less one, and index steps between two of them.
const SEGMENTS: i32 = 512;
const STEP: i32 = 32;
/// Index of the ends of both tables.
const END: i32 = SEGMENTS * STEP;
/// Entries are fractions of 2^15.
const FRACTION_BITS: i32 = 15;
/// LE_SLOPE_SCALE and LE_SLOPE_SHIFT of functions with a tail.
const TAIL: (u32, u32) = (23107, 22);

/// A function as register values and tables.
pub struct Activation {
    /// Index steps of one unit of the argument.
    scale: f32,
    /// Index of the argument 0.
    origin: f32,
    /// The tables LE and LO.
    tables: [Vec<u16>; 2],
    offset: i32,
    minus_exp: u32,
    /// Scale and shift of the slope below LE.
    slope: (u32, u32),
}

/// A value in `low..low + 2^span` as an entry that is at least `least`.
fn entry(value: f64, low: f64, span: i32, least: f64) -> u16 {
    let fraction = (value - low) * f64::from(FRACTION_BITS - span).exp2();
    fraction.round().clamp(least, 32767.0) as u16
}

#[must_use]
pub fn logistic(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

impl Activation {
    /// Functions of any sign: LE for negative arguments, LO for the others.
    pub fn halves(f: impl Fn(f64) -> f64, scale: f32, low: f64, span: i32) -> Self {
        let table = |first: i32| {
            let index = (0..=SEGMENTS).map(|i| first + i * STEP);
            let argument = index.map(|index| f64::from(index) / f64::from(scale));
            argument.map(|x| entry(f(x), low, span, 0.0)).collect()
        };
        Self {
            scale,
            origin: -0.0,
            tables: [table(-END), table(0)],
            offset: (low * f64::from(FRACTION_BITS - span).exp2()).round() as i32,
            minus_exp: (FRACTION_BITS - span) as u32,
            slope: (0, 0),
        }
    }

    /// Functions between 0 and 1.
    pub fn gate(f: impl Fn(f64) -> f64) -> Self {
        Self {
            offset: 1,
            slope: TAIL,
            ..Self::halves(f, 2596.0, 0.0, 0)
        }
    }

    #[must_use]
    pub fn tanh() -> Self {
        Self {
            slope: TAIL,
            ..Self::halves(f64::tanh, 5216.0, -1.0, 1)
        }
    }

    /// Functions over `range`, all of which is in LO; no entry is 0.
    pub fn shifted(f: impl Fn(f64) -> f64, range: Range<f64>, low: f64, span: i32) -> Self {
        let width = range.end - range.start;
        let scale = f64::from(END) / width;
        let argument = |j: i32| range.start + f64::from(j) * width / f64::from(SEGMENTS);
        let lo: Vec<u16> = (0..=SEGMENTS)
            .map(|j| entry(f(argument(j)), low, span, 1.0))
            .collect();
        Self {
            scale: scale as f32,
            origin: (-range.start * scale) as f32,
            tables: [vec![lo[0]; lo.len()], lo],
            ..Self::halves(|_| 0.0, 1.0, low, span)
        }
    }

    /// The program that writes the function of `cols` atoms of fp16 at `a` to `d`.
    #[must_use]
    pub fn program(&self, cols: u32, (a, d): (u32, u32)) -> Vec<Word> {
        let mut words = Words::default();
        words.extend(&[(0x4004, 0xe), (0x5004, 0xe)]);
        for (id, table) in (0..).zip(&self.tables) {
            words.extend(&[(0x4100, 0x20000 | id << 16)]);
            let entries = table.iter().map(|&entry| (0x4104, entry.into()));
            words.extend(&entries.collect::<Vec<_>>());
        }
        let w = cols - 1;
        words.extend(&[
            (0x400c, 0x1e5),
            (0x4010, 2 << 29 | 2 << 26 | 2),
            (0x4020, d),
            (0x4024, cols << 4),
            (0x4030, w),
            (0x4034, 0),
            (0x403c, 0x0007_0007),
            (0x4040, 0x53),
            (0x4050, 2),
            (0x4058, 7),
            (0x405c, w),
            (0x4060, 0x20040),
            (0x4064, self.origin.to_bits()),
            (0x4068, u32::from(f16::from_f32(self.scale).to_bits()) << 16),
            (0x4070, 0x300),
            (0x4078, 1),
            (0x4080, self.offset as u32),
            (0x4084, 0x10001),
            (0x4088, 1 << 31 | self.minus_exp << 12),
            (0x40c0, cols << 4),
            (0x40c4, 0),
            (0x4108, 0x68),
            (0x410c, 0x50500),
            (0x4110, -END as u32),
            (0x411c, END as u32),
            (0x4120, self.slope.0),
            (0x4124, self.slope.1),
            (0x4128, 0),
            (0x412c, 0),
            (0x500c, w),
            (0x5010, 0),
            (0x5014, 7),
            (0x5018, a),
            (0x5034, 1),
            (0x5044, 0x17849),
            (0x5068, 0x0101_0101),
        ]);
        words.finish(FLYING)
    }
}
