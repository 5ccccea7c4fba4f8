// SPDX-License-Identifier: MIT OR Apache-2.0
//! A timeline as a file that trace viewers show.
//!
//! Chrome's trace event format: `X` is a slice, `M` names a track, `s` and `f`
//! are the ends of an arrow. Times are microseconds; six decimals keep the
//! picoseconds.

use rknpu_regcmd::timing::Stage;
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::DeviceTimeline;

/// Picoseconds of the format's unit.
const PS_PER_US: f64 = 1e6;
/// Process of the files; cores are those above. Viewers take process and
/// thread 0 for an idle CPU.
const FILES: u32 = 1;
/// Tracks of a core.
const JOBS: u64 = 1;
const DRIVER: u64 = 2;
const TASKS: u64 = 3;
const STAGES: u64 = 4;

/// One event of the format.
#[derive(Serialize)]
struct Event {
    name: String,
    ph: &'static str,
    pid: u32,
    tid: u64,
    ts: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    dur: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cat: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<u64>,
    /// Where an arrow ends: at the slice around it, not at the next one.
    #[serde(skip_serializing_if = "Option::is_none")]
    bp: Option<&'static str>,
    args: Value,
}

/// A track: process and thread of the format.
type Track = (u32, u64);

fn event(ph: &'static str, name: impl Into<String>, (pid, tid): Track, at_ps: u64) -> Event {
    Event {
        name: name.into(),
        ph,
        pid,
        tid,
        ts: us(at_ps),
        dur: None,
        cat: None,
        id: None,
        bp: None,
        args: json!({}),
    }
}

fn slice(name: impl Into<String>, track: Track, (from, to): (u64, u64), args: Value) -> Event {
    Event {
        dur: Some(us(to.saturating_sub(from))),
        args,
        ..event("X", name, track, from)
    }
}

fn us(ps: u64) -> f64 {
    ps as f64 / PS_PER_US
}

fn stage_track(stage: Stage) -> u64 {
    let position = Stage::ALL.iter().position(|&other| other == stage);
    STAGES + position.unwrap_or_default() as u64
}

pub(super) fn write(timeline: &DeviceTimeline) -> String {
    let mut events = names(timeline);
    jobs(timeline, &mut events);
    tasks(timeline, &mut events);
    let machine = timeline.machine();
    json!({
        "displayTimeUnit": "ns",
        "otherData": {
            "time": "modelled, not measured",
            "npu_clock_hz": machine.clock_hz,
            "jobs_left_out": timeline.left_out(),
        },
        "traceEvents": events,
    })
    .to_string()
}

/// Names of processes and tracks.
fn names(timeline: &DeviceTimeline) -> Vec<Event> {
    let named = |what: &'static str, track, name: String| Event {
        args: json!({ "name": name }),
        ..event("M", what, track, 0)
    };
    let process = |pid, name| named("process_name", (pid, 0), name);
    let mut events = vec![process(FILES, "files (modelled)".to_owned())];
    let mut files: Vec<u64> = timeline.jobs().map(|(job, _)| job.file).collect();
    files.sort_unstable();
    files.dedup();
    for file in files {
        let name = format!("file {file}: SUBMIT");
        events.push(named("thread_name", (FILES, file), name));
    }
    for core in 0..timeline.machine().chip.cores {
        let pid = pid_of(core);
        events.push(process(pid, format!("core {core} (modelled)")));
        let fixed = [(JOBS, "jobs"), (DRIVER, "driver"), (TASKS, "tasks")];
        for (tid, name) in fixed {
            events.push(named("thread_name", (pid, tid), name.to_owned()));
        }
        for stage in Stage::ALL {
            let track = (pid, stage_track(stage));
            events.push(named("thread_name", track, stage.to_string()));
        }
    }
    events
}

fn pid_of(core: u32) -> u32 {
    FILES + 1 + core
}

fn jobs(timeline: &DeviceTimeline, events: &mut Vec<Event>) {
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
        events.push(slice(name.clone(), file, submit, args.clone()));
        let arrow = |ph, track, at| Event {
            cat: Some("submit"),
            id: Some(job.job),
            ..event(ph, "submit", track, at)
        };
        events.push(arrow("s", file, time.submit_ps));
        events.push(Event {
            bp: Some("e"),
            ..arrow("f", (pid, JOBS), time.start_ps)
        });
        events.push(slice(name, (pid, JOBS), (time.start_ps, time.end_ps), args));
        let attached = time.start_ps.saturating_add(costs.attach_ps);
        let attach = (time.start_ps, attached.min(time.end_ps));
        events.push(slice(
            "attach IOMMU",
            (pid, DRIVER),
            attach,
            json!({ "job": job.job }),
        ));
        if !job.completed {
            let from = time.end_ps.saturating_sub(job.hold_ps);
            let held = (from, time.end_ps);
            let args = json!({ "job": job.job });
            events.push(slice(
                "killed: waits for the time limit",
                (pid, TASKS),
                held,
                args,
            ));
        }
    }
}

fn tasks(timeline: &DeviceTimeline, events: &mut Vec<Event>) {
    for (job, work, time) in timeline.tasks() {
        let pid = pid_of(time.core);
        let mut common = Map::new();
        common.insert("job".into(), job.job.into());
        common.insert("task".into(), time.task.into());
        common.insert("file".into(), job.file.into());
        let with = |extra: &[(&str, u64)]| {
            let mut args = common.clone();
            args.extend(
                extra
                    .iter()
                    .map(|&(key, value)| (key.to_owned(), value.into())),
            );
            Value::Object(args)
        };
        if time.start_ps > time.kick_ps {
            let kick = (time.kick_ps, time.start_ps);
            events.push(slice("kick", (pid, DRIVER), kick, with(&[])));
        }
        let name = format!("task {}", time.task);
        let totals = with(&[("bytes", work.total_bytes()), ("macs", work.macs)]);
        let whole = (time.start_ps, time.end_ps());
        events.push(slice(name.clone(), (pid, TASKS), whole, totals));
        for span in time.spans(work, timeline.machine()).spans {
            let args = match span.stage {
                Stage::Mac => with(&[("macs", work.macs), ("busy_ns", span.busy_ps / 1000)]),
                Stage::Dpu | Stage::Ppu => with(&[("busy_ns", span.busy_ps / 1000)]),
                _ => with(&[("bytes", span.bytes)]),
            };
            let track = (pid, stage_track(span.stage));
            let within = (span.start_ps, span.end_ps);
            events.push(slice(name.clone(), track, within, args));
        }
    }
}
