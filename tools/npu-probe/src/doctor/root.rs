// SPDX-License-Identifier: MIT OR Apache-2.0
//! The files of a system, below a directory that tests can replace.
//!
//! All that is read here may hold anything. Reading is bounded, never waits, and
//! opens regular files only, which those of procfs and sysfs are.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use nix::libc;

/// The most bytes that are read of a file. The longest file is modules.dep, with less than 1
/// MiB.
const MOST_BYTES: u64 = 8 << 20;
/// The most that a read of /dev/kmsg gives (Linux, PRINTK_MESSAGE_MAX).
const MOST_OF_RECORD: usize = 8192;
/// The most entries of a directory.
const MOST_ENTRIES: usize = 8192;
/// The most characters of a line that is shown.
const MOST_SHOWN: usize = 160;

/// Directories whose paths reveal nothing about the user.
const PUBLIC: [&str; 9] = [
    "/usr/", "/opt/", "/bin/", "/sbin/", "/lib/", "/lib64/", "/dev/", "/proc/", "/sys/",
];

/// A system, seen through its files.
#[derive(Debug)]
pub(crate) struct SystemRoot {
    path: PathBuf,
    /// Whether reports leave out private data.
    pub(super) public: bool,
}

impl SystemRoot {
    pub(crate) fn new(path: &Path, public: bool) -> Self {
        Self {
            path: path.to_owned(),
            public,
        }
    }

    /// Whether this is the running system, and no directory that stands for one.
    pub(super) fn is_running(&self) -> bool {
        self.path == Path::new("/")
    }

    /// Where a path is that is absolute in the system; a leading `/` may be left out.
    pub(super) fn at(&self, path: &str) -> PathBuf {
        self.path.join(path.trim_start_matches('/'))
    }

    pub(super) fn exists(&self, path: &str) -> bool {
        self.at(path).exists()
    }

    pub(super) fn is_file(&self, path: &str) -> bool {
        self.at(path).is_file()
    }

    /// The bytes of a regular file.
    pub(super) fn bytes(&self, path: &str) -> Option<Vec<u8>> {
        let path = self.at(path);
        if !fs::metadata(&path).ok()?.is_file() {
            return None;
        }
        // Non-blocking, should the path lead to something else by now.
        let mut options = OpenOptions::new();
        options.read(true).custom_flags(libc::O_NONBLOCK);
        let mut bytes = Vec::new();
        let file = options.open(path).ok()?;
        file.take(MOST_BYTES).read_to_end(&mut bytes).ok()?;
        Some(bytes)
    }

    /// The records of a log such as /dev/kmsg, one line each: what is there by now, without
    /// waiting for more. In a directory that stands for the system a regular file stands
    /// for it.
    pub(super) fn records(&self, path: &str) -> Option<String> {
        if !self.is_running() {
            return self.text(path);
        }
        let mut options = OpenOptions::new();
        options.read(true).custom_flags(libc::O_NONBLOCK);
        let mut log = options.open(self.at(path)).ok()?;
        if !log.metadata().ok()?.file_type().is_char_device() {
            return None;
        }
        read_records(&mut log).ok()
    }

    /// The text of a file, to be taken apart.
    pub(super) fn text(&self, path: &str) -> Option<String> {
        let bytes = self.bytes(path)?;
        Some(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// The first line of a file, to be shown; none if it is blank.
    pub(crate) fn line(&self, path: &str) -> Option<String> {
        shown_line(&self.text(path)?)
    }

    /// The strings of a file in which each ends with a zero byte.
    pub(super) fn strings(&self, path: &str) -> Vec<String> {
        let text = self.text(path).unwrap_or_default();
        let strings = text.split('\0').filter_map(shown_line);
        strings.take(MOST_ENTRIES).collect()
    }

    /// A number in decimal.
    pub(super) fn number(&self, path: &str) -> Option<u64> {
        self.line(path)?.parse().ok()
    }

    /// The names in a directory, sorted.
    pub(super) fn names(&self, path: &str) -> Vec<String> {
        let Ok(entries) = fs::read_dir(self.at(path)) else {
            return Vec::new();
        };
        let entries = entries.take(MOST_ENTRIES).flatten();
        let mut names: Vec<String> = entries
            .filter_map(|entry| entry.file_name().into_string().ok())
            .filter(|name| !name.contains(char::is_control))
            .collect();
        names.sort();
        names
    }

    /// A variable of this process's environment, as it was started with.
    pub(super) fn variable(&self, name: &str) -> Option<String> {
        let text = self.text("proc/self/environ")?;
        let of_name = |line: &str| Some(line.strip_prefix(name)?.strip_prefix('=')?.to_owned());
        text.split('\0').find_map(of_name)
    }

    /// A path as reports show it.
    pub(super) fn shown(&self, path: &str) -> String {
        if self.public && !is_public_path(path) {
            return "(private path)".to_owned();
        }
        shown_line(path).unwrap_or_default()
    }
}

/// The records that an open log still has, one read each, without waiting for more.
pub(crate) fn read_records(log: &mut File) -> io::Result<String> {
    let (mut bytes, mut record) = (Vec::new(), [0; MOST_OF_RECORD]);
    while (bytes.len() as u64) < MOST_BYTES {
        match log.read(&mut record) {
            Ok(0) => break,
            Ok(count) => bytes.extend_from_slice(record.get(..count).unwrap_or_default()),
            // Records that are overwritten by now: the next read goes on behind them.
            Err(error) if error.raw_os_error() == Some(libc::EPIPE) => {}
            // All is read.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
            Err(error) if bytes.is_empty() => return Err(error),
            Err(_) => break,
        }
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Whether a path reveals nothing about the user.
pub(crate) fn is_public_path(path: &str) -> bool {
    PUBLIC.iter().any(|start| path.starts_with(start)) && !path.contains("..")
}

/// The first line of a text without control characters, cut where it is too long.
pub(super) fn shown_line(text: &str) -> Option<String> {
    let text = text.trim_matches(|c: char| c.is_whitespace() || c == '\0');
    let line = text.lines().next()?;
    let plain = line.chars().take(MOST_SHOWN);
    let line: String = plain
        .map(|c| if c.is_control() { '?' } else { c })
        .collect();
    (!line.is_empty()).then_some(line)
}
