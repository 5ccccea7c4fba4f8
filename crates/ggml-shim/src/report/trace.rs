// SPDX-License-Identifier: MIT OR Apache-2.0
//! `GGML_ROCKET_TRACE=file`: a record of what the backend did and when, as a file for
//! ui.perfetto.dev and chrome://tracing.
//!
//! The file is a JSON array of events, and is complete whenever nothing is being written. Events
//! are collected in memory. Each write adds the end of the array, which the next write overwrites.
//! So a program that crashes leaves a trace up to its last graph. The file is locked as long as it
//! is open: if two processes are given the same name, the second writes no trace.

mod output;

use std::cell::Cell;
use std::collections::HashSet;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::time::Instant;

use npu_matmul::{Activity, Done};
use rknpu_regcmd::timing::ChromeEvent;
use serde_json::{Value, json};

pub(crate) use self::output::TraceFile;
use crate::ggml::log::{LogLevel, Logger};
use crate::ggml::shared;

/// Bytes of events that are collected before they are written.
const BUFFER: usize = 64 << 10;
/// Bytes after which a trace ends: more than viewers load.
const MOST: u64 = 1 << 30;
/// Text that ends the file's JSON array.
const END: &[u8] = b"\n]\n";

/// Numbers of processes in the trace, apart from those of
/// [`job_events`](npu_matmul::SoftwareNpu::job_events), which count up from 1.
const BACKEND: u32 = 100;
const DEVICES: u32 = 101;

/// Numbers of threads, in the order in which they are first seen.
static NEXT_THREAD: AtomicU64 = AtomicU64::new(1);

thread_local! {
    /// Number of this thread; 0 if it has none yet.
    static THREAD: Cell<u64> = const { Cell::new(0) };
    /// Number of the list that this thread computes; 0 if none.
    static LIST: Cell<u64> = const { Cell::new(0) };
}

/// This thread's [`LIST`]; 0 if it has none.
pub(crate) fn list_here() -> u64 {
    LIST.get()
}

/// A trace that is being written.
#[derive(Debug)]
pub(crate) struct Trace {
    start: Instant,
    lists: AtomicU64,
    logger: Logger,
    sink: Mutex<Option<Sink>>,
}

#[derive(Debug)]
struct Sink {
    output: TraceFile,
    /// The process that writes: a child that the program forks must not.
    process: u32,
    /// Offset in the file where the next events are written.
    at: u64,
    /// Events to write, each with the bracket or comma before it.
    events: Vec<u8>,
    /// Tracks that have a name.
    named: HashSet<(u32, u64)>,
    /// When the latest job of each file descriptor ended.
    ended: Vec<Instant>,
}

impl Trace {
    /// Begins a trace. `device` is the device's name in it.
    pub(crate) fn begin(
        output: TraceFile,
        device: &str,
        is_model: bool,
        logger: Logger,
    ) -> io::Result<Self> {
        output.clear()?;
        let mut sink = Sink {
            output,
            process: std::process::id(),
            at: 0,
            events: Vec::new(),
            named: HashSet::new(),
            ended: Vec::new(),
        };
        let measured = if is_model {
            "measured: time of the software model, not of an NPU"
        } else {
            "measured, until this process saw their end"
        };
        let jobs = format!("jobs: {device} ({measured})");
        let backend = "ROCKET in this process (measured)";
        sink.push(&ChromeEvent::process_name(BACKEND, backend))?;
        sink.push(&ChromeEvent::process_name(DEVICES, &jobs))?;
        sink.write()?;
        Ok(Self {
            start: Instant::now(),
            lists: AtomicU64::new(0),
            logger,
            sink: Mutex::new(Some(sink)),
        })
    }

    /// Returns the number of the list that begins now.
    pub(crate) fn next_list(&self) -> u64 {
        self.lists.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Adds an event of this thread, from `from` to `to`.
    pub(crate) fn slice(
        &self,
        category: &'static str,
        name: &str,
        (from, to): (Instant, Instant),
        args: Value,
    ) {
        let track = (BACKEND, this_thread());
        let span = (self.ps(from), self.ps(to));
        let event = ChromeEvent::slice(name, track, span, args).in_category(category);
        let thread = || {
            let name = std::thread::current().name().map(str::to_owned);
            name.unwrap_or_else(|| format!("thread {}", track.1))
        };
        self.with(|sink| {
            sink.name(track, thread)?;
            sink.push(&event)
        });
    }

    /// Adds an activity of the engine.
    pub(crate) fn done(&self, done: &Done) {
        let (name, args) = match done.activity {
            Activity::Quantise { elements } => ("quantise", json!({ "elements": elements })),
            Activity::Pack { bytes } => ("pack", json!({ "bytes": bytes })),
            Activity::Submit { jobs } => ("submit", json!({ "jobs": jobs })),
            Activity::Wait => ("wait", json!({})),
            Activity::Compute { tasks } => ("compute", json!({ "tasks": tasks })),
            Activity::Softmax { bytes } => ("softmax", json!({ "bytes": bytes })),
            Activity::Unpack { bytes } => ("unpack", json!({ "bytes": bytes })),
            Activity::Job { tasks } => return self.job(done, tasks),
            _ => return,
        };
        let args = with(args, done.token, done.device);
        self.slice(name, name, (done.started, done.ended), args);
    }

    /// Adds a job of a device. Jobs of one device run one after the other, so a job cannot have
    /// begun before the end of the last one.
    fn job(&self, done: &Done, tasks: usize) {
        let device = done.device.unwrap_or_default();
        let track = (DEVICES, device as u64 + 1);
        let args = with(json!({ "tasks": tasks }), done.token, done.device);
        self.with(|sink| {
            sink.name(track, || format!("descriptor {device}"))?;
            if sink.ended.len() <= device {
                sink.ended.resize(device + 1, self.start);
            }
            let from = done.started.max(sink.ended[device]);
            let to = done.ended.max(from);
            sink.ended[device] = to;
            let span = (self.ps(from), self.ps(to));
            sink.push(&ChromeEvent::slice("job", track, span, args).in_category("job"))
        });
    }

    pub(crate) fn flush(&self) {
        self.with(Sink::write);
    }

    /// Whether the trace is being written: it has not failed, is not full, and has not ended.
    pub(crate) fn is_open(&self) -> bool {
        self.lock().is_some()
    }

    /// Ends the trace with the result of `events`, which is called only if the trace is open. Later
    /// events are left out.
    pub(crate) fn finish(&self, events: impl FnOnce() -> Vec<ChromeEvent>) {
        if !self.is_open() {
            return;
        }
        for event in events() {
            self.with(|sink| sink.push(&event));
        }
        self.flush();
        self.lock().take();
    }

    /// Runs `body` on the file. The first failure ends the trace, with a line in the log.
    fn with(&self, body: impl FnOnce(&mut Sink) -> io::Result<()>) {
        let mut guard = self.lock();
        let Some(sink) = &mut *guard else {
            return;
        };
        if let Err(error) = body(sink) {
            let line = complaint(&sink.output.path, &error);
            *guard = None;
            drop(guard);
            self.logger.write(LogLevel::Warn, &line);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<Sink>> {
        // Events are added whole, so that a panic leaves nothing torn.
        shared::lock(&self.sink)
    }

    /// Picoseconds since the start.
    fn ps(&self, at: Instant) -> u64 {
        let since = at.saturating_duration_since(self.start);
        u64::try_from(since.as_nanos() * 1_000).unwrap_or(u64::MAX)
    }
}

/// Message about a file that cannot be written.
pub(crate) fn complaint(path: &Path, error: &io::Error) -> String {
    format!(
        "GGML_ROCKET_TRACE: {}: {error}; the program goes on without a trace, or with the part \
         that was written",
        path.display()
    )
}

impl Sink {
    /// Names `track`, unless it has a name.
    fn name(&mut self, track: (u32, u64), name: impl FnOnce() -> String) -> io::Result<()> {
        if self.named.insert(track) {
            self.push(&ChromeEvent::thread_name(track, &name()))?;
        }
        Ok(())
    }

    /// Adds an event, and writes if enough are collected.
    fn push(&mut self, event: &ChromeEvent) -> io::Result<()> {
        let is_first = self.at == 0 && self.events.is_empty();
        self.events.extend(if is_first { b"[\n" } else { b",\n" });
        serde_json::to_writer(&mut self.events, event)?;
        if self.events.len() < BUFFER {
            return Ok(());
        }
        self.write()
    }

    fn write(&mut self) -> io::Result<()> {
        if self.events.is_empty() || self.process != std::process::id() {
            self.events.clear();
            return Ok(());
        }
        let len = self.events.len();
        self.events.extend_from_slice(END);
        let file = &self.output.file;
        let written = file.write_all_at(&self.events, self.at);
        self.events.clear();
        if let Err(error) = written {
            // A part of the events would not be JSON. If this fails too, the reader has to do
            // without the end.
            let _ = file.set_len(self.at);
            let _ = file.write_all_at(END, self.at);
            return Err(error);
        }
        self.at += len as u64;
        if self.at > MOST {
            let full = format!("the file has reached its limit of {} MiB", MOST >> 20);
            return Err(io::Error::other(full));
        }
        Ok(())
    }
}

fn with(mut args: Value, list: u64, device: Option<usize>) -> Value {
    if list > 0 {
        args["list"] = list.into();
    }
    if let Some(device) = device {
        args["descriptor"] = device.into();
    }
    args
}

fn this_thread() -> u64 {
    if THREAD.get() == 0 {
        THREAD.set(NEXT_THREAD.fetch_add(1, Ordering::Relaxed));
    }
    THREAD.get()
}

/// Runs `body`, which computes the list `number` on this thread.
pub(crate) fn in_list<T>(number: u64, body: impl FnOnce() -> T) -> T {
    /// Restores the list, also after a panic.
    struct Before(u64);
    impl Drop for Before {
        fn drop(&mut self) {
            LIST.set(self.0);
        }
    }
    let _before = Before(LIST.replace(number));
    body()
}

#[cfg(test)]
mod tests;
