// SPDX-License-Identifier: MIT OR Apache-2.0
//! The DPU's writer: groups, strides, sizes.

use alloc::format;

use super::{Findings, View, rules};
use crate::chip::ATOM_BYTES;
use crate::field::Register;
use crate::precision::Precision;
use crate::regs::{core, dpu};
use crate::word::EnableMask;

/// OUTPUT_MODE bit: to memory.
const TO_MEMORY: u32 = 2;
/// Most atoms of a group: SIZE_E has three bits.
const GROUP_ATOMS_MAX: u32 = 8;
/// The widest line that is known to be right when fed from memory, atoms.
const FLYING_WIDTH_MAX: u32 = 4096;

pub(super) fn check(view: &View<'_>, findings: &mut Findings) {
    let mode = view.get::<dpu::FeatureModeCfg>();
    if !view.runs(EnableMask::DPU) || mode.output_mode() & TO_MEMORY == 0 {
        return;
    }
    check_sizes(view, findings);
    if mode.flying_mode() == 1 {
        let width = view.get::<dpu::DataCubeWidth>().width() + 1;
        if width > FLYING_WIDTH_MAX {
            let message = format!("{width} atoms a line, fed from memory");
            findings.report(
                view,
                &rules::WIDE_FLYING,
                &[dpu::DataCubeWidth::INFO],
                message,
            );
        }
    } else {
        check_group(view, findings);
    }
    check_strides(view, findings);
}

/// Output channels of a group that CORE sends, and the bits of an element.
fn group(view: &View<'_>) -> Option<(u32, u32)> {
    let format = view.get::<dpu::DataFormat>();
    let depthwise = view.get::<core::MiscCfg>().dw_en() == 1;
    let channels = Precision::from_code(format.in_precision()).writer_group(depthwise)?;
    Some((channels, Precision::of_dpu(format.out_precision())?.bits()))
}

fn check_group(view: &View<'_>, findings: &mut Findings) {
    let Some((channels, bits)) = group(view) else {
        return;
    };
    let needed = (channels * bits).div_ceil(ATOM_BYTES * 8);
    let atoms = view.get::<dpu::BsOwCfg>().size_e_0() + 1;
    let written = view.get::<dpu::WdmaSize0>().channel_wdma() + 1;
    let message = format!(
        "a group of {channels} channels takes {needed} atoms a pixel, SIZE_E + 1 is {atoms}"
    );
    let registers = [dpu::BsOwCfg::INFO, dpu::DataFormat::INFO];
    if needed > GROUP_ATOMS_MAX {
        findings.report(view, &rules::NOT_WRITABLE, &registers, message);
    } else if atoms > needed {
        findings.report(view, &rules::SIZE_E_LARGE, &registers, message);
    } else if atoms < needed && written * bits > atoms * ATOM_BYTES * 8 {
        findings.report(view, &rules::SIZE_E_SMALL, &registers, message);
    }
}

fn check_sizes(view: &View<'_>, findings: &mut Findings) {
    let wdma = view.get::<dpu::WdmaSize1>();
    let wdma = [
        wdma.width_wdma(),
        wdma.height_wdma(),
        view.get::<dpu::WdmaSize0>().channel_wdma(),
    ];
    let cube = [
        view.get::<dpu::DataCubeWidth>().width(),
        view.get::<dpu::DataCubeHeight>().height(),
        view.get::<dpu::DataCubeChannel>().channel(),
    ];
    let notch = view.get::<dpu::DataCubeNotchAddr>();
    if wdma != cube || notch.notch_addr_0() != notch.notch_addr_1() {
        let message = format!(
            "cube {cube:?}, writer {wdma:?} (width, height, channels, each less one), notches \
             {} and {}",
            notch.notch_addr_0(),
            notch.notch_addr_1()
        );
        let registers = [
            dpu::WdmaSize0::INFO,
            dpu::WdmaSize1::INFO,
            dpu::DataCubeWidth::INFO,
            dpu::DataCubeHeight::INFO,
            dpu::DataCubeChannel::INFO,
            dpu::DataCubeNotchAddr::INFO,
        ];
        findings.report(view, &rules::WRITER_SIZE, &registers, message);
    }
}

/// A counter of the writer: how often it counts, and how far it steps.
#[derive(Clone, Copy)]
struct Step {
    count: u64,
    stride: u64,
}

fn check_strides(view: &View<'_>, findings: &mut Findings) {
    let bits =
        Precision::of_dpu(view.get::<dpu::DataFormat>().out_precision()).map_or(0, Precision::bits);
    let channels = view.get::<dpu::WdmaSize0>().channel_wdma() + 1;
    let atoms = view.get::<dpu::BsOwCfg>().size_e_0() + 1;
    let flying = view.get::<dpu::FeatureModeCfg>().flying_mode() == 1;
    let groups = match group(view) {
        Some((group, _)) if !flying => channels.div_ceil(group),
        _ => (channels * bits).div_ceil(atoms * ATOM_BYTES * 8).max(1),
    };
    // Of a group that is not full only the atoms with channels count.
    let used = (channels * bits).div_ceil(ATOM_BYTES * 8).clamp(1, atoms);
    let size = view.get::<dpu::WdmaSize1>();
    let width = u64::from(size.width_wdma()) + 1;
    let notch = view.get::<dpu::DataCubeNotchAddr>().notch_addr_0();
    let surface = u64::from(view.get::<dpu::DstSurfStride>().dst_surf_stride());
    let add = u64::from(view.get::<dpu::SurfaceAdd>().surf_add());
    let mut steps = [
        Step {
            count: u64::from(size.height_wdma()) + 1,
            stride: width + u64::from(notch),
        },
        Step {
            count: used.into(),
            stride: surface,
        },
        Step {
            count: groups.into(),
            stride: add,
        },
    ];
    // Without overlap each step goes beyond all that smaller ones cover.
    steps.sort_unstable_by_key(|step| step.stride);
    let mut covered = width;
    let mut overlaps = false;
    for Step { count, stride } in steps {
        if count > 1 {
            overlaps |= stride < covered;
            covered += (count - 1) * stride;
        }
    }
    let registers = [
        dpu::SurfaceAdd::INFO,
        dpu::DstSurfStride::INFO,
        dpu::BsOwCfg::INFO,
    ];
    if overlaps {
        let message =
            format!("surfaces {surface} atoms apart, {groups} groups of {atoms} {add} atoms apart");
        findings.report(view, &rules::OUTPUT_OVERLAP, &registers, message);
    } else if groups > 1 && add > u64::from(atoms) * surface {
        let message = format!("groups of {atoms} surfaces are {add} atoms apart");
        findings.report(view, &rules::OUTPUT_GAPS, &registers, message);
    }
}
