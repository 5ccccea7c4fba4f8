// SPDX-License-Identifier: MIT OR Apache-2.0
//! The report: rows of findings.

use std::fmt::Write as _;

use serde::Serialize;

/// The state of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum RowState {
    /// As it should be.
    Ok,
    /// The NPU works anyway, or the check is not possible.
    Note,
    /// The NPU is not usable.
    Problem,
}

impl RowState {
    const fn word(self) -> &'static str {
        match self {
            Self::Ok => "OK",
            Self::Note => "note",
            Self::Problem => "PROBLEM",
        }
    }
}

/// One check and its result.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct DoctorRow {
    pub(crate) topic: &'static str,
    pub(crate) state: RowState,
    pub(crate) found: String,
    /// Details, one line each.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) details: Vec<String>,
    /// How to fix it, in one sentence; none if nothing is wrong.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) remedy: Option<String>,
}

impl DoctorRow {
    pub(super) fn ok(topic: &'static str, found: impl Into<String>) -> Self {
        Self {
            topic,
            state: RowState::Ok,
            found: found.into(),
            details: Vec::new(),
            remedy: None,
        }
    }

    pub(super) fn note(
        topic: &'static str,
        found: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        Self {
            state: RowState::Note,
            remedy: Some(remedy.into()),
            ..Self::ok(topic, found)
        }
    }

    pub(super) fn problem(
        topic: &'static str,
        found: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        Self {
            state: RowState::Problem,
            ..Self::note(topic, found, remedy)
        }
    }

    pub(super) fn with(mut self, details: impl IntoIterator<Item = String>) -> Self {
        self.details.extend(details);
        self
    }
}

/// Where problems are explained, in the sources and in the package.
const PAGE: &str = "See docs/troubleshooting.md (in packages: /usr/share/doc/npu-probe).";

/// All rows.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct DoctorReport {
    /// Version of this program.
    pub(crate) version: &'static str,
    /// The usable node of the NPU, if there is one.
    pub(crate) usable: Option<String>,
    pub(crate) rows: Vec<DoctorRow>,
}

impl DoctorReport {
    /// The report for people.
    pub(crate) fn text(&self) -> String {
        // Writing to it cannot fail.
        let mut text = String::new();
        for row in &self.rows {
            let _ = writeln!(
                text,
                "{:<8} {:<16} {}",
                row.state.word(),
                row.topic,
                row.found
            );
            for detail in &row.details {
                let _ = writeln!(text, "{:<25}   {detail}", "");
            }
            if let Some(remedy) = &row.remedy {
                let _ = writeln!(text, "{:<25} > {remedy}", "");
            }
        }
        let _ = writeln!(text, "\n{}", self.verdict());
        text
    }

    /// The report as a block for a bug report.
    pub(crate) fn paste(&self) -> String {
        format!(
            "```text\nnpu-probe {} doctor\n\n{}```\n",
            self.version,
            self.text()
        )
    }

    /// The verdict, and where to read on.
    fn verdict(&self) -> String {
        let first = self
            .rows
            .iter()
            .find(|row| row.state == RowState::Problem)
            .map(|row| row.topic);
        match (&self.usable, first) {
            (Some(node), None) => format!("The NPU is usable: {node}."),
            (Some(node), Some(topic)) => {
                format!("The NPU is usable: {node}, but fix `{topic}`.\n{PAGE}")
            }
            (None, Some(topic)) => {
                format!("The NPU is not usable. Fix `{topic}` first.\n{PAGE}")
            }
            (None, None) => "The NPU is not usable.".to_owned(),
        }
    }
}
