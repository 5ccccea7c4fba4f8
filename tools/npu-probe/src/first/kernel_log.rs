// SPDX-License-Identifier: MIT OR Apache-2.0
//! Kernel messages about the NPU during a rung.

use std::fs::File;
use std::io::{Seek, SeekFrom};
use std::path::Path;

use crate::doctor::{open_without_waiting, read_records};

const LOG: &str = "/dev/kmsg";
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
        let at_end = open_without_waiting(Path::new(LOG)).and_then(|mut file| {
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
