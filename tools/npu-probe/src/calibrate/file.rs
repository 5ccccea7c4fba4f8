// SPDX-License-Identifier: MIT OR Apache-2.0
//! Writes the file of a profile.

use std::fs;
use std::path::Path;

use anyhow::Context;
use npu_matmul::Profile;

use crate::exit::Failure;
use crate::output::{folder_of, try_write_whole};

/// Permissions of the file: its owner reads and writes, others read.
const MODE: u32 = 0o644;

/// Writes the whole file or nothing: the old content took long to measure.
pub(crate) fn write(file: &Path, profile: &Profile) -> Result<(), Failure> {
    let write = || -> anyhow::Result<()> {
        let json = profile.to_json().context("too many plans")?;
        Profile::from_json(json.as_bytes()).context(
            "the measurements contradict each other; stop other users of the NPU and \
             try again",
        )?;
        // Writes through a symbolic link instead of replacing it.
        let file = file.canonicalize().unwrap_or_else(|_| file.to_owned());
        fs::create_dir_all(folder_of(&file)).context("cannot create its folder")?;
        try_write_whole(&file, json.as_bytes(), MODE)
    };
    write().map_err(Failure::output(format!(
        "cannot write the profile {}",
        file.display()
    )))
}
