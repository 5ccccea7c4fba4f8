// SPDX-License-Identifier: MIT OR Apache-2.0
//! `npu-probe evidence`: one command for whoever has a board.

use std::env;
use std::fs::{self, File};
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, anyhow};
use serde_json::Value;

use crate::evidence::{
    ChildRunner, EVIDENCE_MODE, EvidenceDevice, EvidenceIndex, EvidenceOutcome, EvidenceState,
    EvidenceStep, PrivateWords, StepPlaces, find, pack, steps,
};
use crate::exit::{Failure, Verdict};
use crate::flags::EvidenceFlags;
use crate::output;

/// What is kept of a file.
const MOST_OF_FILE: u64 = 64 << 20;
const REPORT: &str = "report.html";
/// For what does not compute.
const QUICK: Duration = Duration::from_secs(120);

pub(crate) fn run(args: &EvidenceFlags) -> Result<Verdict, Failure> {
    let places = places(args)?;
    let folder = &places.folder;
    // Until this process ends: two of them would take each other's files.
    let lock = File::open(folder)
        .context("the directory")
        .map_err(Failure::Output)?;
    lock.try_lock()
        .with_context(|| format!("{} is in use", folder.display()))
        .map_err(Failure::Usage)?;
    let run = EvidenceRun {
        runner: ChildRunner::new()?,
        limit: args.limit.map(Duration::from_secs),
        places: &places,
        private: PrivateWords::look(&private_paths(&places)),
    };
    let device = run.device(&args.device.selector().to_string())?;
    let mut state = EvidenceState::load(folder, &device.name)?;
    let say = |text: &str| args.report.say(text);
    say(&format!("{} on {}\n", device.name, device.board))?;
    let steps = steps(&device, &places);
    for step in &steps {
        if state.is_due(step.name, args.retry) {
            let outcome = match step.command(&places) {
                Err(reason) => EvidenceOutcome::NotRun {
                    reason: reason.to_owned(),
                },
                Ok((command, limit)) => {
                    state.begin(folder, step.name)?;
                    run.step(step, command, limit)?
                }
            };
            state.record(folder, step.name, outcome)?;
        } else if state.steps.get(step.name) == Some(&EvidenceOutcome::MachineWentDown) {
            // As the machine left them.
            run.clean_all(step)?;
        }
        say(&format!(
            "{:<14} {}\n",
            step.name,
            told(state.steps.get(step.name))
        ))?;
    }
    let report = run.report(&steps, &state)?;
    let of_steps = steps.iter().flat_map(EvidenceStep::files);
    let files = of_steps.chain(report.then(|| REPORT.to_owned()));
    let index = EvidenceIndex {
        version: env!("CARGO_PKG_VERSION"),
        date: state.date,
        board: device.board,
        device: device.name,
        is_model: device.is_model,
        steps: state.steps,
        files: files.filter(|file| folder.join(file).exists()).collect(),
    };
    let archive = pack(folder, &index, &run.private)?;
    if args.report.json {
        output::print_json(&index)?;
    }
    say(&format!("\nSend this file: {}\n", archive.display()))?;
    Ok(Verdict::Pass)
}

/// What became of a step, in a few words.
fn told(outcome: Option<&EvidenceOutcome>) -> String {
    match outcome {
        None | Some(EvidenceOutcome::Begun { .. }) => "did not end".to_owned(),
        Some(EvidenceOutcome::Ended { ok: true, .. }) => "ok".to_owned(),
        Some(EvidenceOutcome::Ended { code, .. }) => format!("FAILED with {code}"),
        Some(EvidenceOutcome::Killed { after_seconds }) => {
            format!("KILLED after {after_seconds} s")
        }
        Some(EvidenceOutcome::MachineWentDown) => {
            "THE MACHINE WENT DOWN; --retry runs it again".to_owned()
        }
        Some(EvidenceOutcome::NotRun { reason }) => format!("not run: {reason}"),
    }
}

fn places(args: &EvidenceFlags) -> Result<StepPlaces, Failure> {
    let whole = |path: &Path| {
        path.canonicalize()
            .with_context(|| path.display().to_string())
            .map_err(Failure::Usage)
    };
    let given = |path: &Option<PathBuf>| path.as_deref().map(whole).transpose();
    fs::create_dir_all(&args.output)
        .with_context(|| format!("cannot make {}", args.output.display()))
        .map_err(Failure::Output)?;
    let probe = env::current_exe()
        .context("cannot find out where npu-probe is")
        .map_err(Failure::Usage)?;
    Ok(StepPlaces {
        folder: whole(&args.output)?,
        conformance: given(&args.conformance)?.or_else(|| find("rocket-conformance", Some(&probe))),
        llama: given(&args.llama)?.or_else(|| find("llama-completion", None)),
        model: given(&args.model)?,
        probe,
    })
}

/// What programs may tell of where things are, which is the user's business.
fn private_paths(places: &StepPlaces) -> Vec<&Path> {
    let named = [&places.conformance, &places.llama, &places.model];
    let named = named.into_iter().flatten();
    let all = named.chain([&places.folder, &places.probe]);
    let private = all.filter(|path| !path.to_str().is_some_and(crate::doctor::is_public_path));
    private
        .flat_map(|path| [Some(&**path), path.parent()])
        .flatten()
        .collect()
}

struct EvidenceRun<'a> {
    runner: ChildRunner,
    limit: Option<Duration>,
    places: &'a StepPlaces,
    private: PrivateWords,
}

impl EvidenceRun<'_> {
    /// The device that is used, found out by a process that may hang.
    fn device(&self, selector: &str) -> Result<EvidenceDevice, Failure> {
        let raw = self.places.folder.join("device.json");
        let mut command = Command::new(&self.places.probe);
        command.args(["info", "--json", "--device", selector]);
        command.stdout(output::create(&raw)?);
        let code = self.runner.run(command, QUICK)?;
        let text = fs::read(&raw).unwrap_or_default();
        // What is private in it is used for nothing.
        let _ = fs::remove_file(&raw);
        let device: Value = serde_json::from_slice(&text).unwrap_or_default();
        let (Some(0), Some(name), Some(is_model)) =
            (code, device["name"].as_str(), device["is_model"].as_bool())
        else {
            return Err(Failure::NoDevice(anyhow!(
                "no usable device for `{selector}`"
            )));
        };
        let is_model_named = matches!(selector.split(':').next(), Some("model"));
        let board = match (is_model, device["host"]["board"].as_str()) {
            (true, _) => "software model",
            (false, board) => board.unwrap_or("unknown board"),
        };
        Ok(EvidenceDevice {
            name: match (is_model, is_model_named) {
                (true, true) => selector.to_owned(),
                (true, false) => "model".to_owned(),
                (false, _) => name.to_owned(),
            },
            is_model,
            board: board.to_owned(),
        })
    }

    /// Runs a step and leaves out of its files what is private.
    fn step(
        &self,
        step: &EvidenceStep,
        mut command: Command,
        limit: Duration,
    ) -> Result<EvidenceOutcome, Failure> {
        let limit = self.limit.unwrap_or(limit);
        output::tell(&format!("{}: at most {} s\n", step.name, limit.as_secs()));
        let files = step.files();
        for file in &files {
            let _ = fs::remove_file(self.places.folder.join(file));
        }
        let at = |file: &str| self.places.folder.join(file);
        command
            .stdout(output::create(&at(&files[0]))?)
            .stderr(output::create(&at(&files[1]))?);
        let ended = self.runner.run(command, limit);
        self.clean_all(step)?;
        match ended {
            Ok(Some(code)) => {
                let ok = step.is_right(code);
                Ok(EvidenceOutcome::Ended { code, ok })
            }
            Ok(None) => Ok(EvidenceOutcome::Killed {
                after_seconds: limit.as_secs(),
            }),
            Err(Failure::NotExecutable(error)) => Ok(EvidenceOutcome::NotRun {
                reason: format!("{error:#}"),
            }),
            Err(failure) => Err(failure),
        }
    }

    fn clean_all(&self, step: &EvidenceStep) -> Result<(), Failure> {
        let files = step.files();
        let mut files = files.iter().map(|file| self.places.folder.join(file));
        files.try_for_each(|file| self.clean(&file))
    }

    /// Leaves out of a file what is private; removes it if nothing is in it.
    fn clean(&self, file: &Path) -> Result<(), Failure> {
        let mut bytes = Vec::new();
        let opened = match File::open(file) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            opened => opened,
        };
        opened
            .and_then(|file| file.take(MOST_OF_FILE).read_to_end(&mut bytes))
            .with_context(|| format!("reading {}", file.display()))
            .map_err(Failure::Output)?;
        if bytes.is_empty() {
            // Who looks finds an empty file, if this fails.
            let _ = fs::remove_file(file);
            return Ok(());
        }
        output::write_whole(file, &self.private.leave_out(&bytes), EVIDENCE_MODE)
    }

    /// Makes the page of all that ended well; whether that could be done.
    fn report(&self, steps: &[EvidenceStep], state: &EvidenceState) -> Result<bool, Failure> {
        let ended = |step: &&EvidenceStep| {
            matches!(
                state.steps.get(step.name),
                Some(EvidenceOutcome::Ended { ok: true, .. })
            )
        };
        // The profile is in what `calibrate` prints.
        let files = steps.iter().filter(ended).flat_map(EvidenceStep::files);
        let json = files.filter(|file| file.ends_with(".json") && file != "profile.json");
        let json: Vec<String> = json
            .filter(|file| self.places.folder.join(file).exists())
            .collect();
        let mut command = Command::new(&self.places.probe);
        command.args(["report", "-o", REPORT]).args(json);
        command.current_dir(&self.places.folder);
        Ok(self.runner.run(command, QUICK)? == Some(0))
    }
}
