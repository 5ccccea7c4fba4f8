// SPDX-License-Identifier: MIT OR Apache-2.0
//! Input files of the page, and their kinds.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use npu_matmul::Profile;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::text::shown;
use super::trace::TraceSlices;
use crate::doctor::DoctorReport;
use crate::matmul::report::SelfTestReport;
use crate::measure::bench::BenchReport;
use crate::measure::calibrate::CalibrateReport;

/// Longest trace: slightly more than the backend writes.
const MOST_OF_TRACE: u64 = 2 << 30;
/// Longest file of any other kind; these are read as a whole.
const MOST_OF_OTHERS: u64 = 64 << 20;

/// Why a file cannot be part of a report.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReportInputError {
    #[error("cannot read the file")]
    Read(#[from] io::Error),
    #[error("the file is longer than {} MiB", MOST_OF_OTHERS >> 20)]
    TooLong,
    #[error("the file is not JSON")]
    Json(#[source] serde_json::Error),
    #[error("the file is JSON, but not of a kind that `npu-probe report --help` lists")]
    Unknown,
    #[error(
        "the file looks like {what}, but this version cannot read it; write it again with \
         this version"
    )]
    Shape {
        what: &'static str,
        source: serde_json::Error,
    },
}

/// The content of a file, by kind.
#[derive(Debug)]
pub(super) enum ReportContent {
    Doctor(DoctorReport),
    SelfTest(Box<SelfTestReport>),
    Bench(Box<BenchReport>),
    Calibration(Box<CalibrateReport>),
    Profile(Box<Profile>),
    Trace(TraceSlices),
}

/// An input file that was read.
#[derive(Debug)]
pub(crate) struct ReportInput {
    /// File name without its folder, which is private.
    pub(super) name: String,
    /// Time of its last change.
    pub(super) written: SystemTime,
    pub(super) content: ReportContent,
}

impl ReportInput {
    /// Reads a file and detects its kind.
    pub(crate) fn read(path: &Path) -> Result<Self, ReportInputError> {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let file = File::open(path)?;
        Ok(Self {
            name: shown(&name),
            written: file.metadata()?.modified().unwrap_or(UNIX_EPOCH),
            content: content(file)?,
        })
    }
}

pub(super) fn content(file: impl Read) -> Result<ReportContent, ReportInputError> {
    let mut reader = BufReader::new(file.take(MOST_OF_TRACE));
    if reader.fill_buf()?.trim_ascii_start().starts_with(b"[") {
        // Only a trace may be too long to read as a whole.
        let what = "a trace";
        let shape = |source: serde_json::Error| match source.classify() {
            serde_json::error::Category::Data => ReportInputError::Shape { what, source },
            _ => ReportInputError::Json(source),
        };
        let trace = serde_json::from_reader(reader).map_err(shape)?;
        return Ok(ReportContent::Trace(trace));
    }
    let mut bytes = Vec::new();
    reader.take(MOST_OF_OTHERS + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MOST_OF_OTHERS {
        return Err(ReportInputError::TooLong);
    }
    let mut value = serde_json::from_slice(&bytes).map_err(ReportInputError::Json)?;
    let Value::Object(object) = &mut value else {
        return Err(ReportInputError::Unknown);
    };
    if let Some(events) = object.remove("traceEvents") {
        return typed("a trace", events).map(ReportContent::Trace);
    }
    object.values_mut().for_each(make_showable);
    let has = |names: &[&str]| names.iter().all(|name| object.contains_key(*name));
    if has(&["conditions", "measurements"]) {
        typed("the output of `bench --json`", value).map(ReportContent::Bench)
    } else if has(&["format", "profile"]) {
        let profile = object.remove("profile").unwrap_or_default();
        typed("a profile", profile).map(ReportContent::Profile)
    } else if has(&["settled", "facts"]) {
        typed("the output of `calibrate --json`", value).map(ReportContent::Calibration)
    } else if has(&["usable_node", "rows"]) || has(&["usable", "rows"]) {
        typed("the output of `doctor --json`", value).map(ReportContent::Doctor)
    } else if has(&["result", "problem", "runs"]) {
        typed("the output of the self-test with --json", value).map(ReportContent::SelfTest)
    } else {
        Err(ReportInputError::Unknown)
    }
}

/// Makes all texts [`shown`] ones.
fn make_showable(value: &mut Value) {
    match value {
        Value::String(text) => *text = shown(text),
        Value::Array(all) => all.iter_mut().for_each(make_showable),
        Value::Object(all) => all.values_mut().for_each(make_showable),
        _ => {}
    }
}

fn typed<T: DeserializeOwned>(what: &'static str, value: Value) -> Result<T, ReportInputError> {
    serde_json::from_value(value).map_err(|source| ReportInputError::Shape { what, source })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_files_give_a_typed_error() {
        let of = |text: &str| content(text.as_bytes()).unwrap_err();
        assert!(matches!(of(""), ReportInputError::Json(_)));
        assert!(matches!(of("[{\"ph\":"), ReportInputError::Json(_)));
        assert!(matches!(
            of(&"[".repeat(100_000)),
            ReportInputError::Shape { .. } | ReportInputError::Json(_)
        ));
        assert!(matches!(of("{}"), ReportInputError::Unknown));
        assert!(matches!(of("3"), ReportInputError::Unknown));
        for text in [
            "[3]",
            r#"{"traceEvents": 3}"#,
            r#"{"conditions": {}, "measurements": []}"#,
            r#"{"format": "", "profile": {}}"#,
            r#"{"settled": true, "facts": 1}"#,
            r#"{"usable": null, "rows": [1]}"#,
            r#"{"result": "PASS", "problem": {}, "runs": []}"#,
        ] {
            assert!(matches!(of(text), ReportInputError::Shape { .. }), "{text}");
        }
    }
}
