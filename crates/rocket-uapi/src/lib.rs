// SPDX-License-Identifier: MIT OR Apache-2.0
//! Safe access to the Linux `rocket` accel driver.
#![deny(unsafe_code)]

#[allow(unsafe_code)]
mod backend;
mod error;
#[allow(unsafe_code)]
mod raw;
mod units;

pub use backend::{Backend, BoMemory, DeviceInfo, Fence, FenceStatus, RawBo, RawJob, RawTask};
pub use error::{Call, Error, LengthError};
pub use raw::{RawDevice, RawMap};
pub use rknpu_regcmd::Iova;
pub use rustix::io::Errno;
pub use units::{ByteLen, Deadline, Handle, PAGE_BYTES};
