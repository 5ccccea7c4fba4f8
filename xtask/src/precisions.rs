// SPDX-License-Identifier: MIT OR Apache-2.0
//! The table of types in docs/regcmd.md, and the limits of a tile.

use std::fmt::Write;

use anyhow::Result;
use rknpu_regcmd::{ChipProfile, MatmulType, Precision};

/// Name of the section of docs/regcmd.md that they stand in.
pub(crate) const SECTION: &str = "precisions";

/// What `rknpu_regcmd::Precision` and `ChipProfile` say, as Markdown.
pub(crate) fn markdown() -> Result<String> {
    let mut page = String::from(
        "| type | code | bits | elements of an atom | kernels of a group | channels of a group \
         | channels of a depthwise group | sums | products a clock | results of a product |\n\
         |---|---|---|---|---|---|---|---|---|---|\n",
    );
    for precision in (0..8).map(Precision::from_code) {
        let (code, bits, atom) = (precision.code(), precision.bits(), precision.per_atom());
        write!(page, "| {precision} | {code} | {bits} | {atom} ")?;
        // No known program multiplies these.
        if matches!(precision, Precision::Int32 | Precision::Fp32) {
            page.push_str("| | | | | | |\n");
            continue;
        }
        let (kernels, channels) = (precision.kernel_group(), precision.channel_group());
        let (depthwise, sums) = (precision.depthwise_group(), precision.accumulator());
        let results: Vec<_> = MatmulType::ALL
            .into_iter()
            .filter(|ty| ty.operand() == precision)
            .map(|ty| ty.result().to_string())
            .collect();
        writeln!(
            page,
            "| {kernels} | {channels} | {depthwise} | {sums} | {} | {} |",
            precision.macs_per_clock(),
            results.join(", "),
        )?;
    }
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
    let rows = (grains_max - 1) / line_group * line_group;
    writeln!(
        page,
        "\nM is a multiple of {line_group} up to {rows}, K one of the channels of a group up to \
         {input_channels_max}, N one of the kernels of a group up to {output_channels_max}. CBUF \
         has {cbuf_banks} banks of {} KiB; the weights get {weight_banks_min} at least, in which \
         {resident_kernels} kernels, and a group of them, must fit. A kernel has {} KiB at most.",
        cbuf_bank_bytes >> 10,
        kernel_bytes_max >> 10,
    )?;
    Ok(page)
}
