// SPDX-License-Identifier: MIT OR Apache-2.0
//! Features and weights.
//!
//! Where an atom lies (inferred from the register streams of librocketnpu,
//! mtx512/rk3588-npu, happyme and Mesa, which all ran on silicon; one formula
//! reproduces them all):
//!
//! ```text
//! addr(y, x, c1) = base + 16 * ((y/G)*LINE_STRIDE + (y%G)*W + x + c1*(G*W + SURF_STRIDE))
//! G = 4, or 1 with GROUP_LINE_OFF;  W = width;  SURF_STRIDE signed
//! ```

use alloc::vec::Vec;

use super::{
    DivCeil, DmaEngine, Extent, ExtentError, Reader, atoms, bytes, must_be_zero, surfaces, unknown,
};
use crate::chip::{ATOM_BYTES, ChipProfile};
use crate::field::Register;
use crate::precision::Precision;
use crate::regs::cna;

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
    let bits = Precision::of_input(con1.in_precision())
        .map(Precision::bits)
        .ok_or_else(|| unknown::<cna::ConvCon1>("in_precision", con1.in_precision()))?;
    let base = reader.base::<cna::FeatureDataAddr>()?;
    let line_stride = i64::from(reader.get::<cna::DmaCon1>().line_stride());
    let surf_stride = i64::from(reader.get::<cna::DmaCon2>().surf_stride());

    // The fetch goes by FC_DATA_SIZE, the window by DATA_SIZE. All programs
    // but one of Mesa's quirks write them equal; the range covers both.
    let (size, size1) = (
        reader.get::<cna::DataSize0>(),
        reader.get::<cna::DataSize1>(),
    );
    let (fetch, fetch1) = (
        reader.get::<cna::FcDataSize0>(),
        reader.get::<cna::FcDataSize1>(),
    );
    let channels = non_zero::<cna::FcDataSize1>("dma_channel", fetch1.dma_channel())?
        .max(size1.datain_channel());
    let cubes = [
        (
            non_zero::<cna::FcDataSize0>("dma_width", fetch.dma_width())?,
            non_zero::<cna::FcDataSize0>("dma_height", fetch.dma_height())?,
        ),
        (
            non_zero::<cna::DataSize0>("datain_width", size.datain_width())?,
            non_zero::<cna::DataSize0>("datain_height", size.datain_height())?,
        ),
    ];
    let group = if grouped {
        i64::from(ChipProfile::RK3588.line_group)
    } else {
        1
    };
    let (mut first, mut last) = (0, 0);
    for (width, height) in cubes {
        let (width, height) = (i64::from(width), i64::from(height));
        let line = |y: i64| y / group * line_stride + y % group * width;
        // Lines rise within a group and from group to group, so the farthest
        // one is the last of all or the last of a whole group.
        let whole = (height / group * group - 1).max(0);
        let farthest = line(height - 1).max(line(whole)) + width - 1;
        let surface = (surfaces(channels, bits) - 1) * (group * width + surf_stride);
        first = surface.min(first);
        last = (surface.max(0) + farthest).max(last);
    }
    atoms(DmaEngine::Feature, base, first, last)
}

fn weights(reader: &Reader<'_>) -> Result<Extent, ExtentError> {
    let control = reader.get::<cna::DcompCtrl>();
    must_be_zero::<cna::DcompCtrl>("decomp_control", control.decomp_control())?;
    must_be_zero::<cna::DcompCtrl>("wt_dec_bypass", control.wt_dec_bypass())?;
    let regnum = reader.get::<cna::DcompRegnum>();
    must_be_zero::<cna::DcompRegnum>("decomp_regnum", regnum.decomp_regnum())?;
    let skip = reader.get::<cna::FcCon2>().weight_offset();
    must_be_zero::<cna::FcCon2>("weight_offset", skip)?;
    let base = reader.base::<cna::DcompAddr0>()?;
    let total = reader.get::<cna::WeightSize0>().weight_bytes();
    let kernel = reader.get::<cna::WeightSize1>().weight_bytes_per_kernel();
    let kernels = reader.get::<cna::WeightSize2>().weight_kernels();
    // Equal in every program but depthwise ones, where the total counts.
    let kernels = i64::from(kernel) * i64::from(kernels);
    let total = i64::from(non_zero::<cna::WeightSize0>("weight_bytes", total)?).max(kernels);
    let atom = i64::from(ATOM_BYTES);
    let start = i64::from(base);
    bytes(
        DmaEngine::Weight,
        start,
        start + total.div_ceil_i64(atom) * atom,
    )
}

fn non_zero<R: Register>(field: &'static str, value: u32) -> Result<u32, ExtentError> {
    if value == 0 {
        return Err(ExtentError::Empty {
            register: R::INFO.name,
            field,
        });
    }
    Ok(value)
}
