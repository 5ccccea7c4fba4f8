// SPDX-License-Identifier: MIT OR Apache-2.0
//! Opening an NPU: the kernel's device, or software in its place.

use rocket_uapi::{Device, DevicePool, RefusedNode, Selected, Selector};

use crate::device::software_npu::{SoftwareError, SoftwareNpu};

/// An open NPU.
#[derive(Clone, Debug)]
pub struct OpenedNpu {
    /// The open device.
    pub device: Device,
    /// The software behind the device; `None` for the kernel's device.
    pub software: Option<SoftwareNpu>,
}

/// No device could be opened.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OpenNpuError {
    /// The requested node is not a usable NPU.
    #[error("no NPU at {node}. For the software model, choose the device `auto` or `model`")]
    NoDevice {
        /// The node, and what is wrong with it.
        node: RefusedNode,
    },
    /// The software NPU cannot be started.
    #[error("{source} ({})", why.join("; "))]
    Software {
        /// Why it was chosen; if for lack of a usable node, what is wrong with each.
        why: Vec<String>,
        /// The reason.
        source: SoftwareError,
    },
    /// The device cannot be opened as often as requested.
    #[error("the device cannot be opened {files} times: {source}")]
    Files {
        /// The requested number of open files.
        files: usize,
        /// The error of the first open that failed.
        source: rocket_uapi::Error,
    },
}

/// Opens the NPU that `selector` names. With `timeline` a software NPU records its jobs, for
/// [`SoftwareNpu::job_events`].
///
/// # Errors
/// [`OpenNpuError::NoDevice`] if the node is not a usable NPU, [`OpenNpuError::Software`] if the
/// software NPU rejects its options, or is not part of this build.
pub fn open_npu(selector: &Selector, timeline: bool) -> Result<OpenedNpu, OpenNpuError> {
    match selector.select() {
        Ok(Selected::Kernel { device, .. }) => Ok(OpenedNpu {
            device,
            software: None,
        }),
        Ok(Selected::Model { options, why }) => {
            let (device, software) = SoftwareNpu::start(&options, timeline)
                .map_err(|source| OpenNpuError::Software { why, source })?;
            Ok(OpenedNpu {
                device,
                software: Some(software),
            })
        }
        Err(node) => Err(OpenNpuError::NoDevice { node }),
    }
}

/// Opens the NPU that `ROCKET_DEVICE` names `files` times; without the variable the kernel's
/// device, or if there is none, the software NPU. The kernel runs the jobs of one file one after
/// another, so use one file for each core.
///
/// A library in somebody else's process should use [`Device::discover`] instead: no program
/// should compute on the slow software NPU by accident.
///
/// # Errors
/// As [`open_npu`], and [`OpenNpuError::Files`].
///
/// ```
/// let pool = npu_matmul::open_pool(3)?;
/// assert_eq!(pool.devices().len(), 3);
/// # Ok::<(), npu_matmul::OpenNpuError>(())
/// ```
pub fn open_pool(files: usize) -> Result<DevicePool, OpenNpuError> {
    let device = open_npu(&Selector::from_env(), false)?.device;
    DevicePool::open(&device, files).map_err(|source| OpenNpuError::Files { files, source })
}
