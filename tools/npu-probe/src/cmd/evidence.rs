// SPDX-License-Identifier: MIT OR Apache-2.0
//! `npu-probe first` and `npu-probe evidence`: all checks of a board in one command.

use std::env;
use std::fs::{self, File};
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use clap::Args;
use npu_matmul::Profile;
use npu_matmul::profile::Board;
use rocket_uapi::Selector;

use crate::evidence::{
    ChildRunner, EVIDENCE_MODE, EvidenceIndex, EvidenceOutcome, EvidenceSetup, EvidenceState,
    EvidenceStep, FIRST_PROFILE, PrivateWords, RECORDING_END, find, pack,
};
use crate::exit::{Failure, Verdict};
use crate::first::{FirstReport, FirstResults, HEALTH_STEP, LADDER, Rung, broken_since};
use crate::flags::{DeviceFlags, ReportFlags};
use crate::host::HostMachine;
use crate::{calibrate, output};

/// Options of `first`, which `evidence` has too.
#[derive(Debug, Args)]
pub(crate) struct FirstFlags {
    /// Directory of the results and of the archive
    #[arg(short, long, value_name = "DIR", default_value = "npu-evidence")]
    output: PathBuf,

    /// Repeat steps that failed, were killed, or crashed the machine
    #[arg(long)]
    retry: bool,

    /// Kill a step after this time, seconds [default: 120 or 1800, by the step]
    #[arg(long, value_name = "SECONDS")]
    limit: Option<u64>,

    /// Write the profile to this file, if the board must avoid something [default:
    /// rocket-npu/profile.json in the user's configuration]
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,

    #[command(flatten)]
    device: DeviceFlags,

    #[command(flatten)]
    report: ReportFlags,
}

/// Options of `evidence`.
#[derive(Debug, Args)]
pub(crate) struct EvidenceFlags {
    #[command(flatten)]
    first: FirstFlags,

    /// Run one prompt of this language model with llama.cpp
    #[arg(long, value_name = "FILE.gguf")]
    model: Option<PathBuf>,

    /// The llama.cpp program to run it with [default: llama-completion in PATH]
    #[arg(long, value_name = "PROGRAM", requires = "model")]
    llama: Option<PathBuf>,

    /// The driver suite [default: rocket-conformance beside npu-probe, or in PATH]
    #[arg(long, value_name = "PROGRAM")]
    conformance: Option<PathBuf>,
}

/// Most bytes that are kept of a file.
const MOST_OF_FILE: u64 = 64 << 20;
const REPORT: &str = "report.html";
/// File of the verdict.
const FIRST: &str = "first.json";
/// Time limit of the step that renders the page.
const QUICK: Duration = Duration::from_secs(120);

pub(crate) fn run(args: &EvidenceFlags) -> Result<Verdict, Failure> {
    // A failed step is part of the archive, not a failure of the command.
    run_steps(&args.first, Some(args)).map(|_| Verdict::Pass)
}

/// `npu-probe first`: without measurements and without the driver suite.
pub(crate) fn run_first(args: &FirstFlags) -> Result<Verdict, Failure> {
    run_steps(args, None)
}

fn run_steps(args: &FirstFlags, evidence: Option<&EvidenceFlags>) -> Result<Verdict, Failure> {
    let folder = &args.output;
    fs::create_dir_all(folder)
        .map_err(Failure::output(format!("cannot make {}", folder.display())))?;
    // Held until the process ends: two runs would overwrite each other's files.
    let lock = File::open(folder).map_err(Failure::output("the directory"))?;
    lock.try_lock()
        .map_err(Failure::usage(format!("{} is in use", folder.display())))?;
    let runner = ChildRunner::new()?;
    let setup = &setup(args, evidence)?;
    let folder = &setup.folder;
    let state = EvidenceState::load(folder, &setup.device)?;
    let mut run = EvidenceRun {
        args,
        runner,
        private: PrivateWords::collect(&private_paths(setup)),
        broken: None,
        done: Vec::new(),
        setup,
        state,
    };
    run.say(&format!("{} on {}\n", setup.device, setup.board))?;
    run.check_health()?;
    run.all(setup.rung_steps())?;
    let first = run.judge(false)?;
    run.write_profile(&first)?;
    run.all(setup.plan_steps())?;
    let first = run.judge(true)?;
    output::write_whole(
        &folder.join(FIRST),
        &serde_json::to_vec_pretty(&first).map_err(Failure::output("the verdict"))?,
        EVIDENCE_MODE,
    )?;
    if evidence.is_some() {
        run.all(setup.evidence_steps())?;
    }
    let report = run.report()?;
    let of_steps = run.done.iter().flat_map(EvidenceStep::files);
    let own = [FIRST, FIRST_PROFILE].map(str::to_owned);
    let files = of_steps.chain(own).chain(report.then(|| REPORT.to_owned()));
    let index = EvidenceIndex {
        version: env!("CARGO_PKG_VERSION"),
        build: crate::bench::BUILD,
        date: run.state.date.clone(),
        board: setup.board.clone(),
        device: setup.device.clone(),
        is_model: setup.info.is_model,
        steps: run.state.steps.clone(),
        files: files.filter(|file| folder.join(file).exists()).collect(),
    };
    let archive = pack(folder, &index, &run.private)?;
    if args.report.json {
        match evidence {
            Some(_) => output::print_json(&index)?,
            None => output::print_json(&first)?,
        }
    }
    run.say(&first.text())?;
    let what = if setup.info.is_model {
        "Archive of the software model; do not send it"
    } else {
        "Send this file"
    };
    run.say(&format!("\n{what}: {}\n", archive.display()))?;
    Ok(first.exit())
}

fn summary(outcome: Option<&EvidenceOutcome>) -> String {
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

/// The selected device and its board, and the paths of programs and files.
fn setup(args: &FirstFlags, evidence: Option<&EvidenceFlags>) -> Result<EvidenceSetup, Failure> {
    let whole = |path: &Path| {
        path.canonicalize()
            .map_err(Failure::usage(path.display().to_string()))
    };
    let given = |of: fn(&EvidenceFlags) -> &Option<PathBuf>| {
        let path = evidence.and_then(|flags| of(flags).as_deref());
        path.map(whole).transpose()
    };
    let probe = super::own_path()?;
    let conformance = given(|flags| &flags.conformance)?;
    let (llama, model) = (given(|flags| &flags.llama)?, given(|flags| &flags.model)?);
    let selector = args.device.selector();
    let info = super::open_selected(&selector, |_| ())?.device.info();
    let board = match info.is_model {
        true => "software model".to_owned(),
        false => (HostMachine::read().board).unwrap_or_else(|| "unknown board".to_owned()),
    };
    Ok(EvidenceSetup {
        device: match (info.is_model, selector) {
            (true, selector @ Selector::ModelWith(_)) => selector.to_string(),
            (true, _) => "model".to_owned(),
            (false, _) => info.name.clone(),
        },
        info,
        board,
        folder: whole(&args.output)?,
        conformance: conformance.or_else(|| find("rocket-conformance", Some(&probe))),
        llama: llama.or_else(|| find("llama-completion", None)),
        model,
        probe,
    })
}

/// Paths that would reveal the user's own files.
fn private_paths(setup: &EvidenceSetup) -> Vec<&Path> {
    let named = [&setup.conformance, &setup.llama, &setup.model];
    let named = named.into_iter().flatten();
    let all = named.chain([&setup.folder, &setup.probe]);
    let private = all.filter(|path| !path.to_str().is_some_and(crate::doctor::is_public_path));
    private
        .flat_map(|path| [Some(&**path), path.parent()])
        .flatten()
        .collect()
}

struct EvidenceRun<'a> {
    args: &'a FirstFlags,
    runner: ChildRunner,
    setup: &'a EvidenceSetup,
    private: PrivateWords,
    state: EvidenceState,
    /// Why no further step runs on the device; none if steps may run.
    broken: Option<String>,
    /// Steps that ran, or were skipped.
    done: Vec<EvidenceStep>,
}

impl EvidenceRun<'_> {
    fn say(&self, text: &str) -> Result<(), Failure> {
        self.args.report.say(text)
    }

    fn all(&mut self, steps: Vec<EvidenceStep>) -> Result<(), Failure> {
        for step in steps {
            let ran = self.one(&step)?;
            let outcome = self.state.steps.get(&step.name);
            let has_failed = matches!(outcome, Some(EvidenceOutcome::Ended { ok: false, .. }));
            let was_killed = matches!(
                outcome,
                Some(EvidenceOutcome::Killed { .. } | EvidenceOutcome::MachineWentDown)
            );
            let (rung, recorded) = (step.rung, step.recorded());
            self.done.push(step);
            if let (Some(rung), true) = (rung, has_failed || was_killed) {
                self.look_closer(rung, ran)?;
            }
            // A step that was killed or crashed the machine is not run again.
            if let (Some(again), true) = (recorded, has_failed) {
                self.one(&again)?;
                self.done.push(again);
            }
        }
        Ok(())
    }

    /// Runs a step if it is due; returns whether it was due.
    fn one(&mut self, step: &EvidenceStep) -> Result<bool, Failure> {
        let folder = &self.setup.folder;
        let due = self.state.is_due(&step.name, self.args.retry);
        if due {
            let hindrance = self.hindrance(step).map_or(Ok(()), Err);
            let outcome = match hindrance.and_then(|()| step.command(folder)) {
                Err(reason) => EvidenceOutcome::NotRun { reason },
                Ok((command, limit)) => {
                    self.state.begin(folder, &step.name)?;
                    self.step(step, command, limit)?
                }
            };
            self.state.record(folder, &step.name, outcome)?;
        } else if self.state.steps.get(&step.name) == Some(&EvidenceOutcome::MachineWentDown) {
            // The files are as they were when the machine crashed.
            self.clean_all(step)?;
        }
        self.say(&format!(
            "{:<24} {}\n",
            step.name,
            summary(self.state.steps.get(&step.name))
        ))?;
        Ok(due)
    }

    /// Why a step must not run, if so.
    fn hindrance(&self, step: &EvidenceStep) -> Option<String> {
        let uses_device = !step.name.starts_with("doctor");
        if let (Some(broken), true) = (&self.broken, uses_device) {
            return Some(broken.clone());
        }
        let mut needs = step.needs.iter();
        let missing = needs.find(|needed| !self.state.succeeded(needed))?;
        Some(format!("{missing} did not pass"))
    }

    /// After a failed rung: checks whether the NPU still works, and finds the register.
    fn look_closer(&mut self, rung: &'static Rung, ran: bool) -> Result<(), Failure> {
        let Some(health) = self.health(rung, ran)? else {
            return Ok(());
        };
        self.done.push(health);
        let ended = self.state.steps.get(&rung.step_name());
        if !matches!(ended, Some(EvidenceOutcome::Ended { .. })) {
            // A rung that may crash the machine is not run register by register.
            return Ok(());
        }
        let name = rung.flips_name();
        if self.state.steps.contains_key(&name) && !self.args.retry {
            return Ok(());
        }
        let line = format!("rung {} --flip", rung.name);
        let mut flips = self.setup.probe(&name, &line);
        // This step succeeds also if it finds a failing register.
        flips.success_codes = &[0, 1];
        self.one(&flips)?;
        self.done.push(flips);
        // A register that hung the rung may hang a core for good when changed alone.
        if self.state.steps.get(&name) == Some(&EvidenceOutcome::Ended { code: 1, ok: true }) {
            self.health(rung, true)?;
        }
        Ok(())
    }

    /// Checks whether a core that the last run left broken works again.
    fn check_health(&mut self) -> Result<(), Failure> {
        let sick = |rung: &&Rung| {
            let name = rung.health_name();
            self.state.steps.contains_key(&name) && !self.state.succeeded(&name)
        };
        if let Some(rung) = LADDER.iter().find(sick) {
            self.health(rung, true)?;
            // The rung cost a power cycle, so it is not run register by register.
            let reason = "the rung left a core that needed a power cycle".to_owned();
            let skipped = EvidenceOutcome::NotRun { reason };
            let folder = &self.setup.folder;
            self.state.record(folder, &rung.flips_name(), skipped)?;
        }
        Ok(())
    }

    /// Runs a rung's parent, `again` or if it has not run yet. If the parent fails, nothing else
    /// runs on the device. `None` if there is no parent.
    fn health(&mut self, rung: &Rung, again: bool) -> Result<Option<EvidenceStep>, Failure> {
        let Some(parent) = rung.parent() else {
            return Ok(None);
        };
        let line = format!("rung {}", parent.name);
        let health = self.setup.probe(&rung.health_name(), &line);
        if again {
            self.state.steps.remove(&health.name);
        }
        self.one(&health)?;
        if !self.state.succeeded(&health.name) {
            self.broken = Some(broken_since(rung.name));
        }
        Ok(Some(health))
    }

    /// The verdict on the rungs that have run.
    fn judge(&self, closely: bool) -> Result<FirstReport, Failure> {
        let mut results = FirstResults::of_steps(&self.state.steps);
        for file in self.done.iter().map(|step| &step.output) {
            let text = fs::read(self.setup.folder.join(file)).unwrap_or_default();
            if FirstResults::reads(file) && !text.is_empty() {
                results.add(file, &text).map_err(Failure::Output)?;
            }
        }
        results.judge(closely).map_err(Failure::Device)
    }

    /// Writes the profile that avoids what failed and allows what passed: into the folder, and for
    /// the user if it differs from the built-in one. A failure to write does not prevent the
    /// archive.
    fn write_profile(&self, first: &FirstReport) -> Result<(), Failure> {
        let text = match self.try_write_profile(first) {
            Ok(None) => return Ok(()),
            Ok(Some(text)) => text,
            Err(failure) => format!("not written: {failure}"),
        };
        self.say(&format!("{:<24} {text}\n", "profile"))
    }

    /// The path and changes of the user's profile, if one was written.
    fn try_write_profile(&self, first: &FirstReport) -> Result<Option<String>, Failure> {
        let info = &self.setup.info;
        // A profile of another board does not count.
        let base = Profile::find(info).unwrap_or_else(|_| Profile::built_in());
        let (profile, changes) = first.profile(&base, Board::of(info));
        calibrate::write(&self.setup.folder.join(FIRST_PROFILE), &profile)?;
        // On the model, what passed may already be allowed.
        let is_needed =
            !changes.avoided.is_empty() || !(changes.allowed.is_empty() || info.is_model);
        let file = match (&self.args.out, is_needed) {
            (Some(file), _) => Some(file.clone()),
            (None, true) => Profile::users_file(),
            (None, false) => None,
        };
        let Some(file) = file else {
            return Ok(None);
        };
        calibrate::write(&file, &profile)?;
        let changes = [changes.avoided, changes.allowed].concat().join("; ");
        Ok(Some(format!("{} ({changes})", file.display())))
    }

    /// Runs a step, and removes private data from its files.
    fn step(
        &self,
        step: &EvidenceStep,
        mut command: Command,
        limit: Duration,
    ) -> Result<EvidenceOutcome, Failure> {
        let limit = self.args.limit.map_or(limit, Duration::from_secs);
        output::tell(&format!("{}: at most {} s\n", step.name, limit.as_secs()));
        let files = step.files();
        let at = |file: &str| self.setup.folder.join(file);
        for file in &files {
            let _ = fs::remove_file(at(file));
        }
        command
            .stdout(output::create(&at(&files[0]))?)
            .stderr(output::create(&at(&files[1]))?);
        let ended = self.runner.run(command, limit);
        self.clean_all(step)?;
        match ended {
            Ok(Some(code)) => {
                let ok = step.success_codes.contains(&code);
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
        // Recordings are not text; this program made their programs and matrices.
        let texts = files.iter().filter(|file| !file.ends_with(RECORDING_END));
        let mut files = texts.map(|file| self.setup.folder.join(file));
        files.try_for_each(|file| self.clean(&file))
    }

    /// Removes private data from a file; removes the file if it is empty.
    fn clean(&self, file: &Path) -> Result<(), Failure> {
        let mut bytes = Vec::new();
        let opened = match File::open(file) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            opened => opened,
        };
        opened
            .and_then(|file| file.take(MOST_OF_FILE).read_to_end(&mut bytes))
            .map_err(Failure::output(format!("reading {}", file.display())))?;
        if bytes.is_empty() {
            // If this fails, a reader finds an empty file.
            let _ = fs::remove_file(file);
            return Ok(());
        }
        output::write_whole(file, &self.private.leave_out(&bytes), EVIDENCE_MODE)
    }

    /// Renders the page of all successful steps; returns whether it could.
    fn report(&self) -> Result<bool, Failure> {
        let is_shown = |step: &&EvidenceStep| {
            // Rungs have a separate report.
            let is_rung = FirstResults::reads(&step.output) || step.name.starts_with(HEALTH_STEP);
            self.state.succeeded(&step.name) && !is_rung
        };
        let files = self
            .done
            .iter()
            .filter(is_shown)
            .flat_map(EvidenceStep::files);
        let folder = &self.setup.folder;
        let json = files.filter(|file| {
            // The output of `calibrate` contains the profile.
            file.ends_with(".json") && file != "profile.json" && folder.join(file).exists()
        });
        let mut command = Command::new(&self.setup.probe);
        command.args(["report", "-o", REPORT]).args(json);
        command.current_dir(folder);
        Ok(self.runner.run(command, QUICK)? == Some(0))
    }
}
