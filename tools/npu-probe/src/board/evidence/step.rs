// SPDX-License-Identifier: MIT OR Apache-2.0
//! The steps, safest first: checks that only read files, the rungs of `first`, the default
//! plans, measurements, and last the driver suite.

use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use rocket_uapi::{DEVICE_VARIABLE, DeviceInfo};

use crate::board::first::{LADDER, Rung};

/// Time limits of steps, seconds, that suit volunteers.
const SHORT: u64 = 120;
const LONG: u64 = 1800;
/// A prompt that is long enough for the NPU.
const PROMPT: &str = "The quick brown fox jumps over the lazy dog. ";
const PROMPT_TIMES: usize = 30;
/// The profile that `calibrate` writes.
pub(crate) const PROFILE: &str = "profile.json";
/// The profile that `first` writes.
pub(crate) const FIRST_PROFILE: &str = "first-profile.json";
const TRACE: &str = "llama-trace.json";
/// Prefix of steps that run the default plans of a prompt.
pub(crate) const SELF_TEST: &str = "selftest-";
pub(crate) const RECORDING_END: &str = ".rkcap";

/// What all steps share: the device, the directory of the results, and programs.
#[derive(Debug)]
pub(crate) struct EvidenceSetup {
    /// The device as `--device` accepts it.
    pub(crate) device: String,
    pub(crate) info: DeviceInfo,
    pub(crate) board: String,
    pub(crate) folder: PathBuf,
    pub(crate) probe: PathBuf,
    pub(crate) conformance: Option<PathBuf>,
    pub(crate) llama: Option<PathBuf>,
    pub(crate) model: Option<PathBuf>,
}

/// A step: one program, and the files that it writes.
#[derive(Clone, Debug)]
pub(crate) struct EvidenceStep {
    pub(crate) name: String,
    /// The program, or why it cannot be run.
    program: Result<PathBuf, &'static str>,
    arguments: Vec<OsString>,
    variables: Vec<(&'static str, OsString)>,
    limit: u64,
    pub(crate) success_codes: &'static [i32],
    /// File of its standard output.
    pub(crate) output: String,
    others: Vec<String>,
    pub(crate) needs: Vec<String>,
    pub(crate) rung: Option<&'static Rung>,
}

impl EvidenceStep {
    /// The output's file is `name.end`.
    fn new(name: &str, end: &str, program: Result<PathBuf, &'static str>, line: &str) -> Self {
        Self {
            name: name.to_owned(),
            program,
            arguments: line.split_whitespace().map(OsString::from).collect(),
            variables: Vec::new(),
            limit: SHORT,
            success_codes: &[0],
            output: format!("{name}.{end}"),
            others: Vec::new(),
            needs: Vec::new(),
            rung: None,
        }
    }

    /// Whether it runs an experiment of the ladder on each core.
    pub(crate) fn runs_rung(&self) -> bool {
        self.arguments.first().is_some_and(|word| word == "first")
    }

    /// All files that it writes, including its standard error.
    pub(crate) fn files(&self) -> Vec<String> {
        let complaints = format!("{}-stderr.txt", self.name);
        let own = [self.output.clone(), complaints];
        own.into_iter().chain(self.others.clone()).collect()
    }

    /// For a self-test that failed: the same step with its jobs recorded.
    pub(crate) fn recorded(&self) -> Option<Self> {
        let name = format!("recorded-{}", self.name.strip_prefix(SELF_TEST)?);
        let file = format!("{name}{RECORDING_END}");
        let mut step = self.clone();
        step.arguments
            .extend(["--record".into(), file.clone().into()]);
        step.success_codes = &[0, 1, 4];
        step.output = format!("{name}.json");
        step.others = vec![file];
        step.needs.clear();
        step.name = name;
        Some(step)
    }

    /// The command and its time limit; or why it cannot run.
    pub(crate) fn command(&self, folder: &Path) -> Result<(Command, Duration), String> {
        let program = self.program.clone()?;
        let mut command = Command::new(program);
        command.args(&self.arguments).current_dir(folder);
        command.envs(self.variables.iter().map(|(name, value)| (name, value)));
        // The profile of an earlier successful step, if there is one.
        let profiles = [PROFILE, FIRST_PROFILE].map(|file| folder.join(file));
        // A profile that this step itself writes does not exist yet.
        let own = |file: &&PathBuf| self.others.iter().any(|other| file.ends_with(other));
        if let Some(profile) = profiles.iter().find(|file| file.exists() && !own(file)) {
            command.env("ROCKET_PROFILE", profile);
        }
        Ok((command, Duration::from_secs(self.limit)))
    }
}

impl EvidenceSetup {
    /// A step that runs npu-probe itself, which prints JSON.
    pub(crate) fn probe(&self, name: &str, line: &str) -> EvidenceStep {
        EvidenceStep {
            variables: vec![(DEVICE_VARIABLE, self.device.clone().into())],
            ..EvidenceStep::new(name, "json", Ok(self.probe.clone()), line)
        }
    }

    /// The checks that only read files, and the rungs.
    pub(crate) fn rung_steps(&self) -> Vec<EvidenceStep> {
        let doctor = |name, line| EvidenceStep {
            success_codes: &[0, 3],
            ..self.probe(name, line)
        };
        let rung = |rung: &'static Rung| {
            let parents = rung.parents.iter().filter_map(|name| Rung::named(name));
            EvidenceStep {
                needs: parents.map(Rung::step_name).collect(),
                rung: Some(rung),
                ..self.probe(&rung.step_name(), &format!("first --rung {}", rung.name))
            }
        };
        let mut text = doctor("doctor-text", "doctor --paste");
        text.output = "doctor.txt".to_owned();
        let mut steps = vec![doctor("doctor", "doctor --json --paste"), text];
        steps.extend(LADDER.iter().map(rung));
        steps
    }

    /// Steps for the default plans of a prompt, one per precision, on `files` cores.
    pub(crate) fn plan_steps(&self, files: usize) -> Vec<EvidenceStep> {
        // A projection of a small transformer for 512 tokens.
        let shape = if self.info.is_model {
            // A size that software multiplies quickly.
            "128x512x512"
        } else {
            "512x1024x2048"
        };
        let plans = |dtype: &str| {
            let line = format!("--json --dtype {dtype} --shape {shape} --fds {files}");
            let rung = Rung::named(dtype).map(Rung::step_name);
            EvidenceStep {
                needs: rung.into_iter().collect(),
                ..self.probe(&format!("{SELF_TEST}{dtype}"), &line)
            }
        };
        ["int8", "fp16", "int4"].map(plans).into()
    }

    /// The steps of `evidence` beyond `first`, in this order.
    pub(crate) fn evidence_steps(&self) -> Vec<EvidenceStep> {
        let bench = if self.info.is_model {
            // Software would multiply the default matrices for minutes.
            "bench --json --repeat 2 64x512x256 8x256x256"
        } else {
            "bench --json"
        };
        let mut calibrate = self.probe(
            "calibrate",
            &format!("calibrate --json --profile {PROFILE}"),
        );
        calibrate.success_codes = &[0, 1];
        calibrate.others = vec![PROFILE.to_owned()];
        let mut steps = vec![
            calibrate,
            self.probe("bench", bench),
            self.llama(),
            self.conformance(),
        ];
        steps.iter_mut().for_each(|step| step.limit = LONG);
        steps
    }

    fn llama(&self) -> EvidenceStep {
        let program = match (&self.model, &self.llama) {
            (None, _) => Err("it needs --model FILE.gguf"),
            (_, None) => Err("there is no llama-completion in PATH"),
            (Some(_), Some(program)) => Ok(program.clone()),
        };
        let line = "-n 16 --temp 0 --ignore-eos -no-cnv --no-display-prompt";
        let mut step = EvidenceStep::new("llama", "txt", program, line);
        step.others = vec![TRACE.to_owned()];
        if let Some(model) = &self.model {
            let prompt = PROMPT.repeat(PROMPT_TIMES);
            let more: [OsString; 4] = ["-m".into(), model.into(), "-p".into(), prompt.into()];
            step.arguments.extend(more);
        }
        step.variables = vec![
            ("GGML_ROCKET_DEVICE", self.device.clone().into()),
            ("GGML_ROCKET_STATS", "1".into()),
            ("GGML_ROCKET_TRACE", self.folder.join(TRACE).into()),
        ];
        if self.info.is_model {
            // Small models would not gain, and larger ones take too long.
            step.variables.push(("GGML_ROCKET_MIN_M", "32".into()));
        }
        step
    }

    /// The driver suite, without tests that can damage a kernel or trigger its known bugs.
    fn conformance(&self) -> EvidenceStep {
        let program = self.conformance.clone();
        let program = program.ok_or("there is no rocket-conformance");
        let line = "--except bug- --device";
        let mut step = EvidenceStep::new("conformance", "txt", program, line);
        step.arguments.push(self.device.clone().into());
        step
    }
}

/// The path of a program beside this one, or in PATH.
pub(crate) fn find(name: &str, beside: Option<&Path>) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let beside = beside.and_then(Path::parent).map(Path::to_owned);
    let folders = beside.into_iter().chain(env::split_paths(&path));
    let mut files = folders.map(|folder| folder.join(name));
    files.find(|file| file.is_file())
}
