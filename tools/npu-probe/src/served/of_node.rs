// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reports how programs used a real device.

use std::fmt::Write as _;

use npu_capture::Outcomes;
use npu_server::{Counts, ForwardService};
use serde::Serialize;

use super::counts::{add_lines, push_line};

/// The use of a real device by programs; the device reports nothing about its
/// work.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct NodeUse {
    node: String,
    driver: String,
    #[serde(flatten)]
    calls: Counts,
    /// How the jobs ended, if they were recorded.
    #[serde(flatten)]
    ended: Option<Ended>,
    /// Submitted tasks, including those of jobs that the driver dropped.
    tasks: u64,
    words: u64,
}

/// Jobs, counted by how they ended.
#[derive(Clone, Copy, Debug, Serialize)]
struct Ended {
    jobs_completed: u64,
    jobs_dropped: u64,
    jobs_killed: u64,
    /// Jobs whose SUBMIT failed, or whose end was not observed.
    jobs_others: u64,
}

impl NodeUse {
    pub(crate) fn new(calls: Counts, node: &ForwardService, ended: Option<Outcomes>) -> Self {
        let (tasks, words) = node.tasks_and_words();
        let info = node.info();
        let (major, minor, patch) = info.driver.version;
        Self {
            node: info.name.clone(),
            driver: format!("{} {major}.{minor}.{patch}", info.driver.name.display()),
            calls,
            ended: ended.map(|ended| Ended {
                jobs_completed: ended.completed,
                jobs_dropped: ended.dropped,
                jobs_killed: ended.killed,
                jobs_others: ended.others,
            }),
            tasks,
            words,
        }
    }

    pub(crate) fn text(&self) -> String {
        let mut text = String::new();
        let mut line = |name: &str, says: String| push_line(&mut text, name, &says);
        line("device", format!("{}, driver {}", self.node, self.driver));
        add_lines(&self.calls, &mut line);
        let mut jobs = format!("{}", self.calls.jobs);
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
        let (tasks, words) = (self.tasks, self.words);
        line("tasks", format!("{tasks}, {words} command words"));
        text
    }
}
