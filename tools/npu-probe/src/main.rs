// SPDX-License-Identifier: MIT OR Apache-2.0
//! `npu-probe`: checks, measures and uses the NPU of an RK3588.
//!
//! Without a command it runs the self-test. `command_line` parses the command line without touching
//! the system, `cmd` has the commands and their options, `report` formats results, and `output`
//! prints them.
#![deny(unsafe_code)]

mod bench;
mod calibrate;
mod capture_file;
mod cmd;
mod command_line;
mod data;
mod date;
mod doctor;
mod end_signals;
mod evidence;
mod exit;
mod expected;
mod experiment;
mod first;
mod flags;
mod gguf;
mod html_report;
#[cfg(feature = "manual")]
mod manual;
mod matmul;
mod output;
mod program;
mod progress;
mod report;
mod served;
mod shape;
mod soak;
mod sudo;
mod table;

use std::process::ExitCode;

use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

use crate::command_line::{Command, Flags};
use crate::exit::{Failure, Verdict};

fn main() -> ExitCode {
    log_to_stderr();
    let flags = match Flags::read() {
        Ok(flags) => flags,
        Err(failure) => return end(Err::<Verdict, _>(failure)),
    };
    let outcome = match &flags.command {
        None => cmd::selftest::run(&flags.selftest),
        Some(Command::Selftest(selftest)) => cmd::selftest::run(selftest),
        Some(Command::Doctor(doctor)) => return end(cmd::doctor::run(doctor)),
        Some(Command::Asm(asm)) => cmd::asm::run(asm),
        Some(Command::Decode(decode)) => cmd::decode::run(decode),
        Some(Command::Run(run)) => return end(cmd::run::run(run)),
        Some(Command::Replay(replay)) => cmd::replay::run(replay),
        Some(Command::Calibrate(calibrate)) => cmd::calibrate::run(calibrate),
        Some(Command::Model(model)) => cmd::model::run(model),
        Some(Command::Bench(bench)) => cmd::bench::run(bench),
        Some(Command::First { first, rung }) => cmd::evidence::run_first(first, rung),
        Some(Command::Explain(explain)) => cmd::explain::run(explain),
        Some(Command::Evidence(evidence)) => cmd::evidence::run(evidence),
        Some(Command::Report(report)) => cmd::report::run(report),
        #[cfg(feature = "manual")]
        Some(Command::Manual { folder }) => manual::run(folder),
    };
    end(outcome)
}

/// Logs to standard error: errors, or what RUST_LOG selects (`debug`,
/// `npu_matmul=trace,rocket_uapi=info`).
fn log_to_stderr() {
    let named = std::env::var("RUST_LOG").ok();
    let targets = named.and_then(|named| named.parse::<Targets>().ok());
    tracing_subscriber::registry()
        .with(
            tracing_subscriber::fmt::layer()
                .with_ansi(output::is_coloured(&std::io::stderr()))
                .with_writer(std::io::stderr),
        )
        .with(targets.unwrap_or_else(|| Targets::new().with_default(LevelFilter::ERROR)))
        .init();
}

/// The exit code of a run; prints the error of a failed run on standard error.
fn end(outcome: Result<impl Into<u8>, Failure>) -> ExitCode {
    match outcome {
        Ok(code) => ExitCode::from(code.into()),
        Err(failure) => {
            output::complain(&failure.to_string());
            ExitCode::from(failure.code())
        }
    }
}
