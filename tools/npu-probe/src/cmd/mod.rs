// SPDX-License-Identifier: MIT OR Apache-2.0
//! The commands.

pub(crate) mod decode;
pub(crate) mod info;
pub(crate) mod selftest;
pub(crate) mod settle;

use anyhow::Context;
use npu_model::Opened;

use crate::exit::Failure;
use crate::flags::Flags;

/// Opens the device that the flags choose.
fn open(flags: &Flags) -> Result<Opened, Failure> {
    let selector = flags.selector();
    npu_model::open(&selector)
        .with_context(|| format!("no usable device for `{selector}`"))
        .map_err(Failure::NoDevice)
}
