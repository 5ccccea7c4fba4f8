// SPDX-License-Identifier: MIT OR Apache-2.0
//! The device that programs are shown, and what they did with it.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use anyhow::{Context, anyhow};
use npu_model::driver::JobCounts;
use npu_model::event::{BugTally, Event, EventTally};
use npu_model::timeline::DeviceTimeline;
use npu_model::{Model, ModelOptions, Selector};
use npu_server::{Counts, ForwardService, Outcomes};
use rknpu_regcmd::timing::seconds;
use serde::Serialize;

use crate::exit::Failure;
use crate::flags::{Flags, ModelFlags};

/// The options of the model that the flags choose.
pub(crate) fn options(flags: &Flags, model: &ModelFlags) -> Result<ModelOptions, Failure> {
    // Root may use GEM names; so may programs that root runs.
    let mut text = String::new();
    if nix::unistd::geteuid().is_root() {
        text.push_str("user=root");
    }
    match flags.selector() {
        Selector::Auto | Selector::Model => {}
        Selector::ModelWith(options) => {
            let _ = write!(text, ",{options}");
        }
        Selector::Path(path) => {
            return Err(Failure::Usage(anyhow!(
                "a server that programs start shows them a model, and {} is none; \
                 `npu-probe run --device` shows it to one program",
                path.display()
            )));
        }
    }
    // Later ones win.
    if let Some(cores) = model.cores {
        let _ = write!(text, ",cores={cores}");
    }
    if let Some(level) = &model.strict {
        let _ = write!(text, ",level={level}");
    }
    text.parse()
        .context("no such model")
        .map_err(Failure::Usage)
}

/// What programs did with the device.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
struct Use {
    opens: u64,
    /// Files whose process ended in the middle of a job.
    clients_died: u64,
    bos: u64,
    bo_bytes: u64,
    submits: u64,
    /// Jobs in these submits.
    jobs: u64,
    jobs_completed: u64,
    jobs_dropped: u64,
    jobs_killed: u64,
    /// Queued when their process ended.
    jobs_lost: u64,
    /// Queued or running when the report was made.
    jobs_unfinished: u64,
    #[serde(flatten)]
    caches: Caches,
    tasks: u64,
    words: u64,
    macs: u64,
    bytes_moved: u64,
    /// Jobs whose tasks, words, MACs, bytes and times are not in here.
    jobs_not_recorded: u64,
    /// Identifier to the number of tasks that met it.
    traps: BTreeMap<String, u64>,
    /// The first diagnosis of each: values, rule and remedy.
    diagnoses: BTreeMap<String, String>,
    /// Bugs of the real kernel that the programs ran into.
    kernel_bugs: BTreeMap<&'static str, KernelBug>,
    /// What else the model noticed, in the order of the first time.
    events: Vec<Noticed>,
    /// Events before those, which the model has forgotten; traps, kernel bugs,
    /// drops and kills among them are counted above.
    events_left_out: u64,
    cores: Vec<Core>,
    /// The NPU's clock, which modelled times assume.
    clock_hz: u64,
    modelled_end_us: f64,
}

/// What went through the CPU's caches, which a board's CPU takes its time for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
struct Caches {
    preps: u64,
    prep_bytes: u64,
    finis: u64,
    fini_bytes: u64,
}

impl Caches {
    fn of(counts: &Counts) -> Self {
        Self {
            preps: counts.preps,
            prep_bytes: counts.prep_bytes,
            finis: counts.finis,
            fini_bytes: counts.fini_bytes,
        }
    }

    fn text(self) -> String {
        let Self {
            preps,
            prep_bytes,
            finis,
            fini_bytes,
        } = self;
        format!("{preps} PREP_BO of {prep_bytes} bytes, {finis} FINI_BO of {fini_bytes} bytes")
    }
}

/// A bug of the real kernel.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct KernelBug {
    times: u64,
    /// What the program did the first time.
    first: String,
}

/// Something that the model noticed.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct Noticed {
    what: String,
    times: u64,
}

/// What one core did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
struct Core {
    jobs: u64,
    /// Modelled time with a job, microseconds.
    modelled_busy_us: f64,
}

/// What programs did with a real device, which tells nothing of its work.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct UseOfNode {
    node: String,
    driver: String,
    opens: u64,
    /// Files whose process ended in the middle of a job.
    clients_died: u64,
    bos: u64,
    bo_bytes: u64,
    submits: u64,
    jobs: u64,
    /// How they ended; known of jobs that were recorded.
    #[serde(flatten)]
    ended: Option<Ended>,
    #[serde(flatten)]
    caches: Caches,
    /// Those of jobs that the driver dropped included.
    tasks: u64,
    words: u64,
}

/// How jobs ended.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
struct Ended {
    jobs_completed: u64,
    jobs_dropped: u64,
    jobs_killed: u64,
    /// SUBMIT failed, or the end was not seen.
    jobs_others: u64,
}

/// What is reported, by the kind of device.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
enum Summary {
    Model(Box<Use>),
    Node(UseOfNode),
}

/// The report of a run, and the timeline for a trace.
pub(crate) struct UseReport {
    summary: Summary,
    timeline: Option<DeviceTimeline>,
}

/// Bytes of a command word.
const WORD_BYTES: u64 = 8;

const HERTZ_PER_MEGAHERTZ: u64 = 1_000_000;

const MICROSECONDS_PER_SECOND: f64 = 1e6;

impl UseReport {
    pub(crate) fn new(counts: Counts, model: &Model) -> Self {
        let JobCounts {
            completed,
            killed,
            lost,
            unfinished,
        } = model.jobs();
        let mut summary = Use {
            opens: counts.opens,
            clients_died: counts.died,
            bos: counts.bos,
            bo_bytes: counts.bo_bytes,
            submits: counts.submits,
            jobs: counts.jobs,
            jobs_completed: completed,
            jobs_killed: killed,
            jobs_lost: lost,
            jobs_unfinished: unfinished,
            caches: Caches::of(&counts),
            clock_hz: model.machine().clock_hz,
            cores: vec![Core::default(); model.cores() as usize],
            ..Use::default()
        };
        summary.count(&model.event_tally());
        for event in model.events() {
            summary.notice(&event);
        }
        let timeline = model.timeline();
        if let Some(timeline) = &timeline {
            summary.add_times(timeline);
        }
        Self {
            summary: Summary::Model(Box::new(summary)),
            timeline,
        }
    }

    /// The report of a real device; with how the jobs ended, if they were
    /// recorded.
    pub(crate) fn of_node(counts: Counts, node: &ForwardService, ended: Option<Outcomes>) -> Self {
        let (tasks, words) = node.tasks_and_words();
        let info = node.info();
        let (major, minor, patch) = info.version;
        let summary = UseOfNode {
            node: info.name.clone(),
            driver: format!("{} {major}.{minor}.{patch}", info.driver),
            opens: counts.opens,
            clients_died: counts.died,
            bos: counts.bos,
            bo_bytes: counts.bo_bytes,
            submits: counts.submits,
            jobs: counts.jobs,
            caches: Caches::of(&counts),
            ended: ended.map(|ended| Ended {
                jobs_completed: ended.completed,
                jobs_dropped: ended.dropped,
                jobs_killed: ended.killed,
                jobs_others: ended.others,
            }),
            tasks,
            words,
        };
        Self {
            summary: Summary::Node(summary),
            timeline: None,
        }
    }

    /// The timeline for ui.perfetto.dev, of a model.
    pub(crate) fn trace(&self) -> Option<String> {
        self.timeline.as_ref().map(DeviceTimeline::to_chrome_trace)
    }

    /// As text or as JSON.
    pub(crate) fn text(&self, json: bool) -> Result<String, Failure> {
        if json {
            let text = serde_json::to_string_pretty(&self.summary)
                .context("cannot make JSON of the report")
                .map_err(Failure::Output)?;
            return Ok(text + "\n");
        }
        Ok(match &self.summary {
            Summary::Model(summary) => summary.text(),
            Summary::Node(summary) => summary.text(),
        })
    }
}

impl Use {
    fn count(&mut self, tally: &EventTally) {
        self.jobs_dropped = tally.jobs_dropped;
        self.events_left_out = tally.forgotten;
        for (&trap, met) in &tally.traps {
            self.traps.insert(trap.to_owned(), met.tasks);
            self.diagnoses
                .insert(trap.to_owned(), met.first.to_string());
        }
        for (bug, BugTally { times, first }) in &tally.bugs {
            let (times, first) = (*times, first.clone());
            self.kernel_bugs
                .insert(bug.name(), KernelBug { times, first });
        }
    }

    /// Notes what may have happened before. Traps alone and kernel bugs are in
    /// the counts.
    fn notice(&mut self, event: &Event) {
        if matches!(event, Event::Diagnosed { .. } | Event::KernelBug { .. }) {
            return;
        }
        let what = event.to_string();
        match self.events.iter_mut().find(|known| known.what == what) {
            Some(known) => known.times += 1,
            None => self.events.push(Noticed { what, times: 1 }),
        }
    }

    fn add_times(&mut self, timeline: &DeviceTimeline) {
        let us = |ps: u64| seconds(ps) * MICROSECONDS_PER_SECOND;
        for (job, time) in timeline.jobs() {
            self.tasks += job.tasks.len() as u64;
            for task in &job.tasks {
                self.words += task.command_bytes / WORD_BYTES;
                self.macs = self.macs.saturating_add(task.macs);
                self.bytes_moved = self.bytes_moved.saturating_add(task.bytes.total());
            }
            if let Some(core) = self.cores.get_mut(time.core as usize) {
                core.jobs += 1;
                core.modelled_busy_us += us(time.end_ps.saturating_sub(time.start_ps));
            }
        }
        self.jobs_not_recorded = timeline.left_out();
        self.modelled_end_us = us(timeline.end_ps());
    }

    fn text(&self) -> String {
        let mut text = String::new();
        let mut line = |name: &str, says: String| push_line(&mut text, name, &says);
        line("device", format!("opened {} times", self.opens));
        if self.clients_died > 0 {
            line("clients", died_text(self.clients_died));
        }
        line("BOs", format!("{}, {} bytes", self.bos, self.bo_bytes));
        line("submits", format!("{}", self.submits));
        let mut jobs = format!(
            "{}: {} completed, {} dropped, {} killed",
            self.jobs, self.jobs_completed, self.jobs_dropped, self.jobs_killed
        );
        for (count, what) in [
            (self.jobs_lost, "lost with their process"),
            (self.jobs_unfinished, "that have not ended"),
        ] {
            if count > 0 {
                let _ = write!(jobs, ", {count} {what}");
            }
        }
        line("jobs", jobs);
        line(
            "tasks",
            format!("{}, {} command words", self.tasks, self.words),
        );
        line("caches", self.caches.text());
        line(
            "work",
            format!("{} MACs, {} bytes moved", self.macs, self.bytes_moved),
        );
        if self.jobs_not_recorded > 0 {
            let jobs = self.jobs_not_recorded;
            line("left out", format!("{jobs} jobs, which came after many"));
        }
        for (trap, count) in &self.traps {
            line("trap", format!("{trap}: {count} tasks"));
            if let Some(diagnosis) = self.diagnoses.get(trap) {
                line("", format!("the first: {diagnosis}"));
            }
        }
        for (bug, KernelBug { times, first }) in &self.kernel_bugs {
            let count = match times {
                1 => String::new(),
                _ => format!("{times} times; the first: "),
            };
            line("kernel bug", format!("{bug}: {count}{first}"));
        }
        for Noticed { what, times } in &self.events {
            match times {
                1 => line("model", what.clone()),
                _ => line("model", format!("{what} ({times} times)")),
            }
        }
        if self.events_left_out > 0 {
            let events = self.events_left_out;
            line("left out", format!("{events} events before these"));
        }
        line(
            "clock",
            format!(
                "{} MHz, which modelled times assume; --device model:clock=MHZ sets it",
                self.clock_hz / HERTZ_PER_MEGAHERTZ
            ),
        );
        for (index, core) in self.cores.iter().enumerate() {
            let busy = core.modelled_busy_us;
            line(
                "core",
                format!("{index}: {} jobs, {busy:.1} us of modelled time", core.jobs),
            );
        }
        let end = self.modelled_end_us;
        line("end", format!("after {end:.1} us of modelled time"));
        text
    }
}

impl UseOfNode {
    fn text(&self) -> String {
        let mut text = String::new();
        let mut line = |name: &str, says: String| push_line(&mut text, name, &says);
        line("device", format!("{}, driver {}", self.node, self.driver));
        line("", format!("opened {} times", self.opens));
        if self.clients_died > 0 {
            line("clients", died_text(self.clients_died));
        }
        line("BOs", format!("{}, {} bytes", self.bos, self.bo_bytes));
        line("submits", format!("{}", self.submits));
        let mut jobs = format!("{}", self.jobs);
        if let Some(ended) = &self.ended {
            let _ = write!(
                jobs,
                ": {} completed, {} dropped, {} killed",
                ended.jobs_completed, ended.jobs_dropped, ended.jobs_killed
            );
            if ended.jobs_others > 0 {
                let _ = write!(jobs, ", {} not seen to end", ended.jobs_others);
            }
        }
        line("jobs", jobs);
        line(
            "tasks",
            format!("{}, {} command words", self.tasks, self.words),
        );
        line("caches", self.caches.text());
        text
    }
}

fn died_text(files: u64) -> String {
    format!("{files} died in the middle of a job")
}

fn push_line(text: &mut String, name: &str, says: &str) {
    let _ = writeln!(text, "npu-probe: {name:<10} {says}");
}

#[cfg(test)]
mod tests {
    use super::*;
    use npu_model::driver::Arena;
    use rocket_uapi::sys;

    /// Closed without GEM_CLOSE of an object whose dma-buf outlives the file:
    /// two ways that lead to the same bug.
    #[test]
    fn a_bug_of_the_kernel_is_told_once_with_a_count() {
        let model = Model::new(ModelOptions::default());
        for _ in 0..2 {
            let file = model.open_file();
            let mut one_byte = [0; 24];
            one_byte[0] = 1;
            file.ioctl(sys::CREATE_BO, &mut one_byte, &Arena::new())
                .unwrap();
            let dma_buf = file.prime_export(1).unwrap();
            drop(file);
            drop(dma_buf);
        }
        // Notices that the dma-bufs are closed.
        drop(model.open_file());
        let text = UseReport::new(Counts::default(), &model)
            .text(false)
            .unwrap();
        assert_eq!(text.matches("use-after-close").count(), 1, "{text}");
        assert!(
            text.contains("use-after-close: 4 times; the first: closed a file"),
            "{text}"
        );
    }

    #[test]
    fn jobs_that_never_ended_are_counted() {
        let report = Use {
            clients_died: 1,
            jobs: 9,
            jobs_killed: 2,
            jobs_lost: 4,
            jobs_unfinished: 3,
            ..Use::default()
        };
        let text = report.text();
        for part in [
            "9: 0 completed, 0 dropped, 2 killed, 4 lost with their process, \
             3 that have not ended\n",
            "clients    1 died in the middle of a job\n",
        ] {
            assert!(text.contains(part), "no `{part}` in:\n{text}");
        }
        let text = Use::default().text();
        assert!(
            text.contains("0: 0 completed, 0 dropped, 0 killed\n"),
            "{text}"
        );
        assert!(!text.contains("died"), "{text}");
    }

    #[test]
    fn what_happens_often_is_told_once() {
        let mut report = Use::default();
        for reason in ["one", "two", "one"] {
            report.notice(&Event::JobDropped {
                index: 0,
                reason: reason.to_owned(),
            });
        }
        let times: Vec<_> = report.events.iter().map(|event| event.times).collect();
        assert_eq!(times, [2, 1]);
        let text = report.text();
        assert_eq!(text.matches("one").count(), 1, "{text}");
        assert!(text.contains("(2 times)"), "{text}");
    }
}
