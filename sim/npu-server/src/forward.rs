// SPDX-License-Identifier: MIT OR Apache-2.0
//! Serves a real device: each open file of a client is one of the node in this
//! process, which makes the client's calls there.
//!
//! The server copies structures from the client's memory and back, and passes
//! descriptors on. The client maps buffer objects itself, from the node.
//! dma-bufs and sync_files are the kernel's own, and the client's ioctls on
//! them go directly to the kernel.

#[allow(unsafe_code)]
mod file;

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use rocket_uapi::{Device, DeviceInfo, Node};
use rustix::io::Errno;

use self::file::{ForwardFile, SubmittedWork};
use crate::service::{OpenFile, Service};

/// A node cannot be served.
#[derive(Debug, thiserror::Error)]
#[error("{}: {error}", .path.display())]
pub struct NodeError {
    path: PathBuf,
    error: rocket_uapi::Error,
}

/// Serves a device node.
#[derive(Debug)]
pub struct ForwardService {
    path: PathBuf,
    info: DeviceInfo,
    work: Arc<Mutex<SubmittedWork>>,
}

impl ForwardService {
    /// Serves the node at `path`, if it is an NPU's.
    ///
    /// # Errors
    /// [`NodeError`] if it does not exist, cannot be opened, or is another
    /// driver's.
    pub fn new(path: &Path) -> Result<Self, NodeError> {
        let path = path.to_owned();
        match Device::open(&path) {
            Ok(device) => Ok(Self {
                path,
                info: device.info(),
                work: Arc::default(),
            }),
            Err(error) => Err(NodeError { path, error }),
        }
    }

    /// The description of the device.
    #[must_use]
    pub fn info(&self) -> &DeviceInfo {
        &self.info
    }

    /// Numbers of programs that were submitted and of their command words,
    /// including jobs that the driver dropped.
    #[must_use]
    pub fn tasks_and_words(&self) -> (u64, u64) {
        let work = self.work.lock().unwrap_or_else(PoisonError::into_inner);
        (work.tasks, work.words)
    }
}

impl Service for ForwardService {
    fn open(&self) -> Result<Box<dyn OpenFile>, Errno> {
        let node = Node::open(&self.path).map_err(|error| {
            tracing::warn!(%error, "cannot open the node for a client");
            match error {
                rocket_uapi::Error::NoSuchNode => Errno::NOENT,
                rocket_uapi::Error::NoPermission(_) => Errno::ACCESS,
                rocket_uapi::Error::OutOfFileDescriptors { .. } => Errno::MFILE,
                rocket_uapi::Error::OutOfSystemFiles { .. } => Errno::NFILE,
                rocket_uapi::Error::Refused { errno, .. } => errno,
                _ => Errno::NODEV,
            }
        })?;
        Ok(Box::new(ForwardFile::new(node, Arc::clone(&self.work))))
    }

    fn is_emulated(&self) -> bool {
        false
    }
}
