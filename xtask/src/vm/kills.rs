// SPDX-License-Identifier: MIT OR Apache-2.0
//! `cargo xtask vm kills`: how often a killed client meets the driver's use after
//! free, and by which way (tests/hw/bugs/use-after-close.md).

use std::collections::BTreeMap;

use anyhow::{Context, Result, bail, ensure};

use super::guest::Guest;
use super::qemu::ProgramEnd;
use super::runner::GuestRunner;

/// The program that kills clients, which runs in the guests.
const PROGRAM: &str = "rocket-kills";

/// For a guest, in seconds; a kill takes a second, with KASAN three.
const LIMIT: u64 = 1800;

#[derive(clap::Args, Debug)]
pub(crate) struct KillsArgs {
    #[command(flatten)]
    guest: Guest,
    /// Clients to kill
    #[arg(long, value_name = "N", default_value_t = 200)]
    kills: u32,
    /// Kill between two products instead of at any moment
    #[arg(long)]
    between: bool,
    /// Clients have an exported buffer object, as they must to have fences
    #[arg(long)]
    export: bool,
}

/// Kills clients, and boots again after each complaint of the kernel.
pub(crate) fn run(arguments: &KillsArgs) -> Result<()> {
    let runner = GuestRunner::prepare(&arguments.guest)?;
    let (files, program) = runner.files(PROGRAM)?;
    let mut complaints: BTreeMap<String, u32> = BTreeMap::new();
    let mut killed = 0;
    while killed < arguments.kills {
        let mut command = vec![program.clone(), "--destructive".to_owned()];
        command.extend(["--seed".to_owned(), killed.to_string()]);
        command.extend(["--kills".to_owned(), (arguments.kills - killed).to_string()]);
        command.extend(arguments.between.then(|| "--between".to_owned()));
        command.extend(arguments.export.then(|| "--export".to_owned()));
        let mut files = files.clone();
        files.command(&command);
        let finished = runner.finish(files, LIMIT)?;
        eprint!("{}", finished.stderr);
        let (text, run) = (finished.text(), &finished.run);
        if let ProgramEnd::Failed(why) = &run.end {
            bail!("{why}; the kernel's last words:\n{}", run.console.tail());
        }
        let (number, what) = parse(&text)
            .with_context(|| format!("{PROGRAM} ended with {:?}: {text:?}", run.end))?;
        ensure!(number > 0, "no client was killed");
        killed += number;
        if what != "none" {
            *complaints.entry(what.to_owned()).or_default() += 1;
        }
        println!("{killed} killed: {complaints:?}");
    }
    let all: u32 = complaints.values().sum();
    println!("RESULT {killed} clients killed, {all} complaints of the kernel {complaints:?}");
    Ok(())
}

/// The line `killed N complaint WHAT`.
fn parse(text: &str) -> Option<(u32, &str)> {
    let rest = text.lines().last()?.strip_prefix("killed ")?;
    let (number, what) = rest.split_once(" complaint ")?;
    Some((number.parse().ok()?, what.trim()))
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn the_last_line_tells() {
        assert_eq!(parse("x\nkilled 7 complaint late\n"), Some((7, "late")));
        assert_eq!(parse("killed x complaint late"), None);
        assert_eq!(parse(""), None);
    }
}
