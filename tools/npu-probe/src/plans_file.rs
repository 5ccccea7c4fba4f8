// SPDX-License-Identifier: MIT OR Apache-2.0
//! Files of measured plans.

use std::ffi::OsString;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use anyhow::Context;
use npu_matmul::plan::{OtherConditions, TunedFor, TunedPlans};
use rknpu_regcmd::timing::Machine;
use rocket_uapi::DeviceInfo;

use crate::exit::Failure;

/// Reads such a file.
pub(crate) fn read(file: &Path) -> Result<Arc<TunedPlans>, Failure> {
    let plans = TunedPlans::read(file)
        .with_context(|| format!("{} has no measured plans", file.display()))
        .map_err(Failure::Usage)?;
    Ok(Arc::new(plans))
}

/// Writes such a file, all of it or nothing: what was in it took long to
/// measure.
pub(crate) fn write(file: &Path, plans: &TunedPlans) -> Result<(), Failure> {
    let mut new = OsString::from(file);
    new.push(".new");
    let written = plans
        .to_json()
        .context("too many plans")
        .and_then(|json| fs::write(&new, json).context("cannot write"))
        .and_then(|()| fs::rename(&new, file).context("cannot rename"));
    written
        .with_context(|| format!("the measured plans for {}", file.display()))
        .map_err(Failure::Output)
}

/// These plans, if they were measured on such a device, of which plans assume
/// that it is `machine`.
pub(crate) fn if_for(
    plans: Arc<TunedPlans>,
    info: &DeviceInfo,
    machine: &Machine,
) -> Result<Arc<TunedPlans>, OtherConditions> {
    plans.conditions().check(&TunedFor::device(info, machine))?;
    Ok(plans)
}
