// SPDX-License-Identifier: MIT OR Apache-2.0
//! Renders the section of each kind of file.

use maud::{Markup, html};
use npu_matmul::Profile;

use super::text::{ShownText, blocks, facts, folded, number, table, time, with_code};
use super::timeline::TraceTimeline;
use super::trace::{SliceKind, TraceSlices};
use crate::bench::BenchReport;
use crate::calibrate::CalibrateReport;
use crate::doctor::{DoctorReport, DoctorRow};
use crate::exit::Verdict;
use crate::flags::planning::HERTZ_PER_MHZ;
use crate::report::{DeviceReport, SelfTestReport};

const GIGA: f64 = 1e9;
const PS_PER_US: f64 = 1e6;

/// The conditions of measurements on a device.
pub(super) fn device_facts(device: &DeviceReport) -> Vec<(&'static str, String)> {
    let host = &device.host;
    let or_unknown = |text: &Option<String>| text.clone().unwrap_or_else(|| "unknown".to_owned());
    let kernel = or_unknown(&host.kernel);
    vec![
        ("device", format!("{}, {} cores", device.name, device.cores)),
        (
            "driver",
            format!("{} {}", device.driver, device.driver_version),
        ),
        ("board", or_unknown(&host.board)),
        ("kernel", format!("{kernel} on {}", host.architecture)),
    ]
}

impl DoctorReport {
    pub(super) fn section(&self) -> Markup {
        let is_problem = |row: &&DoctorRow| row.is_problem();
        let (problems, others): (Vec<_>, Vec<_>) = self.rows.iter().partition(is_problem);
        let rows = |rows: Vec<&DoctorRow>| {
            let cells = rows.into_iter().map(|row| {
                let remedy = row.remedy.as_deref().unwrap_or_default();
                let class = if row.is_problem() { "problem" } else { "" };
                let cells = [
                    row.state.word().into(),
                    (&*row.topic).into(),
                    (&*row.found).into(),
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
}

/// All self-tests, as one table.
pub(super) fn self_tests(tests: &[&SelfTestReport]) -> Markup {
    let rows = tests.iter().flat_map(|test| {
        let problem = &test.problem;
        test.runs.iter().map(move |run| {
            let class = if test.result == Verdict::Pass {
                ""
            } else {
                "problem"
            };
            let matmul = format!("{} {}", problem.dtype, problem.shape);
            let cells = [
                test.result.words(false).into(),
                matmul.into(),
                run.comparison.elements.into(),
                run.comparison.different.into(),
                format!("{} of {}", time(run.wall_us), test.time_of).into(),
            ];
            (class, cells)
        })
    });
    html! {
        (blocks(["result", "matmul", "elements", "wrong", "wall time"], rows))
        @if let Some(test) = tests.first() { (folded("Device", facts(device_facts(&test.device)))) }
    }
}

impl BenchReport {
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
            (folded("Conditions", facts(device_facts(&conditions.device).into_iter().chain(host))))
            @if let Some(why) = &conditions.profile_refused { p.note { (why) } }
            h3 { "Wall time, from call to return" }
            (table(
                ["", "matmul", "median ms", "best", "worst", "GOP/s", "% of bound", "CPU ms", "SUBMITs"],
                self.measurements.iter().enumerate().map(|(index, one)| [
                    (index + 1).into(),
                    format!("{} {}", one.dtype, one.shape).into(),
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
                    format!("{} {}", one.dtype, one.shape).into(),
                    one.modelled_npu_ms.into(),
                    one.modelled_gops.into(),
                    percent(one.modelled_share_of_bound).into(),
                    one.bound_ms.into(),
                    (&*one.bound_by).into(),
                ]),
            ))
            (self.roofline())
        }
    }
}

impl CalibrateReport {
    pub(super) fn section(&self) -> Markup {
        let all = &self.facts;
        html! {
            (facts(device_facts(&self.device)))
            @if let Some(measured) = &self.profile { (profile(measured)) }
            @let summary = format!("{} contested facts", all.len());
            (folded(&summary, table(["fact", "question", "outcome", "result"], all.iter().map(|fact| {
                let (outcome, result) = fact.outcome.kind_and_result();
                [(&*fact.name).into(), (&*fact.question).into(), outcome.into(), result.into()]
            }))))
            p.note { "npu-probe " (self.version) }
        }
    }
}

/// A board's profile, as a table.
pub(super) fn profile(profile: &Profile) -> Markup {
    let (machine, host) = (&profile.machine, &profile.host);
    let gigabytes = |bytes: u64| format!("{} GB/s", number(bytes as f64 / GIGA));
    let us = |ps: u64| time(ps as f64 / PS_PER_US);
    facts([
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
    ])
}

/// The profile, and its decided facts.
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
        let longest = self.matmuls.first();
        let zoom = longest.map(|matmul| (matmul.from, matmul.to));
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
            @if !self.matmuls.is_empty() {
                h3 { "The longest matmuls" }
                (table(["matmul", "", "time"], self.matmuls.iter().map(|matmul| [
                    (&*matmul.name).into(), (&*matmul.what).into(), time(matmul.to - matmul.from).into(),
                ])))
            }
            @if self.left_out > 0 { p.note { (self.left_out) " slices of this trace are left out." } }
            p.note { "Slices less than a pixel apart are drawn as one." }
        }
    }

    /// Count and time of each kind of work.
    fn totals(&self, modelled: bool) -> Markup {
        let slices = || self.of_clock(modelled).flat_map(|(_, slices)| slices);
        let rows = SliceKind::all().filter_map(|kind| {
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
