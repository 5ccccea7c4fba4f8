// SPDX-License-Identifier: MIT OR Apache-2.0
//! A real device as what is served: each open file of a client is one of the
//! node, and what the client does there is done here, by this process.
//!
//! What is in the client's memory is copied to this process's and back;
//! descriptors are handed across; buffer objects are mapped by the client, from
//! the node itself. dma-bufs and sync_files are the kernel's own, and the
//! client's ioctls of them go to the kernel without a way round.

#[allow(unsafe_code)]
mod file;

use std::path::{Path, PathBuf};
use std::sync::Arc;

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
    work: Arc<SubmittedWork>,
}

impl ForwardService {
    /// Serves the node at `path`, if it is an NPU's.
    ///
    /// # Errors
    /// [`NodeError`] if it is not there, not to be opened, or another driver's.
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

    /// What the device says of itself.
    #[must_use]
    pub fn info(&self) -> &DeviceInfo {
        &self.info
    }

    /// Programs that were submitted, and their command words, those of jobs
    /// that the driver dropped included.
    #[must_use]
    pub fn tasks_and_words(&self) -> (u64, u64) {
        self.work.tasks_and_words()
    }
}

impl Service for ForwardService {
    fn open(&self) -> Result<Box<dyn OpenFile>, Errno> {
        let node = Node::open(&self.path).map_err(|error| {
            tracing::warn!(%error, "the node does not open any more");
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
