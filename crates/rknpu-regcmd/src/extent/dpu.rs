// SPDX-License-Identifier: MIT OR Apache-2.0
//! The DPU's writer.

use alloc::vec::Vec;

use super::element::Written;
use super::engine::{DmaEngine, Extent, ExtentError};
use super::reader::{Reader, must_agree, touched, unknown};
use crate::precision::Precision;
use crate::regs::{cna, core, dpu, dpu_rdma};
use crate::task::{DEPTHWISE, DpuOutput, ReadRegisters, Reads, TO_MEMORY};
use crate::word::EnableMask;

const PIXELS: &str = "the number of pixels";

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

/// The output, if all registers agree about it.
pub(super) fn written(reader: &Reader<'_>, enable: EnableMask) -> Option<Written> {
    let output = output(reader, enable).ok()??;
    (output.written == output.cube).then(|| Written {
        cube: output.atoms(output.written),
        size: output.written,
        group: output.group,
        precision: output.precision,
    })
}

/// Whether the task writes its first channels only: an int16 convolution with QD_EN =
/// 0 does (E-int16-first-16).
pub(super) fn stops_early(reader: &Reader<'_>, enable: EnableMask) -> bool {
    let misc = reader.get::<core::MiscCfg>();
    enable.contains(EnableMask::CORE)
        && Precision::from_code(misc.proc_precision()) == Precision::Int16
        && misc.qd_en() == 0
}

/// The output; `None` if it does not go to memory.
fn output(reader: &Reader<'_>, enable: EnableMask) -> Result<Option<DpuOutput>, ExtentError> {
    let mode = reader.get::<dpu::FeatureModeCfg>();
    if mode.output_mode() & TO_MEMORY == 0 {
        return Ok(None);
    }
    reader.known(dpu::FeatureModeCfg::surf_len, &[0])?;
    reader.known(dpu::FeatureModeCfg::nonalign, &[0])?;
    reader.known(dpu::FeatureModeCfg::rgp_type, &[0])?;
    reader.known(dpu::FeatureModeCfg::tp_en, &[0])?;
    reader.known(dpu::FeatureModeCfg::comb_use, &[0])?;
    reader.known(dpu::DataFormat::mc_surf_out, &[0])?;
    reader.known(dpu::BsOwCfg::tp_org_en, &[0])?;
    reader.known(dpu::BsOwCfg::rgp_cnter, &[0])?;
    let ow = reader.get::<dpu::BsOwCfg>();
    reader.known(dpu::BsOwCfg::size_e_1, &[ow.size_e_0()])?;
    reader.known(dpu::BsOwCfg::size_e_2, &[ow.size_e_0()])?;
    reader.known(dpu::WdmaSize0::size_c_wdma, &[0])?;
    reader.known(dpu::WdmaSize0::tp_precision, &[0])?;
    reader.known(dpu::DataCubeHeight::minmax_ctl, &[0])?;
    let notch = reader.get::<dpu::DataCubeNotchAddr>();
    must_agree::<dpu::DataCubeNotchAddr, dpu::DataCubeNotchAddr>(
        "the notch",
        [notch.notch_addr_0(), notch.notch_addr_1()],
    )?;
    let output = DpuOutput::decode(reader);
    let flying = mode.flying_mode() == 1;
    must_agree::<dpu::DataCubeWidth, dpu::WdmaSize1>(
        PIXELS,
        [output.pixels(), output.written[0] * output.written[1]],
    )?;
    if !flying {
        convolution_agrees(reader, enable, &output)?;
    } else if enable.contains(EnableMask::DPU_RDMA) {
        let read = Reads::decode(reader).pixels();
        must_agree::<dpu_rdma::DataCubeWidth, dpu::DataCubeWidth>(PIXELS, [read, output.pixels()])?;
    }
    // int4 and tf32 are never written (codes 6 and 7).
    reader.known(dpu::DataFormat::out_precision, &[0, 1, 2, 3, 4, 5])?;
    if !flying {
        group_is_known(reader, enable, &output)?;
    }
    reader.aligned::<dpu::DstBaseAddr>()?;
    Ok(Some(output))
}

/// Checks that writer and producer count the same pixels and channels: whether the
/// writer stops at the end of its cube or of the stream is not known. The shapes may
/// differ, and do in programs that combine layouts.
fn convolution_agrees(
    reader: &Reader<'_>,
    enable: EnableMask,
    output: &DpuOutput,
) -> Result<(), ExtentError> {
    if !enable.contains(EnableMask::CORE) {
        return Ok(());
    }
    let size = reader.get::<core::DataoutSize0>();
    let [width, height] = [size.dataout_width(), size.dataout_height()].map(|n| n as usize + 1);
    let pixels = output.pixels();
    must_agree::<core::DataoutSize0, dpu::DataCubeWidth>(PIXELS, [width * height, pixels])?;
    let channels = reader.get::<core::DataoutSize1>().dataout_channel() as usize + 1;
    must_agree::<core::DataoutSize1, dpu::WdmaSize0>(
        "the channels",
        [channels, output.written[2]],
    )?;
    if enable.contains(EnableMask::CNA) {
        let stream = reader.get::<cna::DataSize3>().dataout_atomics() as usize;
        must_agree::<cna::DataSize3, dpu::DataCubeWidth>(PIXELS, [stream, pixels])?;
    }
    Ok(())
}

/// Checks that known programs show the group size of such a convolution.
fn group_is_known(
    reader: &Reader<'_>,
    enable: EnableMask,
    output: &DpuOutput,
) -> Result<(), ExtentError> {
    let mode = reader.get::<dpu::FeatureModeCfg>().conv_mode();
    let input = output.input.code();
    if enable.contains(EnableMask::CORE) {
        let misc = reader.get::<core::MiscCfg>();
        let core = misc.proc_precision();
        if Precision::from_code(core).in_dpu() != output.input {
            return Err(ExtentError::PrecisionMismatch { core, dpu: input });
        }
        // If CORE and the DPU disagree about depthwise, their groups differ, and the
        // output is not known.
        let depthwise = u32::from(mode == DEPTHWISE);
        must_agree::<core::MiscCfg, dpu::FeatureModeCfg>("depthwise", [misc.dw_en(), depthwise])?;
        if enable.contains(EnableMask::CNA) {
            let con1 = reader.get::<cna::ConvCon1>();
            must_agree::<cna::ConvCon1, dpu::FeatureModeCfg>(
                "conv_mode",
                [con1.conv_mode(), mode],
            )?;
            let cna = con1.proc_precision();
            must_agree::<cna::ConvCon1, core::MiscCfg>("proc_precision", [cna, core])?;
        }
    }
    reader.known(dpu::FeatureModeCfg::conv_mode, &[0, DEPTHWISE])?;
    if output.input.leaves_in_groups(mode == DEPTHWISE) {
        return Ok(());
    }
    Err(unknown(dpu::DataFormat::in_precision, input))
}
