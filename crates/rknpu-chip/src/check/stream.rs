// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sizes: whether each block produces what the next one waits for.

use rknpu_regcmd::RegisterFile;
use rknpu_regcmd::regs::{cna, core, dpu, dpu_rdma};
use rknpu_regcmd::task::Reads;

use super::shown;
use crate::Effect;
use crate::conv_config::ConvConfig;
use crate::dpu::ew::Ew;
use crate::trap::{Report, Stop};
use crate::writer::Writer;

/// Whether each block produces what the next one waits for.
pub(crate) fn stream(
    report: &mut Report,
    regs: &RegisterFile,
    conv: &ConvConfig,
    writer: &Writer,
    reads: Option<&Reads>,
) -> Result<(), Stop> {
    let show = [
        shown::<cna::DataSize3>(regs),
        shown::<core::DataoutSize0>(regs),
        shown::<dpu::DataCubeWidth>(regs),
        shown::<dpu::DataCubeHeight>(regs),
    ];
    let reads = reads.filter(|_| Ew::wants_memory(regs));
    let operand = reads.map_or(usize::MAX, Reads::pixels);
    if conv.core_pixels > conv.pixels || writer.output.pixels() > conv.core_pixels.min(operand) {
        return report.note(
            "H05-pixels",
            Effect::Hang,
            &show,
            format!(
                "CNA produces {} pixels, CORE expects {}, the DPU {} (inferred)",
                conv.pixels,
                conv.core_pixels,
                writer.output.pixels()
            ),
            "all blocks need the same number of pixels: width x height",
        );
    }
    if let Some(reads) = reads {
        operand_channels(report, regs, writer, reads)?;
    }
    if writer.output.pixels() < conv.pixels {
        report.note(
            "H05-pixels-left",
            Effect::Note,
            &show,
            format!(
                "CNA produces {} pixels, of which the DPU writes {}",
                conv.pixels,
                writer.output.pixels()
            ),
            "all blocks need the same number of pixels: width x height",
        )?;
    }
    let (width, height, surfaces) = conv.source.shape();
    let show = [
        shown::<cna::DataSize0>(regs),
        shown::<cna::DataSize1>(regs),
        shown::<cna::FcDataSize0>(regs),
        shown::<cna::FcDataSize1>(regs),
    ];
    let window = (conv.window.in_width, conv.window.in_height);
    if [width, height, surfaces, window.0, window.1].contains(&0) {
        return report.note(
            "H05-empty-input",
            Effect::Hang,
            &show,
            format!(
                "{width} x {height} pixels of {surfaces} atoms are fetched, the window moves over \
                 {} x {}: nobody knows what a size of 0 means, and here no data ever comes",
                window.0, window.1
            ),
            "submit no task where there is nothing to compute",
        );
    }
    if conv.window.in_height > height {
        return report.note(
            "H05-lines",
            Effect::Hang,
            &show,
            format!(
                "the window moves over {} lines, but {height} are fetched (inferred)",
                conv.window.in_height
            ),
            "write the same size to DATA_SIZE0 and FC_DATA_SIZE0",
        );
    }
    let wanted = conv
        .window
        .channels
        .div_ceil(conv.window.precision.per_atom());
    // A window wider than the fetch is Mesa's way with narrow images.
    let wider = conv.window.in_width > width;
    let differs = (conv.window.in_height, wanted) != (height, surfaces);
    if differs || !wider && conv.window.in_width != width {
        report.note(
            "H05-sizes-differ",
            Effect::Note,
            &show,
            "the cube that is fetched and the one that is convolved differ",
            "write the same size to DATA_SIZE0/1 and FC_DATA_SIZE0/1",
        )?;
    }
    Ok(())
}

/// Whether DPU_RDMA delivers all channels that the DPU writes.
pub(crate) fn operand_channels(
    report: &mut Report,
    regs: &RegisterFile,
    writer: &Writer,
    reads: &Reads,
) -> Result<(), Stop> {
    if reads.cube[2] >= writer.channels {
        return Ok(());
    }
    report.note(
        "H05-channels",
        Effect::Hang,
        &[
            shown::<dpu_rdma::DataCubeChannel>(regs),
            shown::<dpu::WdmaSize0>(regs),
        ],
        format!(
            "the DPU writes {} channels, DPU_RDMA delivers {} (inferred)",
            writer.channels, reads.cube[2]
        ),
        "write the same number of channels to both",
    )
}
