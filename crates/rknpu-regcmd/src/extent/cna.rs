// SPDX-License-Identifier: MIT OR Apache-2.0
//! Features and weights.

use alloc::vec::Vec;

use super::{DmaEngine, Extent, ExtentError, Reader, bytes, must_be_zero, touched, unknown};
use crate::chip::ATOM_BYTES;
use crate::field::Register;
use crate::precision::Precision;
use crate::regs::cna;
use crate::task::{Features, Registers, Weights};

/// Codes of ARGB_IN: 8 + channels - 1, for 1 to 4 channels.
const ARGB_CODES: core::ops::RangeInclusive<u32> = 8..=11;

pub(super) fn extents(reader: &Reader<'_>, out: &mut Vec<Extent>) -> Result<(), ExtentError> {
    let con1 = reader.get::<cna::ConvCon1>();
    if !matches!(con1.conv_mode(), 0 | 3) {
        return Err(unknown::<cna::ConvCon1>("conv_mode", con1.conv_mode()));
    }
    must_be_zero::<cna::ConvCon1>("deconv", con1.deconv())?;
    let con3 = reader.get::<cna::ConvCon3>();
    must_be_zero::<cna::ConvCon3>("nn_mode", con3.nn_mode())?;
    must_be_zero::<cna::DataSize3>("surf_mode", reader.get::<cna::DataSize3>().surf_mode())?;
    let cbuf = reader.get::<cna::CbufCon0>();
    must_be_zero::<cna::CbufCon0>("fc_data_bank", cbuf.fc_data_bank())?;
    if cbuf.data_reuse() == 0 {
        out.push(features(reader, con1)?);
    }
    if cbuf.weight_reuse() == 0 {
        out.push(weights(reader)?);
    }
    Ok(())
}

fn features(reader: &Reader<'_>, con1: cna::ConvCon1) -> Result<Extent, ExtentError> {
    let fc0 = reader.get::<cna::FcCon0>();
    must_be_zero::<cna::FcCon0>("fc_skip_en", fc0.fc_skip_en())?;
    must_be_zero::<cna::FcCon1>("data_offset", reader.get::<cna::FcCon1>().data_offset())?;
    let grouped = con1.group_line_off() == 0;
    if con1.argb_in() != 0 {
        // Packed pixels. Sources leave open whether strides count pixels or
        // atoms; atoms are the larger. No program packs lines in groups.
        if !ARGB_CODES.contains(&con1.argb_in()) {
            return Err(unknown::<cna::ConvCon1>("argb_in", con1.argb_in()));
        }
        if grouped {
            return Err(unknown::<cna::ConvCon1>("group_line_off", 0));
        }
    } else {
        must_be_zero::<cna::ConvCon1>("nonalign_dma", con1.nonalign_dma())?;
    }
    if Precision::of_input(con1.in_precision()).is_none() {
        return Err(unknown::<cna::ConvCon1>(
            "in_precision",
            con1.in_precision(),
        ));
    }
    reader.aligned::<cna::FeatureDataAddr>()?;
    // The fetch goes by FC_DATA_SIZE, the window by DATA_SIZE; the range covers
    // both.
    let features = Features::decode(reader);
    let ([fetched, lines_fetched, channels], [width, height, more]) =
        (features.fetched, features.window);
    non_zero::<cna::FcDataSize1>("dma_channel", channels)?;
    non_zero::<cna::FcDataSize0>("dma_width", fetched)?;
    non_zero::<cna::FcDataSize0>("dma_height", lines_fetched)?;
    non_zero::<cna::DataSize0>("datain_width", width)?;
    non_zero::<cna::DataSize0>("datain_height", height)?;
    let channels = channels.max(more);
    let cubes = [
        features.atoms([fetched, lines_fetched, channels]),
        features.atoms([width, height, channels]),
    ];
    touched(DmaEngine::Feature, &cubes)
}

fn weights(reader: &Reader<'_>) -> Result<Extent, ExtentError> {
    let control = reader.get::<cna::DcompCtrl>();
    must_be_zero::<cna::DcompCtrl>("decomp_control", control.decomp_control())?;
    must_be_zero::<cna::DcompCtrl>("wt_dec_bypass", control.wt_dec_bypass())?;
    let regnum = reader.get::<cna::DcompRegnum>();
    must_be_zero::<cna::DcompRegnum>("decomp_regnum", regnum.decomp_regnum())?;
    let skip = reader.get::<cna::FcCon2>().weight_offset();
    must_be_zero::<cna::FcCon2>("weight_offset", skip)?;
    reader.aligned::<cna::DcompAddr0>()?;
    let weights = Weights::decode(reader);
    // Equal in every program but depthwise ones, where the total counts.
    let kernels = i64::from(weights.kernel_bytes) * weights.kernels as i64;
    non_zero::<cna::WeightSize0>("weight_bytes", weights.bytes as usize)?;
    let total = i64::from(weights.bytes).max(kernels);
    let atom = i64::from(ATOM_BYTES);
    let start = i64::from(weights.base);
    bytes(
        DmaEngine::Weight,
        start..start + (total + atom - 1) / atom * atom,
    )
}

fn non_zero<R: Register>(field: &'static str, value: usize) -> Result<(), ExtentError> {
    if value == 0 {
        return Err(ExtentError::Empty {
            register: R::INFO.name,
            field,
        });
    }
    Ok(())
}
