// SPDX-License-Identifier: MIT OR Apache-2.0
//! What rknpu-regcmd computes from register values against what the chip
//! touches, where `extents.rs` does not get to: geometries of convolution,
//! flying tasks and pooling that are small but odd, on memory that never
//! faults, so that no access goes unseen.
#![allow(clippy::unwrap_used)] // a failed unwrap is a failed test

use std::collections::HashMap;
use std::time::Duration;

use proptest::prelude::*;
use rknpu_chip::{Bus, ChipOptions, Core, Fault, Master};
use rknpu_regcmd::regs::{cna, core, dpu, dpu_rdma, pc, ppu, ppu_rdma};
use rknpu_regcmd::{
    Binding, Block, BufferId, ChipProfile, DmaAccess, DmaEngine, EnableMask, Iova, MatmulForm,
    MatmulTask, MatmulType, Word, extents, tasks,
};

/// Where the program lies: out of the way of the operands.
const PROGRAM: u32 = 0x7000_0000;
/// Page size of the sparse memory.
const PAGE: u32 = 4096;

/// Memory that is there everywhere, and notes who touched what.
#[derive(Default)]
struct Everywhere {
    pages: HashMap<u32, Box<[u8]>>,
    touched: Vec<(Master, u64, u64)>,
}

impl Everywhere {
    fn note(&mut self, master: Master, iova: u32, len: usize) {
        let start = u64::from(iova);
        self.touched.push((master, start, start + len as u64));
    }
}

impl Bus for Everywhere {
    fn read(&mut self, master: Master, iova: u32, out: &mut [u8]) -> Result<(), Fault> {
        self.note(master, iova, out.len());
        for (address, byte) in (u64::from(iova)..).zip(out) {
            let address = address as u32;
            let page = self.pages.get(&(address / PAGE));
            *byte = page.map_or(0, |page| page[(address % PAGE) as usize]);
        }
        Ok(())
    }

    fn write(&mut self, master: Master, iova: u32, data: &[u8]) -> Result<(), Fault> {
        self.note(master, iova, data.len());
        Ok(())
    }
}

/// Runs `words` as the kernel driver would; returns what was touched.
fn run(words: &[Word]) -> Vec<(Master, u64, u64)> {
    let mut memory = Everywhere::default();
    for (address, word) in (PROGRAM..).step_by(8).zip(words) {
        let page = memory
            .pages
            .entry(address / PAGE)
            .or_insert_with(|| vec![0; PAGE as usize].into());
        let at = (address % PAGE) as usize;
        page[at..at + 8].copy_from_slice(&word.bits().to_le_bytes());
    }
    let mut npu = Core::new(&ChipOptions::default());
    let amounts = words.len().div_ceil(2) as u32 - 1;
    // RK3588 TRM and drivers/accel/rocket: slave mode, pointers, program, go.
    for (offset, value) in [
        (pc::BaseAddress::OFFSET, 1),
        (cna::SPointer::OFFSET, 0xe),
        (core::SPointer::OFFSET, 0xe),
        (pc::BaseAddress::OFFSET, PROGRAM),
        (pc::RegisterAmounts::OFFSET, amounts),
        (pc::TaskCon::OFFSET, 0x7001),
        (pc::OperationEnable::OFFSET, 1),
    ] {
        if let Some(kick) = npu.mmio_write(offset.into(), value) {
            drop(kick.run(&mut memory, Duration::from_millis(500)));
        }
    }
    memory.touched
}

/// Every access lies in an extent of its engine, where those are known.
fn check(words: &[Word]) -> Result<(), TestCaseError> {
    let Some(task) = tasks(words).next() else {
        return Ok(());
    };
    let Ok(computed) = extents(&task.regs, task.enable) else {
        return Ok(());
    };
    let touched = run(words);
    for &(master, start, end) in &touched {
        let Some(engine) = master.engine() else {
            continue;
        };
        prop_assert!(
            computed
                .iter()
                .any(|e| e.engine == engine && e.start <= start && end <= e.end),
            "{master:?} touched {start:#x}..{end:#x}, computed: {computed:?}"
        );
    }
    Ok(())
}

/// A legal product.
fn product() -> impl Strategy<Value = (MatmulTask, MatmulForm)> {
    let form = prop_oneof![Just(MatmulForm::A), Just(MatmulForm::B)];
    (0..4_usize, 1..12_u32, 1..6_u32, 1..4_u32, form).prop_map(|(ty, m, k, n, form)| {
        let ty = MatmulType::ALL[ty];
        let task = MatmulTask {
            ty,
            m: 4 * m,
            k: k * ty.k_multiple(),
            n: n * ty.n_multiple(),
            a: BufferId(0).at(0),
            b: BufferId(1).at(0),
            c: BufferId(2).at(0),
        };
        (task, form)
    })
}

fn link(task: &MatmulTask, form: MatmulForm) -> Vec<Word> {
    let bind = |id, iova| Binding {
        id: BufferId(id),
        iova: Iova(iova),
        len: 0x0800_0000,
    };
    let bindings = [bind(0, 0), bind(1, 0x1000_0000), bind(2, 0x2000_0000)];
    let program = task.program_in(form, &ChipProfile::RK3588).unwrap();
    program.link(&bindings).unwrap().words().to_vec()
}

/// Registers whose values decide what is touched, with values that keep a task
/// small enough to run.
fn geometry() -> impl Strategy<Value = (u16, u32)> {
    let small = |offset: u16, max: u32| (Just(offset), 0..=max);
    let size = |offset: u16, max: u32| {
        (Just(offset), 0..=max, 0..=max).prop_map(|(offset, low, high)| (offset, high << 16 | low))
    };
    let stride = |offset: u16, max: u32| {
        (Just(offset), 0..=max).prop_map(|(offset, atoms)| (offset, atoms << 4))
    };
    prop_oneof![
        size(cna::DataSize0::OFFSET, 24),
        size(cna::FcDataSize0::OFFSET, 24),
        small(cna::FcDataSize1::OFFSET, 200),
        size(cna::DataSize1::OFFSET, 200),
        small(cna::DataSize2::OFFSET, 24),
        small(cna::DataSize3::OFFSET, 200),
        small(cna::DmaCon1::OFFSET, 300),
        small(cna::DmaCon2::OFFSET, 300),
        // Negative surface strides, 28 bits.
        (Just(cna::DmaCon2::OFFSET), 1..40_u32).prop_map(|(o, v)| (o, (1 << 28) - v)),
        (
            Just(cna::ConvCon1::OFFSET),
            0..8_u32,
            any::<bool>(),
            any::<bool>()
        )
            .prop_map(|(offset, precision, line, depthwise)| {
                let mode = if depthwise { 3 } else { 0 };
                (
                    offset,
                    u32::from(line) << 29 | precision << 7 | precision << 4 | mode,
                )
            }),
        small(cna::WeightSize0::OFFSET, 20_000),
        small(cna::WeightSize1::OFFSET, 2_000),
        (
            Just(cna::WeightSize2::OFFSET),
            0..4_u32,
            0..4_u32,
            0..100_u32
        )
            .prop_map(|(o, w, h, n)| (o, w << 24 | h << 16 | n)),
        small(core::DataoutSize1::OFFSET, 200),
        size(core::DataoutSize0::OFFSET, 24),
        (
            Just(dpu::FeatureModeCfg::OFFSET),
            any::<bool>(),
            0..4_u32,
            any::<bool>()
        )
            .prop_map(|(o, flying, out, dw)| {
                (
                    o,
                    0x1e0 | u32::from(flying) | out << 1 | if dw { 0x18 } else { 0 },
                )
            }),
        (Just(dpu::DataFormat::OFFSET), 0..8_u32, 0..8_u32)
            .prop_map(|(o, i, out)| (o, out << 29 | i << 26 | i)),
        stride(dpu::DstSurfStride::OFFSET, 300),
        stride(dpu::SurfaceAdd::OFFSET, 900),
        small(dpu::DataCubeWidth::OFFSET, 24),
        small(dpu::DataCubeHeight::OFFSET, 24),
        size(dpu::DataCubeNotchAddr::OFFSET, 40),
        size(dpu::DataCubeChannel::OFFSET, 200),
        small(dpu::WdmaSize0::OFFSET, 200),
        size(dpu::WdmaSize1::OFFSET, 24),
        (Just(dpu::BsOwCfg::OFFSET), 0..8_u32).prop_map(|(o, s)| (o, (s * 0x124) | 2)),
        small(dpu_rdma::DataCubeWidth::OFFSET, 24),
        size(dpu_rdma::DataCubeHeight::OFFSET, 24),
        small(dpu_rdma::DataCubeChannel::OFFSET, 200),
        (Just(dpu_rdma::BrdmaCfg::OFFSET), 0..16_u32).prop_map(|(o, v)| (o, v << 1)),
        (Just(dpu_rdma::NrdmaCfg::OFFSET), 0..16_u32).prop_map(|(o, v)| (o, v << 1)),
        (
            Just(dpu_rdma::ErdmaCfg::OFFSET),
            0..2_u32,
            0..4_u32,
            0..4_u32
        )
            .prop_map(|(o, off, size, mode)| (o, mode << 30 | size << 2 | off)),
        (
            Just(dpu_rdma::FeatureModeCfg::OFFSET),
            0..4_u32,
            0..8_u32,
            0..8_u32,
            0..2_u32
        )
            .prop_map(|(o, low, precision, comb, off)| {
                let flying = low & 1;
                let widen = (low >> 1) << 3;
                let code = precision << 15 | precision << 5;
                (o, code | comb << 8 | 0x7800 | off << 4 | widen | flying)
            }),
        stride(dpu_rdma::EwSurfStride::OFFSET, 300),
        stride(dpu_rdma::SurfNotch::OFFSET, 300),
        stride(dpu_rdma::EwSurfNotch::OFFSET, 300),
        (Just(dpu_rdma::SrcDmaCfg::OFFSET), 0..40_u32).prop_map(|(o, v)| (o, v << 19)),
        (
            Just(dpu::EwCfg::OFFSET),
            prop_oneof![
                Just(0x383_u32),
                Just(0x1082_02c0),
                Just(0x1080_03c4),
                Just(0x10c2_03c0),
                Just(0x300)
            ]
        ),
        (
            Just(dpu::BsCfg::OFFSET),
            prop_oneof![Just(0x53_u32), Just(0x2_0150), Just(0x42)]
        ),
        (
            Just(dpu::BnCfg::OFFSET),
            prop_oneof![Just(0x53_u32), Just(0x2_0150), Just(0x42)]
        ),
    ]
}

fn pooling() -> impl Strategy<Value = Vec<Word>> {
    let word = |block: Block, offset: u16, value| Word::new(block.target(), offset, value);
    (
        (0..20_u32, 0..20_u32, 0..64_u32),
        (
            0..20_u32,
            0..20_u32,
            prop_oneof![9 => Just(None), 1 => (0..64_u32).prop_map(Some)],
        ),
        (0..3_u32, 0..5_u32, 0..5_u32, 0..4_u32, 0..4_u32),
        (0..40_u32, 0..400_u32, 0..400_u32),
        (
            0..0x8000_u32,
            prop_oneof![9 => Just(2), 1 => 0..4_u32],
            prop_oneof![9 => Just(2), 1 => 0..8_u32],
        ),
    )
        .prop_map(
            move |(input, output, kernel, strides, (pad, size, precision))| {
                let p = |offset, value| word(Block::Ppu, offset, value);
                let r = |offset, value| word(Block::PpuRdma, offset, value);
                let (method, kw, kh, sx, sy) = kernel;
                vec![
                    p(ppu::SPointer::OFFSET, 0xe),
                    r(ppu_rdma::SPointer::OFFSET, 0xe),
                    p(ppu::DataCubeInWidth::OFFSET, input.0),
                    p(ppu::DataCubeInHeight::OFFSET, input.1),
                    p(ppu::DataCubeInChannel::OFFSET, input.2),
                    p(ppu::DataCubeOutWidth::OFFSET, output.0),
                    p(ppu::DataCubeOutHeight::OFFSET, output.1),
                    p(ppu::DataCubeOutChannel::OFFSET, output.2.unwrap_or(input.2)),
                    p(ppu::OperationModeCfg::OFFSET, 0x10 | method),
                    p(
                        ppu::PoolingKernelCfg::OFFSET,
                        kw | kh << 8 | sx << 16 | sy << 20,
                    ),
                    p(ppu::PoolingPaddingCfg::OFFSET, pad & 0x7777),
                    p(ppu::DstBaseAddr::OFFSET, 0x2000_0000),
                    p(ppu::DstSurfStride::OFFSET, strides.2 << 4),
                    p(ppu::DataFormat::OFFSET, strides.2 << 4 | precision),
                    r(ppu_rdma::CubeInWidth::OFFSET, input.0),
                    r(ppu_rdma::CubeInHeight::OFFSET, input.1),
                    r(ppu_rdma::CubeInChannel::OFFSET, input.2),
                    r(ppu_rdma::SrcBaseAddr::OFFSET, 0x1000_0000),
                    r(ppu_rdma::SrcLineStride::OFFSET, strides.0 << 4),
                    r(ppu_rdma::SrcSurfStride::OFFSET, strides.1 << 4),
                    r(ppu_rdma::DataFormat::OFFSET, size),
                    Word::MARKER,
                    Word::enable(EnableMask::PPU | EnableMask::PPU_RDMA),
                ]
            },
        )
}

/// `words` with the write of `offset` changed, or put in front.
fn change(words: &mut Vec<Word>, (offset, value): (u16, u32)) {
    let Some(block) = Block::of_offset(offset) else {
        return;
    };
    let word = Word::new(block.target(), offset, value);
    match words
        .iter_mut()
        .find(|w| w.offset() == offset && w.target() == block.target())
    {
        Some(place) => *place = word,
        None => words.insert(0, word),
    }
}

proptest! {
    #![proptest_config(test_support::cases(64))]

    /// Both directions: of a product, the first and the last byte are touched.
    #[test]
    fn of_products_are_tight((task, form) in product()) {
        let words = link(&task, form);
        let state = tasks(&words).next().unwrap();
        let touched = run(&words);
        for extent in extents(&state.regs, state.enable).unwrap() {
            let of_engine = || touched.iter().filter(|(m, ..)| m.engine() == Some(extent.engine));
            prop_assert_eq!(of_engine().map(|t| t.1).min(), Some(extent.start));
            prop_assert_eq!(of_engine().map(|t| t.2).max(), Some(extent.end));
            prop_assert_eq!(extent.access == DmaAccess::Write, extent.engine == DmaEngine::DpuWrite);
        }
    }

    #[test]
    fn of_pooling_cover_all_accesses(words in pooling()) {
        check(&words)?;
    }
}

proptest! {
    #![proptest_config(test_support::cases(400))]

    /// A product with some registers changed at random: convolutions, flying
    /// tasks, odd strides, mostly nonsense.
    #[test]
    fn of_any_geometry_cover_all_accesses(
        (task, form) in product(),
        changes in prop::collection::vec(geometry(), 1..8),
        flying in any::<bool>(),
    ) {
        let mut words = link(&task, form);
        for one in changes {
            change(&mut words, one);
        }
        for (offset, base) in [
            (dpu_rdma::SrcBaseAddr::OFFSET, 0x3000_0000),
            (dpu_rdma::BsBaseAddr::OFFSET, 0x4000_0000),
            (dpu_rdma::BnBaseAddr::OFFSET, 0x5000_0000),
            (dpu_rdma::EwBaseAddr::OFFSET, 0x6000_0000),
            // Room below for negative strides.
            (cna::FeatureDataAddr::OFFSET, 0x0800_0000),
        ] {
            change(&mut words, (offset, base));
        }
        if flying {
            let enable = Word::enable(EnableMask::DPU | EnableMask::DPU_RDMA);
            if let Some(last) = words.iter_mut().find(|word| word.is_enable()) {
                *last = enable;
            }
        }
        check(&words)?;
    }
}
