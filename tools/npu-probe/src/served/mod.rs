// SPDX-License-Identifier: MIT OR Apache-2.0
//! The device that programs are shown, and what they did with it.

mod of_model;
mod of_node;

use std::fmt::Write as _;

use anyhow::{Context, anyhow};
use npu_capture::Outcomes;
use npu_model::timeline::DeviceTimeline;
use npu_model::{Model, ModelOptions, Selector};
use npu_server::{Counts, ForwardService};
use serde::Serialize;

use self::of_model::ModelUse;
use self::of_node::UseOfNode;
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

/// The calls of programs, whatever the device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
struct Calls {
    opens: u64,
    /// Files whose process ended in the middle of a job.
    clients_died: u64,
    bos: u64,
    bo_bytes: u64,
    /// What went through the CPU's caches, which a board's CPU takes its time for.
    preps: u64,
    prep_bytes: u64,
    finis: u64,
    fini_bytes: u64,
    submits: u64,
    /// Jobs in these submits.
    jobs: u64,
}

impl Calls {
    fn of(counts: &Counts) -> Self {
        Self {
            opens: counts.opens,
            clients_died: counts.died,
            bos: counts.bos,
            bo_bytes: counts.bo_bytes,
            preps: counts.preps,
            prep_bytes: counts.prep_bytes,
            finis: counts.finis,
            fini_bytes: counts.fini_bytes,
            submits: counts.submits,
            jobs: counts.jobs,
        }
    }

    /// All but the jobs.
    fn tell(&self, line: &mut impl FnMut(&str, String)) {
        line("opened", format!("{} times", self.opens));
        if self.clients_died > 0 {
            let died = self.clients_died;
            line("clients", format!("{died} died in the middle of a job"));
        }
        line("BOs", format!("{}, {} bytes", self.bos, self.bo_bytes));
        let (preps, prep_bytes) = (self.preps, self.prep_bytes);
        let (finis, fini_bytes) = (self.finis, self.fini_bytes);
        line(
            "caches",
            format!("{preps} PREP_BO of {prep_bytes} bytes, {finis} FINI_BO of {fini_bytes} bytes"),
        );
        line("submits", format!("{}", self.submits));
    }
}

/// What is reported, by the kind of device.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
enum Summary {
    Model(Box<ModelUse>),
    Node(UseOfNode),
}

/// The report of a run, and the timeline for a trace.
pub(crate) struct UseReport {
    summary: Summary,
    timeline: Option<DeviceTimeline>,
}

impl UseReport {
    pub(crate) fn new(counts: &Counts, model: &Model) -> Self {
        let timeline = model.timeline();
        let summary = ModelUse::new(Calls::of(counts), model, timeline.as_ref());
        Self {
            summary: Summary::Model(Box::new(summary)),
            timeline,
        }
    }

    /// The report of a real device; with how the jobs ended, if they were
    /// recorded.
    pub(crate) fn of_node(counts: &Counts, node: &ForwardService, ended: Option<Outcomes>) -> Self {
        Self {
            summary: Summary::Node(UseOfNode::new(Calls::of(counts), node, ended)),
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

fn push_line(text: &mut String, name: &str, says: &str) {
    let _ = writeln!(text, "npu-probe: {name:<10} {says}");
}
