// SPDX-License-Identifier: MIT OR Apache-2.0
//! Safe access to `rocket`, the Linux accel driver of the RK3588 NPU, and to the software
//! model of NPU and driver.
//!
//! | ioctl | here |
//! |---|---|
//! | CREATE_BO | [`Device::alloc`] returns a mapped [`Bo`] |
//! | PREP_BO, FINI_BO | [`Bo::read`], [`Bo::write`] and dropping the guard, if needed |
//! | SUBMIT | [`Device::submit`] takes [`Job`]s, returns [`PendingJob`]s |
//! | GEM_CLOSE | dropping a [`Bo`] |
//! | PRIME export, import | [`Bo::export`], [`Device::import`] |
//! | EXPORT_, IMPORT_SYNC_FILE | [`DmaBuf::fence`], [`DmaBuf::add_fence`] |
//! | SYNC_IOC_MERGE, SYNC_IOC_FILE_INFO, poll | [`SyncFile`] |
//!
//! Safety rests on ownership. A job owns its buffers until it has ended. It accepts only
//! programs whose memory accesses, computed from their register values, stay within those
//! buffers. A SUBMIT that returns 0 does not mean that a job runs, and a PREP_BO that
//! returns 0 does not mean that it succeeded; [`PendingJob::wait`] proves it. docs/uapi.md
//! explains the details.
//!
//! ```
//! use std::time::Duration;
//!
//! use rocket_uapi::{ByteLen, Deadline, Selector};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // The NPU if there is one, else the software model. `Device::discover` never opens the model.
//! let device = npu_model::open(&Selector::from_env())?.device;
//! let soon = Deadline::after(Duration::from_secs(5));
//! // Memory that CPU and NPU share and access in turn.
//! let mut buffer = device.alloc(ByteLen::new(4096)?)?;
//! buffer.write(soon)?.fill(7);
//! assert_eq!(buffer.read(soon)?[100], 7);
//! println!("{}: the NPU sees it at {:?}", device.info().name, buffer.iova());
//! # Ok(())
//! # }
//! ```
#![deny(unsafe_code)]

#[allow(unsafe_code)]
mod access;
mod arena;
mod bo;
mod bound_cores;
mod caller;
#[allow(unsafe_code)]
mod calls;
mod device;
mod discover;
mod dma_buf;
mod error;
mod fences;
#[allow(unsafe_code)]
mod file;
mod handles;
mod job;
mod kernel_version;
#[allow(unsafe_code)]
mod layer;
#[allow(unsafe_code)]
mod node;
#[allow(unsafe_code)]
mod own_process;
mod program_bo;
mod raw_job;
mod select;
#[allow(unsafe_code)]
mod shared_files;
mod sync_file;
pub mod sys;
mod units;
pub mod words;

pub use access::{CpuRead, CpuWrite};
pub use arena::Arena;
pub use bo::{Bo, FrozenBo};
pub use bound_cores::{BoundCores, CORE_COMPATIBLE};
pub use caller::{Caller, Descriptor, Wake};
pub use calls::{
    PLAIN_REQUESTS, device_info, export, import, ioctl, ioctl_bytes, is_busy, is_unfinished,
    plain_ioctl, prep_bo, version,
};
pub use device::{CacheTraffic, Device, DevicePool};
pub use discover::{ACCEL_DIRECTORY, DiscoverError, RefusedNode};
pub use dma_buf::DmaBuf;
pub use error::{Error, NO_THREAD_REMEDY, Permission};
pub use fences::{BufferAccess, FenceInfo, FenceStatus, SyncFileInfo};
pub use file::{DeviceInfo, FileOperations, MapRequest, MappedMemory, SharedFileOperations};
pub use job::{
    BuildError, FailedJob, FinishedJob, Job, JobBuilder, PendingJob, Refusal, SubmitError,
    WaitError, witness_program,
};
pub use kernel_version::KernelVersion;
pub use layer::FileLayer;
pub use node::{Node, SETTLE};
pub use own_process::{OwnProcess, read_own_memory};
pub use program_bo::ProgramBo;
pub use raw_job::{ClientJob, RawJob, ReadJobsError};
pub use rknpu_regcmd::Iova;
pub use rustix::io::Errno;
pub use select::{DEVICE_VARIABLE, NO_NPU, Selected, Selector};
pub use sync_file::{SyncFile, write_fence};
pub use units::{
    ByteLen, Deadline, Handle, LengthError, PAGE_BYTES, errno, errno_of, handle, monotonic_ns,
};

/// Runs the program of docs/uapi.md as a doctest.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/uapi.md")]
struct UapiPage;
