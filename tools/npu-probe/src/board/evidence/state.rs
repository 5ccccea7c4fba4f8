// SPDX-License-Identifier: MIT OR Apache-2.0
//! The state of a run: steps that have begun and ended, in a file that survives a
//! crash.

use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use serde::{Deserialize, Serialize};

use crate::base::date::date;
use crate::base::exit::Failure;
use crate::base::output::write_private;

const FILE: &str = "state.json";
/// Files of a number that changes with each boot, and of the kernel's release.
const BOOT: &str = "/proc/sys/kernel/random/boot_id";
const KERNEL: &str = "/proc/sys/kernel/osrelease";

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
    /// Kernel, boot and version of this program of the last run.
    #[serde(default)]
    kernel: String,
    #[serde(default)]
    boot: String,
    #[serde(default)]
    version: String,
    /// Whether all steps were done.
    #[serde(default)]
    finished: bool,
    /// Cores that completed no job from the start.
    #[serde(default)]
    pub(crate) dead_cores: Vec<u32>,
}

impl EvidenceState {
    /// The state of an earlier run, or a new one; and why the earlier one does not count. A run
    /// goes on after a boot, but not after it was done.
    pub(crate) fn load(folder: &Path, device: &str) -> Result<(Self, Option<String>), Failure> {
        let file = folder.join(FILE);
        let state = match fs::read(&file) {
            Ok(text) => serde_json::from_slice(&text).map_err(anyhow::Error::from),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(Self::new(device)),
            Err(error) => Err(error.into()),
        };
        let mut state: Self = state.map_err(|error| unusable(error, &file))?;
        if state.device != device {
            let of = format!(
                "it holds results of {}, not of {device}; choose another directory with -o",
                state.device
            );
            return Err(unusable(anyhow::Error::msg(of), folder));
        }
        let mut now = Self::new(device);
        for outcome in state.steps.values_mut() {
            if matches!(outcome, EvidenceOutcome::Begun { boot: then } if *then != now.boot) {
                *outcome = EvidenceOutcome::MachineWentDown;
                state.finished = false;
            }
        }
        let changed = |what, [then, now]: [&str; 2]| format!("{what} was {then} and is {now}");
        let why = if state.steps.is_empty() {
            None
        } else if state.kernel != now.kernel {
            Some(changed("the kernel", [&state.kernel, &now.kernel]))
        } else if state.version != now.version {
            Some(changed("npu-probe", [&state.version, &now.version]))
        } else if state.boot != now.boot && state.finished {
            // What crashed this kernel would crash it again.
            now.steps = state.steps.clone();
            now.steps
                .retain(|_, outcome| *outcome == EvidenceOutcome::MachineWentDown);
            Some("the machine was booted".to_owned())
        } else {
            now.steps = state.steps;
            now.date = state.date;
            now.finished = state.finished;
            now.dead_cores = state.dead_cores;
            None
        };
        now.file = file;
        Ok((now, why))
    }

    fn new(device: &str) -> Self {
        let line = |file| {
            fs::read_to_string(file)
                .unwrap_or_default()
                .trim()
                .to_owned()
        };
        Self {
            file: PathBuf::new(),
            date: date(SystemTime::now()),
            device: device.to_owned(),
            steps: BTreeMap::new(),
            kernel: line(KERNEL),
            boot: line(BOOT),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            finished: false,
            dead_cores: Vec::new(),
        }
    }

    /// Records that all steps are done.
    pub(crate) fn finish(&mut self) -> Result<(), Failure> {
        self.finished = true;
        self.write()
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
        self.finished = false;
        self.write()
    }

    fn write(&self) -> Result<(), Failure> {
        let text = serde_json::to_vec_pretty(self).map_err(Failure::output("the state"))?;
        write_private(&self.file, &text)
    }

    pub(crate) fn begin(&mut self, name: &str) -> Result<(), Failure> {
        self.record(
            name,
            EvidenceOutcome::Begun {
                boot: self.boot.clone(),
            },
        )
    }
}

fn unusable(error: anyhow::Error, path: &Path) -> Failure {
    Failure::Usage(error.context(format!("cannot continue the run in {}", path.display())))
}
