// SPDX-License-Identifier: MIT OR Apache-2.0
//! The table of types in docs/regcmd.md, and the limits of a tile.

use anyhow::Result;
use rknpu_regcmd::{ChipProfile, Precision, TaskType};

use crate::generated::table;

const HEADS: &str = "type | code | bits | elements per atom | kernels per group \
                     | channels per group | channels per depthwise group | sums | MACs per clock | result types";

/// The values of `rknpu_regcmd::Precision` and `ChipProfile`, as Markdown.
pub(crate) fn markdown() -> Result<String> {
    let rows = (0..8).map(|code| row(Precision::from_code(code)));
    let ChipProfile {
        cbuf_banks,
        cbuf_bank_bytes,
        weight_banks_min,
        resident_kernels,
        kernel_bytes_max,
        line_group,
        grains_max,
        input_channels_max,
        output_channels_max,
        ..
    } = ChipProfile::RK3588;
    Ok(format!(
        "{}\nM is a multiple of {line_group}, at most {}; K a multiple of the channels per group, \
         at most {input_channels_max}; N a multiple of the kernels per group, at most \
         {output_channels_max}. CBUF has {cbuf_banks} banks of {} KiB. The weights get at least \
         {weight_banks_min}, in which {resident_kernels} kernels, and a group of kernels, must fit. \
         A kernel has at most {} KiB.",
        table(HEADS, rows),
        (grains_max - 1) / line_group * line_group,
        cbuf_bank_bytes >> 10,
        kernel_bytes_max >> 10,
    ))
}

fn row(precision: Precision) -> String {
    let (code, bits, atom) = (precision.code(), precision.bits(), precision.per_atom());
    let row = format!("{precision} | {code} | {bits} | {atom} |");
    // No known program multiplies these.
    if matches!(precision, Precision::Int32 | Precision::Fp32) {
        return row + " | | | | |";
    }
    let results = TaskType::ALL
        .into_iter()
        .filter(|ty| ty.operand() == precision);
    let results: Vec<_> = results.map(|ty| ty.result().to_string()).collect();
    format!(
        "{row} {} | {} | {} | {} | {} | {}",
        precision.kernel_group(),
        precision.channel_group(),
        precision.depthwise_group(),
        precision.accumulator(),
        precision.macs_per_clock(),
        results.join(", "),
    )
}
