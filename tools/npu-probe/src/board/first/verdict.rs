// SPDX-License-Identifier: MIT OR Apache-2.0
//! The verdict on all rungs, and the resulting profile.

use std::collections::{BTreeMap, BTreeSet};

use npu_matmul::profile::{Board, ContestedFact, MeasuredTile, SourcedChoice};
use npu_matmul::{Dtype, Profile};
use rknpu_chip::Contested;
use rknpu_regcmd::ReuseRule;
use serde::Serialize;

use super::dead_cores::{dead_cores, overlay};
use super::finding::RungFinding;
use super::ladder::{
    FP16_STREAMED, HEALTH_STEP, INT8_STREAMED, LADDER, Rung, RungMeaning, RungPace,
};
use super::results::FirstResults;
use crate::base::exit::Verdict;
use crate::base::table::joined;
use crate::board::evidence::{EvidenceOutcome, SELF_TEST};

const CORES: u32 = 3;
const CORES_CAUSE: &str = "cores";
const JOBS_CAUSE: &str = "jobs";
/// Evidence in a profile for choices of `first`.
const EVIDENCE: &str = "npu-probe first";

/// The cause if only some of the equal jobs of an essential rung are wrong.
const PARTIAL: &str = "some of its jobs are right and others are not: a core does not work or has a \
                       wrong number; see `npu-probe doctor`";

/// The cause if all results are right, and only the task behind them is missing.
const NO_WITNESS: &str = "results are right, but a task behind them in the same job writes nothing: \
                          the driver killed the job early, or a core runs only the first task of \
                          a job";

/// Rungs that settle a contested fact, and the fact's switch. If the rung passes, the
/// default side holds.
const SETTLED: [(&str, &str); 5] = [
    ("form-a", "core-idle-mainline"),
    ("int8-reuse", "int8-reuse"),
    ("int8-exact-banks", "int8-slack-bank"),
    ("program-at-zero", "program-at-zero"),
    ("no-slack", "over-read"),
];

/// Rungs that allow tasks of a precision to reuse the features that an equal task left in
/// CBUF, if they pass. No rung allows form A: it saves only 144 bytes of a program, below
/// a thousandth of a task's time.
const ALLOWING_REUSE: [(&str, Dtype); 2] = [
    ("int8-reuse-large", Dtype::Int8),
    ("int4-reuse-large", Dtype::Int4),
];

/// Rungs that allow tiles of a precision whose weights stream through CBUF, up to this size, if
/// all of them pass on all cores.
const ALLOWING_STREAMS: [([&str; 2], Dtype, [u32; 3]); 2] = [
    (["int8-streams", "int8-full"], Dtype::Int8, INT8_STREAMED),
    (
        ["fp16-streams", "fp16-streams-large"],
        Dtype::Fp16,
        FP16_STREAMED,
    ),
];

/// A choice that an experiment decided.
fn choice<T>(value: T) -> SourcedChoice<T> {
    SourcedChoice {
        value,
        evidence: EVIDENCE.into(),
    }
}

/// Changes of a profile, as sentences.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ProfileChanges {
    pub(crate) avoided: Vec<String>,
    pub(crate) allowed: Vec<String>,
}

#[derive(Clone, Debug, Serialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub(crate) enum RungState {
    Passed,
    Failed(RungFinding),
    /// It was killed or crashed the machine, and left no record.
    Died {
        how: String,
    },
    NotRun {
        reason: String,
    },
}

/// The cause of a failure: a rung that failed although its parent passed.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct FirstCause {
    /// Name of the rung, or `cores`, or the name of a plan's step.
    pub(crate) name: String,
    pub(crate) sentence: String,
    /// The experiment, with evidence ids of docs/evidence.md.
    pub(crate) what: &'static str,
    pub(crate) shown: Vec<String>,
    /// Sides of contested facts, `fact=side`, on which the model does the same.
    pub(crate) as_model_with: Vec<String>,
    /// Registers that make the parent's program fail when changed alone.
    pub(crate) registers: Vec<String>,
}

impl FirstCause {
    fn new(name: &str, sentence: impl Into<String>) -> Self {
        Self {
            name: name.to_owned(),
            sentence: sentence.into(),
            ..Self::default()
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum FirstVerdict {
    Works,
    WorksWithout,
    DoesNotWork,
    /// A core no longer works, so not all rungs could run.
    Unfinished,
}

/// The report of `first` and `explain`.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct FirstReport {
    pub(crate) version: &'static str,
    pub(crate) verdict: FirstVerdict,
    pub(crate) sentence: String,
    pub(crate) causes: Vec<FirstCause>,
    /// Further notes, such as kernel messages.
    pub(crate) notes: Vec<String>,
    pub(crate) rungs: BTreeMap<String, RungState>,
    /// Source of a device tree overlay that disables the cores that complete no job.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) overlay: Option<String>,
}

impl FirstReport {
    /// Judges all rungs by their records, or by the outcomes of steps that left none.
    /// `closely` compares wrong results with the model's, which takes a while.
    pub(crate) fn of(results: &FirstResults, closely: bool) -> anyhow::Result<Self> {
        let (mut rungs, mut causes) = (BTreeMap::new(), Vec::new());
        let mut notes = notes(results);
        for rung in LADDER {
            let step = rung.step_name();
            let outcome = results.steps.get(&step);
            let has_ended = outcome.is_some_and(EvidenceOutcome::has_ended);
            let mut cause = FirstCause::new(rung.name, rung.cause);
            cause.what = rung.what;
            let failure = outcome.and_then(EvidenceOutcome::failure);
            let state = match (results.records.get(&step), failure) {
                (Some(record), _) if record.right => RungState::Passed,
                (Some(record), _) => {
                    let found = RungFinding::of(rung, record, closely)?;
                    let is_essential = rung.meaning == RungMeaning::Essential;
                    if found.is_partial && rung.pace == RungPace::OneByOne && is_essential {
                        cause.sentence = PARTIAL.to_owned();
                    }
                    // Else a task behind others ran on every core.
                    if found.lacks_witness && rung.parent_with_jobs().is_none() {
                        cause.sentence = NO_WITNESS.to_owned();
                    }
                    cause.shown.clone_from(&found.shown);
                    cause.as_model_with.clone_from(&found.as_model_with);
                    let flips = results.records.get(&rung.flips_name()).into_iter();
                    let failing = flips.flat_map(|record| &record.flips);
                    let failing = failing.filter(|flip| !flip.right);
                    cause.registers = failing.map(|flip| flip.register.clone()).collect();
                    RungState::Failed(found)
                }
                (None, Some(how)) if rung.meaning == RungMeaning::Essential || !has_ended => {
                    cause.shown.push(how.clone());
                    RungState::Died { how }
                }
                (None, failure) => {
                    // A failure of this program is not blamed on the board.
                    notes.extend(failure.map(|how| {
                        format!(
                            "{step} could not be judged: {how}; see {step}-stderr.txt in the \
                             archive"
                        )
                    }));
                    RungState::NotRun {
                        reason: "an experiment that it builds on did not pass".to_owned(),
                    }
                }
            };
            if matches!(state, RungState::Failed(_) | RungState::Died { .. }) {
                causes.push(cause);
            }
            rungs.insert(rung.name.to_owned(), state);
        }
        let dead = dead_cores(results);
        if !dead.is_empty() {
            let sentence = named("the overlay disables", &dead) + ", where no job ends";
            causes.insert(0, FirstCause::new(CORES_CAUSE, sentence));
        }
        let cores = results.records.values().map(|record| record.cores).max();
        if let Some(cores) = cores.filter(|cores| *cores < CORES) {
            let sentence = format!("the driver uses {cores} of the {CORES} cores");
            causes.push(FirstCause::new(CORES_CAUSE, sentence));
        }
        let mut report = Self {
            version: env!("CARGO_PKG_VERSION"),
            verdict: FirstVerdict::Works,
            sentence: String::new(),
            causes,
            notes,
            rungs,
            overlay: (!dead.is_empty()).then(|| overlay(&dead)),
        };
        report.join_killed()?;
        report.join_roots();
        report.judge_plans(results);
        report.judge(results);
        Ok(report)
    }

    /// If only the jobs of small rungs end, one cause replaces those of the others.
    fn join_killed(&mut self) -> anyhow::Result<()> {
        /// Fewer may fail for reasons of their own.
        const FEWEST: usize = 3;
        let bytes = |rung: &Rung| -> anyhow::Result<usize> {
            let experiment = rung.experiment()?;
            Ok(experiment.inputs.iter().map(Vec::len).sum::<usize>() + experiment.output)
        };
        let (mut largest, mut smallest, mut killed) = (0, usize::MAX, 0);
        for rung in LADDER.iter().filter(|rung| !rung.parents.is_empty()) {
            match self.rungs.get(rung.name) {
                Some(RungState::Passed) => largest = largest.max(bytes(rung)?),
                Some(RungState::Failed(found)) if found.is_killed && !found.lacks_witness => {
                    smallest = smallest.min(bytes(rung)?);
                    killed += 1;
                }
                Some(RungState::NotRun { .. }) | None => {}
                Some(RungState::Failed(_) | RungState::Died { .. }) => return Ok(()),
            }
        }
        if killed < FEWEST || largest == 0 || largest >= smallest {
            return Ok(());
        }
        let sentence = format!(
            "only jobs with up to {largest} bytes of operands end, none with {smallest}: the \
             clock is far too low for the driver's time limit, or larger operands hang the NPU; \
             see `npu-probe doctor`"
        );
        let mut cause = FirstCause::new(JOBS_CAUSE, sentence);
        cause.shown = self
            .causes
            .iter()
            .map(|one| format!("{}: no job ended", one.name))
            .collect();
        self.causes = vec![cause];
        Ok(())
    }

    /// If no matmul passes, one cause replaces those of the rungs on which all others build.
    /// What passes beside them says where it lies.
    fn join_roots(&mut self) {
        let roots = || LADDER.iter().filter(|rung| rung.is_root());
        let passes = |name: &str| matches!(self.rungs.get(name), Some(RungState::Passed));
        let matmul = |rung: &&Rung| matches!(rung.meaning, RungMeaning::Precision(_));
        let is_root = |cause: &FirstCause| roots().any(|rung| rung.name == cause.name);
        if roots().filter(matmul).any(|rung| passes(rung.name)) || !self.causes.iter().any(is_root)
        {
            return;
        }
        let (name, sentence) = if passes("depthwise") {
            let sentence = "this project's matmul programs or layouts are wrong, since another \
                            project's convolution runs";
            ("matmuls", sentence)
        } else if passes("flying-add") {
            (
                "convolutions",
                "CNA and CORE do not compute, although the DPU does: check board and kernel",
            )
        } else {
            let sentence = "no job ends, or NPU and CPU see different memory contents: check \
                            kernel, power and device tree";
            (JOBS_CAUSE, sentence)
        };
        let mut cause = FirstCause::new(name, sentence);
        let lacks_witness =
            |state: &RungState| matches!(state, RungState::Failed(found) if found.lacks_witness);
        if self.rungs.values().any(lacks_witness) {
            cause.sentence = NO_WITNESS.to_owned();
        }
        self.causes.retain(|one| {
            if !is_root(one) {
                return true;
            }
            let shown = one
                .shown
                .iter()
                .map(|shown| format!("{}: {shown}", one.name));
            cause.shown.extend(shown);
            false
        });
        self.causes.insert(0, cause);
    }

    /// Adds failed default plans of a prompt as causes, unless a failed rung explains
    /// them.
    fn judge_plans(&mut self, results: &FirstResults) {
        let is_unused = |rung: &Rung| rung.meaning == RungMeaning::Unused;
        let explains_nothing = |cause: &FirstCause| {
            cause.name == CORES_CAUSE || Rung::named(&cause.name).is_some_and(is_unused)
        };
        if self.causes.iter().all(explains_nothing) {
            let sentence = "the matmul of a prompt is wrong or its jobs do not end, although all \
                            experiments that it builds on pass";
            let has_failed = |(step, outcome): &(&String, &EvidenceOutcome)| {
                step.starts_with(SELF_TEST) && outcome.failure().is_some()
            };
            let failed = results.steps.iter().filter(has_failed);
            let causes = failed.map(|(step, _)| FirstCause::new(step, sentence));
            self.causes.extend(causes);
        }
    }

    fn judge(&mut self, results: &FirstResults) {
        let has_run = |name: &str| {
            let state = self.rungs.get(name);
            matches!(state, Some(RungState::Passed | RungState::Failed(_)))
        };
        let is_refused = |dtype| {
            let mut failed = self.failed();
            failed.any(|rung| rung.meaning == RungMeaning::Precision(dtype))
        };
        let any = ![Dtype::Int8, Dtype::Fp16].into_iter().all(is_refused);
        let meaning = |cause: &FirstCause| Rung::named(&cause.name).map(|rung| rung.meaning);
        // A step of a plan is not a rung.
        let is_fatal = |cause: &FirstCause| match meaning(cause) {
            Some(meaning) => meaning == RungMeaning::Essential,
            None => cause.name != CORES_CAUSE,
        };
        let is_needed = |cause: &&FirstCause| meaning(cause) != Some(RungMeaning::Unused);
        let needed = self.causes.iter().filter(is_needed);
        let needed = joined(needed.map(|cause| &cause.sentence), "; ");
        let sick = results.steps.iter().find_map(|(step, outcome)| {
            let rung = step.strip_prefix(HEALTH_STEP)?;
            (!outcome.is_success()).then_some(rung)
        });
        let ran = has_run("fp16") || has_run("int8");
        let dead = dead_cores(results);
        let cores = (0..CORES as usize)
            .filter(|core| !dead.contains(core))
            .collect();
        let works = if dead.is_empty() {
            "works".to_owned()
        } else {
            named("works on", &cores)
        };
        (self.verdict, self.sentence) = if let Some(rung) = sick {
            (FirstVerdict::Unfinished, broken_since(rung))
        } else if !any || !ran || self.causes.iter().any(is_fatal) {
            let first = self.causes.first();
            let why = first.map_or("no experiment ran", |cause| &cause.sentence);
            (FirstVerdict::DoesNotWork, format!("does not work: {why}"))
        } else if !needed.is_empty() {
            (
                FirstVerdict::WorksWithout,
                format!("{works}, but: {needed}"),
            )
        } else if !self.causes.is_empty() {
            let all = joined(self.causes.iter().map(|cause| &cause.sentence), "; ");
            let text = format!("works; not needed by default: {all}");
            (FirstVerdict::Works, text)
        } else {
            (FirstVerdict::Works, "works".to_owned())
        };
    }

    /// What to do with this verdict.
    pub(crate) fn next_step(&self, is_model: bool) -> &'static str {
        match self.verdict {
            _ if is_model => "run this command on a board (docs/first.md)",
            _ if self.overlay.is_some() => "apply the overlay, boot, and run this command again",
            FirstVerdict::Unfinished => "cut the board's power, boot, and run this command again",
            FirstVerdict::DoesNotWork => {
                "send the file, fix what `npu-probe doctor` shows, and run this command again"
            }
            FirstVerdict::Works | FirstVerdict::WorksWithout => {
                "send the file; then run a language model (docs/start.md)"
            }
        }
    }

    /// The exit status of a command with this verdict.
    pub(crate) const fn exit(&self) -> Verdict {
        match self.verdict {
            FirstVerdict::DoesNotWork | FirstVerdict::Unfinished => Verdict::Mismatch,
            FirstVerdict::Works | FirstVerdict::WorksWithout => Verdict::Pass,
        }
    }

    fn failed(&self) -> impl Iterator<Item = &'static Rung> {
        let causes = self.causes.iter();
        causes.filter_map(|cause| Rung::named(&cause.name))
    }

    /// `base` without what failed on this board and with what passed on it; and the
    /// changes.
    pub(crate) fn profile(&self, base: &Profile, board: Board) -> (Profile, ProfileChanges) {
        let mut profile = base.clone();
        let mut changes = ProfileChanges::default();
        if profile.board.as_ref() != Some(&board) {
            profile.name = format!("{board}, first contact").into();
            profile.measured = false;
            profile.board = Some(board);
        }
        for rung in self.failed() {
            let avoided = match rung.meaning {
                RungMeaning::Essential | RungMeaning::Unused | RungMeaning::Accuracy => continue,
                RungMeaning::Precision(dtype) => {
                    profile.envelope.retain(|tile| tile.dtype != dtype);
                    format!("{dtype} matmuls run on the CPU")
                }
                RungMeaning::ExactBanks => {
                    let spares =
                        |tile: &MeasuredTile| tile.dtype != Dtype::Int8 || tile.fits_cbuf(true);
                    profile.envelope.retain(spares);
                    "int8 tiles leave one data bank free".to_owned()
                }
                RungMeaning::Streaming(dtypes) => {
                    let stays = |tile: &MeasuredTile| {
                        !dtypes.contains(&tile.dtype) || tile.fits_cbuf(false)
                    };
                    profile.envelope.retain(stays);
                    let names = joined(dtypes, ", ");
                    format!("no {names} tiles whose weights do not fit CBUF")
                }
                RungMeaning::Larger(dtype) => {
                    let built_in = Profile::built_in();
                    let is_kept = |tile: &MeasuredTile| {
                        tile.dtype != dtype || built_in.envelope.contains(tile)
                    };
                    profile.envelope.retain(is_kept);
                    format!("no {dtype} tiles larger than the built-in ones")
                }
                RungMeaning::Joined => {
                    profile.choices.joined_jobs = choice(false);
                    "jobs have tasks of one matmul".to_owned()
                }
                RungMeaning::JobTasks(most) => {
                    profile.choices.job_tasks = choice(most);
                    format!("jobs have at most {most} tasks")
                }
                RungMeaning::AtOnce => {
                    profile.choices.cores = choice(1);
                    "one core works at a time".to_owned()
                }
                RungMeaning::Reuse(dtype) => {
                    *profile.choices.reuse.of_mut(dtype) = choice(ReuseRule::Never);
                    format!("{dtype} tasks do not reuse data in CBUF")
                }
            };
            changes.avoided.push(avoided);
        }
        let passed = |rung| matches!(self.rungs.get(rung), Some(RungState::Passed));
        for (rungs, dtype, size) in ALLOWING_STREAMS {
            let [rows, k, n] = size.map(|size| size as usize);
            let is_known = |tile: &MeasuredTile| {
                tile.dtype == dtype && tile.rows >= rows && tile.k >= k && tile.n >= n
            };
            let has_failed = self
                .failed()
                .any(|rung| rung.meaning.forbids_streams(dtype));
            let is_allowed = !has_failed && self.overlay.is_none() && rungs.into_iter().all(passed);
            if is_allowed && !profile.envelope.iter().any(is_known) {
                profile.envelope.push(MeasuredTile {
                    dtype,
                    rows,
                    k,
                    n,
                    evidence: EVIDENCE.into(),
                });
                let sentence = format!("{dtype} weights may stream through CBUF");
                changes.allowed.push(sentence);
            }
        }
        for (rung, dtype) in ALLOWING_REUSE {
            let now = profile.choices.reuse.of_mut(dtype);
            // A calibrated board keeps its choice.
            if passed(rung) && !profile.measured && now.value == ReuseRule::Never {
                *now = choice(ReuseRule::EqualResident);
                let sentence =
                    format!("{dtype} tasks may reuse features that an equal task left in CBUF");
                changes.allowed.push(sentence);
            }
        }
        for (rung, name) in SETTLED {
            let mut switches = Contested::SWITCHES.iter();
            let Some(switch) = switches.find(|switch| switch.name == name) else {
                continue;
            };
            let side = match self.rungs.get(rung) {
                Some(RungState::Passed) => switch.sides.first(),
                Some(RungState::Failed(_)) => switch.sides.get(1),
                _ => None,
            };
            if let (Some(side), Some(rung)) = (side, Rung::named(rung)) {
                profile.facts.retain(|fact| fact.id != name);
                profile.facts.push(ContestedFact {
                    id: name.to_owned(),
                    verdict: (*side).to_owned(),
                    sentence: format!("Does it work: {}?", rung.what),
                });
            }
        }
        (profile, changes)
    }

    pub(crate) fn text(&self) -> String {
        let mut text = format!("\nVERDICT    {}\n", self.sentence);
        for cause in &self.causes {
            text += &format!("{:10} {}\n", cause.name, cause.sentence);
            let mut line = |told: &str| text += &format!("{:10}   {told}\n", "");
            if !cause.what.is_empty() {
                line(cause.what);
            }
            cause.shown.iter().for_each(|shown| line(shown));
            if !cause.as_model_with.is_empty() {
                let sides = cause.as_model_with.join(", ");
                line(&format!("the software model does the same with {sides}"));
            }
            if !cause.registers.is_empty() {
                let registers = cause.registers.join(", ");
                line(&format!(
                    "its parent's program fails if one of these registers is changed: {registers}"
                ));
            }
        }
        for note in &self.notes {
            text += &format!("note       {note}\n");
        }
        if let Some(overlay) = &self.overlay {
            text += &format!(
                "\nThe driver cannot avoid a core. Apply this overlay (docs/boards.md), boot, and \
                 run this command again:\n\n{overlay}"
            );
        }
        text
    }
}

/// The verdict, with a remedy, when a core no longer works.
fn broken_since(rung: &str) -> String {
    format!(
        "unfinished: after rung-{rung} failed, an experiment that passed before fails too; cut \
         the board's power and run the same command again"
    )
}

/// A text that ends with these cores.
fn named(text: &str, cores: &BTreeSet<usize>) -> String {
    let what = if cores.len() == 1 { "core" } else { "cores" };
    format!("{text} {what} {}", joined(cores, " and "))
}

/// Kernel messages about failed rungs, or why they are unknown.
fn notes(results: &FirstResults) -> Vec<String> {
    const MOST: usize = 3;
    let mut notes = Vec::new();
    for record in results
        .records
        .values()
        .filter(|record| record.repeated > 0)
    {
        let jobs = record.repeated + record.jobs.len() as u64;
        let why = match record.not_started {
            0 => continue,
            count => format!("{count} never started, and were submitted again"),
        };
        notes.push(format!("{}: of {jobs} jobs {why}", record.rung));
    }
    for record in results.records.values().filter(|record| !record.right) {
        match &record.kernel_log {
            Ok(lines) => {
                let lines = lines.iter().take(MOST);
                notes.extend(lines.map(|line| format!("kernel, {}: {line}", record.rung)));
            }
            Err(why) => {
                let note = format!("no kernel log: {why}");
                if !notes.contains(&note) {
                    notes.push(note);
                }
            }
        }
    }
    notes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::SeenJob;
    use crate::experiment::record::{ExperimentRecord, expected};

    #[test]
    fn right_results_without_a_witness_are_told() {
        let rung = Rung::named("fp16").unwrap();
        let experiment = rung.experiment().unwrap();
        let right = expected(&experiment).unwrap().unwrap();
        let seen = SeenJob {
            completed: false,
            ..right.clone()
        };
        let mut record = ExperimentRecord::of("fp16", 1, &experiment).unwrap();
        let job = serde_json::json!({ "completed": false, "micros": 500_123, "output": null });
        record.jobs = vec![serde_json::from_value(job).unwrap()];
        record.keep(&[seen], &[right]).unwrap();
        let failed = EvidenceOutcome::Ended { code: 1, ok: false };
        let step = rung.step_name();
        let mut results = FirstResults::of_steps(BTreeMap::from([(step.clone(), failed)]));
        results.records.insert(step, record);
        let report = FirstReport::of(&results, true).unwrap();
        let RungState::Failed(found) = &report.rungs["fp16"] else {
            panic!("{report:?}");
        };
        assert!(found.lacks_witness && found.is_killed);
        assert!(report.sentence.contains(NO_WITNESS), "{}", report.sentence);
    }

    /// A precision that is refused gets no tiles back from its streaming rungs.
    #[test]
    fn streams_are_allowed_where_nothing_else_failed() {
        let tiles = |failed: Option<&str>| {
            let rungs = LADDER
                .iter()
                .map(|rung| (rung.name.to_owned(), RungState::Passed));
            let report = FirstReport {
                version: "",
                verdict: FirstVerdict::Works,
                sentence: String::new(),
                causes: failed
                    .into_iter()
                    .map(|name| FirstCause::new(name, ""))
                    .collect(),
                notes: Vec::new(),
                rungs: rungs.collect(),
                overlay: None,
            };
            let board = Board {
                board: "any".to_owned(),
                kernel: "6.18.0".to_owned(),
                is_model: false,
                assigned_hz: None,
            };
            let (profile, _) = report.profile(&Profile::built_in(), board);
            [Dtype::Int8, Dtype::Fp16].map(|dtype| {
                let of = profile.envelope.iter().filter(|tile| tile.dtype == dtype);
                let streams = of.clone().any(|tile| !tile.fits_cbuf(false));
                (of.count() > 0, streams)
            })
        };
        assert_eq!(tiles(None), [(true, true); 2]);
        assert_eq!(tiles(Some("fp16-deep")), [(true, true), (false, false)]);
        assert_eq!(
            tiles(Some("int8-exact-banks")),
            [(true, false), (true, true)]
        );
    }

    /// A failure of this program is not blamed on the board.
    #[test]
    fn a_rung_without_a_record_is_told_and_blames_nothing() {
        let failed = EvidenceOutcome::Ended { code: 4, ok: false };
        let steps = BTreeMap::from([("rung-fp16-streams".to_owned(), failed)]);
        let report = FirstReport::of(&FirstResults::of_steps(steps), true).unwrap();
        assert!(report.causes.is_empty(), "{:?}", report.causes);
        assert!(report.notes[0].contains("rung-fp16-streams could not be judged"));
    }
}
