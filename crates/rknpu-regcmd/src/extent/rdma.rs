// SPDX-License-Identifier: MIT OR Apache-2.0
//! The four read engines of the DPU.
//!
//! ```text
//! MRDMA  SRC_BASE + 16 * (c1*(W*H + SURF_NOTCH) + y*(W + LINE_NOTCH) + x)
//! ERDMA  EW_BASE  + 16 * (c1*EW_SURF_STRIDE + y*(W + EW_LINE_NOTCH) + x), per pixel
//!        EW_BASE  + 16 * c1*EW_SURF_STRIDE, per channel
//! COMB_USE = 5: MRDMA takes the even surfaces, ERDMA the odd ones, each
//!        advancing W*H and its notch from one to the next
//! BRDMA, NRDMA: four bytes for each channel
//! ```
//!
//! (Inferred from programs of librocketnpu, Mesa, allbilly and happyme that
//! ran on silicon.) Whether a line notch also adds to the distance of surfaces
//! is open; the ranges are those of the larger reading.

use alloc::vec::Vec;

use super::{
    DivCeil, DmaEngine, Extent, ExtentError, Reader, atoms, must_be_zero, surfaces, unknown,
};
use crate::chip::ATOM_BYTES;
use crate::field::AddressRegister;
use crate::precision::{Precision, size_bits};
use crate::regs::dpu_rdma;

/// COMB_USE: MRDMA and ERDMA share one operand, surface by surface.
const COMB_SHARED: u32 = 5;
/// Bytes of a BS or BN operand of one channel.
const OPERAND_BYTES: i64 = 4;

/// The cube that all engines walk.
struct Cube {
    width: i64,
    height: i64,
    channels: u32,
}

impl Cube {
    /// Atoms from the first to the last of a surface whose lines are followed
    /// by a notch, less one.
    fn span(&self, line_notch: i64) -> i64 {
        (self.height - 1) * (self.width + line_notch) + self.width - 1
    }

    /// Distance of surfaces, atoms: all lines with all notches.
    fn pitch(&self, line_notch: i64, surface_notch: i64) -> i64 {
        self.height * (self.width + line_notch) + surface_notch
    }
}

pub(super) fn extents(reader: &Reader<'_>, out: &mut Vec<Extent>) -> Result<(), ExtentError> {
    let height = reader.get::<dpu_rdma::DataCubeHeight>();
    let cube = Cube {
        width: i64::from(reader.get::<dpu_rdma::DataCubeWidth>().width()) + 1,
        height: i64::from(height.height()) + 1,
        channels: reader.get::<dpu_rdma::DataCubeChannel>().channel() + 1,
    };
    let mode = reader.get::<dpu_rdma::FeatureModeCfg>();
    let ew = reader.get::<dpu_rdma::ErdmaCfg>();
    let (main, element) = (mode.mrdma_disable() == 0, ew.erdma_disable() == 0);
    if main || element {
        match (mode.flying_mode(), mode.comb_use()) {
            (_, 0) | (0, COMB_SHARED) => {}
            (_, other) => return Err(unknown::<dpu_rdma::FeatureModeCfg>("comb_use", other)),
        }
        if !matches!(mode.conv_mode(), 0 | 3) {
            let field = "conv_mode";
            return Err(unknown::<dpu_rdma::FeatureModeCfg>(field, mode.conv_mode()));
        }
        let pad = reader.get::<dpu_rdma::PadCfg>();
        must_be_zero::<dpu_rdma::PadCfg>("pad_left", pad.pad_left())?;
        must_be_zero::<dpu_rdma::PadCfg>("pad_top", pad.pad_top())?;
    }
    if main {
        out.push(mrdma(reader, &cube, mode)?);
    }
    let operands = reader.get::<dpu_rdma::BrdmaCfg>().brdma_data_use();
    if operands != 0 {
        let field = "brdma_data_use";
        if !operands.is_power_of_two() {
            return Err(unknown::<dpu_rdma::BrdmaCfg>(field, operands));
        }
        out.push(per_channel::<dpu_rdma::BsBaseAddr>(
            reader,
            &cube,
            DmaEngine::Brdma,
        )?);
    }
    let operands = reader.get::<dpu_rdma::NrdmaCfg>().nrdma_data_use();
    if operands != 0 {
        let field = "nrdma_data_use";
        if !operands.is_power_of_two() {
            return Err(unknown::<dpu_rdma::NrdmaCfg>(field, operands));
        }
        out.push(per_channel::<dpu_rdma::BnBaseAddr>(
            reader,
            &cube,
            DmaEngine::Nrdma,
        )?);
    }
    if element {
        let line_notch = i64::from(height.ew_line_notch_addr());
        out.push(erdma(reader, &cube, mode, ew, line_notch)?);
    }
    Ok(())
}

fn mrdma(
    reader: &Reader<'_>,
    cube: &Cube,
    mode: dpu_rdma::FeatureModeCfg,
) -> Result<Extent, ExtentError> {
    let bits = Precision::of_dpu(mode.in_precision())
        .map(Precision::bits)
        .ok_or_else(|| unknown::<dpu_rdma::FeatureModeCfg>("in_precision", mode.in_precision()))?;
    let source = reader.get::<dpu_rdma::SrcDmaCfg>();
    must_be_zero::<dpu_rdma::SrcDmaCfg>("unpooling_en", source.unpooling_en())?;
    let line_notch = i64::from(source.line_notch_addr());
    let notch = i64::from(reader.get::<dpu_rdma::SurfNotch>().surf_notch_addr());
    let mut count = surfaces(cube.channels, bits);
    if mode.comb_use() == COMB_SHARED {
        count = count.div_ceil_i64(2);
    }
    let last = (count - 1) * cube.pitch(line_notch, notch) + cube.span(line_notch);
    atoms(
        DmaEngine::Mrdma,
        reader.base::<dpu_rdma::SrcBaseAddr>()?,
        0,
        last,
    )
}

fn erdma(
    reader: &Reader<'_>,
    cube: &Cube,
    mode: dpu_rdma::FeatureModeCfg,
    ew: dpu_rdma::ErdmaCfg,
    line_notch: i64,
) -> Result<Extent, ExtentError> {
    must_be_zero::<dpu_rdma::ErdmaCfg>("erdma_nonalign", ew.erdma_nonalign())?;
    must_be_zero::<dpu_rdma::ErdmaCfg>("erdma_surf_mode", ew.erdma_surf_mode())?;
    let bits = size_bits(ew.erdma_data_size());
    let stride = i64::from(reader.get::<dpu_rdma::EwSurfStride>().ew_surf_stride());
    let notch = i64::from(reader.get::<dpu_rdma::EwSurfNotch>().ew_surf_notch());
    let mut count = surfaces(cube.channels, bits);
    if mode.comb_use() == COMB_SHARED {
        count = count.div_ceil_i64(2);
    }
    let (pitch, span) = match ew.erdma_data_mode() {
        // Per channel: atoms one behind the other, or at the stride.
        0 => (stride.max(1) + notch, 0),
        1 => (
            stride.max(cube.pitch(line_notch, 0)) + notch,
            cube.span(line_notch),
        ),
        other => return Err(unknown::<dpu_rdma::ErdmaCfg>("erdma_data_mode", other)),
    };
    let base = reader.base::<dpu_rdma::EwBaseAddr>()?;
    atoms(DmaEngine::Erdma, base, 0, (count - 1) * pitch + span)
}

fn per_channel<R: AddressRegister>(
    reader: &Reader<'_>,
    cube: &Cube,
    engine: DmaEngine,
) -> Result<Extent, ExtentError> {
    let bytes = i64::from(cube.channels) * OPERAND_BYTES;
    let last = bytes.div_ceil_i64(i64::from(ATOM_BYTES)) - 1;
    atoms(engine, reader.base::<R>()?, 0, last)
}
