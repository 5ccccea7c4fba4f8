// SPDX-License-Identifier: MIT OR Apache-2.0
//! The DPU's writer.
//!
//! Channels leave in groups; a group has SIZE_E + 1 atoms for each pixel:
//!
//! ```text
//! addr(g, a, y, x) = base + 16 * (y*(W + NOTCH) + x + a*DST_SURF_STRIDE + g*SURF_ADD)
//! ```
//!
//! (Inferred; it reproduces the layouts of mtx512/rk3588-npu, librocketnpu,
//! Mesa, allbilly and happyme, all measured on silicon.) A group is the kernel
//! group of the convolution, and as many channels as its atoms hold where the
//! DPU is fed from memory.

use alloc::vec::Vec;

use super::element::Element;
use super::{
    DivCeil, DmaEngine, Extent, ExtentError, Reader, atoms, must_agree, must_be_zero, unknown,
};
use crate::chip::ATOM_BYTES;
use crate::precision::Precision;
use crate::regs::{cna, core, dpu, dpu_rdma};
use crate::word::EnableMask;

/// Bit of OUTPUT_MODE: the output goes to memory.
const TO_MEMORY: u32 = 2;
/// CONV_MODE: depthwise convolution.
const DEPTHWISE: u32 = 3;

/// What the writer does, in atoms.
struct Writer {
    base: u32,
    /// Channels of a group.
    group: i64,
    /// Atoms of a group and pixel.
    group_atoms: i64,
    out: Precision,
    surface: i64,
    surface_add: i64,
    /// Width, height and channels by the registers of the writer and by those
    /// of the cube, which all programs write equal.
    wdma: [i64; 3],
    cube: [i64; 3],
    notch: i64,
}

pub(super) fn extents(
    reader: &Reader<'_>,
    enable: EnableMask,
    out: &mut Vec<Extent>,
) -> Result<(), ExtentError> {
    let Some(writer) = Writer::new(reader, enable)? else {
        return Ok(());
    };
    let size = |i: usize| writer.wdma[i].max(writer.cube[i]);
    let groups = size(2).div_ceil_i64(writer.group);
    let last = (size(1) - 1) * (size(0) + writer.notch)
        + (size(0) - 1)
        + (writer.group_atoms - 1) * writer.surface
        + (groups - 1) * writer.surface_add;
    out.push(atoms(DmaEngine::DpuWrite, writer.base, 0, last)?);
    Ok(())
}

pub(super) fn last_written_atom(reader: &Reader<'_>, enable: EnableMask) -> Option<i64> {
    let writer = Writer::new(reader, enable).ok()??;
    if writer.wdma != writer.cube {
        return None;
    }
    // With QD_EN = 0 an int16 convolution writes its first channels only
    // (measured on silicon, rockchip-npu-notes).
    let misc = reader.get::<core::MiscCfg>();
    if enable.contains(EnableMask::CORE)
        && Precision::from_code(misc.proc_precision()) == Precision::Int16
        && misc.qd_en() == 0
    {
        return None;
    }
    let [width, height, channels] = writer.wdma;
    // The atom of the last channel, where SIZE_E lets it be written. Atoms of
    // the same group beyond it are written too, or not: not known.
    let (group, within) = ((channels - 1) / writer.group, (channels - 1) % writer.group);
    let atom = within / writer.out.per_atom() as i64;
    let atom = atom.min(writer.group_atoms - 1);
    let place = (height - 1) * (width + writer.notch)
        + (width - 1)
        + atom * writer.surface
        + group * writer.surface_add;
    Some(i64::from(writer.base) + place * i64::from(ATOM_BYTES))
}

/// The element that a completed task writes at the byte `iova`, where the
/// geometry tells.
pub(super) fn written_element(
    reader: &Reader<'_>,
    enable: EnableMask,
    iova: i64,
) -> Option<Element> {
    let writer = Writer::new(reader, enable).ok()??;
    if writer.wdma != writer.cube {
        return None;
    }
    let [width, height, channels] = writer.wdma;
    let offset = iova.checked_sub(i64::from(writer.base))?;
    let atom_bytes = i64::from(ATOM_BYTES);
    let (place, byte) = (offset.div_euclid(atom_bytes), offset.rem_euclid(atom_bytes));
    let in_atom = writer.out.per_atom() as i64;
    let bytes = i64::from(writer.out.bits() / 8);
    let line = width + writer.notch;
    for group in 0..channels.div_ceil_i64(writer.group) {
        for atom in 0..writer.group_atoms {
            let pixel = place - group * writer.surface_add - atom * writer.surface;
            let (y, x) = (pixel.div_euclid(line), pixel.rem_euclid(line));
            let in_group = atom * in_atom + byte / bytes;
            let channel = group * writer.group + in_group;
            let inside = (0..height).contains(&y) && x < width;
            if inside && in_group < writer.group && channel < channels {
                return Some(Element {
                    x: u32::try_from(x).ok()?,
                    y: u32::try_from(y).ok()?,
                    channel: u32::try_from(channel).ok()?,
                    byte: u32::try_from(byte % bytes).ok()?,
                    ty: writer.out,
                });
            }
        }
    }
    None
}

impl Writer {
    /// `None` if the output does not go to memory.
    fn new(reader: &Reader<'_>, enable: EnableMask) -> Result<Option<Self>, ExtentError> {
        let mode = reader.get::<dpu::FeatureModeCfg>();
        if mode.output_mode() & TO_MEMORY == 0 {
            return Ok(None);
        }
        for (field, value) in [
            ("surf_len", mode.surf_len()),
            ("nonalign", mode.nonalign()),
            ("rgp_type", mode.rgp_type()),
            ("tp_en", mode.tp_en()),
            ("comb_use", mode.comb_use()),
        ] {
            must_be_zero::<dpu::FeatureModeCfg>(field, value)?;
        }
        let format = reader.get::<dpu::DataFormat>();
        must_be_zero::<dpu::DataFormat>("mc_surf_out", format.mc_surf_out())?;
        let ow = reader.get::<dpu::BsOwCfg>();
        must_be_zero::<dpu::BsOwCfg>("tp_org_en", ow.tp_org_en())?;
        must_be_zero::<dpu::BsOwCfg>("rgp_cnter", ow.rgp_cnter())?;
        for (field, value) in [("size_e_1", ow.size_e_1()), ("size_e_2", ow.size_e_2())] {
            if value != ow.size_e_0() {
                return Err(unknown::<dpu::BsOwCfg>(field, value));
            }
        }
        let size0 = reader.get::<dpu::WdmaSize0>();
        must_be_zero::<dpu::WdmaSize0>("size_c_wdma", size0.size_c_wdma())?;
        must_be_zero::<dpu::WdmaSize0>("tp_precision", size0.tp_precision())?;
        let size1 = reader.get::<dpu::WdmaSize1>();
        let height = reader.get::<dpu::DataCubeHeight>();
        must_be_zero::<dpu::DataCubeHeight>("minmax_ctl", height.minmax_ctl())?;
        let notch = reader.get::<dpu::DataCubeNotchAddr>();
        must_agree::<dpu::DataCubeNotchAddr, dpu::DataCubeNotchAddr>(
            "the notch",
            notch.notch_addr_0(),
            notch.notch_addr_1(),
        )?;
        counts_agree(reader, enable)?;

        let out = Precision::of_dpu(format.out_precision())
            .filter(|&out| out != Precision::Int4)
            .ok_or_else(|| unknown::<dpu::DataFormat>("out_precision", format.out_precision()))?;
        let group_atoms = ow.size_e_0() + 1;
        let group = if mode.flying_mode() == 1 {
            group_atoms * out.per_atom() as u32
        } else {
            group_of_convolution(reader, enable)?
        };
        Ok(Some(Self {
            base: reader.base::<dpu::DstBaseAddr>()?,
            group: group.into(),
            group_atoms: group_atoms.into(),
            out,
            surface: reader.get::<dpu::DstSurfStride>().dst_surf_stride().into(),
            surface_add: reader.get::<dpu::SurfaceAdd>().surf_add().into(),
            wdma: [
                i64::from(size1.width_wdma()) + 1,
                i64::from(size1.height_wdma()) + 1,
                i64::from(size0.channel_wdma()) + 1,
            ],
            cube: [
                i64::from(reader.get::<dpu::DataCubeWidth>().width()) + 1,
                i64::from(height.height()) + 1,
                i64::from(reader.get::<dpu::DataCubeChannel>().channel()) + 1,
            ],
            notch: notch.notch_addr_0().into(),
        }))
    }
}

/// Writer and producer count the same pixels and channels: whether the writer
/// stops where its own cube ends or where the stream does is not known. The
/// shapes may differ, and do in programs that combine layouts.
fn counts_agree(reader: &Reader<'_>, enable: EnableMask) -> Result<(), ExtentError> {
    let pixels = |width: u32, height: u32| (width + 1) * (height + 1);
    let width = reader.get::<dpu::DataCubeWidth>().width();
    let cube = pixels(width, reader.get::<dpu::DataCubeHeight>().height());
    let size1 = reader.get::<dpu::WdmaSize1>();
    let written = pixels(size1.width_wdma(), size1.height_wdma());
    must_agree::<dpu::DataCubeWidth, dpu::WdmaSize1>("the number of pixels", cube, written)?;
    let channels = reader.get::<dpu::WdmaSize0>().channel_wdma();
    if reader.get::<dpu::FeatureModeCfg>().flying_mode() == 1 {
        if enable.contains(EnableMask::DPU_RDMA) {
            let width = reader.get::<dpu_rdma::DataCubeWidth>().width();
            let read = pixels(width, reader.get::<dpu_rdma::DataCubeHeight>().height());
            must_agree::<dpu_rdma::DataCubeWidth, dpu::DataCubeWidth>(
                "the number of pixels",
                read,
                cube,
            )?;
        }
    } else if enable.contains(EnableMask::CORE) {
        let size = reader.get::<core::DataoutSize0>();
        let out = u64::from(size.dataout_width() + 1) * u64::from(size.dataout_height() + 1);
        let out = u32::try_from(out).unwrap_or(u32::MAX);
        must_agree::<core::DataoutSize0, dpu::DataCubeWidth>("the number of pixels", out, cube)?;
        let of_core = reader.get::<core::DataoutSize1>().dataout_channel();
        must_agree::<core::DataoutSize1, dpu::WdmaSize0>("the channels", of_core, channels)?;
        if enable.contains(EnableMask::CNA) {
            let stream = reader.get::<cna::DataSize3>().dataout_atomics();
            must_agree::<cna::DataSize3, dpu::DataCubeWidth>("the number of pixels", stream, cube)?;
        }
    }
    Ok(())
}

fn group_of_convolution(reader: &Reader<'_>, enable: EnableMask) -> Result<u32, ExtentError> {
    let mode = reader.get::<dpu::FeatureModeCfg>();
    let input = reader.get::<dpu::DataFormat>().in_precision();
    if enable.contains(EnableMask::CORE) {
        let core = reader.get::<core::MiscCfg>().proc_precision();
        if Precision::from_code(core).in_dpu().code() != input {
            return Err(ExtentError::PrecisionMismatch { core, dpu: input });
        }
        // Groups of CORE's kind, counted by the DPU as the other: what is
        // written then is not known.
        let depthwise = u32::from(mode.conv_mode() == DEPTHWISE);
        let dw_en = reader.get::<core::MiscCfg>().dw_en();
        must_agree::<core::MiscCfg, dpu::FeatureModeCfg>("depthwise", dw_en, depthwise)?;
        if enable.contains(EnableMask::CNA) {
            let con1 = reader.get::<cna::ConvCon1>();
            must_agree::<cna::ConvCon1, dpu::FeatureModeCfg>(
                "conv_mode",
                con1.conv_mode(),
                mode.conv_mode(),
            )?;
            must_agree::<cna::ConvCon1, core::MiscCfg>(
                "proc_precision",
                con1.proc_precision(),
                core,
            )?;
        }
    }
    let depthwise = match mode.conv_mode() {
        0 => false,
        DEPTHWISE => true,
        other => return Err(unknown::<dpu::FeatureModeCfg>("conv_mode", other)),
    };
    Precision::from_code(input)
        .writer_group(depthwise)
        .ok_or_else(|| unknown::<dpu::DataFormat>("in_precision", input))
}
