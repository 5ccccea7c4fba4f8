// SPDX-License-Identifier: MIT OR Apache-2.0
//! Search for the NPU's device node. For each refused node it gives the reason and a fix.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::Errno;
use crate::bound_cores::BoundCores;
use crate::calls::version;
use crate::error::{DRIVER_REMEDY, Error};
use crate::file::FileOperations;
use crate::node::Node;

/// Directory of the kernel's accel nodes.
pub const ACCEL_DIRECTORY: &str = "/dev/accel";

const NODE_PREFIX: &str = "accel";

/// Name of the DRM driver (`rocket_drv.c`).
const DRIVER_NAME: &str = "rocket";

/// A node that was tried and refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}: {reason}", path.display())]
pub struct RefusedNode {
    /// Path of the node.
    pub path: PathBuf,
    /// The reason, and what to do about it.
    pub reason: String,
}

impl RefusedNode {
    /// The refusal of `path` with an error of [`Device::open`](crate::Device::open).
    #[must_use]
    pub fn new(path: &Path, error: &Error) -> Self {
        Self {
            path: path.to_owned(),
            reason: error.to_string(),
        }
    }
}

/// The error if no node is a usable NPU.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no usable NPU: {}", list(refused))]
pub struct DiscoverError {
    /// The refused nodes, or the directory; never empty.
    pub refused: Vec<RefusedNode>,
}

fn list(refused: &[RefusedNode]) -> String {
    let lines: Vec<String> = refused.iter().map(RefusedNode::to_string).collect();
    lines.join("; ")
}

/// Opens the first usable node of `directory`, in the order of their numbers.
pub(crate) fn first_usable(directory: &Path) -> Result<Arc<dyn FileOperations>, DiscoverError> {
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

/// Opens the node at `path` if its driver is `rocket` and drives an RK3588.
pub(crate) fn open(path: &Path) -> Result<Arc<dyn FileOperations>, Error> {
    let node = Node::open(path)?;
    let (_, [driver, ..]) = version(&node).map_err(|errno| match errno {
        Errno::NOTTY | Errno::INVAL => Error::NotADevice,
        _ => Error::of("VERSION", None, errno),
    })?;
    if driver != DRIVER_NAME.as_bytes() {
        let driver = String::from_utf8_lossy(&driver).into_owned();
        return Err(Error::OtherDriver(driver));
    }
    BoundCores::of(Path::new("/")).check_chip()?;
    Ok(Arc::new(node))
}

/// Paths of the nodes `accelN`, sorted by number.
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
