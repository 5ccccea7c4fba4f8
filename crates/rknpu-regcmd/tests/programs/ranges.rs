// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests extents against the address formulas, atom by atom.
//!
//! The formulas are written here a second time, independent of the crate and of its
//! table of precisions, as plain loops over the atoms. The extents must contain
//! whatever the loops reach, and be no larger, unless they cover a second
//! interpretation of the registers.

use std::collections::BTreeSet;

use proptest::prelude::*;
use rknpu_regcmd::regs::{cna, core, dpu, dpu_rdma, ppu, ppu_rdma};
use rknpu_regcmd::{
    DmaEngine, EnableMask, Extent, Precision, RegisterFile, TaskRegisters, TaskType, extents,
    tasks, written_element,
};

use crate::helpers::{self, CHIP};
use families::matmul;

/// Bits of a channel, by the precision code of CNA and DPU_RDMA.
fn bits(code: u32) -> i64 {
    [8, 16, 16, 16, 32, 32, 4, 32][code as usize]
}

/// First and last atom that a walk reaches, in bytes.
#[derive(Clone, Copy, Debug, Default)]
struct Reached(Option<(i64, i64)>);

impl Reached {
    fn atom(&mut self, address: i64) {
        let (first, last) = self.0.unwrap_or((address, address));
        self.0 = Some((first.min(address), last.max(address)));
    }

    fn range(self) -> (i64, i64) {
        let (first, last) = self.0.expect("something is reached");
        (first, last + 16)
    }
}

fn features(regs: &RegisterFile) -> Reached {
    let con = regs.get::<cna::ConvCon1>();
    let size = regs.get::<cna::FcDataSize0>();
    let channels = i64::from(regs.get::<cna::FcDataSize1>().dma_channel());
    let base = i64::from(regs.value(cna::FeatureDataAddr::OFFSET));
    let (w, h) = (i64::from(size.dma_width()), i64::from(size.dma_height()));
    let line = i64::from(regs.get::<cna::DmaCon1>().line_stride());
    let surf = i64::from(regs.get::<cna::DmaCon2>().surf_stride());
    let group = if con.group_line_off() == 1 { 1 } else { 4 };
    let surfaces = (channels * bits(con.in_precision()) + 127) / 128;
    let mut reached = Reached::default();
    for c1 in 0..surfaces {
        for y in 0..h {
            for x in [0, w - 1] {
                let atom = y / group * line + y % group * w + x + c1 * (group * w + surf);
                reached.atom(base + 16 * atom);
            }
        }
    }
    reached
}

fn output(task: &TaskRegisters) -> Reached {
    let regs = &task.regs;
    let format = regs.get::<dpu::DataFormat>();
    let atoms = i64::from(regs.get::<dpu::BsOwCfg>().size_e_0()) + 1;
    let out_bits = bits(format.out_precision());
    let depthwise = regs.get::<core::MiscCfg>().dw_en() == 1;
    let group = if regs.get::<dpu::FeatureModeCfg>().flying_mode() == 1 {
        atoms * 128 / out_bits
    } else {
        let group = match format.in_precision() {
            0 => 32,
            6 => 64,
            _ => 16,
        };
        if depthwise { 2 * group } else { group }
    };
    let channels = i64::from(regs.get::<dpu::WdmaSize0>().channel_wdma()) + 1;
    let size = regs.get::<dpu::WdmaSize1>();
    let (w, h) = (
        i64::from(size.width_wdma()) + 1,
        i64::from(size.height_wdma()) + 1,
    );
    let notch = i64::from(regs.get::<dpu::DataCubeNotchAddr>().notch_addr_0());
    let stride = i64::from(regs.get::<dpu::DstSurfStride>().dst_surf_stride());
    let add = i64::from(regs.get::<dpu::SurfaceAdd>().surf_add());
    let base = i64::from(regs.value(dpu::DstBaseAddr::OFFSET));
    let mut reached = Reached::default();
    for g in 0..(channels + group - 1) / group {
        for a in 0..atoms {
            for y in 0..h {
                for x in [0, w - 1] {
                    reached.atom(base + 16 * (y * (w + notch) + x + a * stride + g * add));
                }
            }
        }
    }
    reached
}

/// MRDMA and ERDMA, if they run.
fn operands(regs: &RegisterFile) -> Vec<(DmaEngine, Reached)> {
    let mode = regs.get::<dpu_rdma::FeatureModeCfg>();
    let ew = regs.get::<dpu_rdma::ErdmaCfg>();
    let size = regs.get::<dpu_rdma::DataCubeHeight>();
    let w = i64::from(regs.get::<dpu_rdma::DataCubeWidth>().width()) + 1;
    let h = i64::from(size.height()) + 1;
    let channels = i64::from(regs.get::<dpu_rdma::DataCubeChannel>().channel()) + 1;
    let line_notch = i64::from(regs.get::<dpu_rdma::SrcDmaCfg>().line_notch_addr());
    let ew_line_notch = i64::from(size.ew_line_notch_addr());
    let notch = i64::from(regs.get::<dpu_rdma::SurfNotch>().surf_notch_addr());
    let ew_notch = i64::from(regs.get::<dpu_rdma::EwSurfNotch>().ew_surf_notch());
    let ew_stride = i64::from(regs.get::<dpu_rdma::EwSurfStride>().ew_surf_stride());
    let source = i64::from(regs.value(dpu_rdma::SrcBaseAddr::OFFSET));
    let element = i64::from(regs.value(dpu_rdma::EwBaseAddr::OFFSET));
    let shared = mode.comb_use() == 5;
    let mut main_reached = Reached::default();
    let mut element_reached = Reached::default();
    let surfaces = |bits: i64| (channels * bits + 127) / 128;
    for y in 0..h {
        for x in [0, w - 1] {
            for c1 in 0..surfaces(bits(mode.in_precision())) {
                // The shared operand alternates between the engines.
                let (mine, step) = if shared {
                    (c1 % 2 == 0, c1 / 2)
                } else {
                    (true, c1)
                };
                if mine {
                    let atom = step * (w * h + notch) + y * (w + line_notch) + x;
                    main_reached.atom(source + 16 * atom);
                }
            }
            for c1 in 0..surfaces(4 << ew.erdma_data_size()) {
                let atom = match (shared, ew.erdma_data_mode()) {
                    (true, _) if c1 % 2 == 0 => continue,
                    (true, _) => c1 / 2 * (w * h + ew_notch) + y * (w + ew_line_notch) + x,
                    (false, 0) => c1 * ew_stride,
                    (false, _) => c1 * ew_stride + y * (w + ew_line_notch) + x,
                };
                element_reached.atom(element + 16 * atom);
            }
        }
    }
    let mut all = Vec::new();
    if mode.mrdma_disable() == 0 {
        all.push((DmaEngine::Mrdma, main_reached));
    }
    if ew.erdma_disable() == 0 {
        all.push((DmaEngine::Erdma, element_reached));
    }
    all
}

fn pooling(regs: &RegisterFile) -> [(DmaEngine, Reached); 2] {
    let mut read = Reached::default();
    let mut written = Reached::default();
    let w = i64::from(regs.get::<ppu_rdma::CubeInWidth>().cube_in_width()) + 1;
    let h = i64::from(regs.get::<ppu_rdma::CubeInHeight>().cube_in_height()) + 1;
    let channels = i64::from(regs.get::<ppu_rdma::CubeInChannel>().cube_in_channel()) + 1;
    let out_w = i64::from(regs.get::<ppu::DataCubeOutWidth>().cube_out_width()) + 1;
    let out_h = i64::from(regs.get::<ppu::DataCubeOutHeight>().cube_out_height()) + 1;
    for c1 in 0..(channels * 16 + 127) / 128 {
        // Strides are bytes.
        let surface = c1 * i64::from(regs.value(ppu_rdma::SrcSurfStride::OFFSET));
        let source = i64::from(regs.value(ppu_rdma::SrcBaseAddr::OFFSET)) + surface;
        for y in 0..h {
            let line = y * i64::from(regs.value(ppu_rdma::SrcLineStride::OFFSET));
            read.atom(source + line);
            read.atom(source + line + 16 * (w - 1));
        }
        let surface = c1 * i64::from(regs.value(ppu::DstSurfStride::OFFSET));
        let target = i64::from(regs.value(ppu::DstBaseAddr::OFFSET)) + surface;
        for pixel in 0..out_w * out_h {
            written.atom(target + 16 * pixel);
        }
    }
    [(DmaEngine::PpuRead, read), (DmaEngine::PpuWrite, written)]
}

fn reached(task: &TaskRegisters) -> Vec<(DmaEngine, Reached)> {
    let regs = &task.regs;
    let mut all = Vec::new();
    let runs = |block| task.enable.contains(block);
    if runs(EnableMask::CNA)
        && regs.get::<cna::CbufCon0>().data_reuse() == 0
        && regs.get::<cna::ConvCon1>().argb_in() == 0
    {
        all.push((DmaEngine::Feature, features(regs)));
    }
    if runs(EnableMask::DPU) {
        all.push((DmaEngine::DpuWrite, output(task)));
    }
    if runs(EnableMask::DPU_RDMA) {
        all.extend(operands(regs));
    }
    if runs(EnableMask::PPU) {
        all.extend(pooling(regs));
    }
    all
}

fn extent_of(extents: &[Extent], engine: DmaEngine) -> (i64, i64) {
    let found = extents.iter().find(|extent| extent.engine == engine);
    let extent = found.unwrap_or_else(|| panic!("no extent of the {engine}"));
    (extent.start as i64, extent.end as i64)
}

/// The known programs have only one interpretation.
#[test]
fn extents_of_known_programs_are_what_the_formulas_reach() {
    for sample in families::all() {
        for task in tasks(&sample.words) {
            let extents = extents(&task.regs, task.enable).unwrap();
            for (engine, reached) in reached(&task) {
                let found = extent_of(&extents, engine);
                assert_eq!(found, reached.range(), "{}: {engine}", sample.name);
            }
        }
    }
}

#[test]
fn bias_and_weights_are_rounded_up_to_atoms() {
    let sample = families::all()
        .into_iter()
        .find(|sample| sample.name.starts_with("captured"))
        .unwrap();
    let mut task = tasks(&sample.words).next().unwrap();
    task.regs.set(cna::WeightSize0::OFFSET, 577);
    task.regs.set(dpu_rdma::DataCubeChannel::OFFSET, 64);
    let extents = extents(&task.regs, task.enable).unwrap();
    let (start, end) = extent_of(&extents, DmaEngine::Weight);
    assert_eq!(end - start, 592);
    let (start, end) = extent_of(&extents, DmaEngine::Brdma);
    assert_eq!(end - start, 272);
}

#[test]
fn blocks_that_do_not_run_touch_nothing() {
    let words = matmul::matmul(matmul::FP16_FP32, 64, 64, 64)
        .with_rdma()
        .task();
    let task = tasks(&words).next().unwrap();
    let engines = |regs: &RegisterFile, enable| -> Vec<DmaEngine> {
        let extents = extents(regs, EnableMask::from_bits_retain(enable)).unwrap();
        extents.iter().map(|extent| extent.engine).collect()
    };
    let regs = &task.regs;
    let all = [DmaEngine::Feature, DmaEngine::Weight, DmaEngine::DpuWrite];
    assert_eq!(engines(regs, 0x1d), all);
    assert_eq!(engines(regs, 0x0d), all);
    assert_eq!(engines(regs, 0), []);
    let mut reuse = regs.clone();
    reuse.set(cna::CbufCon0::OFFSET, 0x30b1);
    assert_eq!(engines(&reuse, 0x0d), [DmaEngine::DpuWrite]);
    let mut to_ppu = reuse;
    to_ppu.set(dpu::FeatureModeCfg::OFFSET, 0x1e2);
    assert_eq!(engines(&to_ppu, 0x0d), []);
}

#[test]
fn each_byte_of_the_output_is_one_of_one_element() {
    for (ty, element) in [
        (TaskType::Int8ToInt32, Precision::Int32),
        (TaskType::Fp16ToFp32, Precision::Fp32),
        (TaskType::Fp16ToFp16, Precision::Fp16),
        (TaskType::Int4ToInt16, Precision::Int16),
    ] {
        let (m, n) = (8, 128);
        let program = helpers::task(ty, m, 64, n).program(&CHIP).unwrap();
        let TaskRegisters {
            mut regs, enable, ..
        } = tasks(program.words()).next().unwrap();
        regs.set(dpu::DstBaseAddr::OFFSET, 3 << 20);
        let (start, end) = extent_of(&extents(&regs, enable).unwrap(), DmaEngine::DpuWrite);
        let bytes = element.bytes(1) as u32;
        let mut seen = BTreeSet::new();
        for iova in start as u64..end as u64 {
            let Some(found) = written_element(&regs, enable, iova) else {
                continue;
            };
            assert_eq!(found.ty, element);
            assert!(found.channel < n);
            let row = found.x + found.y;
            assert!(row < m && (found.x == 0 || found.y == 0));
            assert_eq!(found.byte, iova as u32 % bytes);
            assert!(seen.insert((row, found.channel, found.byte)));
        }
        assert_eq!(seen.len() as u32, m * n * bytes);
        for beyond in [start - 1, end] {
            assert_eq!(written_element(&regs, enable, beyond as u64), None);
        }
    }
}

proptest! {
    #![proptest_config(test_support::cases(128))]

    /// The extents cover what the formulas reach, for any values.
    #[test]
    fn extents_cover_random_geometry(
        flying: bool,
        in_line_mode: bool,
        shared: bool,
        code in prop::sample::select(vec![0u32, 1, 2, 3]),
        size in (1u32..9, 1u32..9, 1u32..9, 1u32..9),
        channels in (1u32..100, 1u32..100, 1u32..100),
        cna_strides in (0u32..80, -40i32..80),
        writer_strides in (0u32..64, 0u32..64, 0u32..9, 0u32..8),
        rdma in (0u32..2, 0u32..40, 0u32..40, 0u32..40, 0u32..4, 0u32..4),
    ) {
        let mut task = base_task();
        let (w, h, ow, oh) = size;
        let (c, n, rc) = channels;
        let mut set = |offset: u16, value: u32| {
            task.regs.set(offset, value);
        };
        set(0x100c, code << 7 | code << 4 | u32::from(in_line_mode) << 29);
        set(0x1020, w << 16 | h);
        set(0x1084, w << 16 | h);
        set(0x1024, c);
        set(0x1088, c);
        set(0x107c, cna_strides.0);
        set(0x1080, families::stride28(cna_strides.1));
        set(0x3010, code << 8);
        let (stride, add, notch, e) = writer_strides;
        set(0x400c, 0x1e4 | u32::from(flying));
        set(0x4010, 5 << 29 | code << 26 | code);
        set(0x4024, stride << 4);
        set(0x40c0, add << 4);
        for offset in [0x4030, 0x500c] {
            set(offset, ow - 1);
        }
        for offset in [0x4034, 0x5010] {
            set(offset, oh - 1 + if offset == 0x5010 { rdma.4 << 16 } else { 0 });
        }
        set(0x102c, ow * oh);
        set(0x3014, (oh - 1) << 16 | (ow - 1));
        set(0x3018, n - 1);
        set(0x405c, (oh - 1) << 16 | (ow - 1));
        set(0x4038, notch << 16 | notch);
        set(0x403c, n - 1);
        set(0x4058, n - 1);
        set(0x4050, e << 8 | e << 5 | e << 2 | 2);
        set(0x5014, rc - 1);
        let comb = if shared && !flying { 5 } else { 0 };
        let per_pixel = if comb == 5 { 1 } else { rdma.0 };
        set(0x5034, per_pixel << 30 | 2 << 2);
        set(0x5040, rdma.1 << 4);
        set(0x5044, code << 15 | 0x7800 | comb << 8 | code << 5 | u32::from(flying));
        set(0x5048, rdma.5 << 19);
        set(0x504c, rdma.2 << 4);
        set(0x506c, rdma.3 << 4);
        let extents = extents(&task.regs, task.enable).unwrap();
        for (engine, reached) in reached(&task) {
            // If a shared operand has one surface, only MRDMA reads it.
            let Some(_) = reached.0 else { continue };
            let (start, end) = extent_of(&extents, engine);
            let (first, past) = reached.range();
            prop_assert!(start <= first && past <= end, "{}: {}..{}, {}..{}", engine, start, end, first, past);
        }
    }
}

/// A convolution with all of DPU_RDMA, far from the ends of the address space.
fn base_task() -> TaskRegisters {
    let words = matmul::accumulating(0x1082_02c0, 16, 64, 64).task();
    tasks(&words).next().unwrap()
}
