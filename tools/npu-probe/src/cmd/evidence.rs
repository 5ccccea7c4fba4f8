// SPDX-License-Identifier: MIT OR Apache-2.0
//! `npu-probe first` and `npu-probe evidence`: all checks of a board in one command.

use std::collections::BTreeSet;
use std::env;
use std::fs::{self, File};
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::anyhow;
use clap::Args;
use npu_matmul::Profile;
use npu_matmul::profile::Board;
use rocket_uapi::Selector;

use crate::base::exit::{Failure, Verdict};
use crate::base::flags::{DeviceFlags, ReportFlags, number};
use crate::base::output;
use crate::base::sudo::{self, as_caller};
use crate::base::table::joined;
use crate::board::evidence::{
    ChildRunner, EvidenceIndex, EvidenceOutcome, EvidenceSetup, EvidenceState, EvidenceStep,
    FIRST_PROFILE, PROFILE, PrivateWords, RECORDING_END, find, pack,
};
use crate::board::first::{
    FirstReport, FirstResults, HEALTH_STEP, LADDER, ProfileChanges, Rung, RungPace,
};
use crate::experiment::record::ExperimentRecord;
use crate::matmul::report::HostMachine;
use crate::measure::calibrate;

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
    #[arg(long, value_name = "SECONDS", value_parser = number::<u64>)]
    limit: Option<u64>,

    /// Write the profile to this file, if the board must avoid something [default:
    /// rocket-npu/profile.json in the user's configuration]
    #[arg(long, alias = "out", value_name = "FILE")]
    profile: Option<PathBuf>,

    #[command(flatten)]
    device: DeviceFlags,

    #[command(flatten)]
    report: ReportFlags,
}

/// Hidden options of `first`, for the processes that it starts.
#[derive(Debug, Args)]
pub(crate) struct RungFlags {
    /// Run only this experiment, in this process, and print its record as JSON
    #[arg(long, value_name = "NAME", hide = true)]
    rung: Option<String>,

    /// Run the parent experiment's program instead, once for each register that differs
    #[arg(long, hide = true, requires = "rung")]
    flip: bool,

    /// Ignore the results of these cores
    #[arg(long, value_delimiter = ',', hide = true, requires = "rung")]
    dead: Vec<u32>,
}

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
    #[arg(long, value_name = "PATH")]
    conformance: Option<PathBuf>,
}

/// Most bytes that are kept of a file.
const MOST_OF_FILE: u64 = 64 << 20;
const REPORT: &str = "report.html";
const FIRST: &str = "first.json";
/// Time limit of the step that renders the page.
const QUICK: Duration = Duration::from_secs(120);

pub(crate) fn run(args: &EvidenceFlags) -> Result<Verdict, Failure> {
    // A failed step is part of the archive, not a failure of the command.
    run_steps(&args.first, Some(args)).map(|_| Verdict::Pass)
}

/// `npu-probe first`: without measurements and without the driver suite.
pub(crate) fn run_first(args: &FirstFlags, rung: &RungFlags) -> Result<Verdict, Failure> {
    match &rung.rung {
        Some(name) => run_rung(name, rung, &args.device),
        None => run_steps(args, None),
    }
}

/// Runs one experiment of the ladder, in the separate process of a step.
fn run_rung(name: &str, flags: &RungFlags, device: &DeviceFlags) -> Result<Verdict, Failure> {
    let rung = Rung::named(name)
        .ok_or_else(|| Failure::Usage(anyhow!("there is no rung `{}`", name.escape_debug())))?;
    let opened = super::open(device)?;
    let record = if flags.flip {
        rung.flip(&opened.device)
    } else {
        rung.run(&opened.device, &flags.dead)
    };
    let record = record.map_err(Failure::Device)?;
    output::print_json(&record)?;
    Ok(Verdict::of(record.right))
}

fn run_steps(args: &FirstFlags, evidence: Option<&EvidenceFlags>) -> Result<Verdict, Failure> {
    let folder = &args.output;
    as_caller(|| fs::create_dir_all(folder))
        .map_err(Failure::output(format!("cannot make {}", folder.display())))?;
    // Held until the process ends: two runs would overwrite each other's files.
    let lock = File::open(folder).map_err(Failure::output("the directory"))?;
    lock.try_lock()
        .map_err(Failure::usage(format!("{} is in use", folder.display())))?;
    let runner = ChildRunner::new()?;
    let setup = &setup(args, evidence)?;
    let folder = &setup.folder;
    let (state, changed) = EvidenceState::load(folder, &setup.device)?;
    if changed.is_some() {
        // These would change plans.
        for profile in [FIRST_PROFILE, PROFILE] {
            let _ = fs::remove_file(folder.join(profile));
        }
    }
    let mut run = EvidenceRun {
        args,
        runner,
        private: PrivateWords::collect(&private_paths(setup)),
        broken: None,
        done: Vec::new(),
        progress: RunProgress::new(),
        setup,
        state,
    };
    run.say(&format!("{} on {}\n", setup.device, setup.board))?;
    if let Some(changed) = changed {
        run.say(&format!("Starts anew: {changed}.\n"))?;
    }
    run.check_health()?;
    let rungs = setup.rung_steps();
    let more = evidence.map_or_else(Vec::new, |_| setup.evidence_steps());
    run.progress.steps = rungs.len() + setup.plan_steps(1).len() + more.len();
    run.all(rungs)?;
    let first = run.judge(false)?;
    let files = run.write_profile(&first)?;
    run.all(setup.plan_steps(files))?;
    let first = run.judge(true)?;
    let verdict = serde_json::to_vec_pretty(&first).map_err(Failure::output("the verdict"))?;
    output::write_private(&folder.join(FIRST), &verdict)?;
    run.all(more)?;
    let report = run.report()?;
    let step_files = run.done.iter().flat_map(EvidenceStep::files);
    let own = [FIRST, FIRST_PROFILE].map(str::to_owned);
    let files = step_files
        .chain(own)
        .chain(report.then(|| REPORT.to_owned()));
    let index = EvidenceIndex {
        version: env!("CARGO_PKG_VERSION"),
        build: crate::measure::bench::BUILD,
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
    run.state.finish()?;
    run.say(&first.text())?;
    if run.progress.ran == 0 {
        run.say(&format!(
            "\nNothing ran: these are the results of {}. To run all again, use another directory \
             (-o).\n",
            run.state.date
        ))?;
    }
    let what = if setup.info.is_model {
        "Archive of the software model; do not send it"
    } else {
        "Send this file"
    };
    run.say(&format!("\n{what}: {}\n", archive.display()))?;
    run.say(&format!("Next: {}\n", first.next_step(setup.info.is_model)))?;
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
    let board = if info.is_model {
        "software model".to_owned()
    } else {
        (HostMachine::read().board).unwrap_or_else(|| "unknown board".to_owned())
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
    private.flat_map(|path| path.ancestors().take(2)).collect()
}

/// Where a run is, and how long it takes.
struct RunProgress {
    steps: usize,
    at: usize,
    /// Steps that ran, and their time.
    ran: u32,
    took: Duration,
}

impl RunProgress {
    /// The time of a step, until some have run.
    const STEP: Duration = Duration::from_secs(6);
    const GUESSES: u32 = 4;

    const fn new() -> Self {
        Self {
            steps: 0,
            at: 0,
            ran: 0,
            took: Duration::ZERO,
        }
    }

    /// The step's number, and the time of this and all later steps.
    fn text(&self) -> String {
        let step = (self.took + Self::STEP * Self::GUESSES) / (self.ran + Self::GUESSES);
        let left = step.as_secs_f64() * (self.steps + 1).saturating_sub(self.at) as f64;
        let minutes = (left / 60.0).ceil();
        let unit = if minutes > 1.0 { "minutes" } else { "minute" };
        format!("[{}/{}, about {minutes} {unit} left]", self.at, self.steps)
    }
}

struct EvidenceRun<'a> {
    args: &'a FirstFlags,
    runner: ChildRunner,
    setup: &'a EvidenceSetup,
    private: PrivateWords,
    state: EvidenceState,
    /// Why no further step runs on the device; none if steps may run.
    broken: Option<String>,
    /// Steps that ran or were skipped, each once.
    done: Vec<EvidenceStep>,
    progress: RunProgress,
}

impl EvidenceRun<'_> {
    fn say(&self, text: &str) -> Result<(), Failure> {
        self.args.report.say(text)
    }

    fn all(&mut self, steps: Vec<EvidenceStep>) -> Result<(), Failure> {
        for step in steps {
            self.progress.at += 1;
            let (rung, recorded, name) = (step.rung, step.recorded(), step.name.clone());
            let ran = self.one(step.clone())?;
            if ran && rung.is_some() && self.finds_dead_cores(&step)? {
                self.again(step)?;
            }
            let outcome = self.state.steps.get(&name);
            let has_failed = outcome.is_some_and(|outcome| outcome.failure().is_some());
            // A step that was killed or crashed the machine is not run again.
            let is_repeatable = outcome.is_some_and(EvidenceOutcome::has_ended);
            if let (Some(rung), true) = (rung, has_failed) {
                self.look_closer(rung, ran, is_repeatable)?;
            }
            if let (Some(again), true) = (recorded, has_failed && is_repeatable) {
                self.one(again)?;
            }
        }
        Ok(())
    }

    /// Runs a step that has run.
    fn again(&mut self, step: EvidenceStep) -> Result<(), Failure> {
        self.state.steps.remove(&step.name);
        self.one(step).map(|_| ())
    }

    /// Whether some cores, but not all, twice complete no job of the first rung with jobs. No
    /// program of this run can have broken them.
    fn finds_dead_cores(&mut self, step: &EvidenceStep) -> Result<bool, Failure> {
        let passed = |rung: &&Rung| rung.is_root() && self.state.succeeded(&rung.step_name());
        if !self.state.dead_cores.is_empty()
            || self.state.succeeded(&step.name)
            || LADDER.iter().any(|rung| passed(&rung))
        {
            return Ok(false);
        }
        let seen = self.wrong_files(step);
        if seen.is_empty() {
            return Ok(false);
        }
        self.again(step.clone())?;
        if self.wrong_files(step) != seen {
            return Ok(false);
        }
        self.state.dead_cores = seen.into_iter().collect();
        Ok(true)
    }

    /// The files whose jobs are all wrong in the record of a step, if others are right.
    fn wrong_files(&self, step: &EvidenceStep) -> BTreeSet<u32> {
        let text = fs::read(self.setup.folder.join(&step.output)).unwrap_or_default();
        let record = serde_json::from_slice::<ExperimentRecord>(&text);
        record.map_or_else(|_| BTreeSet::new(), |record| record.wrong_files())
    }

    /// Runs a step if it is due; returns whether it was due.
    fn one(&mut self, step: EvidenceStep) -> Result<bool, Failure> {
        let due = self.state.is_due(&step.name, self.args.retry);
        if due {
            let outcome = match self.command(&step) {
                Err(reason) => EvidenceOutcome::NotRun { reason },
                Ok((command, limit)) => {
                    self.state.begin(&step.name)?;
                    self.step(&step, command, limit)?
                }
            };
            self.state.record(&step.name, outcome)?;
        }
        let summary = summary(self.state.steps.get(&step.name));
        self.say(&format!("{:<24} {summary}\n", step.name))?;
        self.keep(step)?;
        Ok(due)
    }

    /// Adds a step to those whose files are results.
    fn keep(&mut self, step: EvidenceStep) -> Result<(), Failure> {
        let outcome = self.state.steps.get(&step.name);
        if matches!(outcome, Some(EvidenceOutcome::NotRun { .. })) {
            // Those of an earlier run.
            for file in step.files() {
                let _ = fs::remove_file(self.setup.folder.join(file));
            }
        } else if !outcome.is_some_and(EvidenceOutcome::has_ended) {
            // The files may be as they were when the machine or this program crashed.
            self.clean(&step)?;
        }
        if self.done.iter().all(|done| done.name != step.name) {
            self.done.push(step);
        }
        Ok(())
    }

    /// The command of a step and its time limit; or why it must not run.
    fn command(&self, step: &EvidenceStep) -> Result<(Command, Duration), String> {
        let uses_device = !step.name.starts_with("doctor");
        if let (Some(broken), true) = (&self.broken, uses_device) {
            return Err(broken.clone());
        }
        let dead = &self.state.dead_cores;
        let may_reach_all = |rung: &Rung| rung.pace == RungPace::InPairs;
        let avoids_dead = step.runs_rung() && !step.rung.is_some_and(may_reach_all);
        if uses_device && !dead.is_empty() && !avoids_dead {
            return Err(format!("core {} does not work", joined(dead, ", ")));
        }
        let mut needs = step.needs.iter();
        match needs.find(|needed| !self.state.succeeded(needed)) {
            Some(missing) => Err(format!("{missing} did not pass")),
            None => {
                let (mut command, limit) = step.command(&self.setup.folder)?;
                if step.runs_rung() && !dead.is_empty() {
                    command.arg(format!("--dead={}", joined(dead, ",")));
                }
                Ok((command, limit))
            }
        }
    }

    /// After a failed rung: checks whether the NPU still works, and finds the register. A rung
    /// that may crash the machine is not run register by register.
    fn look_closer(&mut self, rung: &Rung, ran: bool, is_safe: bool) -> Result<(), Failure> {
        self.health(rung, ran)?;
        if rung.parent_with_jobs().is_none() || !is_safe {
            return Ok(());
        }
        let name = rung.flips_name();
        let line = format!("first --rung {} --flip", rung.name);
        let mut flips = self.setup.probe(&name, &line);
        // This step succeeds also if it finds a failing register.
        flips.success_codes = &[0, 1];
        if self.state.steps.contains_key(&name) && !self.args.retry {
            return self.keep(flips);
        }
        self.one(flips)?;
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
            self.state.record(&rung.flips_name(), skipped)?;
        }
        Ok(())
    }

    /// Runs a rung's parent, or else a first rung that passed, `again` or if it has not run yet.
    /// If it fails, nothing else runs on the device.
    fn health(&mut self, rung: &Rung, again: bool) -> Result<(), Failure> {
        let passed = |one: &&Rung| one.is_root() && self.state.succeeded(&one.step_name());
        let mut others = LADDER.iter().filter(|one| one.name != rung.name);
        let Some(parent) = rung.parent_with_jobs().or_else(|| others.find(passed)) else {
            return Ok(());
        };
        let name = rung.health_name();
        if again {
            self.state.steps.remove(&name);
        }
        let line = format!("first --rung {}", parent.name);
        self.one(self.setup.probe(&name, &line))?;
        if !self.state.succeeded(&name) {
            self.broken = Some(format!("a core no longer works since rung-{}", rung.name));
        }
        Ok(())
    }

    fn judge(&self, closely: bool) -> Result<FirstReport, Failure> {
        let mut results = FirstResults::of_steps(self.state.steps.clone());
        for file in self.done.iter().map(|step| &step.output) {
            let text = fs::read(self.setup.folder.join(file)).unwrap_or_default();
            if FirstResults::reads(file) && !text.is_empty() {
                results.add(file, &text).map_err(Failure::Output)?;
            }
        }
        FirstReport::of(&results, closely).map_err(Failure::Device)
    }

    /// Writes the profile that avoids what failed and allows what passed: into the folder, and for
    /// the user if it differs from the built-in one. A failure to write does not prevent the
    /// archive. Returns how many cores work at the same time with it.
    fn write_profile(&self, first: &FirstReport) -> Result<usize, Failure> {
        let info = &self.setup.info;
        // What an earlier run of `first` found does not count, nor a profile of another board.
        let base = sudo::profile(info).ok().filter(|profile| profile.measured);
        let base = base.unwrap_or_else(Profile::built_in);
        let (profile, changes) = first.profile(&base, Board::of(info));
        let cores = profile.choices.cores.value;
        let written = self.try_write_profile(&profile, changes);
        let text = written.unwrap_or_else(|failure| Some(format!("not written: {failure}")));
        if let Some(text) = text {
            self.say(&format!("{:<24} {text}\n", "profile"))?;
        }
        Ok(cores)
    }

    /// The path and changes of the user's profile, if one was written.
    fn try_write_profile(
        &self,
        profile: &Profile,
        changes: ProfileChanges,
    ) -> Result<Option<String>, Failure> {
        let info = &self.setup.info;
        calibrate::write(&self.setup.folder.join(FIRST_PROFILE), profile)?;
        // On the model, what passed may already be allowed.
        let is_needed =
            !changes.avoided.is_empty() || !(changes.allowed.is_empty() || info.is_model);
        let file = match (&self.args.profile, is_needed) {
            (Some(file), _) => Some(file.clone()),
            (None, true) => sudo::users_profile(),
            (None, false) => None,
        };
        let Some(file) = file else {
            return Ok(None);
        };
        calibrate::write(&file, profile)?;
        let changes = [changes.avoided, changes.allowed].concat().join("; ");
        Ok(Some(format!("{} ({changes})", file.display())))
    }

    /// Runs a step, and removes private data from its files.
    fn step(
        &mut self,
        step: &EvidenceStep,
        mut command: Command,
        limit: Duration,
    ) -> Result<EvidenceOutcome, Failure> {
        let limit = self.args.limit.map_or(limit, Duration::from_secs);
        output::tell(&format!("{} {}\n", self.progress.text(), step.name));
        let begin = Instant::now();
        let files = step.files();
        let at = |file: &str| self.setup.folder.join(file);
        for file in &files {
            let _ = fs::remove_file(at(file));
        }
        command
            .stdout(output::create(&at(&files[0]))?)
            .stderr(output::create(&at(&files[1]))?);
        let ended = self.runner.run(command, limit);
        self.progress.ran += 1;
        self.progress.took += begin.elapsed();
        self.clean(step)?;
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

    /// Removes private data from the files of a step, and files that are empty.
    fn clean(&self, step: &EvidenceStep) -> Result<(), Failure> {
        as_caller(|| self.clean_files(step))
    }

    fn clean_files(&self, step: &EvidenceStep) -> Result<(), Failure> {
        for name in step.files() {
            let file = self.setup.folder.join(&name);
            // Recordings are not text; this program made their programs and matrices.
            if name.ends_with(RECORDING_END) {
                continue;
            }
            let mut bytes = Vec::new();
            let opened = match File::open(&file) {
                Err(error) if error.kind() == ErrorKind::NotFound => continue,
                opened => opened,
            };
            opened
                .and_then(|file| file.take(MOST_OF_FILE).read_to_end(&mut bytes))
                .map_err(Failure::output(format!("reading {}", file.display())))?;
            if bytes.is_empty() {
                // If this fails, a reader finds an empty file.
                let _ = fs::remove_file(&file);
            } else {
                output::write_private(&file, &self.private.leave_out(&bytes))?;
            }
        }
        Ok(())
    }

    /// Renders the page of all successful steps; returns whether it could.
    fn report(&self) -> Result<bool, Failure> {
        let is_shown = |step: &&EvidenceStep| {
            // Rungs have a separate report.
            let is_rung = FirstResults::reads(&step.output) || step.name.starts_with(HEALTH_STEP);
            self.state.succeeded(&step.name) && !is_rung
        };
        let shown = self.done.iter().filter(is_shown);
        let files = shown.flat_map(EvidenceStep::files);
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
