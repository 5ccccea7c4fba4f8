// SPDX-License-Identifier: MIT OR Apache-2.0
//! What CBUF holds when it is needed.

use rknpu_regcmd::RegisterFile;
use rknpu_regcmd::regs::cna;

use super::shown;
use crate::Effect;
use crate::cbuf::Stale;
use crate::trap::{Report, Stop};

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
