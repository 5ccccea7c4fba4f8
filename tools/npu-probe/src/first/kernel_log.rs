// SPDX-License-Identifier: MIT OR Apache-2.0
//! Kernel messages about the NPU during a rung.

use std::fs::{File, OpenOptions};
use std::io::{Seek, SeekFrom};
use std::os::unix::fs::OpenOptionsExt;

use nix::fcntl::OFlag;

use crate::doctor::read_records;

const LOG: &str = "/dev/kmsg";
/// Most lines that are kept.
const LINES_MAX: usize = 200;
/// Words that occur in messages about the NPU, its memory, its power and its driver.
const ABOUT: [&str; 7] = [
    ".npu",
    "rocket",
    "iommu",
    "regulator",
    "power-domain",
    "pm_domain",
    "drm",
];

/// The kernel log from a moment on.
pub(crate) struct KernelLogTail(Result<File, String>);

impl KernelLogTail {
    /// Starts at the end of the log; a model has no log.
    pub(crate) fn begin(is_model: bool) -> Self {
        if is_model {
            return Self(Err("a software model has no kernel".to_owned()));
        }
        let opened = OpenOptions::new()
            .read(true)
            .custom_flags(OFlag::O_NONBLOCK.bits())
            .open(LOG);
        let at_end = opened.and_then(|mut file| {
            file.seek(SeekFrom::End(0))?;
            Ok(file)
        });
        Self(at_end.map_err(|error| format!("{LOG}: {error} (root may read it)")))
    }

    /// Lines about the NPU since then.
    pub(crate) fn lines(self) -> Result<Vec<String>, String> {
        let records = read_records(&mut self.0?).map_err(|error| format!("{LOG}: {error}"))?;
        // Properties follow a record's first line; their lines begin with a blank.
        let firsts = records.lines().filter(|line| !line.starts_with(' '));
        let messages = firsts.filter_map(|line| Some(line.split_once(';')?.1));
        let about = |message: &&str| ABOUT.iter().any(|word| message.contains(word));
        let lines = messages.filter(about).take(LINES_MAX);
        Ok(lines.map(str::to_owned).collect())
    }
}
