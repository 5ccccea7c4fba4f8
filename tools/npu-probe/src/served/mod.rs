// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reports how programs used the served device.

mod calls;
mod of_model;
mod of_node;

use std::fmt::Write as _;

use anyhow::anyhow;
use clap::Args;
use npu_capture::Outcomes;
use npu_model::{Model, ModelOptions};
use npu_server::{Counts, ForwardService};
use rocket_uapi::Selector;
use serde::Serialize;

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

/// The report of a run, by the kind of device.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub(crate) enum UseReport {
    Model(Box<ModelUse>),
    Node(UseOfNode),
}

impl UseReport {
    pub(crate) fn of_model(counts: &Counts, model: &Model) -> Self {
        Self::Model(Box::new(ModelUse::new(*counts, model)))
    }

    /// The report of a real device. `ended`: how the jobs ended, if they were
    /// recorded.
    pub(crate) fn of_node(counts: &Counts, node: &ForwardService, ended: Option<Outcomes>) -> Self {
        Self::Node(UseOfNode::new(*counts, node, ended))
    }

    /// The report as text or as JSON.
    pub(crate) fn text(&self, json: bool) -> Result<String, Failure> {
        match self {
            _ if json => output::json(self),
            Self::Model(report) => Ok(report.text()),
            Self::Node(report) => Ok(report.text()),
        }
    }
}
