// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reports how programs used the software model, which records all its work.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use npu_model::Model;
use npu_model::event::Event;
use npu_model::timeline::DeviceTimeline;
use npu_server::Counts;
use rknpu_regcmd::timing::seconds;
use serde::Serialize;

use super::counts::{add_lines, push_line};
use crate::base::flags::planning::HERTZ_PER_MHZ;

/// Bytes of a command word.
const WORD_BYTES: u64 = 8;

const MICROSECONDS_PER_SECOND: f64 = 1e6;

/// The use of the model by programs.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct ModelUse {
    #[serde(flatten)]
    calls: Counts,
    jobs_completed: u64,
    jobs_dropped: u64,
    jobs_killed: u64,
    /// Jobs that were queued when their process ended.
    jobs_lost: u64,
    /// Jobs that were queued or running when the report was made.
    jobs_unfinished: u64,
    tasks: u64,
    words: u64,
    macs: u64,
    bytes_moved: u64,
    /// Jobs that are missing in tasks, words, MACs, bytes and times.
    jobs_not_recorded: u64,
    /// Number of tasks with a trap, by the trap's identifier.
    traps: BTreeMap<&'static str, u64>,
    /// The first diagnosis of each trap: values, rule and remedy.
    diagnoses: BTreeMap<&'static str, String>,
    /// Bugs of the real kernel that the programs triggered.
    kernel_bugs: BTreeMap<&'static str, KernelBug>,
    /// Other events of the model, in the order of their first occurrence.
    events: Vec<ModelEvent>,
    /// Earlier events that the model has forgotten. Traps, kernel bugs, drops
    /// and kills among them are counted above.
    events_left_out: u64,
    cores: Vec<Core>,
    /// The NPU clock that modelled times assume.
    clock_hz: u64,
    modelled_end_us: f64,
}

/// A bug of the real kernel.
#[derive(Clone, Debug, Serialize)]
struct KernelBug {
    times: u64,
    /// The first call that triggered it.
    first: String,
}

/// An event of the model, and how often it occurred.
#[derive(Clone, Debug, Serialize)]
struct ModelEvent {
    what: String,
    times: u64,
}

/// Jobs that one core ran, and their time.
#[derive(Clone, Copy, Debug, Default, Serialize)]
struct Core {
    jobs: u64,
    /// Modelled time during which the core had a job, microseconds.
    modelled_busy_us: f64,
}

impl ModelUse {
    pub(crate) fn new(calls: Counts, model: &Model) -> Self {
        let (jobs, tally) = (model.jobs(), model.event_tally());
        let traps = || tally.traps.iter();
        let bugs = tally.bugs.iter().map(|(bug, met)| {
            let (times, first) = (met.times, met.first.clone());
            (bug.name(), KernelBug { times, first })
        });
        let mut summary = Self {
            calls,
            jobs_completed: jobs.completed,
            jobs_dropped: tally.jobs_dropped,
            jobs_killed: jobs.killed,
            jobs_lost: jobs.lost,
            jobs_unfinished: jobs.unfinished,
            traps: traps().map(|(trap, met)| (*trap, met.times)).collect(),
            diagnoses: traps()
                .map(|(trap, met)| (*trap, met.first.to_string()))
                .collect(),
            kernel_bugs: bugs.collect(),
            events_left_out: tally.forgotten,
            clock_hz: model.machine().clock_hz,
            cores: vec![Core::default(); model.cores() as usize],
            ..Self::default()
        };
        for event in model.events() {
            summary.notice(&event);
        }
        if let Some(timeline) = model.timeline() {
            summary.add_times(&timeline);
        }
        summary
    }

    /// Counts an event with earlier equal ones. Traps and kernel bugs are
    /// counted elsewhere.
    fn notice(&mut self, event: &Event) {
        if matches!(event, Event::Diagnosed { .. } | Event::KernelBug { .. }) {
            return;
        }
        let what = event.to_string();
        match self.events.iter_mut().find(|known| known.what == what) {
            Some(known) => known.times += 1,
            None => self.events.push(ModelEvent { what, times: 1 }),
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

    pub(crate) fn text(&self) -> String {
        let mut text = String::new();
        let mut line = |name: &str, says: String| push_line(&mut text, name, &says);
        add_lines(&self.calls, &mut line);
        let mut jobs = format!(
            "{}: {} completed, {} dropped, {} killed",
            self.calls.jobs, self.jobs_completed, self.jobs_dropped, self.jobs_killed
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
        let (tasks, words, macs, bytes) = (self.tasks, self.words, self.macs, self.bytes_moved);
        line("tasks", format!("{tasks}, {words} command words"));
        line("work", format!("{macs} MACs, {bytes} bytes moved"));
        if self.jobs_not_recorded > 0 {
            let jobs = self.jobs_not_recorded;
            line("left out", format!("{jobs} jobs beyond the limit"));
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
        for ModelEvent { what, times } in &self.events {
            match times {
                1 => line("model", what.clone()),
                _ => line("model", format!("{what} ({times} times)")),
            }
        }
        if self.events_left_out > 0 {
            let events = self.events_left_out;
            line("left out", format!("{events} events before these"));
        }
        let mhz = self.clock_hz / HERTZ_PER_MHZ;
        let clock = "for modelled times; set it with --device model:clock=MHZ";
        line("clock", format!("{mhz} MHz, {clock}"));
        for (index, core) in self.cores.iter().enumerate() {
            let (jobs, busy) = (core.jobs, core.modelled_busy_us);
            let core = format!("{index}: {jobs} jobs, {busy:.1} us of modelled time");
            line("core", core);
        }
        let end = self.modelled_end_us;
        line("end", format!("after {end:.1} us of modelled time"));
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use npu_model::ModelOptions;
    use npu_model::driver::Arena;
    use rocket_uapi::sys;

    /// Each file is closed without GEM_CLOSE of its object, and the object's
    /// dma-buf outlives it: two ways to the same bug.
    #[test]
    fn a_bug_of_the_kernel_is_told_once_with_a_count() {
        let model = Model::new(ModelOptions::default());
        for _ in 0..2 {
            let file = model.open_file();
            let mut one_byte = [0; 24];
            one_byte[0] = 1;
            file.ioctl(sys::CREATE_BO, &mut one_byte, &Arena::new())
                .unwrap();
            let dma_buf = rocket_uapi::export(&file, 1, sys::DRM_RDWR).unwrap();
            drop(file);
            drop(dma_buf);
        }
        // The model notices that the dma-bufs are closed.
        drop(model.open_file());
        let text = ModelUse::new(Counts::default(), &model).text();
        assert_eq!(text.matches("use-after-close").count(), 1, "{text}");
        assert!(
            text.contains("use-after-close: 4 times; the first: closed a file"),
            "{text}"
        );
    }

    #[test]
    fn jobs_that_never_ended_are_counted() {
        let report = ModelUse {
            calls: Counts {
                died: 1,
                jobs: 9,
                ..Counts::default()
            },
            jobs_killed: 2,
            jobs_lost: 4,
            jobs_unfinished: 3,
            ..ModelUse::default()
        };
        let unused = ModelUse::default().text();
        let killed = "9: 0 completed, 0 dropped, 2 killed, 4 lost with their process, 3 that have \
                      not ended\n";
        for (text, part) in [
            (&report.text(), killed),
            (&report.text(), "clients    1 died in the middle of a job\n"),
            (&unused, "0: 0 completed, 0 dropped, 0 killed\n"),
        ] {
            assert!(text.contains(part), "no `{part}` in:\n{text}");
        }
        assert!(!unused.contains("died"), "{unused}");
    }

    #[test]
    fn repeated_events_are_one_line() {
        let mut report = ModelUse::default();
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
