// SPDX-License-Identifier: MIT OR Apache-2.0
//! The report of the self-test.

use std::borrow::Cow;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use npu_matmul::{Engine, JobEvent, Observer};
use rocket_uapi::{DeviceInfo, NO_NPU};
use serde::{Deserialize, Serialize};

use crate::base::exit::Verdict;
use crate::base::shape::MatmulShape;
use crate::base::table::table;
use crate::doctor::SystemRoot;
use crate::matmul::expected::{ResultComparison, WrongElement};

/// Variable that `npu-probe run` sets for programs that it serves with the software model.
pub(crate) const SERVED_MODEL: &str = "NPU_PROBE_SERVES_MODEL";

#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct DeviceReport {
    /// The node, or the model's name.
    pub(crate) name: String,
    pub(crate) is_model: bool,
    /// The DRM driver's name.
    pub(crate) driver: String,
    /// The driver's version: major, minor, patch level.
    pub(crate) driver_version: String,
    pub(crate) description: String,
    pub(crate) cores: u32,
    /// Why this device was selected, decision by decision.
    pub(crate) why: Vec<String>,
    pub(crate) host: HostMachine,
}

impl DeviceReport {
    pub(crate) fn new(info: DeviceInfo, mut why: Vec<String>) -> Self {
        let is_served = !info.is_model && std::env::var_os(SERVED_MODEL).is_some();
        if is_served {
            why.push("`npu-probe run` serves it: it is the software model".to_owned());
        }
        let (major, minor, patch) = info.driver.version;
        Self {
            name: info.name,
            is_model: info.is_model || is_served,
            driver: info.driver.name.to_string_lossy().into_owned(),
            driver_version: format!("{major}.{minor}.{patch}"),
            description: info.driver.desc.to_string_lossy().into_owned(),
            cores: info.cores,
            why,
            host: HostMachine::read(),
        }
    }

    pub(crate) fn text(&self) -> String {
        let mut text = String::new();
        let is_first = |why: &&String| *why == NO_NPU;
        if let Some(why) = self.why.iter().find(is_first) {
            text += &format!("{why}\n");
        }
        text += &format!("device     {}\n", self.name);
        for why in self.why.iter().filter(|why| !is_first(why)) {
            text += &format!("           {why}\n");
        }
        let (driver, version, cores) = (&self.driver, &self.driver_version, self.cores);
        text += &format!("driver     {driver} {version} ({})\n", self.description);
        text += &format!("cores      {cores}\n");
        text + &self.host.text()
    }
}

#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub(crate) struct HostMachine {
    /// The running kernel's release.
    pub(crate) kernel: Option<String>,
    /// The board's name in the device tree; PCs have none.
    pub(crate) board: Option<String>,
    /// The processor architecture that this program was built for.
    pub(crate) architecture: Cow<'static, str>,
}

impl HostMachine {
    pub(crate) fn read() -> Self {
        let root = SystemRoot::new(Path::new("/"), false);
        Self {
            kernel: root.line("proc/sys/kernel/osrelease"),
            board: root.line("proc/device-tree/model"),
            architecture: std::env::consts::ARCH.into(),
        }
    }

    pub(crate) fn text(&self) -> String {
        let kernel = self.kernel.as_deref().unwrap_or("unknown");
        let mut text = format!("kernel     {kernel} on {}", self.architecture);
        if let Some(board) = &self.board {
            text.push_str(", ");
            text.push_str(board);
        }
        text + "\n"
    }
}

#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct ProblemReport {
    pub(crate) dtype: String,
    #[serde(flatten)]
    pub(crate) shape: MatmulShape,
    pub(crate) seed: u64,
    pub(crate) fds: usize,
    pub(crate) plan: String,
}

impl ProblemReport {
    pub(crate) fn text(&self) -> String {
        let Self { dtype, seed, .. } = self;
        let MatmulShape { m, k, n } = self.shape;
        format!("problem    C[{m},{n}] = A[{m},{k}] x B[{n},{k}]^T, {dtype}, seed {seed}\n")
    }
}

/// Jobs, tasks and words of one matmul.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize)]
pub(crate) struct ProgramReport {
    pub(crate) jobs: usize,
    pub(crate) tasks: usize,
    /// 64-bit command words of all tasks.
    pub(crate) words: usize,
}

/// Counts the jobs, tasks and words that an engine submits.
#[derive(Debug, Default)]
pub(crate) struct ProgramCounter(Mutex<ProgramReport>);

impl ProgramCounter {
    /// The counts per matmul, after `matmuls` equal matmuls.
    pub(crate) fn of_one(&self, matmuls: usize) -> ProgramReport {
        let all = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let [jobs, tasks, words] =
            [all.jobs, all.tasks, all.words].map(|count| count / matmuls.max(1));
        ProgramReport { jobs, tasks, words }
    }
}

impl Observer for ProgramCounter {
    fn submitting(&self, submission: &JobEvent<'_>) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.jobs += 1;
        all.tasks += submission.programs.len();
        let words = submission.programs.iter().map(|one| one.words().len());
        all.words += words.sum::<usize>();
    }
}

impl ProgramReport {
    pub(crate) fn text(self) -> String {
        let Self { jobs, tasks, words } = self;
        let one = "program    ";
        if tasks == 1 {
            return format!("{one}{words} words, one task\n");
        }
        format!("{one}{words} words, {tasks} tasks in {jobs} job(s)\n")
    }
}

/// Jobs that the driver killed or dropped, or that did not end in time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize, Serialize)]
pub(crate) struct FailedJobs {
    /// Jobs that ran a second time.
    pub(crate) run_again: u64,
    /// Time of all runs that failed, milliseconds; modelled time on the software model.
    pub(crate) lost_ms: f64,
}

impl FailedJobs {
    /// Those of an engine so far.
    pub(crate) fn of(engine: &Engine) -> Self {
        Self {
            run_again: engine.counters().jobs_run_again,
            lost_ms: engine.times().jobs_failed.as_secs_f64() * 1e3,
        }
    }

    /// Those of an engine since `before`.
    pub(crate) fn since(engine: &Engine, before: Self) -> Self {
        let now = Self::of(engine);
        Self {
            run_again: now.run_again.saturating_sub(before.run_again),
            lost_ms: now.lost_ms - before.lost_ms,
        }
    }

    pub(crate) fn add(&mut self, more: Self) {
        self.run_again += more.run_again;
        self.lost_ms += more.lost_ms;
    }

    pub(crate) fn text(self) -> String {
        if self == Self::default() {
            return "no failed job".to_owned();
        }
        let Self { run_again, lost_ms } = self;
        format!("{run_again} jobs run again, {lost_ms:.0} ms lost in failed jobs")
    }
}

#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct RunReport {
    /// Wall time of packing, running and reading back, in microseconds.
    pub(crate) wall_us: f64,
    pub(crate) comparison: ResultComparison,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct SelfTestReport {
    pub(crate) result: Verdict,
    /// Why there are fewer runs than requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) error: Option<String>,
    pub(crate) device: DeviceReport,
    pub(crate) problem: ProblemReport,
    pub(crate) program: ProgramReport,
    #[serde(default)]
    pub(crate) failed_jobs: FailedJobs,
    /// The device whose time `wall_us` is: the NPU or the software model.
    pub(crate) time_of: Cow<'static, str>,
    pub(crate) runs: Vec<RunReport>,
    /// Events of the model: traps, faults, kills. A kernel does not report them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) model_events: Vec<String>,
}

/// The device whose wall time a report shows. The model's does not apply to an
/// NPU.
pub(crate) const fn time_of(is_model: bool) -> Cow<'static, str> {
    Cow::Borrowed(if is_model {
        "the software model on this host, not an NPU"
    } else {
        "the NPU, with packing and reading back"
    })
}

/// Times of several equal matmuls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize, Serialize)]
pub(crate) struct TimeSpread {
    pub(crate) best: f64,
    pub(crate) median: f64,
    pub(crate) worst: f64,
}

impl TimeSpread {
    pub(crate) fn of(mut times: Vec<f64>) -> Self {
        times.sort_by(f64::total_cmp);
        let at = |index: usize| times.get(index).copied().unwrap_or_default();
        Self {
            best: at(0),
            median: at(times.len() / 2),
            worst: at(times.len().saturating_sub(1)),
        }
    }
}

/// Microseconds as text, in milliseconds.
fn milliseconds(us: f64) -> String {
    format!("{:.3} ms", us / 1000.0)
}

impl RunReport {
    pub(crate) const fn passes(&self) -> bool {
        self.comparison.different == 0
    }
}

impl SelfTestReport {
    /// Failed jobs, the wall time, the verdict, and the differences.
    pub(crate) fn verdict_text(&self) -> String {
        let spread = TimeSpread::of(self.runs.iter().map(|run| run.wall_us).collect());
        let [median, best, worst] = [spread.median, spread.best, spread.worst].map(milliseconds);
        let wall = match self.runs.len() {
            0 => "none".to_owned(),
            1 => median,
            count => format!("{median} median, {best} to {worst}, {count} times"),
        };
        let mut text = format!("failures   {}\n", self.failed_jobs.text());
        text += &format!("wall time  {wall} ({})\n", self.time_of);
        match self.runs.iter().position(|run| !run.passes()) {
            None => {
                let elements: usize = self.runs.iter().map(|run| run.comparison.elements).sum();
                let words = Verdict::Pass.words(self.device.is_model);
                text += &format!("{words:10} all {elements} elements are right\n");
            }
            Some(at) => self.failure_text(&mut text, at),
        }
        for event in &self.model_events {
            text += &format!("model      {event}\n");
        }
        text
    }

    fn failure_text(&self, text: &mut String, at: usize) {
        let found = &self.runs[at].comparison;
        let (elements, different) = (found.elements, found.different);
        let (runs, run) = (self.runs.len(), at + 1);
        let bad = self.runs.iter().filter(|run| !run.passes()).count();
        let words = Verdict::Mismatch.words(self.device.is_model);
        *text += &format!("{words:10} {different} of {elements} elements are wrong");
        if runs > 1 {
            *text += &format!(" in run {run} ({bad} of {runs} runs)");
        }
        text.push_str("; the first:\n");
        let heads = ["row", "column", "NPU", "CPU", ""];
        let row = |wrong: &WrongElement| {
            let WrongElement { row, column, .. } = wrong;
            let tolerance = wrong.tolerance.map(|most| format!("+- {most:.3e}"));
            let (npu, cpu) = (wrong.got.clone(), wrong.expected.clone());
            let place = [row, column].map(ToString::to_string);
            [&place[..], &[npu, cpu, tolerance.unwrap_or_default()]].concat()
        };
        text.push_str(&table(heads, found.first.iter().map(row)));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn report(different: &[usize]) -> SelfTestReport {
        let difference = json!({
            "row": 3, "column": 17, "got": "NaN", "expected": "1.5", "tolerance": 1e-6,
        });
        let run = |&different: &usize| {
            let first = vec![&difference; different.min(2)];
            let comparison = json!({ "elements": 100, "different": different, "first": first });
            json!({ "wall_us": 1500.0, "comparison": comparison })
        };
        let report = json!({
            "result": "FAIL",
            "device": {
                "name": "a device", "is_model": true, "driver": "rocket", "driver_version": "0",
                "description": "", "cores": 3, "why": [], "host": { "architecture": "" },
            },
            "problem": {
                "dtype": "fp16", "m": 10, "k": 10, "n": 10, "seed": 1, "fds": 1, "plan": "",
            },
            "program": { "jobs": 1, "tasks": 1, "words": 1 },
            "time_of": time_of(true),
            "runs": different.iter().map(run).collect::<Vec<_>>(),
            "model_events": ["something happened"],
        });
        serde_json::from_value(report).unwrap()
    }

    #[test]
    fn a_failure_shows_the_first_differences() {
        let text = report(&[0, 5, 0]).verdict_text();
        for part in [
            "FAIL (software model) 5 of 100 elements are wrong in run 2 (1 of 3 runs); the first:",
            "3        17  NaN  1.5  +- 1.000e-6",
            "1.500 ms median, 1.500 ms to 1.500 ms, 3 times",
            "model      something happened",
        ] {
            assert!(text.contains(part), "no `{part}` in:\n{text}");
        }
        let text = report(&[2]).verdict_text();
        assert!(text.contains("2 of 100 elements are wrong; the"), "{text}");
        assert!(!report(&[0]).verdict_text().contains("FAIL"));
    }

    #[test]
    fn missing_values_are_left_out() {
        let mut host = HostMachine::default();
        assert_eq!(host.text(), "kernel     unknown on \n");
        host.board = Some("Some Board".to_owned());
        assert_eq!(host.text(), "kernel     unknown on , Some Board\n");
    }

    #[test]
    fn one_program_or_many() {
        let text = |jobs, tasks, words| ProgramReport { jobs, tasks, words }.text();
        assert_eq!(text(1, 1, 108), "program    108 words, one task\n");
        let many = "program    324 words, 3 tasks in 2 job(s)\n";
        assert_eq!(text(2, 3, 324), many);
    }
}
