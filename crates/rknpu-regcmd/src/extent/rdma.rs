// SPDX-License-Identifier: MIT OR Apache-2.0
//! The four read engines of the DPU.

use alloc::vec::Vec;

use super::engine::{DmaEngine, Extent, ExtentError};
use super::reader::{Field, Reader, touched, unknown};
use crate::field::Register;
use crate::regs::dpu_rdma;
use crate::task::{ChannelRead, DEPTHWISE, PER_CHANNEL, PER_PIXEL, Reads};

pub(super) fn extents(reader: &Reader<'_>, out: &mut Vec<Extent>) -> Result<(), ExtentError> {
    let reads = Reads::decode(reader);
    let flying = reads.flying;
    if reads.main.is_some() || reads.element.is_some() {
        if reads.comb_use != 0 && !reads.shares(flying) {
            let field = dpu_rdma::FeatureModeCfg::comb_use;
            return Err(unknown(field, reads.comb_use));
        }
        reader.known(dpu_rdma::FeatureModeCfg::conv_mode, &[0, DEPTHWISE])?;
        reader.known(dpu_rdma::PadCfg::pad_left, &[0])?;
        reader.known(dpu_rdma::PadCfg::pad_top, &[0])?;
    }
    if let Some(read) = reads.main_read(flying) {
        // All but tf32.
        reader.known(
            dpu_rdma::FeatureModeCfg::in_precision,
            &[0, 1, 2, 3, 4, 5, 6],
        )?;
        reader.known(dpu_rdma::SrcDmaCfg::unpooling_en, &[0])?;
        reader.aligned::<dpu_rdma::SrcBaseAddr>()?;
        out.push(touched(DmaEngine::Mrdma, &[read.far])?);
    }
    let channels = reads.cube[2];
    if let Some(read) = reads.bs {
        single(dpu_rdma::BrdmaCfg::brdma_data_use, read)?;
        reader.aligned::<dpu_rdma::BsBaseAddr>()?;
        out.push(touched(DmaEngine::Brdma, &[read.atoms(channels)])?);
    }
    if let Some(read) = reads.bn {
        single(dpu_rdma::NrdmaCfg::nrdma_data_use, read)?;
        reader.aligned::<dpu_rdma::BnBaseAddr>()?;
        out.push(touched(DmaEngine::Nrdma, &[read.atoms(channels)])?);
    }
    if let Some(read) = reads.element_read(flying) {
        reader.known(dpu_rdma::ErdmaCfg::erdma_nonalign, &[0])?;
        reader.known(dpu_rdma::ErdmaCfg::erdma_surf_mode, &[0])?;
        reader.known(
            dpu_rdma::ErdmaCfg::erdma_data_mode,
            &[PER_CHANNEL, PER_PIXEL],
        )?;
        reader.aligned::<dpu_rdma::EwBaseAddr>()?;
        out.push(touched(DmaEngine::Erdma, &[read.far])?);
    }
    Ok(())
}

/// Returns an error unless exactly one consumer takes the operands.
fn single<R: Register>(field: Field<R>, read: ChannelRead) -> Result<(), ExtentError> {
    if read.uses.is_power_of_two() {
        Ok(())
    } else {
        Err(unknown(field, read.uses))
    }
}
