// SPDX-License-Identifier: MIT OR Apache-2.0
//! The state of a run: steps that have begun and ended, in a file that survives a
//! crash.

use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use serde::{Deserialize, Serialize};

use crate::date::date;
use crate::exit::Failure;
use crate::output::write_private;

const FILE: &str = "state.json";
/// File of a number that changes with each boot.
const BOOT: &str = "/proc/sys/kernel/random/boot_id";

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

    pub(crate) const fn has_ended(&self) -> bool {
        matches!(self, Self::Ended { .. })
    }

    /// How it failed, if it did.
    pub(crate) fn failure(&self) -> Option<String> {
        match self {
            Self::Ended { ok: false, code } => Some(format!("its process ended with code {code}")),
            Self::Killed { after_seconds } => {
                Some(format!("it did not end within {after_seconds} s"))
            }
            Self::MachineWentDown => Some("the machine went down".to_owned()),
            Self::Ended { ok: true, .. } | Self::Begun { .. } | Self::NotRun { .. } => None,
        }
    }
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct EvidenceState {
    #[serde(skip)]
    file: PathBuf,
    /// The day on which the run began.
    pub(crate) date: String,
    /// The device that all steps use.
    pub(crate) device: String,
    pub(crate) steps: BTreeMap<String, EvidenceOutcome>,
    /// Cores that completed no job from the start.
    #[serde(default)]
    pub(crate) dead_cores: Vec<u32>,
}

impl EvidenceState {
    /// The state of an earlier run, or a new one.
    pub(crate) fn load(folder: &Path, device: &str) -> Result<Self, Failure> {
        let file = folder.join(FILE);
        let state = match fs::read(&file) {
            Ok(text) => serde_json::from_slice(&text).map_err(anyhow::Error::from),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(Self {
                file: PathBuf::new(),
                date: date(SystemTime::now()),
                device: device.to_owned(),
                steps: BTreeMap::new(),
                dead_cores: Vec::new(),
            }),
            Err(error) => Err(error.into()),
        };
        let mut state: Self = state.map_err(|error| unusable(error, &file))?;
        state.file = file;
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

    pub(crate) fn succeeded(&self, name: &str) -> bool {
        self.steps
            .get(name)
            .is_some_and(EvidenceOutcome::is_success)
    }

    pub(crate) fn is_due(&self, name: &str, retry: bool) -> bool {
        match self.steps.get(name) {
            // This program alone ended, or the reason not to run may be gone.
            None | Some(EvidenceOutcome::Begun { .. } | EvidenceOutcome::NotRun { .. }) => true,
            Some(EvidenceOutcome::Ended { ok: true, .. }) => false,
            Some(_) => retry,
        }
    }

    /// Records the outcome of a step; it is on the disk when this returns.
    pub(crate) fn record(&mut self, name: &str, outcome: EvidenceOutcome) -> Result<(), Failure> {
        self.steps.insert(name.to_owned(), outcome);
        let text = serde_json::to_vec_pretty(self).map_err(Failure::output("the state"))?;
        write_private(&self.file, &text)
    }

    pub(crate) fn begin(&mut self, name: &str) -> Result<(), Failure> {
        self.record(name, EvidenceOutcome::Begun { boot: boot() })
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
