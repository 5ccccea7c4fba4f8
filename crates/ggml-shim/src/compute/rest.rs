// SPDX-License-Identifier: MIT OR Apache-2.0
//! The rest of an NPU that lost too much time, and the trial that ends it: a small job of our own on
//! each core, never a job of a prompt.

use std::time::Duration;

use crate::compute::purse::TimeInJobs;
use crate::compute::runtime::{self, Runtime};
use crate::ggml::log::LogLevel;
use crate::weights::node_error::Consequence;

/// The commands that find the cause of a failure.
pub(crate) const FIND: &str = "`npu-probe doctor` and then `npu-probe first` find the cause";

/// Whether the CPU computes everything at present. Begins a trial if its time has come: a program
/// that has only the CPU compute asks about operations still.
pub(crate) fn is_resting(runtime: &Runtime) -> bool {
    if !runtime.fallback.is_resting() {
        return false;
    }
    // Threads need the state for as long as the process lives.
    if let Some(runtime) = runtime::get() {
        runtime.fallback.try_if_due(|| try_cores(runtime));
    }
    true
}

/// Runs a small job on each core. Returns whether all were right, and the time of all jobs so far.
fn try_cores(runtime: &Runtime) -> (bool, TimeInJobs) {
    // Without an engine the process is ending.
    let Some(engine) = runtime.engine() else {
        return (false, TimeInJobs::default());
    };
    let tried = engine.probe();
    match &tried {
        Ok(()) => runtime.log(LogLevel::Info, "the NPU works again"),
        Err(error) => {
            let line = format!("the NPU rests on: {error}");
            runtime.log(LogLevel::Info, &line);
        }
    }
    (tried.is_ok(), TimeInJobs::from(&engine.times()))
}

/// Counts the jobs so far, after a list of calls, which failed with a consequence.
pub(crate) fn count_jobs(runtime: &Runtime, consequence: Option<Consequence>) {
    let Some(engine) = runtime.engine() else {
        return;
    };
    let fallback = &runtime.fallback;
    if engine.counters().jobs_run_again > 0 && fallback.told.second_run.is_first() {
        let line = format!(
            "a job of the NPU failed and runs a second time. GGML_ROCKET_STATS=1 counts such jobs, \
             without another message. {FIND}"
        );
        runtime.log(LogLevel::Warn, &line);
    }
    if let Some(pause) = fallback.count(TimeInJobs::from(&engine.times()), consequence) {
        tell(runtime, pause);
    }
}

fn tell(runtime: &Runtime, pause: Duration) {
    let level = if runtime.fallback.told.rest.is_first() {
        LogLevel::Warn
    } else {
        LogLevel::Info
    };
    let seconds = pause.as_secs();
    let line = format!(
        "failed jobs took too much time, or one may still run: the NPU rests for {seconds} s, and \
         the CPU computes everything. Then a small job decides whether the NPU is used again. {FIND}"
    );
    runtime.log(level, &line);
}
