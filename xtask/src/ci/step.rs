// SPDX-License-Identifier: MIT OR Apache-2.0
//! A step of CI as data, and the commands that several steps have.

use std::fmt;
use std::process::Command;

use crate::arch::Arch;
use crate::build::GUEST_TARGET;
use crate::{nightly, paths};

/// The nightly toolchain of the steps that need one.
pub(super) const NIGHTLY: &str = nightly::TOOLCHAIN;

/// The board's architecture.
pub(super) const AARCH64: &str = Arch::Arm64.rust_target();

/// One step: a name, what it proves, and commands that must all succeed.
pub(super) struct CiStep {
    pub(super) name: &'static str,
    pub(super) what: &'static str,
    pub(super) runs: Vec<StepCommand>,
}

/// One command with its environment.
pub(super) struct StepCommand {
    program: String,
    arguments: Vec<String>,
    environment: Vec<(&'static str, String)>,
}

impl StepCommand {
    pub(super) fn new(program: &str, arguments: &str) -> Self {
        Self {
            program: program.to_owned(),
            arguments: arguments.split_whitespace().map(str::to_owned).collect(),
            environment: Vec::new(),
        }
    }

    pub(super) fn cargo(arguments: &str) -> Self {
        Self::new("cargo", arguments)
    }

    pub(super) fn env(mut self, name: &'static str, value: &str) -> Self {
        self.environment.push((name, value.to_owned()));
        self
    }

    /// The command, to be run at the root of the work tree.
    pub(super) fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        command.args(&self.arguments).current_dir(paths::root());
        for (name, value) in &self.environment {
            command.env(name, value);
        }
        command
    }
}

impl fmt::Display for StepCommand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, value) in &self.environment {
            write!(f, "{name}={value} ")?;
        }
        write!(f, "{}", self.program)?;
        for argument in &self.arguments {
            write!(f, " {argument}")?;
        }
        Ok(())
    }
}

/// Installs what Miri and the sanitizers need, where it is not there.
pub(super) fn nightly_toolchain() -> StepCommand {
    StepCommand::new(
        "rustup",
        &format!("toolchain install {NIGHTLY} --profile minimal -c miri -c rust-src"),
    )
}

/// Installs the standard library of the board's architecture, where it is not there.
pub(super) fn board_target() -> StepCommand {
    StepCommand::new("rustup", &format!("target add {AARCH64}"))
}

/// The same for programs of a guest.
pub(super) fn guest_target() -> StepCommand {
    StepCommand::new("rustup", &format!("target add {GUEST_TARGET}"))
}
