// SPDX-License-Identifier: MIT OR Apache-2.0
//! CNA: features and weights.

use alloc::vec::Vec;

use super::engine::{DmaEngine, Extent, ExtentError};
use super::reader::{Field, Reader, bytes, name_of, touched};
use crate::chip::ATOM_BYTES;
use crate::field::Register;
use crate::regs::cna;
use crate::task::{ConvWeights, DEPTHWISE, FeatureFetch, ReadRegisters};

pub(super) fn extents(reader: &Reader<'_>, out: &mut Vec<Extent>) -> Result<(), ExtentError> {
    reader.known(cna::ConvCon1::conv_mode, &[0, DEPTHWISE])?;
    reader.known(cna::ConvCon1::deconv, &[0])?;
    reader.known(cna::ConvCon3::nn_mode, &[0])?;
    reader.known(cna::DataSize3::surf_mode, &[0])?;
    reader.known(cna::CbufCon0::fc_data_bank, &[0])?;
    let cbuf = reader.get::<cna::CbufCon0>();
    if cbuf.data_reuse() == 0 {
        out.push(features(reader)?);
    }
    if cbuf.weight_reuse() == 0 {
        out.push(weights(reader)?);
    }
    Ok(())
}

fn features(reader: &Reader<'_>) -> Result<Extent, ExtentError> {
    reader.known(cna::FcCon0::fc_skip_en, &[0])?;
    reader.known(cna::FcCon1::data_offset, &[0])?;
    if reader.get::<cna::ConvCon1>().argb_in() == 0 {
        reader.known(cna::ConvCon1::nonalign_dma, &[0])?;
    } else {
        // Packed pixels: 8 + channels - 1. Sources do not say whether strides count
        // pixels or atoms; atoms are larger. No program packs lines in groups.
        reader.known(cna::ConvCon1::argb_in, &[8, 9, 10, 11])?;
        reader.known(cna::ConvCon1::group_line_off, &[1])?;
    }
    // No program fetches int32 or fp32 (codes 4 and 5).
    reader.known(cna::ConvCon1::in_precision, &[0, 1, 2, 3, 6, 7])?;
    reader.aligned::<cna::FeatureDataAddr>()?;
    // FC_DATA_SIZE is the size of the fetch, DATA_SIZE that of the window; the range
    // covers both.
    let features = FeatureFetch::decode(reader);
    let ([fetched, lines_fetched, channels], [width, height, more]) =
        (features.fetched, features.window);
    non_zero(cna::FcDataSize1::dma_channel, channels)?;
    non_zero(cna::FcDataSize0::dma_width, fetched)?;
    non_zero(cna::FcDataSize0::dma_height, lines_fetched)?;
    non_zero(cna::DataSize0::datain_width, width)?;
    non_zero(cna::DataSize0::datain_height, height)?;
    let channels = channels.max(more);
    let cubes = [
        features.atoms([fetched, lines_fetched, channels]),
        features.atoms([width, height, channels]),
    ];
    touched(DmaEngine::Feature, &cubes)
}

fn weights(reader: &Reader<'_>) -> Result<Extent, ExtentError> {
    reader.known(cna::DcompCtrl::decomp_control, &[0])?;
    reader.known(cna::DcompCtrl::wt_dec_bypass, &[0])?;
    reader.known(cna::DcompRegnum::decomp_regnum, &[0])?;
    reader.known(cna::FcCon2::weight_offset, &[0])?;
    reader.aligned::<cna::DcompAddr0>()?;
    let weights = ConvWeights::decode(reader);
    non_zero(cna::WeightSize0::weight_bytes, weights.bytes as usize)?;
    // Both are equal in every program except depthwise ones, where the total applies.
    let kernels = u64::from(weights.kernel_bytes) * weights.kernels as u64;
    let total = u64::from(weights.bytes).max(kernels);
    let start = i64::from(weights.base);
    let end = start + total.next_multiple_of(ATOM_BYTES.into()) as i64;
    bytes(DmaEngine::Weight, start..end)
}

fn non_zero<R: Register>(field: Field<R>, value: usize) -> Result<(), ExtentError> {
    if value == 0 {
        return Err(ExtentError::Empty {
            register: R::INFO.name,
            field: name_of(field),
        });
    }
    Ok(())
}
