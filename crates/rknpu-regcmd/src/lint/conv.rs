// SPDX-License-Identifier: MIT OR Apache-2.0
//! Convolutions: sizes, CBUF, the walk over the input.

use alloc::format;

use super::{Findings, View, rules};
use crate::chip::{CBUF_ENTRY_BYTES, ChipProfile};
use crate::field::Register;
use crate::precision::Precision;
use crate::regs::{cna, core, dpu};
use crate::task::{Conv, DEPTHWISE, Features, Weights};
use crate::word::EnableMask;

/// The longest pitch of lines that was measured to work, atoms (allbilly).
const LINE_STRIDE_MAX: u32 = 4096;

const CHIP: ChipProfile = ChipProfile::RK3588;

pub(super) fn check(view: &View<'_>, findings: &mut Findings) {
    if view.runs(EnableMask::CORE) {
        check_modes(view, findings);
        check_correction(view, findings);
    }
    if view.runs(EnableMask::CNA) {
        check_output_size(view, findings);
        check_weights(view, findings);
        check_features(view, findings);
        check_grains(view, findings);
        check_walk(view, findings);
        check_padding(view, findings);
    }
}

/// Bits of all channels of a pixel.
fn pixel_bits(view: &View<'_>) -> u64 {
    let Features {
        fetched: [_, _, channels],
        precision,
        ..
    } = view.conv.features;
    let input = Precision::of_input(precision.code());
    channels as u64 * u64::from(input.map_or(0, Precision::bits))
}

/// Packed pixels have rules of their own, of which little is known.
fn is_packed(view: &View<'_>) -> bool {
    view.get::<cna::ConvCon1>().argb_in() != 0
}

fn check_modes(view: &View<'_>, findings: &mut Findings) {
    let con = view.get::<cna::ConvCon1>();
    let misc = view.get::<core::MiscCfg>();
    let format = view.get::<dpu::DataFormat>();
    let mode = view.get::<dpu::FeatureModeCfg>();
    let depthwise = con.conv_mode() == DEPTHWISE;
    if (misc.dw_en() == 1) != depthwise || mode.conv_mode() != con.conv_mode() {
        let message = format!(
            "CNA mode {}, CORE depthwise {}, DPU mode {}",
            con.conv_mode(),
            misc.dw_en(),
            mode.conv_mode()
        );
        let registers = [
            cna::ConvCon1::INFO,
            core::MiscCfg::INFO,
            dpu::FeatureModeCfg::INFO,
        ];
        findings.report(view, &rules::CONV_MODE, &registers, message);
    }
    let core = misc.proc_precision();
    let in_dpu = Precision::from_code(core).in_dpu().code();
    if con.in_precision() != con.proc_precision()
        || con.proc_precision() != core
        || format.in_precision() != in_dpu
        || format.proc_precision() != in_dpu
    {
        let message = format!(
            "CNA {} and {}, CORE {core}, DPU {} and {}",
            con.in_precision(),
            con.proc_precision(),
            format.in_precision(),
            format.proc_precision()
        );
        let registers = [
            cna::ConvCon1::INFO,
            core::MiscCfg::INFO,
            dpu::DataFormat::INFO,
        ];
        findings.report(view, &rules::PRECISION, &registers, message);
    }
}

/// The sum of the inputs that QD_EN turns on.
fn check_correction(view: &View<'_>, findings: &mut Findings) {
    let Conv {
        precision,
        sums_features,
        computed: [_, _, channels],
        ..
    } = view.conv;
    if sums_features {
        return;
    }
    let operand = view.get::<dpu::BsOwOp>().ow_op();
    let integer = matches!(
        precision,
        Precision::Int8 | Precision::Int16 | Precision::Int4
    );
    if integer && view.get::<dpu::BsOwCfg>().od_bypass() == 0 && operand != 0 {
        let message = format!("weights are corrected by {operand}, but QD_EN is 0");
        let registers = [core::MiscCfg::INFO, dpu::BsOwOp::INFO];
        findings.report(view, &rules::CPEND_WITHOUT_QD, &registers, message);
    }
    if precision == Precision::Int16 && channels > precision.kernel_group() {
        let message = format!("{channels} channels of int16 with QD_EN = 0");
        let registers = [core::MiscCfg::INFO];
        findings.report(view, &rules::INT16_WITHOUT_QD, &registers, message);
    }
}

fn check_output_size(view: &View<'_>, findings: &mut Findings) {
    let Conv {
        pixels: atomics,
        computed: [width, height, computed],
        output,
        ..
    } = &view.conv;
    let (core, dpu) = (width * height, output.pixels());
    if *atomics != core || *atomics != dpu {
        let message = format!("CNA expects {atomics} output pixels, CORE {core}, the DPU {dpu}");
        let registers = [
            cna::DataSize3::INFO,
            core::DataoutSize0::INFO,
            dpu::DataCubeWidth::INFO,
            dpu::DataCubeHeight::INFO,
        ];
        findings.report(view, &rules::PIXEL_COUNT, &registers, message);
    }
    let written = output.written[2];
    if *computed != written {
        let message = format!("CORE computes {computed} channels, the DPU writes {written}");
        let registers = [core::DataoutSize1::INFO, dpu::WdmaSize0::INFO];
        findings.report(view, &rules::OUTPUT_CHANNELS, &registers, message);
    }
}

fn check_weights(view: &View<'_>, findings: &mut Findings) {
    if view.get::<cna::ConvCon1>().conv_mode() == DEPTHWISE {
        return;
    }
    let Weights {
        bytes: total,
        kernel_bytes: kernel,
        kernels,
        precision,
        ..
    } = view.conv.weights;
    let banks = view.conv.cbuf.weight_banks;
    let space = banks as u64 * u64::from(CHIP.cbuf_bank_bytes);
    let (kernel_bytes, kernels) = (u64::from(kernel), kernels as u64);
    if u64::from(total) != kernel_bytes * kernels {
        let message = format!("{total} bytes in all, {kernels} kernels of {kernel} bytes");
        let registers = [
            cna::WeightSize0::INFO,
            cna::WeightSize1::INFO,
            cna::WeightSize2::INFO,
        ];
        findings.report(view, &rules::WEIGHT_BYTES, &registers, message);
    }
    if kernel > CHIP.kernel_bytes_max {
        let message = format!("a kernel has {kernel} bytes");
        findings.report(
            view,
            &rules::KERNEL_BYTES,
            &[cna::WeightSize1::INFO],
            message,
        );
    }
    let group = precision.in_dpu().writer_group(false).unwrap_or(1);
    let registers = [cna::CbufCon0::INFO, cna::WeightSize1::INFO];
    let resident = |count: u32| kernels.min(count.into()) * kernel_bytes;
    if resident(group) > space {
        let message = format!("{group} kernels take {} bytes, of {space}", resident(group));
        findings.report(view, &rules::WEIGHT_GROUP, &registers, message);
    } else if resident(CHIP.resident_kernels) > space
        || banks < CHIP.weight_banks_min as usize && resident(u32::MAX) > space
    {
        let message = format!("{banks} weight banks for kernels of {kernel} bytes");
        findings.report(view, &rules::WEIGHT_BLOCK, &registers, message);
    }
}

fn check_features(view: &View<'_>, findings: &mut Findings) {
    let cbuf = &view.conv.cbuf;
    let (data, weight) = cbuf.split();
    if data == 0 || weight == 0 || data + weight > CHIP.cbuf_banks as usize {
        let message = format!("{data} feature banks, {weight} weight banks");
        findings.report(view, &rules::BANK_SUM, &[cna::CbufCon0::INFO], message);
    }
    if cbuf.fc_data_bank != 0 {
        let message = format!("FC_DATA_BANK is {}", cbuf.fc_data_bank);
        findings.report(view, &rules::FC_BANK, &[cna::CbufCon0::INFO], message);
    }
    if is_packed(view) {
        return;
    }
    let [width, height, _] = view.conv.features.fetched;
    let line_bits = width as u64 * pixel_bits(view);
    let needed = line_bits.div_ceil(u64::from(CBUF_ENTRY_BYTES) * 8);
    let entries = cbuf.entries;
    if (entries as u64) < needed {
        let message = format!("a line takes {needed} entries, DATA_ENTRIES is {entries}");
        let registers = [
            cna::CbufCon1::INFO,
            cna::FcDataSize0::INFO,
            cna::FcDataSize1::INFO,
        ];
        findings.report(view, &rules::ENTRIES, &registers, message);
    }
    // Lines stream through the banks unless more are asked for than there are.
    let lines = height.min(cbuf.grains);
    let banks = (lines * cbuf.line_bytes()).div_ceil(CHIP.cbuf_bank_bytes as usize);
    if data < banks && data != 0 {
        let message = format!("{lines} lines of {entries} entries take {banks} banks, of {data}");
        let registers = [cna::CbufCon0::INFO, cna::CbufCon1::INFO];
        findings.report(view, &rules::DATA_BANKS, &registers, message);
    }
    if !pixel_bits(view).is_multiple_of(128) {
        let message = format!("the channels of a pixel take {} bits", pixel_bits(view));
        findings.report(
            view,
            &rules::ODD_CHANNELS,
            &[cna::FcDataSize1::INFO],
            message,
        );
    }
}

fn check_grains(view: &View<'_>, findings: &mut Findings) {
    let Conv { cbuf, weights, .. } = &view.conv;
    let (grains, kernel) = (cbuf.grains, weights.kernel[1]);
    let stride = view.get::<cna::ConvCon3>().conv_y_stride() as usize;
    // More lines than there are cannot be waited for.
    let most = view.conv.features.fetched[1] + 1;
    let needed = (kernel + stride).min(most);
    let message = || format!("FEATURE_GRAINS is {grains}, kernel height {kernel}, stride {stride}");
    let registers = [
        cna::ConvCon2::INFO,
        cna::WeightSize2::INFO,
        cna::ConvCon3::INFO,
    ];
    if grains < needed {
        findings.report(view, &rules::GRAINS, &registers, message());
    } else if grains < (kernel + stride + 1).min(most) {
        findings.report(view, &rules::GRAINS_LOW, &registers, message());
    }
}

/// How the fetch walks the cube: lines in groups, then surfaces.
fn check_walk(view: &View<'_>, findings: &mut Findings) {
    let Conv { cbuf, features, .. } = &view.conv;
    if is_packed(view) || cbuf.data_reuse {
        return;
    }
    let [width, height, _] = features.fetched;
    let surfaces = pixel_bits(view).div_ceil(128);
    let pitch = features.atoms(features.fetched).surfaces.group_step;
    let line = features.line_stride;
    let registers = [cna::ConvCon1::INFO, cna::DmaCon1::INFO, cna::DmaCon2::INFO];
    if !features.grouped {
        if line > LINE_STRIDE_MAX && height > 1 {
            let message = format!("lines are {line} atoms apart");
            findings.report(view, &rules::LINE_STRIDE, &registers, message);
        }
        if lines_collide(width, height, line, surfaces, pitch) {
            let message = format!(
                "{height} lines {line} atoms apart and {surfaces} surfaces {pitch} apart overlap"
            );
            findings.report(view, &rules::SURFACE_PITCH, &registers, message);
        }
        return;
    }
    let group = CHIP.line_group as usize;
    if height > group && line as usize != group * width {
        let message = format!("LINE_STRIDE is {line}, four lines are {}", group * width);
        findings.report(view, &rules::GROUP_STRIDE, &registers, message);
        return;
    }
    let dense = (width * height) as i64;
    if surfaces < 2 {
        return;
    }
    if pitch.abs() < dense {
        let message = format!("surfaces of {dense} atoms are {pitch} atoms apart");
        findings.report(view, &rules::SURFACE_PITCH, &registers, message);
    } else if height < group && features.surf_stride == 0 {
        let message = format!("{height} lines of {width} atoms, surfaces {pitch} atoms apart");
        findings.report(view, &rules::SHORT_CUBE, &registers, message);
    }
}

/// Whether lines of `width` atoms, `lines` of them `line` apart in each of
/// `surfaces` that are `pitch` apart, share an atom.
fn lines_collide(width: usize, lines: usize, line: u32, surfaces: u64, pitch: i64) -> bool {
    let (width, line) = (width as i64, i64::from(line));
    if lines > 1 && (line == 0 || line < width) {
        return true;
    }
    // Every distance of surfaces against the nearest distances of lines.
    (1..surfaces as i64).any(|surface| {
        let distance = surface * pitch.abs();
        if lines < 2 {
            return distance < width;
        }
        let nearest = distance / line;
        [nearest, nearest + 1]
            .iter()
            .any(|&count| count < lines as i64 && (distance - count * line).abs() < width)
    })
}

/// Whether any tap falls outside the input.
pub(super) fn pads(view: &View<'_>) -> bool {
    let pad = view.get::<cna::PadCon0>();
    if pad.pad_left() != 0 || pad.pad_top() != 0 {
        return true;
    }
    let con = view.get::<cna::ConvCon3>();
    let Conv {
        computed: [width, height, _],
        weights,
        features,
        ..
    } = &view.conv;
    let reach = |out: usize, stride: u32, taps: usize, dilation: u32| {
        (out - 1) * stride as usize + taps.saturating_sub(1) * (dilation as usize + 1)
    };
    let [across, down] = weights.kernel;
    let right = reach(*width, con.conv_x_stride(), across, con.atrous_x_dilation());
    let bottom = reach(*height, con.conv_y_stride(), down, con.atrous_y_dilation());
    right >= features.window[0] || bottom >= features.window[1]
}

fn check_padding(view: &View<'_>, findings: &mut Findings) {
    if view.conv.features.precision != Precision::Int8 || !pads(view) {
        return;
    }
    let value = view.get::<cna::PadCon1>().pad_value();
    if value & 0xff != value >> 8 & 0xff {
        let message = format!("the pad value is {value:#010x}");
        findings.report(view, &rules::PAD_PATTERN, &[cna::PadCon1::INFO], message);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_no_distance_collide() {
        assert!(lines_collide(0, 2, 0, 2, 4));
        assert!(lines_collide(1, 2, 0, 1, 4));
        assert!(!lines_collide(1, 1, 0, 2, 4));
        assert!(!lines_collide(4, 8, 64, 16, 4));
    }
}
