// SPDX-License-Identifier: MIT OR Apache-2.0
//! CBUF: its division, what must fit, and what is in it already.

use rknpu_regcmd::RegisterFile;
use rknpu_regcmd::regs::cna;
use rknpu_regcmd::task::Cube;

use super::shown;
use crate::cbuf::{BANK_BYTES, BANKS, ENTRY_BYTES, Stale};
use crate::conv_config::{ConvConfig, FeatureSource};
use crate::precision::ATOM;
use crate::trap::{Report, Stop};
use crate::{Contested, Effect, WeightRoom};

/// Most bytes of one kernel: a bank.
const KERNEL_BYTES_MAX: u64 = BANK_BYTES as u64;

/// Fewest banks that weights are known to stream through.
const STREAMING_BANKS: usize = 2;

/// Kernels that the planners whose limits were measured keep in CBUF.
const SAFE_KERNELS: usize = 32;

/// The division of CBUF.
pub(crate) fn cbuf(
    report: &mut Report,
    regs: &RegisterFile,
    conv: &ConvConfig,
    contested: &Contested,
) -> Result<(), Stop> {
    let show = [
        shown::<cna::CbufCon0>(regs),
        shown::<cna::WeightSize1>(regs),
        shown::<cna::WeightSize2>(regs),
    ];
    let (data, weight) = (conv.cbuf.data_banks, conv.cbuf.weight_banks);
    if data == 0 || weight == 0 || data + weight > BANKS {
        return report.note(
            "T26-banks",
            Effect::Hang,
            &show[..1],
            format!("{data} data and {weight} weight banks; both must be above 0, together at most {BANKS}"),
            "give the weights what the features leave of 12 banks",
        );
    }
    if conv.depthwise {
        return Ok(());
    }
    let counted = conv.weights.precision.bytes(conv.weights.row_len() as u64);
    let kernel = conv.bytes_per_kernel.max(counted);
    if kernel > KERNEL_BYTES_MAX {
        return report.note(
            "T27-kernel-size",
            Effect::Hang,
            &show,
            format!("a kernel of {kernel} bytes does not fit a bank of {BANK_BYTES} (no known program tried)"),
            "split the channels over several tasks and add the results",
        );
    }
    let together = match contested.weight_room {
        WeightRoom::Group => conv.weights.precision.kernel_group(),
        WeightRoom::Block => SAFE_KERNELS,
        WeightRoom::All => usize::MAX,
    };
    let group = together.min(conv.weights.kernels) as u64;
    let room = (weight * BANK_BYTES) as u64;
    if group.saturating_mul(kernel) > room {
        return report.note(
            "T26a-weight-banks",
            Effect::Hang,
            &show,
            format!(
                "a group of {group} kernels of {kernel} bytes does not fit {weight} weight banks \
                 (inferred; contested: weight-room)"
            ),
            "give the weights more banks, or split the channels",
        );
    }
    // fp16 with M = 3000, K = 384 and one weight bank failed at submission
    // (happyme531), but so many rows do not fit DATA_SIZE0 either. All weights
    // of a small task fit one bank without harm.
    if weight < STREAMING_BANKS && (conv.weights.kernels as u64).saturating_mul(kernel) > room {
        report.note(
            "T26a-one-weight-bank",
            Effect::Note,
            &show,
            "weights stream through one bank: no known program does that, and whether it works is \
             not known; here it does",
            "give weights that do not fit one bank two banks or more",
        )?;
    }
    let safe = conv.weights.kernels.min(SAFE_KERNELS) as u64;
    if safe * kernel > room {
        report.note(
            "T26a-weight-block",
            Effect::Note,
            &show,
            format!(
                "a block of {safe} kernels of {kernel} bytes does not fit {weight} weight banks"
            ),
            "known to be safe: WEIGHT_BANK >= max(2, ceil(min(N, 32) * bytes per kernel / 32768))",
        )?;
    }
    grains(report, regs, conv)
}

/// Lines that must be present before the computation starts.
fn grains(report: &mut Report, regs: &RegisterFile, conv: &ConvConfig) -> Result<(), Stop> {
    let show = [
        shown::<cna::ConvCon2>(regs),
        shown::<cna::WeightSize2>(regs),
    ];
    let lines = conv.window.kernel.1.min(conv.window.in_height);
    if conv.cbuf.grains < lines {
        return report.note(
            "T23-grains",
            Effect::Hang,
            &show,
            format!(
                "FEATURE_GRAINS {} is below the {lines} lines of a window (inferred)",
                conv.cbuf.grains
            ),
            "use the input height + 1, at most 1023",
        );
    }
    let (_, height, _) = conv.source.shape();
    if conv.cbuf.grains <= height && conv.cbuf.grains < lines + conv.window.stride.1 {
        report.note(
            "T23-few-grains",
            Effect::Note,
            &show,
            "fewer grains than kernel height + stride were seen to corrupt some shapes",
            "use the input height + 1, at most 1023",
        )?;
    }
    Ok(())
}

/// Room of a line in CBUF.
pub(crate) fn entries(
    report: &mut Report,
    regs: &RegisterFile,
    conv: &ConvConfig,
) -> Result<(), Stop> {
    let FeatureSource::Cube(source) = &conv.source else {
        return Ok(());
    };
    let Cube {
        width, surfaces, ..
    } = source.cube;
    let needed = (width * surfaces.count * ATOM).div_ceil(ENTRY_BYTES);
    if conv.cbuf.entries < needed {
        report.note(
            "T20-entries",
            Effect::Note,
            &[
                shown::<cna::CbufCon1>(regs),
                shown::<cna::FcDataSize0>(regs),
            ],
            format!(
                "a line takes {needed} entries of {ENTRY_BYTES} bytes, DATA_ENTRIES is {}",
                conv.cbuf.entries
            ),
            format!("set DATA_ENTRIES to {needed}"),
        )?;
    }
    Ok(())
}

/// Lines beyond the data banks.
pub(crate) fn lines(
    report: &mut Report,
    regs: &RegisterFile,
    conv: &ConvConfig,
    (height, fit): (usize, usize),
) -> Result<(), Stop> {
    let banks = (height * conv.cbuf.line_bytes()).div_ceil(BANK_BYTES);
    report.note(
        "T20-line-rounding",
        Effect::Garbage,
        &[
            shown::<cna::CbufCon0>(regs),
            shown::<cna::CbufCon1>(regs),
            shown::<cna::ConvCon2>(regs),
        ],
        format!(
            "{height} lines of {} bytes need {banks} data banks; in {} only {fit} lines fit, \
             and the rest reads as weights",
            conv.cbuf.line_bytes(),
            conv.cbuf.data_banks
        ),
        format!("DATA_BANK = ceil(lines * DATA_ENTRIES * {ENTRY_BYTES} / {BANK_BYTES})"),
    )
}

/// Cubes of which not all lines are in CBUF before the computation starts.
pub(crate) fn few_grains(report: &mut Report, regs: &RegisterFile) -> Result<(), Stop> {
    report.note(
        "T23-lines-not-awaited",
        Effect::Garbage,
        &[
            shown::<cna::ConvCon2>(regs),
            shown::<cna::FcDataSize0>(regs),
        ],
        "fewer grains than lines: with fp16 some of these were measured to be garbage",
        "use the input height + 1, at most 1023",
    )
}

/// Cubes of fewer lines than a group.
pub(crate) fn short_height(report: &mut Report, regs: &RegisterFile) -> Result<(), Stop> {
    report.note(
        "T21-short-group",
        Effect::Garbage,
        &[shown::<cna::FcDataSize0>(regs), shown::<cna::DmaCon2>(regs)],
        "a cube of fewer than four lines, fetched in groups of four (contested: short-height)",
        "pad to four lines",
    )
}

/// FC_DATA_BANK.
pub(crate) fn fc_data_bank(report: &mut Report, regs: &RegisterFile) -> Result<(), Stop> {
    report.note(
        "T28-fc-data-bank",
        Effect::Garbage,
        &[shown::<cna::CbufCon0>(regs)],
        "FC_DATA_BANK is not 0: the features are looked for in other banks than they are in",
        "write 0 to CBUF_CON0.fc_data_bank",
    )
}

/// DATA_REUSE and WEIGHT_REUSE.
pub(crate) fn reuse(
    report: &mut Report,
    regs: &RegisterFile,
    what: &str,
    found: Result<(), Stale>,
) -> Result<(), Stop> {
    let Err(stale) = found else { return Ok(()) };
    let why = match stale {
        Stale::Other => "the task before on this core left none of this size and bank split",
        Stale::EarlierJob => "what CBUF holds is of an earlier job, of whatever file",
        Stale::Address(_) => "what CBUF holds was fetched from another address",
    };
    let mut show = vec![shown::<cna::CbufCon0>(regs)];
    if let Stale::Address(fetched) = stale {
        show.push(("fetched from", fetched));
    }
    report.note(
        "T29-stale-cbuf",
        match stale {
            Stale::Other | Stale::EarlierJob => Effect::Garbage,
            // The address is not used; a program may leave it alone.
            Stale::Address(_) => Effect::Note,
        },
        &show,
        format!("{what} reuse, but {why}"),
        "fetch in the first task of a job, and reuse only with the same banks and size",
    )
}
