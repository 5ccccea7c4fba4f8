// SPDX-License-Identifier: MIT OR Apache-2.0
//! Outcomes of a run and their exit codes, as `--help` documents them.

use std::path::Path;

use anyhow::Error;
use rocket_uapi::NO_THREAD_REMEDY;
use serde::{Deserialize, Serialize};

/// The verdict of a run that was possible.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub(crate) enum Verdict {
    /// All results are right: 0.
    #[serde(rename = "PASS")]
    Pass,
    /// A result differs: 1.
    #[serde(rename = "FAIL")]
    Mismatch,
}

impl Verdict {
    pub(crate) const fn of(is_right: bool) -> Self {
        if is_right { Self::Pass } else { Self::Mismatch }
    }

    /// The verdict as text, which names the software model.
    pub(crate) const fn words(self, is_model: bool) -> &'static str {
        match (self, is_model) {
            (Self::Pass, false) => "PASS",
            (Self::Pass, true) => "PASS (software model)",
            (Self::Mismatch, false) => "FAIL",
            (Self::Mismatch, true) => "FAIL (software model)",
        }
    }
}

impl From<Verdict> for u8 {
    fn from(verdict: Verdict) -> Self {
        match verdict {
            Verdict::Pass => 0,
            Verdict::Mismatch => 1,
        }
    }
}

/// Why a run was not possible.
#[derive(Debug, thiserror::Error)]
#[error("{}", summary(.0))]
pub(crate) enum Failure {
    /// The command line or an input is wrong: 2.
    Usage(Error),
    /// The requested device is not usable: 3.
    NoDevice(Error),
    /// The device or its driver failed: 4.
    Device(Error),
    /// Output could not be written: 5.
    Output(Error),
    /// `run` cannot execute its program: 126, like in shells.
    NotExecutable(Error),
    /// `run` does not find its program: 127, like in shells.
    NoProgram(Error),
}

/// An error and its causes, each once: some errors already contain their cause or file.
fn summary(error: &Error) -> String {
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
    /// Sizes without a plan are usage errors; all other errors of an engine are the device's.
    fn from(error: npu_matmul::Error) -> Self {
        match error {
            npu_matmul::Error::Plan(_) => Self::Usage(error.into()),
            _ => Self::Device(error.into()),
        }
    }
}

/// The error for a thread that could not be started, with the limit to raise.
pub(crate) fn no_thread(error: std::io::Error) -> Error {
    Error::new(error).context(format!("no thread could be started; {NO_THREAD_REMEDY}"))
}

/// The exit code of a device that is not usable.
pub(crate) const NO_DEVICE: u8 = 3;

/// Converts an error to a failure, with what was tried.
fn failing<E: Into<Error>>(
    kind: fn(Error) -> Failure,
    tried: impl Into<String>,
) -> impl FnOnce(E) -> Failure {
    let tried = tried.into();
    move |error| kind(error.into().context(tried))
}

impl Failure {
    pub(crate) fn usage<E: Into<Error>>(tried: impl Into<String>) -> impl FnOnce(E) -> Self {
        failing(Self::Usage, tried)
    }

    pub(crate) fn device<E: Into<Error>>(tried: impl Into<String>) -> impl FnOnce(E) -> Self {
        failing(Self::Device, tried)
    }

    pub(crate) fn output<E: Into<Error>>(tried: impl Into<String>) -> impl FnOnce(E) -> Self {
        failing(Self::Output, tried)
    }

    pub(crate) fn no_thread(error: std::io::Error) -> Self {
        Self::Device(no_thread(error))
    }

    /// The failure for a file that cannot be written.
    pub(crate) fn writing<E: Into<Error>>(file: &Path) -> impl FnOnce(E) -> Self {
        Self::output(format!("cannot write {}", file.display()))
    }

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
