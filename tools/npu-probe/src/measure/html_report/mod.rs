// SPDX-License-Identifier: MIT OR Apache-2.0
//! `npu-probe report`: renders the files of other commands as one HTML page.
//!
//! The page needs no network and no script. Files are not trusted: when they are read, all
//! their texts pass through [`text::shown`]; lengths are bounded, and the page shows what it
//! leaves out.

mod axis;
mod input;
mod roofline;
mod sections;
mod text;
mod timeline;
mod trace;

#[cfg(test)]
mod tests;

use maud::{Markup, PreEscaped, html};

use crate::base::date;
use crate::base::exit::Verdict;
use crate::base::table::joined;
use crate::doctor::{DoctorReport, DoctorRow};
use crate::matmul::report::{DeviceReport, SelfTestReport};
use input::ReportContent;
use sections::{device_facts, profile_and_facts, self_tests};
use text::{facts, with_code};

pub(crate) use input::ReportInput;

/// Class and badge of a section. `is_model`: whether the software model computed its figures;
/// `None` if no device did, or an unknown one.
const fn badge(is_model: Option<bool>) -> (&'static str, &'static str) {
    match is_model {
        Some(false) => ("npu", "on an NPU"),
        Some(true) => ("model", "software model, no NPU"),
        None => ("unknown", ""),
    }
}

/// The device of all figures of several files: `None` if they are of different devices.
fn of_all(are_models: &[Option<bool>]) -> Option<bool> {
    let has = |is_model| are_models.contains(&Some(is_model));
    (has(true) != has(false)).then_some(has(true))
}

impl ReportInput {
    /// Whether the software model computed the figures, for [`badge`].
    fn is_model(&self) -> Option<bool> {
        match &self.content {
            ReportContent::Profile(profile) => profile.board.as_ref().map(|board| board.is_model),
            ReportContent::Trace(trace) => Some(trace.is_model()),
            _ => self.device().map(|device| device.is_model),
        }
    }

    /// The title and body of its section; none for self-tests, which share one.
    fn section(&self) -> Option<(&'static str, Markup)> {
        Some(match &self.content {
            ReportContent::Doctor(doctor) => ("The machine", doctor.section()),
            ReportContent::SelfTest(_) => return None,
            ReportContent::Bench(bench) => ("Speed of matmuls", bench.section()),
            ReportContent::Calibration(file) => ("Calibration", file.section()),
            ReportContent::Profile(whole) => ("Profile of the board", profile_and_facts(whole)),
            ReportContent::Trace(trace) => ("Timeline", trace.section()),
        })
    }

    fn self_test(&self) -> Option<&SelfTestReport> {
        match &self.content {
            ReportContent::SelfTest(test) => Some(test),
            _ => None,
        }
    }

    fn doctor(&self) -> Option<&DoctorReport> {
        match &self.content {
            ReportContent::Doctor(doctor) => Some(doctor),
            _ => None,
        }
    }

    /// The device that computed the figures, if any.
    fn device(&self) -> Option<&DeviceReport> {
        match &self.content {
            ReportContent::SelfTest(test) => Some(&test.device),
            ReportContent::Bench(bench) => Some(&bench.conditions.device),
            ReportContent::Calibration(file) => Some(&file.device),
            _ => None,
        }
    }
}

/// The summary: verdict, date and conditions.
fn summary(inputs: &[ReportInput], tests: &[&SelfTestReport]) -> Markup {
    let doctors = inputs.iter().filter_map(ReportInput::doctor);
    let mut sentences: Vec<String> = doctors.clone().map(DoctorReport::verdict).collect();
    let is_wrong = |test: &&&SelfTestReport| test.result != Verdict::Pass;
    let wrong = tests.iter().filter(is_wrong).count();
    match (tests.len(), wrong) {
        (0, _) => {}
        (all, 0) => sentences.push(format!("PASS: {all} of {all} self-tests are right.")),
        (all, wrong) => sentences.push(format!("FAIL: {wrong} of {all} self-tests are wrong.")),
    }
    let has_problem = |doctor: &DoctorReport| {
        doctor.usable_node.is_none() && doctor.rows.iter().any(DoctorRow::is_problem)
    };
    let is_problem = wrong > 0 || doctors.clone().any(has_problem);
    let class = if is_problem { "problem" } else { "unknown" };
    let newest = inputs.iter().map(|input| input.written).max();
    let date = newest.map(|time| ("date", format!("{}, by the newest file", date::date(time))));
    let device = inputs.iter().find_map(ReportInput::device);
    let conditions = device.map(device_facts).unwrap_or_default();
    html! {
        @if !sentences.is_empty() {
            p.banner.verdict.(class) { (with_code(&sentences.join(" "))) }
        }
        (facts(date.into_iter().chain(conditions)))
    }
}

/// The banner of a page with figures of these devices.
fn banner(are_models: &[Option<bool>]) -> Markup {
    let all = of_all(are_models);
    let text = match all {
        Some(false) => "MEASURED on an NPU. Modelled figures are marked as modelled.",
        Some(true) => {
            "NOT MEASURED ON AN NPU: these are results of the software model. Times are \
             modelled, or wall times of the model on its host."
        }
        None if are_models.iter().any(Option::is_some) => {
            "MIXED: some results were measured on an NPU, and some are the software model's. \
             Each section shows which."
        }
        None => "These files have no results of a device.",
    };
    html! { p.banner.(badge(all).0) { (text) } }
}

/// The whole page, which is also well-formed XML.
pub(crate) fn page(inputs: &[ReportInput]) -> String {
    let are_models: Vec<_> = inputs.iter().map(ReportInput::is_model).collect();
    let tests: Vec<&SelfTestReport> = inputs.iter().filter_map(ReportInput::self_test).collect();
    let self_test_inputs = || inputs.iter().filter(|input| input.self_test().is_some());
    let test_names = joined(self_test_inputs().map(|input| &input.name), ", ");
    let tests_of: Vec<_> = self_test_inputs().map(ReportInput::is_model).collect();
    let first_test = inputs.iter().position(|input| input.self_test().is_some());
    let page = html! {
        (PreEscaped("<!DOCTYPE html>\n"))
        html lang="en" xmlns="http://www.w3.org/1999/xhtml" {
            head {
                (PreEscaped("<meta charset=\"utf-8\"/>"))
                (PreEscaped("<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>"))
                title { "NPU report" }
                style { (PreEscaped(include_str!("style.css"))) }
            }
            body {
                h1 { "NPU report" }
                (summary(inputs, &tests))
                (banner(&are_models))
                @for (index, input) in inputs.iter().enumerate() {
                    @if let Some((title, body)) = input.section() {
                        (section(title, input.is_model(), &input.name, body))
                    } @else if first_test == Some(index) {
                        (section("Self-tests", of_all(&tests_of), &test_names, self_tests(&tests)))
                    }
                }
                footer { p { "Written by npu-probe " (env!("CARGO_PKG_VERSION")) " report." } }
            }
        }
    };
    page.into_string() + "\n"
}

/// A section for one file, or for all self-tests.
fn section(title: &str, is_model: Option<bool>, from: &str, body: Markup) -> Markup {
    let (class, device) = badge(is_model);
    html! { section {
        h2 { (title) " " @if is_model.is_some() { span.badge.(class) { (device) } } }
        p.note { "From " (from) }
        (body)
    } }
}
