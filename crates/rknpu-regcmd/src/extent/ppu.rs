// SPDX-License-Identifier: MIT OR Apache-2.0
//! Pooling: input and output.
//!
//! Pooling of other types was tried and did not work (E-pool-fp16-only), so that
//! nobody knows what it touches.

use alloc::vec::Vec;

use super::element::{self, Element};
use super::{DmaEngine, Extent, ExtentError, Reader, must_agree, must_be_zero, touched, unknown};
use crate::precision::Precision;
use crate::regs::{ppu, ppu_rdma};
use crate::task::{Cube, PoolCube, Registers};
use crate::word::EnableMask;

/// The one type of which it is known what is touched.
const TYPE: Precision = Precision::Fp16;
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
    reader.aligned::<ppu_rdma::SrcBaseAddr>()?;
    let cube = PoolCube::read(reader).atoms(TYPE.bits());
    out.push(touched(DmaEngine::PpuRead, &[cube])?);
    Ok(())
}

pub(super) fn write_extents(
    reader: &Reader<'_>,
    enable: EnableMask,
    out: &mut Vec<Extent>,
) -> Result<(), ExtentError> {
    sizes_agree(reader, enable)?;
    out.push(touched(DmaEngine::PpuWrite, &[output(reader)?.1])?);
    Ok(())
}

pub(super) fn last_written_atom(reader: &Reader<'_>) -> Option<i64> {
    let (written, cube) = output(reader).ok()?;
    let [width, height, _] = written.size;
    Some(cube.address(width - 1, height - 1, cube.surfaces.count - 1))
}

/// The element that a completed task writes at the byte `iova`.
pub(super) fn written_element(reader: &Reader<'_>, iova: i64) -> Option<Element> {
    let (written, cube) = output(reader).ok()?;
    element::at(&cube, [TYPE.per_atom(), written.size[2]], TYPE, iova)
}

/// What is written, and where.
fn output(reader: &Reader<'_>) -> Result<(PoolCube, Cube), ExtentError> {
    reader.aligned::<ppu::DstBaseAddr>()?;
    let mode = reader.get::<ppu::OperationModeCfg>();
    must_be_zero::<ppu::OperationModeCfg>("use_cnt", mode.use_cnt())?;
    must_be_zero::<ppu::OperationModeCfg>("index_en", mode.index_en())?;
    let format = reader.get::<ppu::DataFormat>();
    must_be_zero::<ppu::DataFormat>("dpu_flyin", format.dpu_flyin())?;
    let misc = reader.get::<ppu::MiscCtrl>();
    must_be_zero::<ppu::MiscCtrl>("nonalign", misc.nonalign())?;
    must_be_zero::<ppu::MiscCtrl>("mc_surf_out", misc.mc_surf_out())?;
    must_be_zero::<ppu::MiscCtrl>("surf_len", misc.surf_len())?;
    let code = format.proc_precision();
    if Precision::from_code(code) != TYPE {
        return Err(unknown::<ppu::DataFormat>("proc_precision", code));
    }
    let written = PoolCube::written(reader);
    Ok((written, written.atoms(TYPE.bits())))
}
