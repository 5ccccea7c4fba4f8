// SPDX-License-Identifier: MIT OR Apache-2.0
//! Activations by look-up, as librocketnpu computes them.

use half::f16;
use rknpu_regcmd::Word;
use rknpu_regcmd::regs::{dpu, dpu_rdma};

use super::board::Board;
use super::programs::Words;

pub(crate) struct Activation {
    /// Index steps of one unit of the argument.
    scale: f32,
    table: fn(f64) -> i16,
    offset: i32,
    minus_exp: u32,
}

impl Activation {
    fn program(&self, cols: u32, (a, d): (u32, u32)) -> Vec<Word> {
        let scale = f16::from_f32(self.scale);
        let mut w = Words::default();
        w.set::<dpu::SPointer>(0xe).set::<dpu_rdma::SPointer>(0xe);
        for table in 0..2u32 {
            w.set::<dpu::LutAccessCfg>(0x20000 | table << 16);
            for i in 0..513 {
                let index = if table == 0 { i - 512 } else { i };
                let argument = f64::from(index * 32) / scale.to_f64();
                w.set::<dpu::LutAccessData>(u32::from((self.table)(argument) as u16));
            }
        }
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
            .set::<dpu::BnAluCfg>(0x8000_0000)
            .set::<dpu::BnMulCfg>(u32::from(scale.to_bits()) << 16)
            .set::<dpu::EwCfg>(0x300)
            .set::<dpu::EwCvtScaleValue>(1)
            .set::<dpu::OutCvtOffset>(self.offset as u32)
            .set::<dpu::OutCvtScale>(0x10001)
            .set::<dpu::OutCvtShift>(1 << 31 | self.minus_exp << 12)
            .set::<dpu::SurfaceAdd>(cols << 4)
            .set::<dpu::Unknown40c4>(0)
            .set::<dpu::LutCfg>(0x68)
            .set::<dpu::LutInfo>(5 << 16 | 5 << 8)
            .set::<dpu::LutLeStart>(0xffff_c000)
            .set::<dpu::LutLoEnd>(0x4000)
            .set::<dpu::LutLeSlopeScale>(0)
            .set::<dpu::LutLeSlopeShift>(0)
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
    fn run(&self, arguments: &[f32]) -> (Vec<f32>, Vec<&'static str>) {
        self.run_on(&mut Board::new(1 << 17), arguments)
    }

    pub(crate) fn run_on(
        &self,
        board: &mut Board,
        arguments: &[f32],
    ) -> (Vec<f32>, Vec<&'static str>) {
        assert!(arguments.len().is_multiple_of(8));
        let bytes: Vec<u8> = arguments
            .iter()
            .flat_map(|&x| f16::from_f32(x).to_le_bytes())
            .collect();
        let a = board.place(&bytes);
        let d = board.reserve(bytes.len());
        let cols = (arguments.len() / 8) as u32;
        let outcome = board.run(&self.program(cols, (a, d)));
        assert!(outcome.completed());
        let results = board
            .bytes(d, bytes.len())
            .chunks_exact(2)
            .map(|b| f16::from_le_bytes([b[0], b[1]]).to_f32())
            .collect();
        (results, outcome.traps())
    }
}

fn arguments() -> Vec<f32> {
    (-400..400)
        .map(|i| f16::from_f32(i as f32 / 64.0).to_f32())
        .collect()
}

pub(crate) fn sigmoid() -> Activation {
    Activation {
        scale: 2596.0,
        table: |x| (32768.0 / (1.0 + (-x).exp())).round().clamp(0.0, 32767.0) as i16,
        offset: 1,
        minus_exp: 15,
    }
}

#[test]
fn a_sigmoid_is_a_sigmoid() {
    let sigmoid = sigmoid();
    let arguments = arguments();
    let (results, traps) = sigmoid.run(&arguments);
    assert!(traps.is_empty(), "{traps:?}");
    for (x, y) in arguments.iter().zip(results) {
        let expected = 1.0 / (1.0 + (-x).exp());
        assert!(
            (y - expected).abs() < 1e-3,
            "sigmoid({x}) = {y}, not {expected}"
        );
    }
}

#[test]
fn a_tanh_is_a_tanh_but_for_zero() {
    let tanh = Activation {
        scale: 5216.0,
        table: |x| {
            ((x.tanh() + 1.0) / 2.0 * 32768.0)
                .round()
                .clamp(0.0, 32767.0) as i16
        },
        offset: -16384,
        minus_exp: 14,
    };
    let arguments: Vec<f32> = arguments().into_iter().filter(|x| x.abs() < 3.0).collect();
    let arguments = &arguments[..arguments.len() / 8 * 8];
    let (results, traps) = tanh.run(arguments);
    assert_eq!(traps, ["T52-exponent-wraps"]);
    for (x, y) in arguments.iter().zip(results) {
        if *x == 0.0 {
            // The exponent of a zero wraps: 2^(17 - 14).
            assert_eq!(y, 8.0);
        } else {
            assert!((y - x.tanh()).abs() < 2e-3, "tanh({x}) = {y}");
        }
    }
}
