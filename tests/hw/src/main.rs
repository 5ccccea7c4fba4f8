// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs the driver regression tests on a board, or on the software model.

use std::io::{self, Write};
use std::process::ExitCode;

use clap::Parser;
use rocket_hw_tests::{Choice, NotPassed, ROWS, ReportFormat, Scenario, open_or_exit, run};
use rocket_uapi::Selector;

/// Checks what the rocket driver answers to each call, row by row.
///
/// Rows that may damage a kernel run on a board only if asked for; `--list` says
/// what they do to it. Rows that are known to fail on this kernel are no failures:
/// tests/hw/bugs describes each.
///
/// Ends with the line `N passed, N failed, N skipped`. Exit status: 0 if no
/// row failed, 1 if one did, 2 for a wrong command line, 3 if the device that
/// was asked for cannot be used, 4 if the output cannot be written.
#[derive(Debug, Parser)]
#[command(version)]
struct Arguments {
    /// Where to run: `auto` (a kernel device if there is one, else the
    /// model), `model`, or the path of a device node [default: $ROCKET_DEVICE,
    /// else auto]
    #[arg(long, value_name = "auto|model|PATH")]
    device: Option<Selector>,
    /// On a board, run also the rows that may damage its kernel (the model
    /// runs them always)
    #[arg(long)]
    destructive: bool,
    /// Write KTAP, for test runners
    #[arg(long)]
    ktap: bool,
    /// Leave out the rows whose names contain this; may be repeated
    #[arg(long, value_name = "NAME")]
    except: Vec<String>,
    /// Run only this scenario, which rows run in a separate process
    #[arg(long, hide = true)]
    scenario: Option<Scenario>,
    /// List the rows instead of running them
    #[arg(long)]
    list: bool,
    /// Write the man page into this directory
    #[cfg(feature = "manual")]
    #[arg(long, hide = true, value_name = "DIRECTORY")]
    manual: Option<std::path::PathBuf>,
    /// Run only the rows whose names contain one of these
    names: Vec<String>,
}

const NO_OUTPUT: u8 = 4;

fn main() -> ExitCode {
    match execute(Arguments::parse(), &mut io::stdout().lock()) {
        Ok(code) => code,
        // The reader has closed the output.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("cannot write the results: {error}");
            ExitCode::from(NO_OUTPUT)
        }
    }
}

fn execute(arguments: Arguments, out: &mut dyn Write) -> io::Result<ExitCode> {
    #[cfg(feature = "manual")]
    if let Some(folder) = arguments.manual {
        let command = <Arguments as clap::CommandFactory>::command();
        return clap_mangen::generate_to(command.name("rocket-conformance"), folder)
            .map(|()| ExitCode::SUCCESS);
    }
    let choice = Choice {
        names: arguments.names,
        except: arguments.except,
        destructive: arguments.destructive,
    };
    if arguments.list {
        for row in ROWS.iter().filter(|row| choice.names(row)) {
            write!(out, "{:<20} {}", row.name, row.what)?;
            match row.danger {
                Some(danger) => writeln!(out, " [destructive: {danger}]")?,
                None => writeln!(out)?,
            }
        }
        return Ok(ExitCode::SUCCESS);
    }
    if let Some(name) = choice.unknown_name() {
        eprintln!("no row has `{name}` in its name; --list shows them all");
        return Ok(ExitCode::from(2));
    }
    let opened = match open_or_exit(arguments.device) {
        Ok(opened) => opened,
        Err(code) => return Ok(code),
    };
    if let Some(scenario) = arguments.scenario {
        let code = match scenario.run(&opened.device) {
            Ok(()) => 0,
            Err(NotPassed::Fail(why) | NotPassed::Skip(why)) => {
                eprintln!("{why}");
                1
            }
        };
        // The device stays open: the kernel closes it.
        std::process::exit(code);
    }
    let format = if arguments.ktap {
        ReportFormat::Ktap
    } else {
        for line in &opened.why {
            writeln!(out, "{line}")?;
        }
        ReportFormat::Text
    };
    let summary = run(&opened.device, &choice, format, out)?;
    Ok(if summary.failed == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}
