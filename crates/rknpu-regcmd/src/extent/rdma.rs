// SPDX-License-Identifier: MIT OR Apache-2.0
//! The four read engines of the DPU.

use alloc::vec::Vec;

use super::{DmaEngine, Extent, ExtentError, Reader, must_be_zero, touched, unknown};
use crate::field::Register;
use crate::precision::Precision;
use crate::regs::dpu_rdma;
use crate::task::{COMB_SHARED, ChannelRead, PER_PIXEL, Reads, Registers};

pub(super) fn extents(reader: &Reader<'_>, out: &mut Vec<Extent>) -> Result<(), ExtentError> {
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
    let reads = Reads::decode(reader);
    if let Some(read) = reads.main_read(reads.flying) {
        if Precision::of_dpu(mode.in_precision()).is_none() {
            let field = "in_precision";
            return Err(unknown::<dpu_rdma::FeatureModeCfg>(
                field,
                mode.in_precision(),
            ));
        }
        let source = reader.get::<dpu_rdma::SrcDmaCfg>();
        must_be_zero::<dpu_rdma::SrcDmaCfg>("unpooling_en", source.unpooling_en())?;
        reader.aligned::<dpu_rdma::SrcBaseAddr>()?;
        out.push(touched(DmaEngine::Mrdma, &[read.far])?);
    }
    let channels = reads.cube[2];
    if let Some(read) = reads.bs {
        single::<dpu_rdma::BrdmaCfg>("brdma_data_use", read)?;
        reader.aligned::<dpu_rdma::BsBaseAddr>()?;
        out.push(touched(DmaEngine::Brdma, &[read.atoms(channels)])?);
    }
    if let Some(read) = reads.bn {
        single::<dpu_rdma::NrdmaCfg>("nrdma_data_use", read)?;
        reader.aligned::<dpu_rdma::BnBaseAddr>()?;
        out.push(touched(DmaEngine::Nrdma, &[read.atoms(channels)])?);
    }
    if let Some(read) = reads.element_read(reads.flying) {
        must_be_zero::<dpu_rdma::ErdmaCfg>("erdma_nonalign", ew.erdma_nonalign())?;
        must_be_zero::<dpu_rdma::ErdmaCfg>("erdma_surf_mode", ew.erdma_surf_mode())?;
        if ew.erdma_data_mode() > PER_PIXEL {
            let field = "erdma_data_mode";
            return Err(unknown::<dpu_rdma::ErdmaCfg>(field, ew.erdma_data_mode()));
        }
        reader.aligned::<dpu_rdma::EwBaseAddr>()?;
        out.push(touched(DmaEngine::Erdma, &[read.far])?);
    }
    Ok(())
}

/// An error unless one consumer takes what is read.
fn single<R: Register>(field: &'static str, read: ChannelRead) -> Result<(), ExtentError> {
    if read.uses.is_power_of_two() {
        Ok(())
    } else {
        Err(unknown::<R>(field, read.uses))
    }
}
