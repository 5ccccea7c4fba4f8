// SPDX-License-Identifier: MIT OR Apache-2.0
//! `npu-probe rung`: runs one experiment of the ladder, in a separate process.

use anyhow::anyhow;

use crate::exit::{Failure, Verdict};
use crate::first::{Rung, RungRecord};
use crate::flags::RungFlags;
use crate::output;

pub(crate) fn run(args: &RungFlags) -> Result<Verdict, Failure> {
    let rung = Rung::named(&args.name).ok_or_else(|| {
        Failure::Usage(anyhow!("there is no rung `{}`", args.name.escape_debug()))
    })?;
    let opened = super::open(&args.device)?;
    let record = match args.flip {
        true => RungRecord::flip(rung, &opened.device),
        false => RungRecord::run(rung, &opened.device),
    };
    let record = record.map_err(Failure::Device)?;
    output::print_json(&record)?;
    Ok(Verdict::of(record.right))
}
