// SPDX-License-Identifier: MIT OR Apache-2.0
//! The verdict on all rungs, and the resulting profile.

use std::collections::BTreeMap;
use std::fmt::Write;

use npu_matmul::profile::{Board, ContestedFact, MeasuredTile, SourcedChoice};
use npu_matmul::{Dtype, Profile};
use rknpu_chip::Contested;
use rknpu_regcmd::ReuseRule;
use serde::Serialize;

use super::finding::RungFinding;
use super::ladder::{LADDER, Rung, RungMeaning};
use super::record::RungRecord;
use crate::table::joined;

/// Cores of an RK3588.
const CORES: u32 = 3;
/// Evidence in a profile for choices of `first`.
const EVIDENCE: &str = "npu-probe first";

/// The cause if only some of the equal jobs of an essential rung are wrong.
const PARTIAL: &str = "some of its jobs are right and others are not: a core does not work or has a \
                       wrong number; see `npu-probe doctor`";

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

/// Changes of a profile, as sentences.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ProfileChanges {
    /// What is avoided because it failed on this board.
    pub(crate) avoided: Vec<String>,
    /// What is allowed because it passed on this board.
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
#[derive(Clone, Debug, Serialize)]
pub(crate) struct FirstCause {
    /// Name of the rung, or `cores`, or the name of a plan's step.
    pub(crate) name: String,
    pub(crate) sentence: String,
    /// The experiment, with evidence ids of docs/evidence.md.
    pub(crate) what: &'static str,
    /// What the run showed.
    pub(crate) shown: Vec<String>,
    /// Sides of contested facts, `fact=side`, on which the model does the same.
    pub(crate) as_model_with: Vec<String>,
    /// Registers that make the parent's program fail when changed alone.
    pub(crate) registers: Vec<String>,
}

impl FirstCause {
    /// A cause without further details.
    fn new(name: &str, sentence: impl Into<String>) -> Self {
        Self {
            name: name.to_owned(),
            sentence: sentence.into(),
            what: "",
            shown: Vec::new(),
            as_model_with: Vec::new(),
            registers: Vec::new(),
        }
    }
}

/// The kind of the verdict.
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
    /// The verdict as a sentence.
    pub(crate) sentence: String,
    pub(crate) causes: Vec<FirstCause>,
    /// Further notes, such as kernel messages.
    pub(crate) notes: Vec<String>,
    pub(crate) rungs: BTreeMap<String, RungState>,
}

impl FirstReport {
    /// Judges all rungs by their records, or by `died` if they left none. `closely`
    /// compares wrong results with the model's, which takes a while.
    pub(crate) fn of(
        records: &BTreeMap<String, RungRecord>,
        died: &BTreeMap<String, String>,
        failed_plans: &[String],
        closely: bool,
    ) -> anyhow::Result<Self> {
        let (mut rungs, mut causes) = (BTreeMap::new(), Vec::new());
        for rung in LADDER {
            let mut cause = FirstCause::new(rung.name, rung.cause);
            cause.what = rung.what;
            let state = match (records.get(rung.name), died.get(rung.name)) {
                (Some(record), _) if record.right => RungState::Passed,
                (Some(record), _) => {
                    let found = RungFinding::of(rung, record, closely)?;
                    if found.is_partial && rung.meaning == RungMeaning::Essential {
                        cause.sentence = PARTIAL.to_owned();
                    }
                    cause.shown.clone_from(&found.shown);
                    cause.as_model_with.clone_from(&found.as_model_with);
                    let failing = record.flips.iter().filter(|flip| !flip.right);
                    cause.registers = failing.map(|flip| flip.register.clone()).collect();
                    RungState::Failed(found)
                }
                (None, Some(how)) => {
                    cause.shown.push(how.clone());
                    RungState::Died { how: how.clone() }
                }
                (None, None) => RungState::NotRun {
                    reason: "an experiment that it builds on did not pass".to_owned(),
                },
            };
            if matches!(state, RungState::Failed(_) | RungState::Died { .. }) {
                causes.push(cause);
            }
            rungs.insert(rung.name.to_owned(), state);
        }
        let cores = records.values().map(|record| record.cores).max();
        if let Some(cores) = cores.filter(|cores| *cores < CORES) {
            let sentence = format!("the driver uses {cores} of the {CORES} cores");
            causes.push(FirstCause::new("cores", sentence));
        }
        let mut report = Self {
            version: env!("CARGO_PKG_VERSION"),
            verdict: FirstVerdict::Works,
            sentence: String::new(),
            causes,
            notes: notes(records),
            rungs,
        };
        report.judge_plans(failed_plans);
        report.judge(records);
        Ok(report)
    }

    /// Adds failed default plans of a prompt as causes, unless a failed rung explains
    /// them.
    fn judge_plans(&mut self, failed: &[String]) {
        let is_unused = |rung: &Rung| rung.meaning == RungMeaning::Unused;
        if self.failed().all(is_unused) {
            let sentence = "the matmul of a prompt is wrong or its jobs do not end, although all \
                            experiments that it builds on pass";
            let cause = |name: &String| FirstCause::new(name, sentence);
            self.causes.extend(failed.iter().map(cause));
        }
    }

    fn judge(&mut self, records: &BTreeMap<String, RungRecord>) {
        let ran = records.contains_key("fp16") || records.contains_key("int8");
        let is_refused = |dtype| {
            let mut failed = self.failed();
            failed.any(|rung| rung.meaning == RungMeaning::Precision(dtype))
        };
        let any = ![Dtype::Int8, Dtype::Fp16].into_iter().all(is_refused);
        let meaning = |cause: &FirstCause| Rung::named(&cause.name).map(|rung| rung.meaning);
        // A step of a plan is not a rung.
        let is_fatal = |cause: &FirstCause| match meaning(cause) {
            Some(meaning) => meaning == RungMeaning::Essential,
            None => cause.name != "cores",
        };
        let is_needed = |cause: &&FirstCause| meaning(cause) != Some(RungMeaning::Unused);
        let needed = self.causes.iter().filter(is_needed);
        let needed = joined(needed.map(|cause| &cause.sentence), "; ");
        (self.verdict, self.sentence) = if !any || !ran || self.causes.iter().any(is_fatal) {
            let first = self.causes.first();
            let why = first.map_or("no experiment ran", |cause| &cause.sentence);
            (FirstVerdict::DoesNotWork, format!("does not work: {why}"))
        } else if !needed.is_empty() {
            (FirstVerdict::WorksWithout, format!("works, but: {needed}"))
        } else if !self.causes.is_empty() {
            let all = joined(self.causes.iter().map(|cause| &cause.sentence), "; ");
            let text = format!("works; not needed by default: {all}");
            (FirstVerdict::Works, text)
        } else {
            (FirstVerdict::Works, "works".to_owned())
        };
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
                RungMeaning::Reuse(dtype) => {
                    *profile.choices.reuse.of_mut(dtype) = SourcedChoice {
                        value: ReuseRule::Never,
                        evidence: EVIDENCE.into(),
                    };
                    format!("{dtype} tasks do not reuse data in CBUF")
                }
            };
            changes.avoided.push(avoided);
        }
        for (rung, dtype) in ALLOWING_REUSE {
            let choice = profile.choices.reuse.of_mut(dtype);
            let has_passed = matches!(self.rungs.get(rung), Some(RungState::Passed));
            // A calibrated board keeps its choice.
            if has_passed && !profile.measured && choice.value == ReuseRule::Never {
                *choice = SourcedChoice {
                    value: ReuseRule::EqualResident,
                    evidence: EVIDENCE.into(),
                };
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
            let FirstCause {
                name,
                sentence,
                what,
                ..
            } = cause;
            let _ = writeln!(text, "{name:10} {sentence}");
            let mut line = |told: &str| {
                let _ = writeln!(text, "{:10}   {told}", "");
            };
            if !what.is_empty() {
                line(what);
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
            let _ = writeln!(text, "note       {note}");
        }
        text
    }
}

/// The verdict, with a remedy, when a core no longer works.
pub(crate) fn broken_since(rung: &str) -> String {
    format!(
        "unfinished: after rung-{rung} failed, an experiment that passed before fails too; cut \
         the board's power and run the same command again"
    )
}

/// Kernel messages about failed rungs, or why they are unknown.
fn notes(records: &BTreeMap<String, RungRecord>) -> Vec<String> {
    const MOST: usize = 3;
    let mut notes = Vec::new();
    for record in records.values().filter(|record| !record.right) {
        match &record.kernel_log {
            Ok(lines) => notes.extend(
                lines
                    .iter()
                    .take(MOST)
                    .map(|line| format!("kernel, {}: {line}", record.rung)),
            ),
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
