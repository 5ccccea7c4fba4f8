// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reads capture files for commands.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use anyhow::anyhow;
use clap::Args;
use npu_capture::format::MAGIC;
use npu_capture::{Capture, CaptureError, ObjectUse, Role};

use crate::base::exit::Failure;

/// How captures are read.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct CaptureFlags {
    /// Read the complete part of an unfinished capture
    ///
    /// A capture is unfinished if its program or machine died during the recording.
    #[arg(long)]
    pub(crate) unfinished: bool,
}

pub(crate) fn open(path: &Path, flags: CaptureFlags) -> Result<Capture, Failure> {
    let capture = if flags.unfinished {
        Capture::open_unfinished(path)
    } else {
        Capture::open(path)
    };
    let capture = capture.map_err(|error| match error {
        CaptureError::Unfinished => anyhow!("{error}; use --unfinished to read the complete part"),
        other => other.into(),
    });
    capture.map_err(Failure::usage(path.display().to_string()))
}

/// Whether the file at `path` is a capture. An unreadable file is not: its next reader reports
/// the error.
pub(crate) fn is_capture(path: &Path) -> bool {
    let mut start = [0; MAGIC.len()];
    let mut read = || File::open(path)?.read_exact(&mut start);
    // Not for a pipe: reading would consume its bytes.
    path.is_file() && read().is_ok() && Capture::begins(&start)
}

/// A few lines about the device and the recording.
pub(crate) fn head(capture: &Capture) -> String {
    let device = capture.device();
    let info = &device.info;
    let (major, minor, patch) = info.driver.version;
    let kind = if info.is_model { " (a model)" } else { "" };
    let mut text = format!(
        "recorded   on {}{kind}, {} {major}.{minor}.{patch}, {} with {} cores, by {}\n",
        info.name,
        info.driver.name.display(),
        device.chip,
        info.cores,
        device.recorder
    );
    for (name, value) in capture.notes() {
        text += &format!("note       {name}: {value}\n");
    }
    if capture.zero_data() {
        text += "contents   command words only\n";
    }
    if !capture.finished() {
        text += "unfinished the recording was interrupted\n";
    }
    let bytes: u64 = capture.objects().iter().map(|object| object.bytes).sum();
    text + &format!(
        "holds      {} jobs, {} buffer objects of {bytes} bytes\n",
        capture.jobs().len(),
        capture.objects().len()
    )
}

/// An entry of a job's lists.
pub(crate) fn use_text(capture: &Capture, used: &ObjectUse) -> String {
    let what = match used
        .object
        .map(|object| (object, capture.objects()[object]))
    {
        None => "no such object".to_owned(),
        Some((number, object)) => match object.range() {
            Some(range) => format!(
                "object {number}, {:#010x}..{:#x}, {} bytes",
                range.start, range.end, object.bytes
            ),
            None => format!("object {number}, imported"),
        },
    };
    let role = match used.role {
        Role::In => "reads",
        Role::Out => "writes",
        Role::Reached => "reaches, not listed:",
    };
    format!("{role} handle {} ({what})", used.handle)
}
