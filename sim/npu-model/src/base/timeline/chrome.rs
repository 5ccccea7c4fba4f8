// SPDX-License-Identifier: MIT OR Apache-2.0
//! Timelines in the format of trace viewers.

use std::collections::BTreeSet;

use rknpu_regcmd::timing::{ChromeEvent, Stage};
use serde_json::json;

use super::jobs::DeviceTimeline;

/// Process id of the files; the cores have higher ids.
const FILES: u32 = 1;
/// Thread ids of the tracks of a core.
const JOBS: u64 = 1;
const DRIVER: u64 = 2;
const TASKS: u64 = 3;
const STAGES: u64 = 4;

impl DeviceTimeline {
    /// The timeline in Chrome's trace event format, JSON, which
    /// ui.perfetto.dev and chrome://tracing show: a process for each core with
    /// a track for each engine, one for the files, and an arrow from each
    /// submit to its job.
    #[must_use]
    pub fn to_chrome_trace(&self) -> String {
        let mut events = names(self);
        stage_names(self, &mut events);
        jobs(self, &mut events);
        tasks(self, &mut events);
        json!({
            "displayTimeUnit": "ns",
            "otherData": {
                "time": "modelled, not measured",
                "npu_clock_hz": self.machine().clock_hz,
                "jobs_left_out": self.left_out(),
            },
            "traceEvents": events,
        })
        .to_string()
    }

    /// The events of [`Self::to_chrome_trace`] for jobs only, without their tasks, to
    /// add to a larger trace.
    #[must_use]
    pub fn to_chrome_job_events(&self) -> Vec<ChromeEvent> {
        let mut events = names(self);
        jobs(self, &mut events);
        events
    }
}

fn stage_track(stage: Stage) -> u64 {
    let position = Stage::ALL.iter().position(|&other| other == stage);
    STAGES + position.unwrap_or_default() as u64
}

fn names(timeline: &DeviceTimeline) -> Vec<ChromeEvent> {
    let mut events = vec![ChromeEvent::process_name(FILES, "files (modelled)")];
    let files: BTreeSet<u64> = timeline.jobs().map(|(job, _)| job.file).collect();
    for file in files {
        let name = format!("file {file}: SUBMIT");
        events.push(ChromeEvent::thread_name((FILES, file), &name));
    }
    for core in 0..timeline.machine().chip.cores {
        let pid = pid_of(core);
        let name = format!("core {core} (modelled)");
        events.push(ChromeEvent::process_name(pid, &name));
        for (tid, name) in [(JOBS, "jobs"), (DRIVER, "driver")] {
            events.push(ChromeEvent::thread_name((pid, tid), name));
        }
    }
    events
}

fn stage_names(timeline: &DeviceTimeline, events: &mut Vec<ChromeEvent>) {
    for core in 0..timeline.machine().chip.cores {
        let pid = pid_of(core);
        events.push(ChromeEvent::thread_name((pid, TASKS), "tasks"));
        for stage in Stage::ALL {
            let track = (pid, stage_track(stage));
            events.push(ChromeEvent::thread_name(track, &stage.to_string()));
        }
    }
}

fn pid_of(core: u32) -> u32 {
    FILES + 1 + core
}

fn jobs(timeline: &DeviceTimeline, events: &mut Vec<ChromeEvent>) {
    let costs = timeline.machine().driver;
    for (job, time) in timeline.jobs() {
        let name = format!("job {}", job.job);
        let args = json!({
            "job": job.job,
            "file": job.file,
            "tasks": job.tasks.len(),
            "completed": job.completed,
        });
        let file = (FILES, job.file);
        let pid = pid_of(time.core);
        let called = time.submit_ps.saturating_add(costs.submit_ps);
        let submit = (time.submit_ps, called.min(time.start_ps));
        events.push(ChromeEvent::slice(name.clone(), file, submit, args.clone()));
        let (from, to) = ((file, time.submit_ps), ((pid, JOBS), time.start_ps));
        events.extend(ChromeEvent::arrow("submit", job.job, from, to));
        let whole = (time.start_ps, time.end_ps);
        events.push(ChromeEvent::slice(name, (pid, JOBS), whole, args));
        let attached = time.start_ps.saturating_add(costs.attach_ps);
        let attach = (time.start_ps, attached.min(time.end_ps));
        let args = json!({ "job": job.job });
        events.push(ChromeEvent::slice(
            "attach IOMMU",
            (pid, DRIVER),
            attach,
            args,
        ));
        if !job.completed {
            let from = time.end_ps.saturating_sub(job.hold_ps);
            let held = (from, time.end_ps);
            let name = "killed: waits for the time limit";
            let args = json!({ "job": job.job });
            events.push(ChromeEvent::slice(name, (pid, TASKS), held, args));
        }
    }
}

fn tasks(timeline: &DeviceTimeline, events: &mut Vec<ChromeEvent>) {
    for (job, work, time) in timeline.tasks() {
        let pid = pid_of(time.core);
        let with = |extra: &[(&str, u64)]| {
            let mut args = json!({ "job": job.job, "task": time.task, "file": job.file });
            for &(key, value) in extra {
                args[key] = value.into();
            }
            args
        };
        if time.start_ps > time.kick_ps {
            let kick = (time.kick_ps, time.start_ps);
            events.push(ChromeEvent::slice("kick", (pid, DRIVER), kick, with(&[])));
        }
        let totals = with(&[("bytes", work.total_bytes()), ("macs", work.macs)]);
        let whole = (time.start_ps, time.end_ps());
        let name = || format!("task {}", time.task);
        events.push(ChromeEvent::slice(name(), (pid, TASKS), whole, totals));
        for span in time.spans(work, timeline.machine()) {
            let args = match span.stage {
                Stage::Mac => with(&[("macs", work.macs), ("busy_ns", span.busy_ps / 1000)]),
                Stage::Dpu | Stage::Ppu => with(&[("busy_ns", span.busy_ps / 1000)]),
                _ => with(&[("bytes", span.bytes)]),
            };
            let track = (pid, stage_track(span.stage));
            let within = (span.start_ps, span.end_ps);
            events.push(ChromeEvent::slice(name(), track, within, args));
        }
    }
}
