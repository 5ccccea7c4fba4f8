// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reports how programs used the served device.

mod calls;
mod of_model;
mod of_node;

use std::fmt::Write as _;

use anyhow::anyhow;
use clap::Args;
use npu_capture::Outcomes;
use npu_model::timeline::DeviceTimeline;
use npu_model::{Model, ModelOptions};
use npu_server::{Counts, ForwardService};
use rocket_uapi::Selector;
use serde::Serialize;

use self::calls::ProgramCalls;
use self::of_model::ModelUse;
use self::of_node::UseOfNode;
use crate::exit::Failure;
use crate::flags::DeviceFlags;
use crate::output;

/// Options of a device that programs use.
#[derive(Debug, Args)]
pub(crate) struct ModelFlags {
    #[command(flatten)]
    pub(crate) device: DeviceFlags,

    /// Number of cores [default: 3]
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..=16))]
    pub(crate) cores: Option<u32>,

    /// How the model handles programs that fail on silicon: `faithful`, `strict` or `silent`
    /// [default: faithful]
    #[arg(long, value_name = "LEVEL")]
    pub(crate) strict: Option<String>,
}

/// The options of the model that the flags choose.
pub(crate) fn options(model: &ModelFlags) -> Result<ModelOptions, Failure> {
    let mut text = String::new();
    match model.device.selector() {
        Selector::Auto | Selector::Model => {}
        Selector::ModelWith(options) => {
            let _ = write!(text, ",{options}");
        }
        Selector::Path(path) => {
            return Err(Failure::Usage(anyhow!(
                "`serve` needs a model, and {} is a device; use `npu-probe run --device` for one \
                 program",
                path.display()
            )));
        }
    }
    // Later options override earlier ones.
    if let Some(cores) = model.cores {
        let _ = write!(text, ",cores={cores}");
    }
    if let Some(level) = &model.strict {
        let _ = write!(text, ",level={level}");
    }
    text.parse()
        .map_err(Failure::usage("wrong options of the model"))
}

/// The summary of a run, by the kind of device.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
enum Summary {
    Model(Box<ModelUse>),
    Node(UseOfNode),
}

/// The report of a run, and its timeline for a trace.
pub(crate) struct UseReport {
    summary: Summary,
    timeline: Option<DeviceTimeline>,
}

impl UseReport {
    pub(crate) fn new(counts: &Counts, model: &Model) -> Self {
        let timeline = model.timeline();
        let summary = ModelUse::new(ProgramCalls::of(counts), model, timeline.as_ref());
        Self {
            summary: Summary::Model(Box::new(summary)),
            timeline,
        }
    }

    /// The report of a real device. `ended`: how the jobs ended, if they were
    /// recorded.
    pub(crate) fn of_node(counts: &Counts, node: &ForwardService, ended: Option<Outcomes>) -> Self {
        Self {
            summary: Summary::Node(UseOfNode::new(ProgramCalls::of(counts), node, ended)),
            timeline: None,
        }
    }

    /// The timeline for ui.perfetto.dev, if the device is a model.
    pub(crate) fn trace(&self) -> Option<String> {
        self.timeline.as_ref().map(DeviceTimeline::to_chrome_trace)
    }

    /// The summary as text or as JSON.
    pub(crate) fn text(&self, json: bool) -> Result<String, Failure> {
        if json {
            return output::json(&self.summary);
        }
        Ok(match &self.summary {
            Summary::Model(summary) => summary.text(),
            Summary::Node(summary) => summary.text(),
        })
    }
}
