// SPDX-License-Identifier: MIT OR Apache-2.0
//! Prints output. All text goes through this module, because `println!` panics if the reader
//! has closed the pipe.

use std::fs::{File, Permissions};
use std::io::{ErrorKind, Write, stderr, stdout};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use anstream::stream::RawStream;
use anstream::{AutoStream, ColorChoice};
use anstyle::AnsiColor;
use anyhow::Context;
use tempfile::NamedTempFile;

use crate::base::exit::Failure;
use crate::base::sudo::as_caller;

/// Writes to standard output. A closed pipe is not an error.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    if is_coloured(&stdout()) {
        print_bytes(painted(text).as_bytes())
    } else {
        print_bytes(text.as_bytes())
    }
}

/// Whether to use colours: on terminals, not in pipes. NO_COLOR and CLICOLOR_FORCE override
/// this.
pub(crate) fn is_coloured(stream: &impl RawStream) -> bool {
    AutoStream::choice(stream) != ColorChoice::Never
}

/// Coloured words at the start of a line.
const PAINTED: [(&str, AnsiColor); 6] = [
    ("PASS", AnsiColor::Green),
    ("RESULT PASS", AnsiColor::Green),
    ("OK ", AnsiColor::Green),
    ("FAIL", AnsiColor::Red),
    ("RESULT FAIL", AnsiColor::Red),
    ("PROBLEM", AnsiColor::Red),
];

fn painted(text: &str) -> String {
    let paint = |line: &str| {
        let starts = |(word, colour)| Some((word, colour, line.strip_prefix(word)?));
        match PAINTED.into_iter().find_map(starts) {
            Some((word, colour, rest)) => {
                let style = colour.on_default().bold();
                format!("{style}{word}{style:#}{rest}")
            }
            None => line.to_owned(),
        }
    };
    text.split_inclusive('\n').map(paint).collect()
}

/// Writes bytes to standard output. A closed pipe is not an error.
pub(crate) fn print_bytes(bytes: &[u8]) -> Result<(), Failure> {
    let mut out = stdout().lock();
    match out.write_all(bytes).and_then(|()| out.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(error).map_err(Failure::output("cannot write to standard output"))
        }
        _ => Ok(()),
    }
}

pub(crate) fn json(value: &impl serde::Serialize) -> Result<String, Failure> {
    let text = serde_json::to_string_pretty(value);
    Ok(text.map_err(Failure::output("cannot write the report as JSON"))? + "\n")
}

pub(crate) fn print_json(value: &impl serde::Serialize) -> Result<(), Failure> {
    print(&json(value)?)
}

/// Writes a line to standard error.
pub(crate) fn complain(text: &str) {
    // There is no other place to report that this failed.
    let _ = writeln!(stderr().lock(), "npu-probe: {text}");
}

/// Writes text to standard error.
pub(crate) fn tell(text: &str) {
    // There is no other place to report that this failed.
    let _ = stderr().lock().write_all(text.as_bytes());
}

pub(crate) fn create(path: &Path) -> Result<File, Failure> {
    as_caller(|| File::create(path))
        .map_err(Failure::output(format!("cannot create {}", path.display())))
}

pub(crate) fn folder_of(file: &Path) -> &Path {
    let folder = file.parent().filter(|folder| *folder != Path::new(""));
    folder.unwrap_or(Path::new("."))
}

/// Permissions of results: only the owner reads them, until the owner sends the archive.
const PRIVATE: u32 = 0o600;

/// Writes a file that only its owner may read, like [`try_write_whole`].
pub(crate) fn write_private(file: &Path, bytes: &[u8]) -> Result<(), Failure> {
    try_write_whole(file, bytes, PRIVATE).map_err(Failure::writing(file))
}

/// Writes a file with permissions `mode`, atomically and synced, so that it survives a crash.
/// If two programs write the same file, the last one wins.
pub(crate) fn try_write_whole(file: &Path, bytes: &[u8], mode: u32) -> anyhow::Result<()> {
    as_caller(|| write_whole(file, bytes, mode))
}

fn write_whole(file: &Path, bytes: &[u8], mode: u32) -> anyhow::Result<()> {
    let folder = folder_of(file);
    let mut new = NamedTempFile::new_in(folder).context("cannot create a new file")?;
    new.write_all(bytes).context("cannot write")?;
    let rights = Permissions::from_mode(mode);
    let opened = new.as_file();
    opened
        .set_permissions(rights)
        .context("cannot set permissions")?;
    opened.sync_all().context("cannot write")?;
    new.persist(file).context("cannot rename")?;
    let folder = File::open(folder).context("cannot open its folder")?;
    folder.sync_all().context("cannot write its folder")
}

/// Creates a file at once, so that a failure shows before any work; returns the function that
/// writes its text.
pub(crate) fn writer(path: &Path) -> Result<impl FnOnce(&str) -> Result<(), Failure>, Failure> {
    let mut file = create(path)?;
    let failure = Failure::writing(path);
    Ok(move |text: &str| file.write_all(text.as_bytes()).map_err(failure))
}
