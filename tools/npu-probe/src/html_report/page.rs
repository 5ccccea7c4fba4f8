// SPDX-License-Identifier: MIT OR Apache-2.0
//! Renders the page: a summary, and one section per file.

use maud::{Markup, html};

use super::input::{ReportContent, ReportInput};
use super::sections::{device_facts, self_tests};
use super::text::{ShownText, facts, own, with_code};
use crate::date;
use crate::doctor::{DoctorReport, DoctorRow};
use crate::exit::Verdict;
use crate::report::{DeviceReport, SelfTestReport};

/// The device that computed the figures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FigureSource {
    Npu,
    Model,
    /// No device, or an unknown one.
    Unknown,
}

impl FigureSource {
    const fn class(self) -> &'static str {
        match self {
            Self::Npu => "npu",
            Self::Model => "model",
            Self::Unknown => "unknown",
        }
    }

    const fn badge(self) -> &'static str {
        match self {
            Self::Npu => "on an NPU",
            Self::Model => "software model, no NPU",
            Self::Unknown => "",
        }
    }

    fn banner(all: &[Self]) -> (Self, &'static str) {
        match (all.contains(&Self::Npu), all.contains(&Self::Model)) {
            (true, false) => (
                Self::Npu,
                "MEASURED on an NPU. Modelled figures are marked as modelled.",
            ),
            (false, true) => (
                Self::Model,
                "NOT MEASURED ON AN NPU: these are results of the software model. Times are \
                 modelled, or wall times of the model on its host.",
            ),
            (true, true) => (
                Self::Unknown,
                "MIXED: some results were measured on an NPU, and some are the software model's. \
                 Each section shows which.",
            ),
            (false, false) => (Self::Unknown, "These files have no results of a device."),
        }
    }
}

impl ReportInput {
    fn figure_source(&self) -> FigureSource {
        let is_model = match &self.content {
            ReportContent::Profile(profile) => profile.board.as_ref().map(|board| board.is_model),
            ReportContent::Trace(trace) => Some(trace.is_model()),
            _ => self.device().map(|device| device.is_model),
        };
        match is_model {
            Some(true) => FigureSource::Model,
            Some(false) => FigureSource::Npu,
            None => FigureSource::Unknown,
        }
    }

    /// The title and body of its section; none for self-tests, which share one.
    fn section(&self) -> Option<(&'static str, Markup)> {
        Some(match &self.content {
            ReportContent::Doctor(doctor) => ("The machine", doctor.section()),
            ReportContent::SelfTest(_) => return None,
            ReportContent::Bench(bench) => ("Speed of matmuls", bench.section()),
            ReportContent::Calibration(file) => ("Calibration", file.section()),
            ReportContent::Profile(profile) => (
                "Profile of the board",
                super::sections::profile_and_facts(profile),
            ),
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
    let wrong = tests
        .iter()
        .filter(|test| test.result != Verdict::Pass)
        .count();
    match (tests.len(), wrong) {
        (0, _) => {}
        (all, 0) => sentences.push(format!("PASS: {all} of {all} self-tests are right.")),
        (all, wrong) => sentences.push(format!("FAIL: {wrong} of {all} self-tests are wrong.")),
    }
    let has_problem = |doctor: &DoctorReport| {
        doctor.usable.is_none() && doctor.rows.iter().any(DoctorRow::is_problem)
    };
    let class = if wrong > 0 || doctors.clone().any(has_problem) {
        "problem"
    } else {
        "unknown"
    };
    let newest = inputs.iter().map(|input| input.written).max();
    let date = newest.map(|time| ("date", format!("{}, by the newest file", date::date(time))));
    let device = inputs.iter().find_map(ReportInput::device);
    let conditions = device.map(device_facts).unwrap_or_default();
    html! {
        @if !sentences.is_empty() {
            p.banner.verdict.(class) { (with_code(&ShownText::from(&*sentences.join(" ")))) }
        }
        (facts(date.into_iter().chain(conditions)))
    }
}

/// The whole page, which is also well-formed XML.
pub(crate) fn page(inputs: &[ReportInput]) -> String {
    let all: Vec<FigureSource> = inputs.iter().map(ReportInput::figure_source).collect();
    let (class, banner) = FigureSource::banner(&all);
    let first_test = inputs.iter().position(|input| input.self_test().is_some());
    let tests: Vec<&SelfTestReport> = inputs.iter().filter_map(ReportInput::self_test).collect();
    let of_tests = inputs.iter().filter(|input| input.self_test().is_some());
    let names: Vec<&str> = of_tests.clone().map(|input| &*input.name).collect();
    let test_names = ShownText::from(&*names.join(", "));
    let tests_of: Vec<FigureSource> = of_tests.map(ReportInput::figure_source).collect();
    let (tests_of, _) = FigureSource::banner(&tests_of);
    let page = html! {
        (own("<!DOCTYPE html>\n"))
        html lang="en" xmlns="http://www.w3.org/1999/xhtml" {
            head {
                (own("<meta charset=\"utf-8\"/>"))
                (own("<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>"))
                title { "NPU report" }
                style { (own(include_str!("style.css"))) }
            }
            body {
                h1 { "NPU report" }
                (summary(inputs, &tests))
                p.banner.(class.class()) { (banner) }
                @for (index, (input, of)) in inputs.iter().zip(&all).enumerate() {
                    @if let Some((title, body)) = input.section() {
                        (section(title, *of, &input.name, body))
                    } @else if first_test == Some(index) {
                        (section("Self-tests", tests_of, &test_names, self_tests(&tests)))
                    }
                }
                footer { p { "Written by npu-probe " (env!("CARGO_PKG_VERSION")) " report." } }
            }
        }
    };
    page.into_string() + "\n"
}

/// A section for one file, or for all self-tests.
fn section(title: &str, of: FigureSource, from: &ShownText, body: Markup) -> Markup {
    html! { section {
        h2 { (title) " " @if of != FigureSource::Unknown {
            span.badge.(of.class()) { (of.badge()) }
        } }
        p.note { "From " (from) }
        (body)
    } }
}
