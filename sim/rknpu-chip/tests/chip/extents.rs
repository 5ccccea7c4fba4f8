// SPDX-License-Identifier: MIT OR Apache-2.0
//! Compares the extents of rknpu-regcmd with the chip's accesses where
//! npu-model's `extents.rs` does not: small, odd geometries of convolution,
//! flying tasks and pooling. Memory never faults, so no access goes unseen.

use families::pooling::PoolProgram;
use families::{A, C, CONV, CONV_RDMA, FLYING, POOLING, Words, matmul, write};
use proptest::prelude::*;
use rknpu_chip::{ChipOptions, Core, Master};
use rknpu_regcmd::regs::{cna, core, dpu, dpu_rdma, ppu, ppu_rdma};
use rknpu_regcmd::{Word, extents, tasks};

use super::board::{Access, PROGRAM, Zeros, run_on};

/// The accesses of a program.
fn run(words: &[Word]) -> Vec<Access> {
    let mut memory = Zeros::new(words);
    let mut core = Core::new(&ChipOptions::default());
    run_on(&mut core, &mut memory, (PROGRAM, words.len()));
    memory.accesses
}

/// Checks that accesses lie in extents of their engine, if those are known.
pub(crate) fn assert_within(words: &[Word], accesses: &[Access]) -> Result<(), TestCaseError> {
    let Some(task) = tasks(words).next() else {
        return Ok(());
    };
    let Ok(ranges) = extents(&task.regs, task.enable) else {
        return Ok(());
    };
    for &(master, direction, start, end) in accesses {
        let Master::Engine(engine) = master else {
            continue;
        };
        let covers = |range: &rknpu_regcmd::Extent| {
            (range.engine, engine.direction()) == (engine, direction)
                && range.start <= start
                && end <= range.end
        };
        prop_assert!(
            ranges.iter().any(covers),
            "{master:?} {start:#x}..{end:#x} is not in {ranges:#x?}"
        );
    }
    Ok(())
}

/// A legal matmul, with or without DPU_RDMA.
fn matmul() -> impl Strategy<Value = (Words, u32)> {
    let types = prop::sample::select(matmul::ALL.to_vec());
    (types, 1..12u32, 1..6u32, 1..4u32, any::<bool>()).prop_map(|(ty, m, k, n, with_rdma)| {
        let conv = matmul::matmul(ty, 4 * m, k * ty.depth, n * ty.group);
        let mut program = conv.program(with_rdma);
        program.truncate(program.len() - 4);
        (Words(program), if with_rdma { CONV_RDMA } else { CONV })
    })
}

/// A register that changes the accesses: offset, base value, and addends as
/// (most, unit). They keep a task small enough to run.
type Geometry = (u16, u32, &'static [(u32, u32)]);

/// Two sizes of 16 bits; strides.
const SIZES: &[(u32, u32)] = &[(24, 1), (24, 1 << 16)];
const CHANNELS: &[(u32, u32)] = &[(200, 1), (200, 1 << 16)];
const STRIDE: &[(u32, u32)] = &[(300, 16)];
const PRECISION: u32 = 0x90;

const GEOMETRY: [Geometry; 44] = [
    (cna::DataSize0::OFFSET, 0, SIZES),
    (cna::FcDataSize0::OFFSET, 0, SIZES),
    (cna::FcDataSize1::OFFSET, 0, &[(200, 1)]),
    (cna::DataSize1::OFFSET, 0, CHANNELS),
    (cna::DataSize2::OFFSET, 0, &[(24, 1)]),
    (cna::DataSize3::OFFSET, 0, &[(200, 1)]),
    (cna::DmaCon1::OFFSET, 0, &[(300, 1)]),
    (cna::DmaCon2::OFFSET, 0, &[(300, 1)]),
    // Negative surface strides, 28 bits.
    (cna::DmaCon2::OFFSET, (1 << 28) - 40, &[(39, 1)]),
    // Precisions, line mode, depthwise.
    (
        cna::ConvCon1::OFFSET,
        0,
        &[(7, PRECISION), (1, 1 << 29), (1, 3)],
    ),
    (cna::WeightSize0::OFFSET, 0, &[(20_000, 1)]),
    (cna::WeightSize1::OFFSET, 0, &[(2_000, 1)]),
    (
        cna::WeightSize2::OFFSET,
        0,
        &[(3, 1 << 24), (3, 1 << 16), (99, 1)],
    ),
    (core::DataoutSize1::OFFSET, 0, &[(200, 1)]),
    (core::DataoutSize0::OFFSET, 0, SIZES),
    // Flying, output, depthwise.
    (
        dpu::FeatureModeCfg::OFFSET,
        0x1e0,
        &[(1, 1), (3, 2), (1, 0x18)],
    ),
    (
        dpu::DataFormat::OFFSET,
        0,
        &[(7, 1 << 26 | 1), (7, 1 << 29)],
    ),
    (dpu::DstSurfStride::OFFSET, 0, STRIDE),
    (dpu::SurfaceAdd::OFFSET, 0, &[(900, 16)]),
    (dpu::DataCubeWidth::OFFSET, 0, &[(24, 1)]),
    (dpu::DataCubeHeight::OFFSET, 0, &[(24, 1)]),
    (dpu::DataCubeNotchAddr::OFFSET, 0, &[(40, 1), (40, 1 << 16)]),
    (dpu::DataCubeChannel::OFFSET, 0, CHANNELS),
    (dpu::WdmaSize0::OFFSET, 0, &[(200, 1)]),
    (dpu::WdmaSize1::OFFSET, 0, SIZES),
    (dpu::BsOwCfg::OFFSET, 2, &[(7, 0x124)]),
    (dpu_rdma::DataCubeWidth::OFFSET, 0, &[(24, 1)]),
    (dpu_rdma::DataCubeHeight::OFFSET, 0, SIZES),
    (dpu_rdma::DataCubeChannel::OFFSET, 0, &[(200, 1)]),
    (dpu_rdma::BrdmaCfg::OFFSET, 0, &[(15, 2)]),
    (dpu_rdma::NrdmaCfg::OFFSET, 0, &[(15, 2)]),
    // Off, size, mode.
    (
        dpu_rdma::ErdmaCfg::OFFSET,
        0,
        &[(1, 1), (3, 4), (3, 1 << 30)],
    ),
    // Flying, widened, MRDMA off, precisions, shared operand.
    (
        dpu_rdma::FeatureModeCfg::OFFSET,
        0x7800,
        &[(1, 1), (1, 8), (1, 16), (7, 1 << 15 | 1 << 5), (7, 1 << 8)],
    ),
    (dpu_rdma::EwSurfStride::OFFSET, 0, STRIDE),
    (dpu_rdma::SurfNotch::OFFSET, 0, STRIDE),
    (dpu_rdma::EwSurfNotch::OFFSET, 0, STRIDE),
    (dpu_rdma::SrcDmaCfg::OFFSET, 0, &[(39, 1 << 19)]),
    // Idle and active stages.
    (dpu::EwCfg::OFFSET, 0x383, &[]),
    (dpu::EwCfg::OFFSET, 0x1082_02c0, &[]),
    (dpu::EwCfg::OFFSET, 0x1080_03c4, &[]),
    (dpu::EwCfg::OFFSET, 0x10c2_03c0, &[]),
    (dpu::EwCfg::OFFSET, 0x300, &[]),
    (dpu::BsCfg::OFFSET, 0x42, &[(1, 0x2_0150 - 0x42)]),
    (dpu::BnCfg::OFFSET, 0x42, &[(1, 0x2_0150 - 0x42)]),
];

fn geometry() -> impl Strategy<Value = (u16, u32)> {
    let rows = prop::sample::select(GEOMETRY.to_vec());
    (rows, any::<[u32; 5]>()).prop_map(|((offset, base, parts), chosen)| {
        let parts = parts.iter().zip(chosen);
        let sum: u32 = parts
            .map(|(&(most, times), any)| any % (most + 1) * times)
            .sum();
        (offset, base + sum)
    })
}

fn pooling() -> impl Strategy<Value = Vec<Word>> {
    let odd = |usual: u32, end: u32| prop_oneof![9 => Just(usual), 1 => 0..end];
    let sizes = (0..20u32, 0..20u32, 0..64u32);
    let output = (
        0..20u32,
        0..20u32,
        prop_oneof![9 => Just(None), 1 => (0..64u32).prop_map(Some)],
    );
    let kernel = (0..3u32, 0..5u32, 0..5u32, 0..4u32, 0..4u32);
    let strides = (0..40u32, 0..400u32, 0..400u32);
    let rest = (0..0x8000u32, odd(2, 4), odd(2, 8));
    (sizes, output, kernel, strides, rest).prop_map(
        |(input, output, kernel, strides, (pad, size, precision))| {
            let (method, kw, kh, sx, sy) = kernel;
            let mut words = PoolProgram::new(0, (8, 8), (2, 2), (A, C)).words();
            words
                .patch::<ppu::DataCubeInWidth>(input.0)
                .patch::<ppu::DataCubeInHeight>(input.1)
                .patch::<ppu::DataCubeInChannel>(input.2)
                .patch::<ppu::DataCubeOutWidth>(output.0)
                .patch::<ppu::DataCubeOutHeight>(output.1)
                .patch::<ppu::DataCubeOutChannel>(output.2.unwrap_or(input.2))
                .patch::<ppu::OperationModeCfg>(0x10 | method)
                .patch::<ppu::PoolingKernelCfg>(kw | kh << 8 | sx << 16 | sy << 20)
                .patch::<ppu::PoolingPaddingCfg>(pad & 0x7777)
                .patch::<ppu::DstSurfStride>(strides.2 << 4)
                .patch::<ppu::DataFormat>(strides.2 << 4 | precision)
                .patch::<ppu_rdma::CubeInWidth>(input.0)
                .patch::<ppu_rdma::CubeInHeight>(input.1)
                .patch::<ppu_rdma::CubeInChannel>(input.2)
                .patch::<ppu_rdma::SrcLineStride>(strides.0 << 4)
                .patch::<ppu_rdma::SrcSurfStride>(strides.1 << 4)
                .patch::<ppu_rdma::DataFormat>(size);
            words.finish(POOLING)
        },
    )
}

proptest! {
    #![proptest_config(test_support::cases(64))]

    /// A matmul also touches the first and the last byte of each extent.
    #[test]
    fn of_matmuls_are_tight((words, enable) in matmul()) {
        let words = words.finish(enable);
        let task = tasks(&words).next().unwrap();
        let touched = run(&words);
        assert_within(&words, &touched)?;
        for extent in extents(&task.regs, task.enable).unwrap() {
            let of_engine = || touched.iter().filter(|(m, ..)| *m == extent.engine.into());
            prop_assert_eq!(of_engine().map(|t| t.2).min(), Some(extent.start));
            prop_assert_eq!(of_engine().map(|t| t.3).max(), Some(extent.end));
        }
    }

    #[test]
    fn of_pooling_cover_all_accesses(words in pooling()) {
        assert_within(&words, &run(&words))?;
    }
}

proptest! {
    #![proptest_config(test_support::cases(400))]

    /// A matmul with some registers changed at random: convolutions, flying
    /// tasks, odd strides, mostly nonsense.
    #[test]
    fn of_any_geometry_cover_all_accesses(
        (mut words, enable) in matmul(),
        changes in prop::collection::vec(geometry(), 1..8),
        flying: bool,
    ) {
        let bases = [
            (dpu_rdma::SrcBaseAddr::OFFSET, 0x3000_0000),
            (dpu_rdma::BsBaseAddr::OFFSET, 0x5000_0000),
            (dpu_rdma::BnBaseAddr::OFFSET, 0x6000_0000),
            (dpu_rdma::EwBaseAddr::OFFSET, 0x7000_0000),
        ];
        for (offset, value) in changes.into_iter().chain(bases) {
            words.0.retain(|word| word.offset() != offset);
            words.0.insert(0, write(offset, value));
        }
        let words = words.finish(if flying { FLYING } else { enable });
        assert_within(&words, &run(&words))?;
    }
}
