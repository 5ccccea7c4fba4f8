// SPDX-License-Identifier: MIT OR Apache-2.0
//! The page: what it says first of all, and a section for each file.

use maud::{Markup, html};

use super::input::{ReportContent, ReportInput};
use super::text::own;

/// What computed: nothing matters more to whoever reads figures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FiguresOf {
    Npu,
    Model,
    /// The file does not tell.
    Unknown,
}

impl FiguresOf {
    fn of(is_model: bool) -> Self {
        if is_model { Self::Model } else { Self::Npu }
    }

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
                "MEASURED on an NPU. What is modelled beside it is called so.",
            ),
            (false, true) => (
                Self::Model,
                "NOT MEASURED ON AN NPU: this is the software model. Its times are modelled, or \
                 those of software on this host.",
            ),
            (true, true) => (
                Self::Unknown,
                "MIXED: some of it was measured on an NPU, some is the software model's. Each \
                 section says which.",
            ),
            (false, false) => (Self::Unknown, "No device computed anything in these files."),
        }
    }
}

impl ReportInput {
    fn figures_of(&self) -> FiguresOf {
        match &self.content {
            ReportContent::Doctor(_) => FiguresOf::Unknown,
            ReportContent::SelfTest(test) => FiguresOf::of(test.device.is_model),
            ReportContent::Bench(bench) => FiguresOf::of(bench.conditions.device.is_model),
            ReportContent::Calibration(file) => FiguresOf::of(file.device.is_model),
            ReportContent::Profile(profile) => match &profile.board {
                Some(board) => FiguresOf::of(board.is_model),
                None => FiguresOf::Unknown,
            },
            ReportContent::Trace(trace) => FiguresOf::of(trace.is_model()),
        }
    }

    fn section(&self) -> (&'static str, Markup) {
        match &self.content {
            ReportContent::Doctor(doctor) => ("The machine", doctor.section()),
            ReportContent::SelfTest(test) => ("Self-test", test.section()),
            ReportContent::Bench(bench) => ("Speed of products", bench.section()),
            ReportContent::Calibration(file) => ("Calibration", file.section()),
            ReportContent::Profile(profile) => (
                "Profile of the board",
                super::sections::profile_and_facts(profile),
            ),
            ReportContent::Trace(trace) => ("When it ran", trace.section()),
        }
    }
}

/// The whole file: well-formed XML too.
pub(crate) fn page(inputs: &[ReportInput]) -> String {
    let all: Vec<FiguresOf> = inputs.iter().map(ReportInput::figures_of).collect();
    let (class, banner) = FiguresOf::banner(&all);
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
                p.banner.(class.class()) { (banner) }
                @for (input, of) in inputs.iter().zip(&all) {
                    @let (title, body) = input.section();
                    section {
                        h2 { (title) " " @if *of != FiguresOf::Unknown {
                            span.badge.(of.class()) { (of.badge()) }
                        } }
                        p.note { "From " (input.name) }
                        (body)
                    }
                }
                footer { p { "Made by npu-probe " (env!("CARGO_PKG_VERSION")) " report." } }
            }
        }
    };
    page.into_string() + "\n"
}
