// SPDX-License-Identifier: MIT OR Apache-2.0
//! The report: one row per check.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum RowState {
    Ok,
    /// The NPU works anyway, or the check is not possible.
    Note,
    Problem,
}

impl RowState {
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Ok => "OK",
            Self::Note => "note",
            Self::Problem => "PROBLEM",
        }
    }
}

#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct DoctorRow {
    pub(crate) topic: Cow<'static, str>,
    pub(crate) state: RowState,
    pub(crate) found: String,
    /// Details, one line each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) details: Vec<String>,
    /// How to fix it, in one sentence; none if nothing is wrong.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) remedy: Option<String>,
}

impl DoctorRow {
    pub(crate) fn is_problem(&self) -> bool {
        self.state == RowState::Problem
    }

    /// A row without a topic; [`DoctorRow::about`] adds it.
    pub(super) fn ok(found: impl Into<String>) -> Self {
        Self {
            topic: Cow::Borrowed(""),
            state: RowState::Ok,
            found: found.into(),
            details: Vec::new(),
            remedy: None,
        }
    }

    pub(super) fn note(found: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self {
            state: RowState::Note,
            remedy: Some(remedy.into()),
            ..Self::ok(found)
        }
    }

    /// A note with this remedy, or `ok` without one.
    pub(super) fn judged(found: impl Into<String>, remedy: Option<&str>) -> Self {
        match remedy {
            Some(remedy) => Self::note(found, remedy),
            None => Self::ok(found),
        }
    }

    pub(super) fn problem(found: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self {
            state: RowState::Problem,
            ..Self::note(found, remedy)
        }
    }

    pub(super) fn about(mut self, topic: &'static str) -> Self {
        self.topic = topic.into();
        self
    }

    pub(super) fn with(mut self, details: impl IntoIterator<Item = String>) -> Self {
        self.details.extend(details);
        self
    }
}

/// Page that explains problems, in the sources and in the package.
const PAGE: &str = "See docs/troubleshooting.md (in packages: /usr/share/doc/npu-probe).";

/// All rows, and the usable node.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct DoctorReport {
    pub(crate) version: Cow<'static, str>,
    #[serde(alias = "usable")] // Until 0.1.
    pub(crate) usable_node: Option<String>,
    pub(crate) rows: Vec<DoctorRow>,
}

impl DoctorReport {
    pub(crate) fn text(&self) -> String {
        let mut text = String::new();
        for row in &self.rows {
            let (state, topic) = (row.state.word(), &row.topic);
            text += &format!("{state:<8} {topic:<16} {}\n", row.found);
            for detail in &row.details {
                text += &format!("{:<25}   {detail}\n", "");
            }
            if let Some(remedy) = &row.remedy {
                text += &format!("{:<25} > {remedy}\n", "");
            }
        }
        text += &format!("\n{}\n", self.verdict());
        if self.rows.iter().any(DoctorRow::is_problem) {
            text += PAGE;
            text.push('\n');
        }
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

    pub(crate) fn verdict(&self) -> String {
        let first = self.rows.iter().find(|row| row.is_problem());
        match (&self.usable_node, first.map(|row| &row.topic)) {
            (Some(node), None) => format!("The NPU is usable: {node}."),
            (Some(node), Some(topic)) => format!("The NPU is usable: {node}, but fix `{topic}`."),
            (None, Some(topic)) => format!("The NPU is not usable. Fix `{topic}` first."),
            (None, None) => "The NPU is not usable.".to_owned(),
        }
    }
}
