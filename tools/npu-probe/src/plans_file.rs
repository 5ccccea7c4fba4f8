// SPDX-License-Identifier: MIT OR Apache-2.0
//! Files of measured plans.

use std::fs::Permissions;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;

use anyhow::Context;
use npu_matmul::plan::{OtherConditions, TunedFor, TunedPlans};
use rknpu_regcmd::timing::Machine;
use rocket_uapi::DeviceInfo;
use tempfile::NamedTempFile;

use crate::exit::Failure;

/// Who may do what with the file: its owner reads and writes, others read.
const MODE: u32 = 0o644;

/// Reads such a file.
pub(crate) fn read(file: &Path) -> Result<Arc<TunedPlans>, Failure> {
    let plans = TunedPlans::read(file)
        .with_context(|| format!("{} has no measured plans", file.display()))
        .map_err(Failure::Usage)?;
    Ok(Arc::new(plans))
}

/// Writes such a file, all of it or nothing: what was in it took long to
/// measure. Of two programs that write the same file the last one wins.
pub(crate) fn write(file: &Path, plans: &TunedPlans) -> Result<(), Failure> {
    let write = || -> anyhow::Result<()> {
        let json = plans.to_json().context("too many plans")?;
        // A link stays a link.
        let file = file.canonicalize().unwrap_or_else(|_| file.to_owned());
        let folder = match file.parent() {
            Some(folder) if folder != Path::new("") => folder,
            _ => Path::new("."),
        };
        let mut new = NamedTempFile::new_in(folder).context("cannot make a new file")?;
        new.write_all(json.as_bytes()).context("cannot write")?;
        new.as_file().sync_all().context("cannot write")?;
        let readable = Permissions::from_mode(MODE);
        new.as_file()
            .set_permissions(readable)
            .context("cannot let others read")?;
        new.persist(&file).context("cannot rename")?;
        Ok(())
    };
    write()
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
