// SPDX-License-Identifier: MIT OR Apache-2.0
//! The report's section for each kind of file.

use maud::{Markup, html};
use npu_matmul::Profile;

use super::files::{BenchFile, CalibrationFile, DoctorFile, ReportedRow, SelfTestFile};
use super::text::{ShownText, blocks, facts, folded, number, table, time, with_code};
use super::timeline::TraceTimeline;
use super::trace::{SliceKind, TraceSlices};
use crate::flags::planning::HERTZ_PER_MHZ;

const GIGA: f64 = 1e9;
const PS_PER_US: f64 = 1e6;

impl DoctorFile {
    pub(super) fn section(&self) -> Markup {
        let is_problem = |row: &&ReportedRow| row.is_problem();
        let (problems, others): (Vec<_>, Vec<_>) = self.rows.iter().partition(is_problem);
        let rows = |rows: Vec<&ReportedRow>| {
            let cells = rows.into_iter().map(|row| {
                let remedy = row.remedy.as_deref().unwrap_or_default();
                let class = if row.is_problem() { "problem" } else { "" };
                let cells = [
                    (&row.state).into(),
                    (&row.topic).into(),
                    (&row.found).into(),
                    remedy.into(),
                ];
                (class, cells)
            });
            blocks(["", "check", "found", "fix"], cells)
        };
        let summary = format!("{} other rows", others.len());
        html! {
            p { (with_code(&ShownText::from(&*self.verdict()))) }
            @if !problems.is_empty() { (rows(problems)) }
            @if !others.is_empty() { (folded(&summary, rows(others))) }
            p.note { "npu-probe " (self.version) }
        }
    }

    /// Whether the NPU is usable, in a sentence.
    pub(super) fn verdict(&self) -> String {
        match (&self.usable, self.rows.iter().find(|row| row.is_problem())) {
            (Some(node), _) => format!("The NPU is usable: {node}."),
            (None, Some(first)) => {
                format!("The NPU is not usable. Fix `{}` first.", first.topic)
            }
            (None, None) => "This machine has no usable NPU.".to_owned(),
        }
    }
}

/// All self-tests, in one table.
pub(super) fn self_tests(tests: &[&SelfTestFile]) -> Markup {
    let rows = tests.iter().flat_map(|test| {
        let problem = &test.problem;
        test.runs.iter().map(move |run| {
            let class = if test.is_pass() { "" } else { "problem" };
            let product = format!(
                "{} {}x{}x{}",
                problem.dtype, problem.m, problem.k, problem.n
            );
            let cells = [
                (&test.result).into(),
                product.into(),
                run.comparison.elements.into(),
                run.comparison.different.into(),
                format!("{} of {}", time(run.wall_us), test.time_of).into(),
            ];
            (class, cells)
        })
    });
    html! {
        (blocks(["result", "matmul", "elements", "wrong", "wall time"], rows))
        @if let Some(test) = tests.first() { (folded("Device", facts(test.device.facts()))) }
    }
}

impl BenchFile {
    pub(super) fn section(&self) -> Markup {
        let conditions = &self.conditions;
        let load = conditions.load_average;
        let host = [
            (
                "clock",
                format!("{} MHz, by the profile", conditions.clock_mhz),
            ),
            ("profile", conditions.profile.to_string()),
            (
                "host",
                format!(
                    "{} x {}, load {}",
                    conditions.cpus,
                    conditions.cpu,
                    load.map_or_else(|| "unknown".to_owned(), number),
                ),
            ),
            (
                "threads",
                conditions
                    .threads
                    .as_deref()
                    .unwrap_or("one for each CPU")
                    .to_owned(),
            ),
            ("files", format!("{} of the device", conditions.fds)),
            ("wall time", format!("of {}", conditions.time_of)),
            ("version", conditions.version.to_string()),
        ];
        let percent = |share: f64| share * 100.0;
        html! {
            (folded("Conditions", facts(conditions.device.facts().into_iter().chain(host))))
            @if let Some(why) = &conditions.profile_refused { p.note { (why) } }
            h3 { "Wall time, from call to return" }
            (table(
                ["", "matmul", "median ms", "best", "worst", "GOP/s", "% of bound", "CPU ms", "SUBMITs"],
                self.measurements.iter().enumerate().map(|(index, one)| [
                    (index + 1).into(),
                    format!("{} {}x{}x{}", one.dtype, one.m, one.k, one.n).into(),
                    one.wall_ms.median.into(),
                    one.wall_ms.best.into(),
                    one.wall_ms.worst.into(),
                    one.gops.into(),
                    one.share_of_bound.map(percent).into(),
                    one.cpu_ms.into(),
                    one.submits.into(),
                ]),
            ))
            h3 { "Modelled time of the NPU" }
            (table(
                ["", "matmul", "ms", "GOP/s", "% of bound", "bound ms", "bound by"],
                self.measurements.iter().enumerate().map(|(index, one)| [
                    (index + 1).into(),
                    format!("{} {}x{}x{}", one.dtype, one.m, one.k, one.n).into(),
                    one.modelled_npu_ms.into(),
                    one.modelled_gops.into(),
                    percent(one.modelled_share_of_bound).into(),
                    one.bound_ms.into(),
                    (&one.bound_by).into(),
                ]),
            ))
            (self.roofline())
        }
    }
}

impl CalibrationFile {
    pub(super) fn section(&self) -> Markup {
        let told = |fact: &super::files::ReportedFact| match (&fact.side, &fact.nearest) {
            (Some(side), _) => side.to_string(),
            (None, Some(nearest)) => format!("nearest to {nearest}"),
            (None, None) => match (fact.as_model, &fact.reason) {
                (Some(true), _) => "same as the model".to_owned(),
                (Some(false), _) => "differs from the model".to_owned(),
                (None, reason) => reason.as_deref().unwrap_or_default().to_owned(),
            },
        };
        html! {
            (facts(self.device.facts()))
            @if let Some(measured) = &self.profile { (profile(measured)) }
            @let summary = format!("{} contested facts", self.facts.len());
            (folded(&summary, table(["fact", "question", "outcome", "result"], self.facts.iter().map(|fact| [
                (&fact.name).into(), (&fact.question).into(), fact.outcome.replace('_', " ").into(),
                told(fact).into(),
            ]))))
            p.note { "npu-probe " (self.version) }
        }
    }
}

/// A board's profile.
pub(super) fn profile(profile: &Profile) -> Markup {
    let (machine, host) = (&profile.machine, &profile.host);
    let gigabytes = |bytes: u64| format!("{} GB/s", number(bytes as f64 / GIGA));
    let us = |ps: u64| time(ps as f64 / PS_PER_US);
    let rows = [
        ("profile", profile.name.to_string()),
        ("clock", format!("{} MHz", machine.clock_hz / HERTZ_PER_MHZ)),
        (
            "memory",
            format!(
                "{} for a core, {} for all",
                gigabytes(machine.dram.rate(machine.clock_hz, 1)),
                gigabytes(machine.dram.shared_bytes_per_second),
            ),
        ),
        (
            "a job's start",
            format!(
                "{} to submit, {} to attach, {} for each task, {} to wake",
                us(machine.driver.submit_ps),
                us(machine.driver.attach_ps),
                us(machine.driver.kick_ps),
                us(machine.driver.wake_ps),
            ),
        ),
        (
            "CPU",
            format!(
                "{} cores, {} each, caches {}",
                host.cores,
                gigabytes(host.bytes_per_second),
                gigabytes(host.sync_bytes_per_second),
            ),
        ),
    ];
    html! {
        (facts(rows))
    }
}

/// The profile with its decided facts.
pub(super) fn profile_and_facts(whole: &Profile) -> Markup {
    html! {
        (profile(whole))
        @if !whole.facts.is_empty() {
            @let summary = format!("{} decided facts", whole.facts.len());
            (folded(&summary, table(["fact", "side", "question"], whole.facts.iter().map(|fact| [
                (&*fact.id).into(), (&*fact.verdict).into(), (&*fact.sentence).into(),
            ]))))
        }
    }
}

impl TraceSlices {
    pub(super) fn section(&self) -> Markup {
        let longest = self.products.first();
        let zoom = longest.map(|product| (product.from, product.to));
        html! {
            @for modelled in [false, true] {
                @if let Some(picture) = TraceTimeline::new(self, modelled, None) {
                    @let clock = if modelled { "Modelled time of the NPU" } else { "Measured time of this process" };
                    (picture.draw(&format!("{clock}: {} in all", time(picture.span()))))
                    (self.totals(modelled))
                }
            }
            @if let (Some(longest), Some(picture)) = (longest, TraceTimeline::new(self, false, zoom)) {
                (picture.draw(&format!("The longest matmul, {}: {}", longest.name, time(picture.span()))))
            }
            @if !self.products.is_empty() {
                h3 { "The longest matmuls" }
                (table(["matmul", "", "time"], self.products.iter().map(|product| [
                    (&product.name).into(), (&product.what).into(), time(product.to - product.from).into(),
                ])))
            }
            @if self.left_out > 0 { p.note { (self.left_out) " slices of this trace are left out." } }
            p.note { "Slices less than a pixel apart are drawn as one." }
        }
    }

    /// Count and time of each kind of work.
    fn totals(&self, modelled: bool) -> Markup {
        let of_clock = self.tracks.iter();
        let of_clock = of_clock.filter(|(track, _)| self.is_modelled(track.0) == modelled);
        let slices = || of_clock.clone().flat_map(|(_, slices)| slices);
        let rows = SliceKind::ALL.into_iter().filter_map(|kind| {
            let times: Vec<f64> = slices()
                .filter(|slice| slice.kind == kind)
                .map(|slice| slice.to - slice.from)
                .collect();
            let longest = times.iter().copied().fold(0.0, f64::max);
            let all: f64 = times.iter().sum();
            let row = [
                kind.name().into(),
                times.len().into(),
                time(all).into(),
                time(longest).into(),
            ];
            (!times.is_empty()).then_some(row)
        });
        let rows: Vec<_> = rows.collect();
        table(
            ["work", "times", "in all threads", "longest"],
            rows.into_iter(),
        )
    }
}
