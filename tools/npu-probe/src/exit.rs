// SPDX-License-Identifier: MIT OR Apache-2.0
//! How a run ends: the exit codes that `--help` promises.

use rocket_uapi::NO_THREAD_REMEDY;
use serde::Serialize;

/// What came out of a run that was possible.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) enum Verdict {
    /// All is right: 0.
    #[serde(rename = "PASS")]
    Pass,
    /// The result is not the CPU's: 1.
    #[serde(rename = "FAIL")]
    Mismatch,
}

impl Verdict {
    pub(crate) const fn of(is_right: bool) -> Self {
        match is_right {
            true => Self::Pass,
            false => Self::Mismatch,
        }
    }

    /// The verdict for people: on software it says nothing of an NPU.
    pub(crate) const fn words(self, is_model: bool) -> &'static str {
        match (self, is_model) {
            (Self::Pass, false) => "PASS",
            (Self::Pass, true) => "PASS (software model)",
            (Self::Mismatch, false) => "FAIL",
            (Self::Mismatch, true) => "FAIL (software model)",
        }
    }
}

/// Why a run was not possible.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// The command line or an input makes no sense: 2.
    #[error("{}", told(.0))]
    Usage(anyhow::Error),
    /// The device that was demanded is not usable: 3.
    #[error("{}", told(.0))]
    NoDevice(anyhow::Error),
    /// The device or its driver failed: 4.
    #[error("{}", told(.0))]
    Device(anyhow::Error),
    /// Output could not be written: 5.
    #[error("{}", told(.0))]
    Output(anyhow::Error),
    /// The program that `run` was given cannot be executed: 126, as shells say.
    #[error("{}", told(.0))]
    NotExecutable(anyhow::Error),
    /// There is no such program: 127, as shells say.
    #[error("{}", told(.0))]
    NoProgram(anyhow::Error),
}

/// An error and its causes, each of which is told once: some name theirs, or the file
/// that they are about, themselves.
fn told(error: &anyhow::Error) -> String {
    let mut text = String::new();
    for cause in error.chain().map(ToString::to_string) {
        if cause.contains(&text) {
            text = cause;
        } else if !text.contains(&cause) {
            text = format!("{text}: {cause}");
        }
    }
    text
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

/// A thread that could not be started, as an error that says what to raise.
pub(crate) fn no_thread(error: std::io::Error) -> anyhow::Error {
    anyhow::Error::new(error).context(format!("no thread could be started; {NO_THREAD_REMEDY}"))
}

/// The exit code of a device that is not usable.
pub(crate) const NO_DEVICE: u8 = 3;

impl Failure {
    /// The exit code of the failure.
    pub(crate) const fn code(&self) -> u8 {
        match self {
            Self::Usage(_) => 2,
            Self::NoDevice(_) => NO_DEVICE,
            Self::Device(_) => 4,
            Self::Output(_) => 5,
            Self::NotExecutable(_) => 126,
            Self::NoProgram(_) => 127,
        }
    }
}

#[cfg(test)]
mod tests {
    use anyhow::anyhow;

    use super::*;

    #[test]
    fn a_cause_is_told_once() {
        let os = || std::io::Error::other("no such file");
        for (error, text) in [
            (anyhow!(os()), "no such file"),
            (anyhow!(os()).context("x"), "x: no such file"),
            (
                anyhow!(os()).context("cannot open x: no such file"),
                "cannot open x: no such file",
            ),
            (
                anyhow!(os()).context("cannot open x").context("x"),
                "cannot open x: no such file",
            ),
        ] {
            assert_eq!(Failure::Usage(error).to_string(), text);
        }
    }
}
