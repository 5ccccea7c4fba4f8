// SPDX-License-Identifier: MIT OR Apache-2.0
//! Finding the NPU among the accel nodes, and saying why others are not it.

use std::fmt;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use thiserror::Error as ThisError;

use crate::Errno;
use crate::device::Device;
use crate::error::{Call, Error};

/// Where the kernel puts accel nodes.
pub const ACCEL_DIRECTORY: &str = "/dev/accel";

/// A node that was looked at and not taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefusedNode {
    /// The node.
    pub path: PathBuf,
    /// Why, and what to do about it.
    pub reason: String,
}

impl RefusedNode {
    /// Why [`Device::open`] of `path` failed with `error`, with the remedy.
    #[must_use]
    pub fn new(path: &Path, error: &Error) -> Self {
        Self {
            reason: reason(path, error),
            path: path.to_owned(),
        }
    }
}

impl fmt::Display for RefusedNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path.display(), self.reason)
    }
}

/// No usable NPU.
#[derive(Clone, Debug, PartialEq, Eq, ThisError)]
#[error("no usable NPU: {}", list(refused))]
pub struct DiscoverError {
    /// What was looked at.
    pub refused: Vec<RefusedNode>,
}

fn list(refused: &[RefusedNode]) -> String {
    let lines: Vec<String> = refused.iter().map(RefusedNode::to_string).collect();
    lines.join("; ")
}

impl Device {
    /// Opens the first accel node that the `rocket` driver serves.
    ///
    /// # Errors
    /// When there is none: every node with the reason why it is not it.
    pub fn discover() -> Result<Self, DiscoverError> {
        Self::discover_in(Path::new(ACCEL_DIRECTORY))
    }

    /// As [`Device::discover`], looking into another directory.
    ///
    /// # Errors
    /// As [`Device::discover`].
    pub fn discover_in(directory: &Path) -> Result<Self, DiscoverError> {
        let mut refused = Vec::new();
        match nodes(directory) {
            Ok(nodes) => {
                for path in nodes {
                    match Self::open(&path) {
                        Ok(device) => return Ok(device),
                        Err(error) => refused.push(RefusedNode::new(&path, &error)),
                    }
                }
                if refused.is_empty() {
                    refused.push(missing(directory));
                }
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                refused.push(missing(directory));
            }
            Err(error) => refused.push(RefusedNode {
                path: directory.to_owned(),
                reason: format!("cannot be listed: {error}"),
            }),
        }
        Err(DiscoverError { refused })
    }
}

/// The nodes `accelN`, by number.
fn nodes(directory: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let name = entry.file_name();
        let number = name
            .to_str()
            .and_then(|name| name.strip_prefix("accel"))
            .and_then(|number| number.parse::<u32>().ok());
        if let Some(number) = number {
            found.push((number, entry.path()));
        }
    }
    found.sort();
    Ok(found.into_iter().map(|(_, path)| path).collect())
}

fn missing(directory: &Path) -> RefusedNode {
    RefusedNode {
        path: directory.to_owned(),
        reason: "there is no accel node. It takes an RK3588 with Linux 6.18 or later, \
                 CONFIG_DRM_ACCEL_ROCKET, and the NPU's nodes enabled in the device tree; \
                 `dmesg | grep -i rocket` tells what the driver found"
            .to_owned(),
    }
}

fn reason(path: &Path, error: &Error) -> String {
    match error {
        Error::Refused {
            call: Call::Open,
            errno: Errno::ACCESS | Errno::PERM,
            ..
        } => denied(path),
        Error::OtherDriver { .. }
        | Error::Refused {
            call: Call::Version,
            ..
        } => {
            format!("{error}; it is another accelerator")
        }
        error => error.to_string(),
    }
}

/// Who may open the node, and how to become one of them.
fn denied(path: &Path) -> String {
    let Ok(metadata) = fs::metadata(path) else {
        return "permission denied".to_owned();
    };
    let group = group_name(metadata.gid()).unwrap_or_else(|| metadata.gid().to_string());
    let mode = metadata.mode();
    /// Read and write permission of the group.
    const GROUP_READ_WRITE: u32 = 0o060;
    if mode & GROUP_READ_WRITE == GROUP_READ_WRITE {
        format!(
            "permission denied; members of the group `{group}` may open it: \
             `sudo usermod -aG {group} $USER`, then log in again"
        )
    } else {
        format!(
            "permission denied; it belongs to the group `{group}`, which may not open it either \
             (mode {:03o}). A udev rule gives it to the group render: \
             `SUBSYSTEM==\"accel\", GROUP=\"render\", MODE=\"0660\"`",
            mode & 0o777
        )
    }
}

/// The group's name in /etc/group: enough for system groups, and no call into
/// the C library's name services.
fn group_name(gid: u32) -> Option<String> {
    let groups = fs::read_to_string("/etc/group").ok()?;
    groups.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)?.parse() == Ok(gid)).then(|| name.to_owned())
    })
}
