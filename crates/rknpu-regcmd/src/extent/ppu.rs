// SPDX-License-Identifier: MIT OR Apache-2.0
//! Pooling: input and output.
//!
//! ```text
//! in   SRC_BASE + c1*SRC_SURF_STRIDE + y*SRC_LINE_STRIDE + 16*x
//! out  DST_BASE + c1*DST_SURF_STRIDE + 16*(y*(OW + NOTCH) + x)
//! ```
//!
//! Source: librocketnpu, measured on silicon for fp16; RK3588 TRM for the notch.
//! Pooling of other types was tried and did not work (rockchip-npu-notes), so
//! that nobody knows what it touches.

use alloc::vec::Vec;

use super::element::Element;
use super::{
    DmaEngine, Extent, ExtentError, Reader, atoms, must_agree, must_be_zero, surfaces, unknown,
};
use crate::chip::ATOM_BYTES;
use crate::precision::{Precision, size_bits};
use crate::regs::{ppu, ppu_rdma};
use crate::word::EnableMask;

/// PPU_RDMA DATA_FORMAT.in_precision: 16-bit elements.
const SIZE_16_BIT: u32 = 2;

/// The sizes that both blocks are told, where both run.
fn sizes_agree(reader: &Reader<'_>, enable: EnableMask) -> Result<(), ExtentError> {
    if !enable.contains(EnableMask::PPU | EnableMask::PPU_RDMA) {
        return Ok(());
    }
    let width = reader.get::<ppu::DataCubeInWidth>().cube_in_width();
    let height = reader.get::<ppu::DataCubeInHeight>().cube_in_height();
    let channel = reader.get::<ppu::DataCubeInChannel>().cube_in_channel();
    let out_channel = reader.get::<ppu::DataCubeOutChannel>().cube_out_channel();
    let read_width = reader.get::<ppu_rdma::CubeInWidth>().cube_in_width();
    let read_height = reader.get::<ppu_rdma::CubeInHeight>().cube_in_height();
    let read_channel = reader.get::<ppu_rdma::CubeInChannel>().cube_in_channel();
    must_agree::<ppu::DataCubeInWidth, ppu_rdma::CubeInWidth>("the width", width, read_width)?;
    must_agree::<ppu::DataCubeInHeight, ppu_rdma::CubeInHeight>("the height", height, read_height)?;
    must_agree::<ppu::DataCubeInChannel, ppu_rdma::CubeInChannel>(
        "the channels",
        channel,
        read_channel,
    )?;
    must_agree::<ppu::DataCubeInChannel, ppu::DataCubeOutChannel>(
        "the channels",
        channel,
        out_channel,
    )
}

pub(super) fn read_extents(
    reader: &Reader<'_>,
    enable: EnableMask,
    out: &mut Vec<Extent>,
) -> Result<(), ExtentError> {
    sizes_agree(reader, enable)?;
    let code = reader.get::<ppu_rdma::DataFormat>().in_precision();
    if code != SIZE_16_BIT {
        return Err(unknown::<ppu_rdma::DataFormat>("in_precision", code));
    }
    let width = i64::from(reader.get::<ppu_rdma::CubeInWidth>().cube_in_width()) + 1;
    let height = i64::from(reader.get::<ppu_rdma::CubeInHeight>().cube_in_height()) + 1;
    let channels = reader.get::<ppu_rdma::CubeInChannel>().cube_in_channel() + 1;
    let line = i64::from(reader.get::<ppu_rdma::SrcLineStride>().src_line_stride());
    let surface = i64::from(reader.get::<ppu_rdma::SrcSurfStride>().src_surf_stride());
    let count = surfaces(channels, size_bits(code));
    let last = (count - 1) * surface + (height - 1) * line + width - 1;
    let base = reader.base::<ppu_rdma::SrcBaseAddr>()?;
    out.push(atoms(DmaEngine::PpuRead, base, 0, last)?);
    Ok(())
}

pub(super) fn write_extents(
    reader: &Reader<'_>,
    enable: EnableMask,
    out: &mut Vec<Extent>,
) -> Result<(), ExtentError> {
    sizes_agree(reader, enable)?;
    let base = reader.base::<ppu::DstBaseAddr>()?;
    out.push(atoms(DmaEngine::PpuWrite, base, 0, last_atom(reader)?)?);
    Ok(())
}

pub(super) fn last_written_atom(reader: &Reader<'_>) -> Option<i64> {
    let base = reader.base::<ppu::DstBaseAddr>().ok()?;
    Some(i64::from(base) + last_atom(reader).ok()? * i64::from(ATOM_BYTES))
}

/// The element that a completed task writes at the byte `iova`.
pub(super) fn written_element(reader: &Reader<'_>, iova: i64) -> Option<Element> {
    last_atom(reader).ok()?;
    let size = |less_one: u32| i64::from(less_one) + 1;
    let width = size(reader.get::<ppu::DataCubeOutWidth>().cube_out_width());
    let height = size(reader.get::<ppu::DataCubeOutHeight>().cube_out_height());
    let channels = size(reader.get::<ppu::DataCubeOutChannel>().cube_out_channel());
    let surface = i64::from(reader.get::<ppu::DstSurfStride>().dst_surf_stride());
    let line = width + i64::from(reader.get::<ppu::OperationModeCfg>().notch_addr());
    let offset = iova.checked_sub(i64::from(reader.base::<ppu::DstBaseAddr>().ok()?))?;
    let atom_bytes = i64::from(ATOM_BYTES);
    let (place, byte) = (offset.div_euclid(atom_bytes), offset.rem_euclid(atom_bytes));
    let bytes = i64::from(size_bits(SIZE_16_BIT) / 8);
    let in_atom = atom_bytes / bytes;
    for atom in 0..(channels + in_atom - 1) / in_atom {
        let pixel = place - atom * surface;
        let (y, x) = (pixel.div_euclid(line), pixel.rem_euclid(line));
        let channel = atom * in_atom + byte / bytes;
        if (0..height).contains(&y) && x < width && channel < channels {
            return Some(Element {
                x: u32::try_from(x).ok()?,
                y: u32::try_from(y).ok()?,
                channel: u32::try_from(channel).ok()?,
                byte: u32::try_from(byte % bytes).ok()?,
                ty: Precision::Fp16,
            });
        }
    }
    None
}

/// The farthest atom of the output, which is also the last one written.
fn last_atom(reader: &Reader<'_>) -> Result<i64, ExtentError> {
    let mode = reader.get::<ppu::OperationModeCfg>();
    must_be_zero::<ppu::OperationModeCfg>("use_cnt", mode.use_cnt())?;
    must_be_zero::<ppu::OperationModeCfg>("index_en", mode.index_en())?;
    let format = reader.get::<ppu::DataFormat>();
    must_be_zero::<ppu::DataFormat>("dpu_flyin", format.dpu_flyin())?;
    let misc = reader.get::<ppu::MiscCtrl>();
    must_be_zero::<ppu::MiscCtrl>("nonalign", misc.nonalign())?;
    must_be_zero::<ppu::MiscCtrl>("mc_surf_out", misc.mc_surf_out())?;
    must_be_zero::<ppu::MiscCtrl>("surf_len", misc.surf_len())?;
    if Precision::from_code(format.proc_precision()) != Precision::Fp16 {
        return Err(unknown::<ppu::DataFormat>(
            "proc_precision",
            format.proc_precision(),
        ));
    }
    let width = i64::from(reader.get::<ppu::DataCubeOutWidth>().cube_out_width()) + 1;
    let height = i64::from(reader.get::<ppu::DataCubeOutHeight>().cube_out_height()) + 1;
    let channels = reader.get::<ppu::DataCubeOutChannel>().cube_out_channel() + 1;
    let surface = i64::from(reader.get::<ppu::DstSurfStride>().dst_surf_stride());
    let notch = i64::from(mode.notch_addr());
    Ok((surfaces(channels, size_bits(SIZE_16_BIT)) - 1) * surface
        + (height - 1) * (width + notch)
        + width
        - 1)
}
