// SPDX-License-Identifier: MIT OR Apache-2.0
//! The DPU's writer: groups, strides, sizes.

use alloc::format;

use super::{Findings, View, rules};
use crate::field::Register;
use crate::precision::Precision;
use crate::regs::dpu;
use crate::task::{Conv, surfaces};
use crate::word::EnableMask;

/// OUTPUT_MODE bit: to memory.
const TO_MEMORY: u32 = 2;
/// Most atoms of a group: SIZE_E has three bits.
const GROUP_ATOMS_MAX: usize = 8;
/// The widest line that is known to be right when fed from memory, atoms.
const FLYING_WIDTH_MAX: usize = 4096;

pub(super) fn check(view: &View<'_>, findings: &mut Findings) {
    let mode = view.get::<dpu::FeatureModeCfg>();
    if !view.runs(EnableMask::DPU) || mode.output_mode() & TO_MEMORY == 0 {
        return;
    }
    check_sizes(view, findings);
    if mode.flying_mode() == 1 {
        let width = view.conv.output.cube[0];
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

/// Output channels of a group that CORE sends, and the type of an element.
fn group(view: &View<'_>) -> Option<(usize, Precision)> {
    let Conv {
        depthwise, output, ..
    } = &view.conv;
    let channels = output.input.writer_group(*depthwise)?;
    Some((
        channels as usize,
        Precision::of_dpu(output.precision.code())?,
    ))
}

fn check_group(view: &View<'_>, findings: &mut Findings) {
    let Some((channels, precision)) = group(view) else {
        return;
    };
    let needed = surfaces(channels, precision.bits());
    let atoms = view.conv.output.group_atoms;
    let written = view.conv.output.written[2];
    let message = format!(
        "a group of {channels} channels takes {needed} atoms a pixel, SIZE_E + 1 is {atoms}"
    );
    let registers = [dpu::BsOwCfg::INFO, dpu::DataFormat::INFO];
    if needed > GROUP_ATOMS_MAX {
        findings.report(view, &rules::NOT_WRITABLE, &registers, message);
    } else if atoms > needed {
        findings.report(view, &rules::SIZE_E_LARGE, &registers, message);
    } else if atoms < needed && written > atoms * precision.per_atom() {
        findings.report(view, &rules::SIZE_E_SMALL, &registers, message);
    }
}

fn check_sizes(view: &View<'_>, findings: &mut Findings) {
    let less_one = |size: [usize; 3]| size.map(|size| size - 1);
    let wdma = less_one(view.conv.output.written);
    let cube = less_one(view.conv.output.cube);
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
    count: usize,
    stride: i64,
}

fn check_strides(view: &View<'_>, findings: &mut Findings) {
    let output = &view.conv.output;
    let [width, height, channels] = output.written;
    let atoms = output.group_atoms;
    let used = Precision::of_dpu(output.precision.code())
        .map_or(0, |precision| surfaces(channels, precision.bits()));
    let flying = view.get::<dpu::FeatureModeCfg>().flying_mode() == 1;
    let groups = match group(view) {
        Some((group, _)) if !flying => channels.div_ceil(group),
        _ => used.div_ceil(atoms).max(1),
    };
    // Of a group that is not full only the atoms with channels count.
    let used = used.clamp(1, atoms);
    let (surface, add) = (output.surface, output.surface_add);
    let mut steps = [
        Step {
            count: height,
            stride: (width + output.notch) as i64,
        },
        Step {
            count: used,
            stride: surface,
        },
        Step {
            count: groups,
            stride: add,
        },
    ];
    // Without overlap each step goes beyond all that smaller ones cover.
    steps.sort_unstable_by_key(|step| step.stride);
    let mut covered = width as i64;
    let mut overlaps = false;
    for Step { count, stride } in steps {
        if count > 1 {
            overlaps |= stride < covered;
            covered += (count - 1) as i64 * stride;
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
    } else if groups > 1 && add > atoms as i64 * surface {
        let message = format!("groups of {atoms} surfaces are {add} atoms apart");
        findings.report(view, &rules::OUTPUT_GAPS, &registers, message);
    }
}
