// SPDX-License-Identifier: MIT OR Apache-2.0
//! How a run ends: the exit codes that `--help` promises.

use std::process::ExitCode;

use crate::output;

/// What came out of a run that was possible.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// All is right: 0.
    Pass,
    /// The result is not the CPU's: 1.
    Mismatch,
}

/// Why a run was not possible.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// The command line or an input makes no sense: 2.
    #[error("{0:#}")]
    Usage(anyhow::Error),
    /// The device that was demanded is not usable: 3.
    #[error("{0:#}")]
    NoDevice(anyhow::Error),
    /// The device or its driver failed: 4.
    #[error("{0:#}")]
    Device(anyhow::Error),
    /// Output could not be written: 5.
    #[error("{0:#}")]
    Output(anyhow::Error),
    /// The program that `run` was given cannot be executed: 126, as shells say.
    #[error("{0:#}")]
    NotExecutable(anyhow::Error),
    /// There is no such program: 127, as shells say.
    #[error("{0:#}")]
    NoProgram(anyhow::Error),
}

impl From<npu_matmul::Error> for Failure {
    /// Whose fault an engine's error is: sizes without a plan are the user's.
    fn from(error: npu_matmul::Error) -> Self {
        match error {
            npu_matmul::Error::Plan(_) => Self::Usage(error.into()),
            _ => Self::Device(error.into()),
        }
    }
}

impl Failure {
    const fn code(&self) -> u8 {
        match self {
            Self::Usage(_) => 2,
            Self::NoDevice(_) => 3,
            Self::Device(_) => 4,
            Self::Output(_) => 5,
            Self::NotExecutable(_) => 126,
            Self::NoProgram(_) => 127,
        }
    }
}

/// Ends a run; says why on standard error if it failed.
pub(crate) fn of(outcome: Result<Verdict, Failure>) -> ExitCode {
    match outcome {
        Ok(Verdict::Pass) => ExitCode::SUCCESS,
        Ok(Verdict::Mismatch) => ExitCode::from(1),
        Err(failure) => {
            output::complain(&failure.to_string());
            ExitCode::from(failure.code())
        }
    }
}

/// Ends a run of another program, as that ended.
pub(crate) fn of_program(outcome: Result<u8, Failure>) -> ExitCode {
    match outcome {
        Ok(code) => ExitCode::from(code),
        Err(failure) => of(Err(failure)),
    }
}

/// Ends a run that clap ended: help and version go to standard output with 0,
/// errors to standard error with 2.
pub(crate) fn of_clap(told: &clap::Error) -> ExitCode {
    // Nobody to tell if this cannot be written; a closed pipe is no error.
    let _ = told.print();
    ExitCode::from(u8::try_from(told.exit_code()).unwrap_or(2))
}
