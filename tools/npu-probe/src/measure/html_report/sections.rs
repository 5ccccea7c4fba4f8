// SPDX-License-Identifier: MIT OR Apache-2.0
//! Renders the section of each kind of file.

use maud::{Markup, html};
use npu_matmul::Profile;

use super::text::{blocks, facts, folded, number, table, time, with_code};
use super::timeline::timeline;
use super::trace::{SliceKind, TraceSlices};
use crate::base::exit::Verdict;
use crate::base::flags::planning::HERTZ_PER_MHZ;
use crate::doctor::{DoctorReport, DoctorRow};
use crate::matmul::report::{DeviceReport, SelfTestReport};
use crate::measure::bench::{BenchReport, Measurement};
use crate::measure::calibrate::CalibrateReport;

const GIGA: f64 = 1e9;
const PS_PER_US: f64 = 1e6;

/// The conditions of measurements on a device.
pub(super) fn device_facts(device: &DeviceReport) -> Vec<(&'static str, String)> {
    let host = &device.host;
    let or_unknown = |text: &Option<String>| text.clone().unwrap_or_else(|| "unknown".to_owned());
    let kernel = or_unknown(&host.kernel);
    let driver = format!("{} {}", device.driver, device.driver_version);
    vec![
        ("device", format!("{}, {} cores", device.name, device.cores)),
        ("driver", driver),
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
                let class = if row.is_problem() { "problem" } else { "" };
                let cells = [
                    row.state.word().to_owned(),
                    row.topic.to_string(),
                    row.found.clone(),
                    row.remedy.clone().unwrap_or_default(),
                ];
                (class, cells)
            });
            blocks(["", "check", "found", "fix"], cells)
        };
        let summary = format!("{} other rows", others.len());
        html! {
            p { (with_code(&self.verdict())) }
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
            let is_right = test.result == Verdict::Pass;
            let class = if is_right { "" } else { "problem" };
            let cells = [
                test.result.words(false).to_owned(),
                format!("{} {}", problem.dtype, problem.shape),
                run.comparison.elements.to_string(),
                run.comparison.different.to_string(),
                format!("{} of {}", time(run.wall_us), test.time_of),
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
        let load = load.map_or_else(|| "unknown".to_owned(), number);
        let cpus = format!("{} x {}, load {load}", conditions.cpus, conditions.cpu);
        let clock = format!("{} MHz, by the profile", conditions.clock_mhz);
        let threads = conditions.threads.as_deref();
        let host = [
            ("clock", clock),
            ("profile", conditions.profile.clone()),
            ("host", cpus),
            ("threads", threads.unwrap_or("one for each CPU").to_owned()),
            ("files", format!("{} of the device", conditions.fds)),
            ("wall time", format!("of {}", conditions.time_of)),
            ("version", conditions.version.to_string()),
        ];
        let percent = |share: f64| number(share * 100.0);
        let or_none = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
        let name = |one: &Measurement| format!("{} {}", one.dtype, one.shape);
        html! {
            (folded("Conditions", facts(device_facts(&conditions.device).into_iter().chain(host))))
            @if let Some(why) = &conditions.profile_refused { p.note { (why) } }
            h3 { "Wall time, from call to return" }
            (table(
                ["", "matmul", "median ms", "best", "worst", "GOP/s", "% of bound", "CPU ms", "SUBMITs"],
                self.measurements.iter().enumerate().map(|(index, one)| [
                    (index + 1).to_string(),
                    name(one),
                    number(one.wall_ms.median),
                    number(one.wall_ms.best),
                    number(one.wall_ms.worst),
                    or_none(one.gops.map(number)),
                    or_none(one.share_of_bound.map(percent)),
                    number(one.cpu_ms),
                    number(one.submits),
                ]),
            ))
            h3 { "Modelled time of the NPU" }
            (table(
                ["", "matmul", "ms", "GOP/s", "% of bound", "bound ms", "bound by"],
                self.measurements.iter().enumerate().map(|(index, one)| [
                    (index + 1).to_string(),
                    name(one),
                    number(one.modelled_npu_ms),
                    number(one.modelled_gops),
                    percent(one.modelled_share_of_bound),
                    number(one.bound_ms),
                    one.bound_by.clone(),
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
                [fact.name.to_string(), fact.question.to_string(), outcome.to_owned(), result]
            }))))
            p.note { "npu-probe " (self.version) }
        }
    }
}

/// A board's profile, as a table.
pub(super) fn profile(profile: &Profile) -> Markup {
    let (machine, host) = (&profile.machine, &profile.host);
    let gigabytes = |bytes: u64| number(bytes as f64 / GIGA) + " GB/s";
    let us = |ps: u64| time(ps as f64 / PS_PER_US);
    let memory = format!(
        "{} for a core, {} for all",
        gigabytes(machine.dram.rate(machine.clock_hz, 1)),
        gigabytes(machine.dram.shared_bytes_per_second),
    );
    let start = format!(
        "{} to submit, {} to attach, {} for each task, {} to wake",
        us(machine.driver.submit_ps),
        us(machine.driver.attach_ps),
        us(machine.driver.kick_ps),
        us(machine.driver.wake_ps),
    );
    let cpu = format!(
        "{} cores, {} each, caches {}",
        host.cores,
        gigabytes(host.bytes_per_second),
        gigabytes(host.sync_bytes_per_second),
    );
    facts([
        ("profile", profile.name.to_string()),
        ("clock", format!("{} MHz", machine.clock_hz / HERTZ_PER_MHZ)),
        ("memory", memory),
        ("a job's start", start),
        ("CPU", cpu),
    ])
}

pub(super) fn profile_and_facts(whole: &Profile) -> Markup {
    html! {
        (profile(whole))
        @if !whole.facts.is_empty() {
            @let summary = format!("{} decided facts", whole.facts.len());
            (folded(&summary, table(["fact", "side", "question"], whole.facts.iter().map(|fact| [
                fact.id.clone(), fact.verdict.clone(), fact.sentence.clone(),
            ]))))
        }
    }
}

impl TraceSlices {
    pub(super) fn section(&self) -> Markup {
        let longest = self.matmuls.first().and_then(|matmul| {
            let title = |time| format!("The longest matmul, {}: {time}", matmul.name);
            timeline(self, false, Some((matmul.from, matmul.to)), title)
        });
        html! {
            @for modelled in [false, true] {
                @let clock = if modelled { "Modelled time of the NPU" } else { "Measured time of this process" };
                @if let Some(picture) = timeline(self, modelled, None, |time| format!("{clock}: {time} in all")) {
                    (picture)
                    (self.totals(modelled))
                }
            }
            @if let Some(picture) = longest { (picture) }
            @if !self.matmuls.is_empty() {
                h3 { "The longest matmuls" }
                (table(["matmul", "", "time"], self.matmuls.iter().map(|matmul| [
                    matmul.name.clone(), matmul.what.clone(), time(matmul.to - matmul.from),
                ])))
            }
            @if self.left_out > 0 { p.note { (self.left_out) " slices of this trace are left out." } }
            p.note { "Slices less than a pixel apart are drawn as one." }
        }
    }

    /// Count and time of each kind of work.
    fn totals(&self, modelled: bool) -> Markup {
        let row = |kind: SliceKind| {
            let slices = self.of_clock(modelled).flat_map(|(_, slices)| slices);
            let slices = slices.filter(|slice| slice.kind == kind);
            let times: Vec<f64> = slices.map(|slice| slice.to - slice.from).collect();
            let longest = times.iter().copied().reduce(f64::max)?;
            Some([
                kind.name().to_owned(),
                times.len().to_string(),
                time(times.iter().sum()),
                time(longest),
            ])
        };
        let rows: Vec<_> = SliceKind::all().filter_map(row).collect();
        let heads = ["work", "times", "in all threads", "longest"];
        table(heads, rows.into_iter())
    }
}
