// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the report reads from the files of this program.

use npu_matmul::Profile;
use rknpu_regcmd::timing::Machine;
use serde::Deserialize;

use super::text::ShownText;
use crate::flags::OperandDtypes;

/// A device and the machine that it is in.
#[derive(Debug, Deserialize)]
pub(super) struct ReportedDevice {
    pub(super) name: ShownText,
    pub(super) is_model: bool,
    driver: ShownText,
    driver_version: ShownText,
    cores: u32,
    host: ReportedHost,
}

#[derive(Debug, Deserialize)]
struct ReportedHost {
    kernel: Option<ShownText>,
    board: Option<ShownText>,
    architecture: ShownText,
}

impl ReportedDevice {
    /// What measurements on it depend on.
    pub(super) fn facts(&self) -> Vec<(&'static str, String)> {
        let or_unknown = |text: &Option<ShownText>| match text {
            Some(text) => text.to_string(),
            None => "unknown".to_owned(),
        };
        vec![
            ("device", format!("{}, {} cores", self.name, self.cores)),
            ("driver", format!("{} {}", self.driver, self.driver_version)),
            ("board", or_unknown(&self.host.board)),
            (
                "kernel",
                format!(
                    "{} on {}",
                    or_unknown(&self.host.kernel),
                    self.host.architecture
                ),
            ),
        ]
    }
}

/// `bench --json`.
#[derive(Debug, Deserialize)]
pub(super) struct BenchFile {
    pub(super) conditions: BenchConditions,
    pub(super) measurements: Vec<BenchProduct>,
}

#[derive(Debug, Deserialize)]
pub(super) struct BenchConditions {
    pub(super) version: ShownText,
    pub(super) device: ReportedDevice,
    pub(super) machine: Machine,
    pub(super) time_of: ShownText,
    pub(super) profile: ShownText,
    pub(super) clock_mhz: u64,
    pub(super) fds: usize,
    pub(super) threads: Option<ShownText>,
    pub(super) profile_refused: Option<ShownText>,
    pub(super) cpu: ShownText,
    pub(super) cpus: usize,
    pub(super) load_average: Option<f64>,
}

#[derive(Debug, Deserialize)]
pub(super) struct BenchProduct {
    pub(super) dtype: OperandDtypes,
    pub(super) m: usize,
    pub(super) k: usize,
    pub(super) n: usize,
    pub(super) submits: f64,
    pub(super) wall_ms: ReportedTimes,
    pub(super) cpu_ms: f64,
    pub(super) gops: Option<f64>,
    pub(super) modelled_npu_ms: f64,
    pub(super) modelled_gops: f64,
    pub(super) bound_ms: f64,
    pub(super) bound_by: ShownText,
    pub(super) share_of_bound: Option<f64>,
    pub(super) modelled_share_of_bound: f64,
    pub(super) operations_per_byte: f64,
}

#[derive(Debug, Deserialize)]
pub(super) struct ReportedTimes {
    pub(super) best: f64,
    pub(super) median: f64,
    pub(super) worst: f64,
}

/// `doctor --json`.
#[derive(Debug, Deserialize)]
pub(super) struct DoctorFile {
    pub(super) version: ShownText,
    pub(super) usable: Option<ShownText>,
    pub(super) rows: Vec<ReportedRow>,
}

#[derive(Debug, Deserialize)]
pub(super) struct ReportedRow {
    pub(super) topic: ShownText,
    pub(super) state: ShownText,
    pub(super) found: ShownText,
    pub(super) remedy: Option<ShownText>,
}

impl ReportedRow {
    /// Whether it needs a remedy.
    pub(super) fn is_problem(&self) -> bool {
        &*self.state == "PROBLEM"
    }
}

/// `calibrate --json`.
#[derive(Debug, Deserialize)]
pub(super) struct CalibrationFile {
    pub(super) version: ShownText,
    pub(super) device: ReportedDevice,
    pub(super) facts: Vec<ReportedFact>,
    pub(super) profile: Option<Profile>,
}

#[derive(Debug, Deserialize)]
pub(super) struct ReportedFact {
    pub(super) name: ShownText,
    pub(super) question: ShownText,
    pub(super) outcome: ShownText,
    pub(super) side: Option<ShownText>,
    pub(super) nearest: Option<ShownText>,
    pub(super) as_model: Option<bool>,
    pub(super) reason: Option<ShownText>,
}

/// The self-test's.
#[derive(Debug, Deserialize)]
pub(super) struct SelfTestFile {
    pub(super) result: ShownText,
    pub(super) device: ReportedDevice,
    pub(super) problem: ReportedProblem,
    pub(super) time_of: ShownText,
    pub(super) runs: Vec<ReportedRun>,
}

impl SelfTestFile {
    /// Whether all elements were right.
    pub(super) fn is_pass(&self) -> bool {
        &*self.result == "PASS"
    }
}

#[derive(Debug, Deserialize)]
pub(super) struct ReportedProblem {
    pub(super) dtype: ShownText,
    pub(super) m: usize,
    pub(super) k: usize,
    pub(super) n: usize,
}

#[derive(Debug, Deserialize)]
pub(super) struct ReportedRun {
    pub(super) wall_us: f64,
    pub(super) comparison: ReportedComparison,
}

#[derive(Debug, Deserialize)]
pub(super) struct ReportedComparison {
    pub(super) elements: usize,
    pub(super) different: usize,
}
