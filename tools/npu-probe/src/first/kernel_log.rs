// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the kernel says of the NPU while a rung runs.

use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::fs::OpenOptionsExt;

use nix::fcntl::OFlag;

const LOG: &str = "/dev/kmsg";
/// Bytes of a record (Linux, Documentation/ABI/testing/dev-kmsg).
const RECORD: usize = 8 << 10;
/// Most lines that are kept.
const LINES_MAX: usize = 200;
/// Words of lines about the NPU, its memory, its power and its driver.
const ABOUT: [&str; 7] = [
    ".npu",
    "rocket",
    "iommu",
    "regulator",
    "power-domain",
    "pm_domain",
    "drm",
];

/// The kernel's log from now on.
pub(crate) struct KernelLogTail(Result<File, String>);

impl KernelLogTail {
    /// Of a model there is none.
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
        let mut file = self.0?;
        let mut lines = Vec::new();
        let mut record = vec![0; RECORD];
        // A record a read, until there is none or one was overwritten meanwhile.
        for _ in 0..LINES_MAX * 10 {
            let Ok(length @ 1..) = file.read(&mut record) else {
                break;
            };
            let text = String::from_utf8_lossy(record.get(..length).unwrap_or_default());
            let message = text.split_once(';').map_or(&*text, |(_, message)| message);
            let line = message.lines().next().unwrap_or_default();
            if ABOUT.iter().any(|word| line.contains(word)) && lines.len() < LINES_MAX {
                lines.push(line.to_owned());
            }
        }
        Ok(lines)
    }
}
