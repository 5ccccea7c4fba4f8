// SPDX-License-Identifier: MIT OR Apache-2.0
//! Pooling: input and output.
//!
//! Only fp16 is accepted. Pooling of other types was tried and did not work
//! (E-pool-fp16-only), so the memory that it touches is not known.

use alloc::vec::Vec;

use super::element::Written;
use super::engine::{DmaEngine, Extent, ExtentError};
use super::reader::{Reader, must_agree, touched};
use crate::precision::Precision;
use crate::regs::{ppu, ppu_rdma};
use crate::task::{PoolCube, ReadRegisters};
use crate::word::EnableMask;

/// The only type for which the touched memory is known.
const TYPE: Precision = Precision::Fp16;
const FP16: u32 = TYPE.code();
/// PPU_RDMA DATA_FORMAT.in_precision: 16-bit elements.
const SIZE_16_BIT: u32 = 2;

pub(super) fn extents(
    reader: &Reader<'_>,
    enable: EnableMask,
    out: &mut Vec<Extent>,
) -> Result<(), ExtentError> {
    if enable.contains(EnableMask::PPU | EnableMask::PPU_RDMA) {
        sizes_agree(reader)?;
    }
    if enable.contains(EnableMask::PPU_RDMA) {
        reader.known(ppu_rdma::DataFormat::in_precision, &[SIZE_16_BIT])?;
        reader.aligned::<ppu_rdma::SrcBaseAddr>()?;
        let cube = PoolCube::read(reader).atoms(TYPE.bits());
        out.push(touched(DmaEngine::PpuRead, &[cube])?);
    }
    if enable.contains(EnableMask::PPU) {
        out.push(touched(DmaEngine::PpuWrite, &[written(reader)?.cube])?);
    }
    Ok(())
}

/// Checks that PPU and PPU_RDMA have the same sizes.
fn sizes_agree(reader: &Reader<'_>) -> Result<(), ExtentError> {
    let width = reader.get::<ppu::DataCubeInWidth>().cube_in_width();
    let height = reader.get::<ppu::DataCubeInHeight>().cube_in_height();
    let channel = reader.get::<ppu::DataCubeInChannel>().cube_in_channel();
    let out_channel = reader.get::<ppu::DataCubeOutChannel>().cube_out_channel();
    let read_width = reader.get::<ppu_rdma::CubeInWidth>().cube_in_width();
    let read_height = reader.get::<ppu_rdma::CubeInHeight>().cube_in_height();
    let read_channel = reader.get::<ppu_rdma::CubeInChannel>().cube_in_channel();
    must_agree::<ppu::DataCubeInWidth, ppu_rdma::CubeInWidth>("the width", [width, read_width])?;
    must_agree::<ppu::DataCubeInHeight, ppu_rdma::CubeInHeight>(
        "the height",
        [height, read_height],
    )?;
    must_agree::<ppu::DataCubeInChannel, ppu_rdma::CubeInChannel>(
        "the channels",
        [channel, read_channel],
    )?;
    must_agree::<ppu::DataCubeInChannel, ppu::DataCubeOutChannel>(
        "the channels",
        [channel, out_channel],
    )
}

/// The output of the PPU.
pub(super) fn written(reader: &Reader<'_>) -> Result<Written, ExtentError> {
    reader.aligned::<ppu::DstBaseAddr>()?;
    reader.known(ppu::OperationModeCfg::use_cnt, &[0])?;
    reader.known(ppu::OperationModeCfg::index_en, &[0])?;
    reader.known(ppu::DataFormat::dpu_flyin, &[0])?;
    reader.known(ppu::MiscCtrl::nonalign, &[0])?;
    reader.known(ppu::MiscCtrl::mc_surf_out, &[0])?;
    reader.known(ppu::MiscCtrl::surf_len, &[0])?;
    reader.known(ppu::DataFormat::proc_precision, &[FP16])?;
    let written = PoolCube::written(reader);
    Ok(Written {
        cube: written.atoms(TYPE.bits()),
        size: written.size,
        group: TYPE.per_atom(),
        precision: TYPE,
    })
}
