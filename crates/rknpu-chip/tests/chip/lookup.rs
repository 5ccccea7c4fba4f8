// SPDX-License-Identifier: MIT OR Apache-2.0
//! Activations by look-up: the program form of librocketnpu, with the tables of
//! each kind of function that it knows.

use half::f16;
use rknpu_regcmd::Word;
use rknpu_regcmd::regs::{dpu, dpu_rdma};

use super::board::{Board, Outcome};
use super::programs::Words;

/// Entries of a table less one, and what lies between two of them.
const SEGMENTS: i32 = 512;
const STEP: i32 = 32;
/// Index of the ends of both tables.
const END: i32 = SEGMENTS * STEP;
/// Entries are fractions of 2^15.
const FRACTION_BITS: i32 = 15;
/// Values of an atom.
const LANES: usize = 8;
/// The widest task: wider ones lose values at their end (T30).
const WIDEST: usize = 4096 * LANES;
/// LE_SLOPE_SCALE and LE_SLOPE_SHIFT of functions with a tail.
const TAIL: (u32, u32) = (23107, 22);

/// A function as registers and tables have it.
pub(crate) struct Activation {
    /// Index steps of one unit of the argument.
    scale: f32,
    /// Index of the argument 0.
    origin: f32,
    /// LE and LO.
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

impl Activation {
    /// Functions of any sign: LE for negative arguments, LO for the others.
    pub(crate) fn halves(f: impl Fn(f64) -> f64, scale: f32, low: f64, span: i32) -> Self {
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
    pub(crate) fn gate(f: impl Fn(f64) -> f64) -> Self {
        Self {
            offset: 1,
            slope: TAIL,
            ..Self::halves(f, 2596.0, 0.0, 0)
        }
    }

    pub(crate) fn tanh() -> Self {
        Self {
            slope: TAIL,
            ..Self::halves(f64::tanh, 5216.0, -1.0, 1)
        }
    }

    /// Functions of `range`, which LO has as a whole; no entry is 0.
    pub(crate) fn shifted(
        f: impl Fn(f64) -> f64,
        range: std::ops::Range<f64>,
        low: f64,
        span: i32,
    ) -> Self {
        let scale = f64::from(END) / (range.end - range.start);
        let argument =
            |j: i32| range.start + f64::from(j) * (range.end - range.start) / f64::from(SEGMENTS);
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

    fn program(&self, cols: u32, (a, d): (u32, u32)) -> Vec<Word> {
        let mut w = Words::default();
        w.set::<dpu::SPointer>(0xe).set::<dpu_rdma::SPointer>(0xe);
        for (id, table) in (0..).zip(&self.tables) {
            w.set::<dpu::LutAccessCfg>(0x20000 | id << 16);
            for &entry in table {
                w.set::<dpu::LutAccessData>(entry.into());
            }
        }
        let scale = f16::from_f32(self.scale).to_bits();
        w.set::<dpu::FeatureModeCfg>(0x1e5)
            .set::<dpu::DataFormat>(2 << 29 | 2 << 26 | 2)
            .set::<dpu::DstBaseAddr>(d)
            .set::<dpu::DstSurfStride>(cols << 4)
            .set::<dpu::DataCubeWidth>(cols - 1)
            .set::<dpu::DataCubeHeight>(0)
            .set::<dpu::DataCubeChannel>(0x70007)
            .set::<dpu::BsCfg>(0x53)
            .set::<dpu::BsOwCfg>(2)
            .set::<dpu::WdmaSize0>(7)
            .set::<dpu::WdmaSize1>(cols - 1)
            .set::<dpu::BnCfg>(0x20040)
            .set::<dpu::BnAluCfg>(self.origin.to_bits())
            .set::<dpu::BnMulCfg>(u32::from(scale) << 16)
            .set::<dpu::EwCfg>(0x300)
            .set::<dpu::EwCvtScaleValue>(1)
            .set::<dpu::OutCvtOffset>(self.offset as u32)
            .set::<dpu::OutCvtScale>(0x10001)
            .set::<dpu::OutCvtShift>(1 << 31 | self.minus_exp << 12)
            .set::<dpu::SurfaceAdd>(cols << 4)
            .set::<dpu::Unknown40c4>(0)
            .set::<dpu::LutCfg>(0x68)
            .set::<dpu::LutInfo>(5 << 16 | 5 << 8)
            .set::<dpu::LutLeStart>(-END as u32)
            .set::<dpu::LutLoEnd>(END as u32)
            .set::<dpu::LutLeSlopeScale>(self.slope.0)
            .set::<dpu::LutLeSlopeShift>(self.slope.1)
            .set::<dpu::LutLoSlopeScale>(0)
            .set::<dpu::LutLoSlopeShift>(0)
            .set::<dpu_rdma::DataCubeWidth>(cols - 1)
            .set::<dpu_rdma::DataCubeHeight>(0)
            .set::<dpu_rdma::DataCubeChannel>(7)
            .set::<dpu_rdma::SrcBaseAddr>(a)
            .set::<dpu_rdma::ErdmaCfg>(1)
            .set::<dpu_rdma::FeatureModeCfg>(0x17849)
            .set::<dpu_rdma::Weight>(0x0101_0101);
        w.finish(0x18)
    }

    /// The results, and the traps on the way.
    pub(crate) fn run(&self, arguments: &[f16]) -> (Vec<f16>, Vec<&'static str>) {
        let (mut results, mut traps) = (Vec::new(), Vec::new());
        for part in arguments.chunks(WIDEST) {
            let (of_part, outcome) = self.run_on(&mut Board::new(1 << 18), part);
            results.extend(of_part);
            traps.extend(outcome.traps());
        }
        (results, traps)
    }

    /// One task.
    pub(crate) fn run_on(&self, board: &mut Board, arguments: &[f16]) -> (Vec<f16>, Outcome) {
        let cols = arguments.len().div_ceil(LANES);
        // One, in what is left of the last atom, runs into no trap.
        let mut padded = arguments.to_vec();
        padded.resize(cols * LANES, f16::ONE);
        let bytes: Vec<u8> = padded.into_iter().flat_map(f16::to_le_bytes).collect();
        let a = board.place(&bytes);
        let d = board.reserve(bytes.len());
        let outcome = board.run(&self.program(cols as u32, (a, d)));
        assert!(outcome.completed());
        let results = board.bytes(d, size_of_val(arguments));
        let results = results.as_chunks().0.iter();
        (
            results.map(|&value| f16::from_le_bytes(value)).collect(),
            outcome,
        )
    }
}

pub(crate) fn logistic(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}
