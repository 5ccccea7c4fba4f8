// SPDX-License-Identifier: MIT OR Apache-2.0
//! `cargo xtask vm first`: runs `npu-probe first` on the real driver, on imitated boards that
//! differ. It must finish and name exactly the differences.

use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;

use super::guest::Guest;
use super::initramfs::{COMMAND, ENVIRONMENT};
use super::qemu::Streams;
use super::runner::{GuestRunner, ProgramFailed};

const PROGRAM: &str = "npu-probe";
/// Seconds. The guest's processors are slow, and each rung is computed twice.
const LIMIT: u64 = 3600;
/// Seconds that a rung may take in the guest, on a busy machine.
const RUNG_LIMIT: &str = "900";

#[derive(clap::Args, Debug)]
pub(crate) struct FirstArgs {
    #[command(flatten)]
    guest: Guest,
    /// Imitate only these boards: `works`, or the name of one that differs
    #[arg(value_name = "BOARD")]
    boards: Vec<String>,
}

/// An imitated board, and the expected output of `first`.
struct PlayedBoard {
    name: &'static str,
    /// Options of the guest's NPU.
    npu: &'static [&'static str],
    verdict: &'static str,
    /// The only rung that `first` names.
    cause: Option<&'static str>,
    /// Text that `first` shows for it, if it shows any.
    shown: &'static str,
}

const BOARDS: [PlayedBoard; 6] = [
    PlayedBoard {
        name: "works",
        npu: &[],
        verdict: "works",
        cause: None,
        shown: "",
    },
    PlayedBoard {
        name: "form-a-hangs",
        npu: &["fact=core-idle-mainline=hangs"],
        verdict: "works",
        cause: Some("form-a"),
        shown: "core-idle-mainline=hangs",
    },
    PlayedBoard {
        name: "int8-reuse",
        npu: &["fact=int8-reuse=garbage"],
        verdict: "works",
        cause: Some("int8-reuse"),
        shown: "int8-reuse=garbage",
    },
    PlayedBoard {
        name: "slack-bank",
        npu: &["fact=int8-slack-bank=needed"],
        verdict: "works-without",
        cause: Some("int8-exact-banks"),
        shown: "int8-slack-bank=needed",
    },
    PlayedBoard {
        name: "streaming",
        npu: &["fact=weight-room=all"],
        verdict: "works-without",
        cause: Some("fp16-streams"),
        shown: "weight-room=all",
    },
    PlayedBoard {
        name: "wedged-core",
        npu: &["wedged=1"],
        verdict: "works-without",
        cause: Some("cores"),
        shown: "",
    },
];

/// The fields of `first --json` that are checked.
#[derive(Deserialize)]
struct Report {
    verdict: String,
    sentence: String,
    causes: Vec<Cause>,
}

#[derive(Deserialize)]
struct Cause {
    name: String,
    shown: Vec<String>,
    as_model_with: Vec<String>,
}

pub(crate) fn run(arguments: &FirstArgs) -> Result<()> {
    let asked = &arguments.boards;
    let is_asked =
        |board: &&PlayedBoard| asked.is_empty() || asked.iter().any(|one| one == board.name);
    let known = BOARDS.each_ref().map(|board| board.name);
    if let Some(name) = asked.iter().find(|name| !known.contains(&name.as_str())) {
        bail!("there is no board `{name}`; there are {}", known.join(", "));
    }
    let mut runner = GuestRunner::prepare(&arguments.guest)?;
    let (files, program) = runner.files(PROGRAM)?;
    let mut all = true;
    for board in BOARDS.iter().filter(is_asked) {
        let mut files = files.clone();
        files.set_list(ENVIRONMENT, &["XDG_CONFIG_HOME=/config"]);
        let words = ["first", "--json", "-o", "/evidence", "--limit", RUNG_LIMIT];
        files.set_list(COMMAND, &[&[&*program], &words[..]].concat());
        runner.play(board.npu);
        let finished = runner.run(files, LIMIT, Streams::Kept)?;
        finished.tell_complaints();
        finished.status()?;
        let text = finished.text();
        let report: Report = serde_json::from_str(&text).with_context(|| {
            format!("{}: {text}", String::from_utf8_lossy(&finished.left.stderr))
        })?;
        let is_right = finished.all_known && board.is_told_by(&report);
        let word = if is_right { "ok" } else { "not ok" };
        println!("{word} {}: {}", board.name, report.sentence);
        if !is_right {
            println!("{text}");
        }
        all &= is_right;
    }
    ensure!(all, ProgramFailed(1));
    Ok(())
}

impl PlayedBoard {
    fn is_told_by(&self, report: &Report) -> bool {
        let names: Vec<_> = report.causes.iter().map(|cause| &*cause.name).collect();
        let shown = |cause: &Cause| {
            let mut lines = cause.shown.iter().chain(&cause.as_model_with);
            self.shown.is_empty() || lines.any(|line| line.contains(self.shown))
        };
        report.verdict == self.verdict
            && names == Vec::from_iter(self.cause)
            && report.causes.iter().all(shown)
    }
}
