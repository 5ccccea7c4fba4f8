// SPDX-License-Identifier: MIT OR Apache-2.0
//! Replaces `software_npu.rs` in builds without the feature `software-npu`.

use std::convert::Infallible;

use rknpu_regcmd::timing::ChromeEvent;
use rocket_uapi::Device;

/// This build has no software NPU.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("this build has no software model of the NPU; use the path of a device node")]
pub struct SoftwareError;

/// A software NPU, which this build does not have.
#[derive(Clone, Debug)]
pub struct SoftwareNpu(Infallible);

impl SoftwareNpu {
    pub(crate) fn start(_: &str, _: bool) -> Result<(Device, Self), SoftwareError> {
        Err(SoftwareError)
    }

    /// Whether the last job was killed because the host has no memory for its data.
    #[must_use]
    pub fn ran_out_of_memory(&self) -> bool {
        match self.0 {}
    }

    /// The jobs so far in modelled time, as events of a trace.
    #[must_use]
    pub fn job_events(&self) -> Vec<ChromeEvent> {
        match self.0 {}
    }
}
