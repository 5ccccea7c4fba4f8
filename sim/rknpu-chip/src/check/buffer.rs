// SPDX-License-Identifier: MIT OR Apache-2.0
//! What CBUF holds when it is needed.

use rknpu_regcmd::RegisterFile;
use rknpu_regcmd::rules::STALE_CBUF;

use crate::Effect;
use crate::cbuf::Stale;
use crate::trap::{DiagnosisReport, Stop};

/// DATA_REUSE and WEIGHT_REUSE.
pub(crate) fn reuse(
    report: &mut DiagnosisReport,
    regs: &RegisterFile,
    what: &str,
    found: Result<(), Stale>,
) -> Result<(), Stop> {
    let Err(stale) = found else { return Ok(()) };
    let why = match stale {
        Stale::Other => "the task before on this core left none of this size and bank split",
        Stale::Detached => {
            "what CBUF holds was fetched through translations that are attached no more"
        }
        Stale::Address(_) => "what CBUF holds was fetched from another address",
    };
    let values = format!("{what} reuse, but {why}");
    match stale {
        Stale::Other | Stale::Detached => report.broken(&STALE_CBUF, regs, &values),
        // The address is not used; a program may leave it alone.
        Stale::Address(from) => {
            let values = format!("{values} ({from:#x})");
            report.broken_with(&STALE_CBUF, Effect::Note, regs, &values)
        }
    }
}
