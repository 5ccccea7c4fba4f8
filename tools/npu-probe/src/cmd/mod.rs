// SPDX-License-Identifier: MIT OR Apache-2.0
//! The commands.

pub(crate) mod asm;
pub(crate) mod bench;
pub(crate) mod calibrate;
pub(crate) mod command_line;
pub(crate) mod decode;
mod decode_capture;
mod diff;
pub(crate) mod doctor;
pub(crate) mod evidence;
pub(crate) mod explain;
mod lint;
#[cfg(feature = "manual")]
pub(crate) mod manual;
pub(crate) mod model;
mod plan;
pub(crate) mod replay;
pub(crate) mod report;
pub(crate) mod run;
pub(crate) mod selftest;
mod soak;

use std::env;
use std::path::PathBuf;

use anyhow::anyhow;
use npu_model::{ModelOptions, OpenError, Opened};
use rocket_uapi::Selector;

use crate::base::exit::Failure;
use crate::base::flags::DeviceFlags;

fn own_path() -> Result<PathBuf, Failure> {
    env::current_exe().map_err(Failure::usage("cannot find the path of npu-probe"))
}

/// Opens the device that the flags choose.
fn open(device: &DeviceFlags) -> Result<Opened, Failure> {
    open_selected(&device.selector(), |_| ())
}

/// Opens a device. `adjust` changes the options of a model.
fn open_selected(
    selector: &Selector,
    adjust: impl FnOnce(&mut ModelOptions),
) -> Result<Opened, Failure> {
    npu_model::open_with(selector, adjust).map_err(|error| match error {
        OpenError::Options(_) => Failure::Usage(error.into()),
        _ => Failure::NoDevice(anyhow!(
            "{error}; run `npu-probe doctor` to see what this machine lacks"
        )),
    })
}
