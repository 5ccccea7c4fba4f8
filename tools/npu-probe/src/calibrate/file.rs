// SPDX-License-Identifier: MIT OR Apache-2.0
//! The file of a profile.

use std::fs::{self, Permissions};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use anyhow::Context;
use npu_matmul::Profile;
use tempfile::NamedTempFile;

use crate::exit::Failure;

/// Who may do what with the file: its owner reads and writes, others read.
const MODE: u32 = 0o644;

/// Writes the file, all of it or nothing: what was in it took long to measure. Of two
/// programs that write the same file the last one wins.
pub(crate) fn write(file: &Path, profile: &Profile) -> Result<(), Failure> {
    let write = || -> anyhow::Result<()> {
        let json = profile.to_json().context("too many plans")?;
        Profile::from_json(json.as_bytes())
            .context("what was measured makes no sense: is something else using the NPU?")?;
        // A link stays a link.
        let file = file.canonicalize().unwrap_or_else(|_| file.to_owned());
        let folder = match file.parent() {
            Some(folder) if folder != Path::new("") => folder,
            _ => Path::new("."),
        };
        fs::create_dir_all(folder).context("cannot make its folder")?;
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
        .with_context(|| format!("the profile for {}", file.display()))
        .map_err(Failure::Output)
}
