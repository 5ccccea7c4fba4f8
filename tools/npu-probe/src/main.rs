// SPDX-License-Identifier: MIT OR Apache-2.0
//! `npu-probe`: checks, measures and uses the NPU of an RK3588.
//!
//! Without a command it runs the self-test. Folders, each of which uses those before it only:
//!
//! | folder | content |
//! |---|---|
//! | `base` | flags that several commands have, exit codes, text and tables |
//! | `doctor` | reads files of the system, opens no device |
//! | `matmul` | one matmul and its check; models in GGUF files |
//! | `experiment` | register programs as data, and one runner |
//! | `board` | the first contact with a board, and the archive of its results |
//! | `measure` | speeds: benchmarks, calibration, the page of plots |
//! | `served` | reports of `run` |
//! | `cmd` | the command line; one file a command |
#![deny(unsafe_code)]

mod base;
mod board;
mod cmd;
mod doctor;
mod experiment;
mod matmul;
mod measure;
mod served;

use std::process::ExitCode;

use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

use crate::base::exit::{Failure, Verdict};
use crate::base::output;
use crate::cmd::command_line::{Command, Flags};

fn main() -> ExitCode {
    log_to_stderr();
    // Not a command of the definition, which completions list.
    #[cfg(feature = "manual")]
    if let Some(folder) = cmd::manual::folder() {
        return end(cmd::manual::run(&folder));
    }
    let flags = match Flags::read() {
        Ok(Some(flags)) => flags,
        Ok(None) => return ExitCode::SUCCESS,
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
