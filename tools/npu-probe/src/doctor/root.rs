// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reads files of a system below a directory, which tests replace.
//!
//! The files may contain anything. So reads are bounded and never wait, and only regular
//! files are opened; files of procfs and sysfs are regular.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use nix::libc;

/// Most bytes that are read of a file. The longest file is modules.dep, with less than 1
/// MiB.
const MOST_BYTES: u64 = 8 << 20;
/// Most bytes of one read of /dev/kmsg (Linux, PRINTK_MESSAGE_MAX).
const MOST_OF_RECORD: usize = 8192;
const MOST_ENTRIES: usize = 8192;
const MOST_SHOWN: usize = 160;

/// Directories whose paths reveal nothing about the user.
const PUBLIC: [&str; 9] = [
    "/usr/", "/opt/", "/bin/", "/sbin/", "/lib/", "/lib64/", "/dev/", "/proc/", "/sys/",
];

/// The root directory of a system whose files are read.
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

    /// Whether this is the running system, not a directory that replaces it.
    pub(super) fn is_running(&self) -> bool {
        self.path == Path::new("/")
    }

    /// The real path of an absolute path of the system; its leading `/` is optional.
    pub(super) fn at(&self, path: &str) -> PathBuf {
        self.path.join(path.trim_start_matches('/'))
    }

    pub(super) fn exists(&self, path: &str) -> bool {
        self.at(path).exists()
    }

    pub(super) fn is_file(&self, path: &str) -> bool {
        self.at(path).is_file()
    }

    pub(super) fn bytes(&self, path: &str) -> Option<Vec<u8>> {
        let path = self.at(path);
        if !fs::metadata(&path).ok()?.is_file() {
            return None;
        }
        let mut bytes = Vec::new();
        // Another kind of file may have replaced it since.
        let file = open_without_waiting(&path).ok()?;
        file.take(MOST_BYTES).read_to_end(&mut bytes).ok()?;
        Some(bytes)
    }

    /// The present records of a log such as /dev/kmsg, one line each, without waiting for more;
    /// none if there is no record.
    pub(super) fn records(&self, path: &str) -> Option<String> {
        let records = read_records(&mut open_without_waiting(&self.at(path)).ok()?);
        records.ok().filter(|text| !text.is_empty())
    }

    /// The content of a file, for parsing.
    pub(super) fn text(&self, path: &str) -> Option<String> {
        let bytes = self.bytes(path)?;
        Some(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// The first line of a file, for output; none if it is blank.
    pub(crate) fn line(&self, path: &str) -> Option<String> {
        shown_line(&self.text(path)?)
    }

    /// The zero-terminated strings of a file.
    pub(super) fn strings(&self, path: &str) -> Vec<String> {
        let text = self.text(path).unwrap_or_default();
        let strings = text.split('\0').filter_map(shown_line);
        strings.take(MOST_ENTRIES).collect()
    }

    pub(super) fn number(&self, path: &str) -> Option<u64> {
        self.line(path)?.parse().ok()
    }

    pub(super) fn names(&self, path: &str) -> Vec<String> {
        let entries = fs::read_dir(self.at(path)).into_iter().flatten();
        let entries = entries.take(MOST_ENTRIES).flatten();
        let mut names: Vec<String> = entries
            .filter_map(|entry| entry.file_name().into_string().ok())
            .filter(|name| !name.contains(char::is_control))
            .collect();
        names.sort();
        names
    }

    /// A variable from this process's initial environment.
    pub(super) fn variable(&self, name: &str) -> Option<String> {
        let text = self.text("proc/self/environ")?;
        let variable_value =
            |line: &str| Some(line.strip_prefix(name)?.strip_prefix('=')?.to_owned());
        text.split('\0').find_map(variable_value)
    }

    /// A path as text for reports.
    pub(super) fn shown(&self, path: &str) -> String {
        if self.public && !is_public_path(path) {
            return "(private path)".to_owned();
        }
        shown_line(path).unwrap_or_default()
    }
}

/// Opens a file, so that neither opening nor reading waits.
pub(crate) fn open_without_waiting(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).custom_flags(libc::O_NONBLOCK).open(path)
}

/// The remaining records of an open log, one per read, without waiting for more.
pub(crate) fn read_records(log: &mut File) -> io::Result<String> {
    let (mut bytes, mut record) = (Vec::new(), [0; MOST_OF_RECORD]);
    while (bytes.len() as u64) < MOST_BYTES {
        match log.read(&mut record) {
            Ok(0) => break,
            Ok(count) => bytes.extend_from_slice(record.get(..count).unwrap_or_default()),
            // Older records were overwritten; the next read continues behind them.
            Err(error) if error.raw_os_error() == Some(libc::EPIPE) => {}
            // No more records.
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

/// The first line of a text, cut if it is too long; `?` replaces control characters.
pub(super) fn shown_line(text: &str) -> Option<String> {
    let text = text.trim_matches(|c: char| c.is_whitespace() || c == '\0');
    let line = text.lines().next()?;
    let plain = line.chars().take(MOST_SHOWN);
    let line: String = plain
        .map(|c| if c.is_control() { '?' } else { c })
        .collect();
    (!line.is_empty()).then_some(line)
}
