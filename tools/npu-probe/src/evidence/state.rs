// SPDX-License-Identifier: MIT OR Apache-2.0
//! The state of a run: steps that have begun and ended, in a file that survives a
//! crash.

use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::exit::Failure;
use crate::output::write_whole;

const FILE: &str = "state.json";
/// Permissions of results: only the owner reads them, until the owner sends the
/// archive.
pub(crate) const EVIDENCE_MODE: u32 = 0o600;
/// File of a number that changes with each boot.
const BOOT: &str = "/proc/sys/kernel/random/boot_id";

/// The outcome of a step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub(crate) enum EvidenceOutcome {
    /// It is running, or was running when this program ended.
    Begun { boot: String },
    /// It ended by itself; `ok` if its exit code means success.
    Ended { code: i32, ok: bool },
    /// It was killed at its time limit.
    Killed { after_seconds: u64 },
    /// The machine crashed while it ran.
    MachineWentDown,
    /// It did not run, and why not.
    NotRun { reason: String },
}

impl EvidenceOutcome {
    pub(crate) const fn is_success(&self) -> bool {
        matches!(self, Self::Ended { ok: true, .. })
    }
}

/// The content of the state file.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct EvidenceState {
    /// The day on which the run began.
    pub(crate) date: String,
    /// The device that all steps use.
    pub(crate) device: String,
    /// Outcomes, by step name.
    pub(crate) steps: BTreeMap<String, EvidenceOutcome>,
}

impl EvidenceState {
    /// The state of an earlier run, or a new one.
    pub(crate) fn load(folder: &Path, device: &str) -> Result<Self, Failure> {
        let file = folder.join(FILE);
        let text = match fs::read(&file) {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::NotFound => {
                return Ok(Self {
                    date: crate::date::today(),
                    device: device.to_owned(),
                    steps: BTreeMap::new(),
                });
            }
            Err(error) => return Err(unusable(error.into(), &file)),
        };
        let mut state: Self =
            serde_json::from_slice(&text).map_err(|error| unusable(error.into(), &file))?;
        if state.device != device {
            let of = format!(
                "it holds results of {}, not of {device}; choose another directory with -o",
                state.device
            );
            return Err(unusable(anyhow::Error::msg(of), folder));
        }
        let boot = boot();
        for outcome in state.steps.values_mut() {
            if matches!(outcome, EvidenceOutcome::Begun { boot: then } if *then != boot) {
                *outcome = EvidenceOutcome::MachineWentDown;
            }
        }
        Ok(state)
    }

    /// Whether a step ended with success.
    pub(crate) fn succeeded(&self, name: &str) -> bool {
        self.steps
            .get(name)
            .is_some_and(EvidenceOutcome::is_success)
    }

    /// Whether a step must run now.
    pub(crate) fn is_due(&self, name: &str, retry: bool) -> bool {
        match self.steps.get(name) {
            // This program alone ended, or the reason not to run may be gone.
            None | Some(EvidenceOutcome::Begun { .. } | EvidenceOutcome::NotRun { .. }) => true,
            Some(EvidenceOutcome::Ended { ok: true, .. }) => false,
            Some(_) => retry,
        }
    }

    /// Records the outcome of a step; it is on the disk when this returns.
    pub(crate) fn record(
        &mut self,
        folder: &Path,
        name: &str,
        outcome: EvidenceOutcome,
    ) -> Result<(), Failure> {
        self.steps.insert(name.to_owned(), outcome);
        let text = serde_json::to_vec_pretty(self).map_err(Failure::output("the state"))?;
        write_whole(&folder.join(FILE), &text, EVIDENCE_MODE)
    }

    pub(crate) fn begin(&mut self, folder: &Path, name: &str) -> Result<(), Failure> {
        self.record(folder, name, EvidenceOutcome::Begun { boot: boot() })
    }
}

fn unusable(error: anyhow::Error, path: &Path) -> Failure {
    Failure::Usage(error.context(format!("cannot continue the run in {}", path.display())))
}

fn boot() -> String {
    fs::read_to_string(BOOT)
        .unwrap_or_default()
        .trim()
        .to_owned()
}
