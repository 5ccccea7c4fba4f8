// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reports how programs used the served device.

mod counts;
mod of_model;
mod of_node;

use clap::Args;
use npu_model::ModelOptions;
use rocket_uapi::Selector;

use crate::base::exit::Failure;
use crate::base::flags::DeviceFlags;

pub(crate) use of_model::ModelUse;
pub(crate) use of_node::NodeUse;

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

/// The options of the model that the flags choose, if they choose no path.
pub(crate) fn options(model: &ModelFlags) -> Result<ModelOptions, Failure> {
    let mut text = match model.device.selector() {
        Selector::Auto | Selector::Model | Selector::Path(_) => String::new(),
        Selector::ModelWith(options) => format!(",{options}"),
    };
    // Later options override earlier ones.
    text.extend(model.cores.map(|cores| format!(",cores={cores}")));
    text.extend(model.strict.as_ref().map(|level| format!(",level={level}")));
    text.parse()
        .map_err(Failure::usage("wrong options of the model"))
}
