// SPDX-License-Identifier: MIT OR Apache-2.0
//! The DPU's writer.

use alloc::vec::Vec;

use super::element::{self, Element};
use super::{DmaEngine, Extent, ExtentError, Reader, must_agree, must_be_zero, touched, unknown};
use crate::precision::Precision;
use crate::regs::{cna, core, dpu, dpu_rdma};
use crate::task::{DEPTHWISE, Output, Registers, TO_MEMORY};
use crate::word::EnableMask;

pub(super) fn extents(
    reader: &Reader<'_>,
    enable: EnableMask,
    out: &mut Vec<Extent>,
) -> Result<(), ExtentError> {
    if let Some(output) = output(reader, enable)? {
        let size = [0, 1, 2].map(|i| output.written[i].max(output.cube[i]));
        out.push(touched(DmaEngine::DpuWrite, &[output.atoms(size)])?);
    }
    Ok(())
}

pub(super) fn last_written_atom(reader: &Reader<'_>, enable: EnableMask) -> Option<i64> {
    let output = certain(reader, enable)?;
    // With QD_EN = 0 an int16 convolution writes its first channels only
    // (E-int16-first-16).
    let misc = reader.get::<core::MiscCfg>();
    if enable.contains(EnableMask::CORE)
        && Precision::from_code(misc.proc_precision()) == Precision::Int16
        && misc.qd_en() == 0
    {
        return None;
    }
    let [width, height, channels] = output.written;
    // The atom of the last channel, where SIZE_E lets it be written. Atoms of
    // the same group beyond it are written too, or not: not known.
    let (group, within) = ((channels - 1) / output.group, (channels - 1) % output.group);
    let atom = (within / output.precision.per_atom()).min(output.group_atoms - 1);
    let cube = output.atoms(output.written);
    Some(cube.address(width - 1, height - 1, group * output.group_atoms + atom))
}

/// The element that a completed task writes at the byte `iova`, where the
/// geometry tells.
pub(super) fn written_element(
    reader: &Reader<'_>,
    enable: EnableMask,
    iova: i64,
) -> Option<Element> {
    let output = certain(reader, enable)?;
    let cube = output.atoms(output.written);
    let channels = [output.group, output.written[2]];
    element::at(&cube, channels, output.precision, iova)
}

/// What is written, where all registers say the same of it.
fn certain(reader: &Reader<'_>, enable: EnableMask) -> Option<Output> {
    let output = output(reader, enable).ok()??;
    (output.written == output.cube).then_some(output)
}

/// What is written; `None` if the output does not go to memory.
fn output(reader: &Reader<'_>, enable: EnableMask) -> Result<Option<Output>, ExtentError> {
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
    let height = reader.get::<dpu::DataCubeHeight>();
    must_be_zero::<dpu::DataCubeHeight>("minmax_ctl", height.minmax_ctl())?;
    let notch = reader.get::<dpu::DataCubeNotchAddr>();
    must_agree::<dpu::DataCubeNotchAddr, dpu::DataCubeNotchAddr>(
        "the notch",
        notch.notch_addr_0(),
        notch.notch_addr_1(),
    )?;
    counts_agree(reader, enable)?;
    let output = Output::decode(reader);
    if matches!(output.precision, Precision::Int4 | Precision::Tf32) {
        return Err(unknown::<dpu::DataFormat>(
            "out_precision",
            format.out_precision(),
        ));
    }
    if mode.flying_mode() == 0 {
        group_is_known(reader, enable)?;
    }
    reader.aligned::<dpu::DstBaseAddr>()?;
    Ok(Some(output))
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

/// Programs show how many channels such a convolution hands over at a time.
fn group_is_known(reader: &Reader<'_>, enable: EnableMask) -> Result<(), ExtentError> {
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
    match Precision::from_code(input).writer_group(depthwise) {
        Some(_) => Ok(()),
        None => Err(unknown::<dpu::DataFormat>("in_precision", input)),
    }
}
