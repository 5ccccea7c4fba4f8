// SPDX-License-Identifier: MIT OR Apache-2.0
//! The writer's groups and modes.

use rknpu_regcmd::RegisterFile;
use rknpu_regcmd::regs::dpu;

use super::shown;
use crate::Effect;
use crate::precision::Precision;
use crate::transpose::CHANNELS_KNOWN;
use crate::trap::{Report, Stop};
use crate::writer::{SIZE_E_MAX, Writer};

/// The writer's groups.
pub(crate) fn writer(
    report: &mut Report,
    regs: &RegisterFile,
    writer: &Writer,
    group: usize,
    out: Precision,
) -> Result<(), Stop> {
    if writer.transposed {
        return transposing(report, regs, writer);
    }
    let show = [
        shown::<dpu::BsOwCfg>(regs),
        shown::<dpu::SurfaceAdd>(regs),
        shown::<dpu::DstSurfStride>(regs),
        shown::<dpu::DataFormat>(regs),
    ];
    let needed = group.div_ceil(out.per_atom());
    let present = needed.min(writer.channels.div_ceil(out.per_atom()));
    if writer.output.group_atoms < present {
        let trap = if needed > SIZE_E_MAX {
            "T35-group-too-wide"
        } else {
            "T33-size-e-small"
        };
        report.note(
            trap,
            Effect::NoWrite,
            &show,
            format!(
                "a group of {group} channels is {needed} atoms, SIZE_E writes {}",
                writer.output.group_atoms
            ),
            if needed > SIZE_E_MAX {
                "choose an output type of at most 8 atoms a group".to_owned()
            } else {
                format!("set all three SIZE_E to {}", needed - 1)
            },
        )?;
    }
    let groups = writer.channels.div_ceil(group);
    let step = present.min(writer.output.group_atoms) as i64 * writer.output.surface;
    if groups > 1 && writer.output.group_atoms > needed {
        report.note(
            "T37-size-e-large",
            Effect::Garbage,
            &show,
            format!(
                "a group of {group} channels is {needed} atoms, SIZE_E says {}",
                writer.output.group_atoms
            ),
            format!("set all three SIZE_E to {}", needed - 1),
        )?;
    } else if groups > 1 && writer.output.surface_add < step {
        report.note(
            "T34-surf-add",
            Effect::Garbage,
            &show,
            format!(
                "groups are {} atoms apart and take {step}",
                writer.output.surface_add
            ),
            "SURF_ADD = (SIZE_E + 1) * DST_SURF_STRIDE",
        )?;
    }
    rows(report, regs, writer, out)?;
    transposing(report, regs, writer)
}

/// Rows that lie within each other: a result whose surfaces follow each other
/// line by line, with a notch that does not skip them.
fn rows(
    report: &mut Report,
    regs: &RegisterFile,
    writer: &Writer,
    out: Precision,
) -> Result<(), Stop> {
    let atoms = writer.channels.div_ceil(out.per_atom());
    let [width, height, _] = writer.output.cube;
    let pitch = width + writer.output.notch;
    let by_line = writer.output.surface == width as i64;
    if by_line && height > 1 && atoms > 1 && pitch < width * atoms {
        report.note(
            "T39-rows-overlap",
            Effect::Garbage,
            &[
                shown::<dpu::DataCubeNotchAddr>(regs),
                shown::<dpu::DstSurfStride>(regs),
                shown::<dpu::WdmaSize0>(regs),
            ],
            format!(
                "a row takes {} atoms, the next one begins after {pitch}",
                width * atoms
            ),
            "NOTCH = width * (channels * bytes / 16 - 1), in both halves",
        )?;
    }
    Ok(())
}

/// Modes of the writer of which little is known.
pub(crate) fn transposing(
    report: &mut Report,
    regs: &RegisterFile,
    writer: &Writer,
) -> Result<(), Stop> {
    let mode = regs.get::<dpu::FeatureModeCfg>();
    let asked = regs.get::<dpu::BsOwCfg>().tp_org_en() == 1 || mode.tp_en() == 1;
    let known = writer.transposed && mode.tp_en() == 0 && writer.channels <= CHANNELS_KNOWN;
    if asked && !known {
        report.note(
            "T41-transposing-writer",
            Effect::Garbage,
            &[
                shown::<dpu::BsOwCfg>(regs),
                shown::<dpu::WdmaSize0>(regs),
                shown::<dpu::FeatureModeCfg>(regs),
            ],
            format!(
                "the transposing writer is known for int16 products of at most {CHANNELS_KNOWN} \
                 channels only"
            ),
            "transpose on the host",
        )?;
    }
    Ok(())
}
