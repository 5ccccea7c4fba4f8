// SPDX-License-Identifier: MIT OR Apache-2.0
//! Finding the NPU's device node, and saying of each node that will not do
//! why, and what helps.

use std::fmt;
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::Errno;
use crate::backend::Backend as _;
use crate::error::{Call, Error};
use crate::ioctls::IoctlBackend;
use crate::node::Node;

/// Where the kernel puts accel nodes.
pub const ACCEL_DIRECTORY: &str = "/dev/accel";

/// What the nodes' names begin with.
const NODE_PREFIX: &str = "accel";

/// What the DRM driver calls itself (`rocket_drv.c`).
const DRIVER_NAME: &str = "rocket";

/// The part of a file's mode that is about permissions.
const PERMISSION_BITS: u32 = 0o7777;

/// Permission of the group to read and write.
const GROUP_READ_WRITE: u32 = 0o060;

/// What helps where there is no node.
pub(crate) const DRIVER_REMEDY: &str = "the rocket driver is in Linux 6.18 and newer \
     (CONFIG_DRM_ACCEL_ROCKET); see that the kernel has it, that `modprobe rocket` succeeds, and \
     that the board's device tree enables the NPU (`dmesg | grep -i rocket`)";

/// Who may open a node that this process may not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Permission {
    /// Permission bits, e.g. `0o660`.
    pub mode: u32,
    /// Name of the group that owns the node, or its number.
    pub group: String,
}

impl fmt::Display for Permission {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { mode, group } = self;
        if mode & GROUP_READ_WRITE == GROUP_READ_WRITE && group != "root" {
            write!(
                f,
                "it is for the group `{group}` (mode {mode:04o}); join it with \
                 `sudo usermod -aG {group} $USER` and log in again"
            )
        } else {
            write!(
                f,
                "it is for its owner only (mode {mode:04o}, group `{group}`); give it to a group \
                 with a udev rule such as SUBSYSTEM==\"accel\", GROUP=\"render\", MODE=\"0660\", \
                 or run as root"
            )
        }
    }
}

/// A node that was looked at and not taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefusedNode {
    /// The node.
    pub path: PathBuf,
    /// Why, and what to do about it.
    pub reason: String,
}

impl RefusedNode {
    /// What [`Device::open`](crate::Device::open) of `path` failed with.
    #[must_use]
    pub fn new(path: &Path, error: &Error) -> Self {
        Self {
            path: path.to_owned(),
            reason: error.to_string(),
        }
    }
}

impl fmt::Display for RefusedNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path.display(), self.reason)
    }
}

/// No usable NPU.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no usable NPU: {}", list(refused))]
pub struct DiscoverError {
    /// What was looked at; never empty.
    pub refused: Vec<RefusedNode>,
}

fn list(refused: &[RefusedNode]) -> String {
    let lines: Vec<String> = refused.iter().map(RefusedNode::to_string).collect();
    lines.join("; ")
}

/// Opens the first usable node of `directory`, in the order of their numbers.
pub(crate) fn first_usable(directory: &Path) -> Result<IoctlBackend, DiscoverError> {
    let mut refused = Vec::new();
    match nodes(directory) {
        Ok(nodes) => {
            for path in nodes {
                match open(&path) {
                    Ok(device) => return Ok(device),
                    Err(error) => refused.push(RefusedNode::new(&path, &error)),
                }
            }
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => refused.push(RefusedNode {
            path: directory.to_owned(),
            reason: format!("cannot be listed: {error}"),
        }),
    }
    if refused.is_empty() {
        refused.push(RefusedNode {
            path: directory.to_owned(),
            reason: format!("there is no accel node; {DRIVER_REMEDY}"),
        });
    }
    Err(DiscoverError { refused })
}

/// Opens the node at `path` if it is an NPU's.
pub(crate) fn open(path: &Path) -> Result<IoctlBackend, Error> {
    let device = IoctlBackend::new(Arc::new(Node::open(path)?));
    device.check_version().map_err(|errno| match errno {
        Errno::NOTTY | Errno::INVAL => Error::NotADevice,
        _ => Error::of(Call::Version, None, errno),
    })?;
    check_driver(&device.info().driver)?;
    Ok(device)
}

/// Opens the character device at `path`, whatever it is.
///
/// # Errors
/// [`Error::NoSuchNode`], [`Error::NotADevice`], [`Error::NoPermission`], or
/// what else open(2) says.
pub(crate) fn open_node(path: &Path) -> Result<OwnedFd, Error> {
    let metadata = fs::metadata(path).map_err(|error| not_opened(&error, None))?;
    if !metadata.file_type().is_char_device() {
        return Err(Error::NotADevice);
    }
    fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open(path)
        .map(OwnedFd::from)
        .map_err(|error| not_opened(&error, Some(&metadata)))
}

/// Refuses the node of a driver of another name than the NPU's.
///
/// # Errors
/// [`Error::OtherDriver`]
fn check_driver(name: &str) -> Result<(), Error> {
    if name == DRIVER_NAME {
        return Ok(());
    }
    Err(Error::OtherDriver {
        driver: name.to_owned(),
    })
}

fn not_opened(error: &io::Error, metadata: Option<&fs::Metadata>) -> Error {
    match (error.kind(), metadata) {
        (io::ErrorKind::NotFound, _) => Error::NoSuchNode,
        (io::ErrorKind::PermissionDenied, Some(metadata)) => Error::NoPermission(Permission {
            mode: metadata.mode() & PERMISSION_BITS,
            group: group_name(metadata.gid()).unwrap_or_else(|| metadata.gid().to_string()),
        }),
        _ => {
            let errno = Errno::from_io_error(error).unwrap_or(Errno::IO);
            Error::of(Call::Open, None, errno)
        }
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

/// The nodes `accelN`, by number.
fn nodes(directory: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let name = entry.file_name();
        let number = name
            .to_str()
            .and_then(|name| name.strip_prefix(NODE_PREFIX))
            .and_then(|number| number.parse::<u32>().ok());
        if let Some(number) = number {
            found.push((number, entry.path()));
        }
    }
    found.sort();
    Ok(found.into_iter().map(|(_, path)| path).collect())
}
