// SPDX-License-Identifier: MIT OR Apache-2.0
//! The kernel's messages while a row runs.

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read, Seek, SeekFrom};
use std::os::unix::fs::OpenOptionsExt;
use std::thread;
use std::time::Duration;

use crate::check::{Must, NotPassed, RowOutcome};

/// Texts that mark a message as a complaint; see the file.
const COMPLAINTS: &str = include_str!("../expected/complaints.txt");

/// Upper bound of a record, bytes (CONSOLE_EXT_LOG_MAX, 8192).
const RECORD: usize = 8192;

/// Time after which the kernel has freed what it frees late: a killed job after 500
/// ms.
const LATE: Duration = Duration::from_millis(1500);

/// The kernel's log, from some moment on.
#[derive(Debug)]
pub(crate) struct Kmsg(File);

/// Whether a message of the kernel is a complaint.
fn is_complaint(message: &str) -> bool {
    let mut words = COMPLAINTS.lines().filter(|line| !line.starts_with('#'));
    words.any(|word| message.contains(word))
}

impl Kmsg {
    /// The log from now on. Skips the row if the process may not read it.
    pub(crate) fn from_now() -> Result<Self, NotPassed> {
        let mut options = OpenOptions::new();
        options.read(true);
        options.custom_flags(rustix::fs::OFlags::NONBLOCK.bits().cast_signed());
        let opened = options.open("/dev/kmsg");
        let mut file = opened.map_err(|error| NotPassed::Skip(format!("/dev/kmsg: {error}")))?;
        file.seek(SeekFrom::End(0)).must("the end of /dev/kmsg")?;
        Ok(Self(file))
    }

    /// The messages since the last call.
    pub(crate) fn messages(&mut self) -> Result<Vec<String>, NotPassed> {
        let mut messages = Vec::new();
        let mut record = [0; RECORD];
        loop {
            match self.0.read(&mut record) {
                Ok(length) => {
                    let text = String::from_utf8_lossy(&record[..length]);
                    // The message is after the prefix; further lines are left out.
                    let text = text.lines().next().unwrap_or_default();
                    let text = text.split_once(';').map_or(text, |(_, message)| message);
                    messages.push(text.to_owned());
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(messages),
                // Records were lost meanwhile.
                Err(error) if error.kind() == ErrorKind::BrokenPipe => {}
                Err(error) => return Err(error).must("/dev/kmsg"),
            }
        }
    }

    /// Fails if the kernel has complained, or does so within a moment.
    pub(crate) fn silence(mut self) -> RowOutcome {
        thread::sleep(LATE);
        let messages = self.messages()?;
        match messages.iter().find(|message| is_complaint(message)) {
            Some(message) => Err(NotPassed::Fail(format!(
                "the kernel complains: `{message}`"
            ))),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::is_complaint;

    #[test]
    fn complaints_are_told_from_messages() {
        assert!(is_complaint(
            "BUG: KASAN: slab-use-after-free in drm_mm_remove_node"
        ));
        assert!(is_complaint(
            "WARNING: mm/slub.c:7023 at __kvmalloc_node_noprof"
        ));
        assert!(!is_complaint("rocket fdab0000.npu: NPU job timed out"));
    }
}
