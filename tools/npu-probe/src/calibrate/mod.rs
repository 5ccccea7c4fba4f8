// SPDX-License-Identifier: MIT OR Apache-2.0
//! Measurements of `npu-probe calibrate`, and the profile that they give.
//!
//! ```text
//! machine   clock, memory, start costs: tasks that have all run on silicon before
//! host      the CPU's kernels, cache maintenance
//! facts     experiments on contested facts, the risky ones last
//! tiles     tiles that grow beyond those that have run, until one is wrong or hangs
//! ```
//!
//! The software model's times are those of its timing model, so the same model always gives
//! the same profile. The host's CPU is then not measured.

pub(crate) mod facts;
mod host;
mod machine;
mod report;
mod tiles;
mod timed;

use std::fs;
use std::path::Path;

use anyhow::Context;
use npu_matmul::Profile;
use npu_matmul::profile::Board;
use npu_model::Opened;

use crate::exit::Failure;
use crate::output::{folder_of, try_write_whole};

pub(crate) use report::CalibrateReport;
pub(crate) use tiles::extend;

/// Permissions of a profile: its owner reads and writes, others read.
const MODE: u32 = 0o644;

/// Measures everything that cannot hang a core, except the facts. `tell` prints progress and
/// results; `keep` gets the profile after each part, so that a failure loses no earlier part.
pub(crate) fn measured(
    opened: &Opened,
    tell: &impl Fn(&str),
    keep: &impl Fn(&Profile) -> Result<(), Failure>,
) -> Result<Profile, Failure> {
    let info = opened.device.info();
    let board = Board::of(&info);
    let mut profile = Profile::clone(&Profile::built_in());
    // Keeps the findings of `first`, so that the measurements avoid what failed there.
    let found = Profile::find(&info).unwrap_or_else(|_| Profile::built_in());
    if found.board.is_some() {
        profile.choices = found.choices.clone();
        profile.facts = found.facts.clone();
        if !found.measured {
            profile.envelope = found.envelope.clone();
        }
    }
    profile.name = format!("{board}, calibrated").into();
    profile.board = Some(board);
    profile.measured = true;
    tell("clock, memory and start costs");
    profile.machine = machine::measure(opened, info.files(), tell)?;
    tell(&format!("  {}", report::machine(&profile.machine)));
    keep(&profile)?;
    if !info.is_model {
        tell("CPU kernels");
        profile.host = host::measure(&opened.device)?;
        tell(&report::host(&profile.host));
        keep(&profile)?;
    }
    Ok(profile)
}

/// Writes the whole file of a profile or nothing: the old content took long to measure.
pub(crate) fn write(file: &Path, profile: &Profile) -> Result<(), Failure> {
    let write = || -> anyhow::Result<()> {
        let json = profile.to_json().context("too many plans")?;
        Profile::from_json(json.as_bytes()).context(
            "the measurements contradict each other; stop other users of the NPU and \
             try again",
        )?;
        // Writes through a symbolic link instead of replacing it.
        let file = file.canonicalize().unwrap_or_else(|_| file.to_owned());
        fs::create_dir_all(folder_of(&file)).context("cannot create its folder")?;
        try_write_whole(&file, json.as_bytes(), MODE)
    };
    write().map_err(Failure::output(format!(
        "cannot write the profile {}",
        file.display()
    )))
}
