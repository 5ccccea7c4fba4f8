// SPDX-License-Identifier: MIT OR Apache-2.0
//! `npu-probe rung`: runs one experiment of the ladder, in a separate process.

use anyhow::anyhow;
use clap::Args;

use crate::exit::{Failure, Verdict};
use crate::first::{Rung, RungRecord};
use crate::flags::DeviceFlags;
use crate::output;

#[derive(Debug, Args)]
pub(crate) struct RungFlags {
    /// Name of the experiment
    name: String,

    /// Run the parent experiment's program instead, once for each register that differs
    #[arg(long)]
    flip: bool,

    #[command(flatten)]
    device: DeviceFlags,
}

pub(crate) fn run(args: &RungFlags) -> Result<Verdict, Failure> {
    let rung = Rung::named(&args.name).ok_or_else(|| {
        Failure::Usage(anyhow!("there is no rung `{}`", args.name.escape_debug()))
    })?;
    let opened = super::open(&args.device)?;
    let record = if args.flip {
        RungRecord::flip(rung, &opened.device)
    } else {
        RungRecord::run(rung, &opened.device)
    };
    let record = record.map_err(Failure::Device)?;
    output::print_json(&record)?;
    Ok(Verdict::of(record.right))
}
