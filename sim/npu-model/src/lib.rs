// SPDX-License-Identifier: MIT OR Apache-2.0
//! The RK3588 NPU's kernel driver in software, over the silicon of
//! [`rknpu_chip`].
//!
//! Two layers; the lower one works without the upper:
//!
//! * [`driver`]: the `rocket` kernel driver. Raw ioctls in, errno out.
//! * [`Model`]: driver and chip as one device behind `rocket-uapi`'s
//!   `FileOperations`. [`open`](open()) chooses between it and a real device.
//!
//! ```
//! use npu_model::open;
//! use rocket_uapi::{ByteLen, Deadline, Selector};
//!
//! let opened = open(&Selector::Model)?;
//! for line in &opened.why {
//!     println!("{line}");
//! }
//! let mut bo = opened.device.alloc(ByteLen::new(4096)?)?;
//! bo.write(Deadline::NOW)?[0] = 1;
//! assert_eq!(bo.read(Deadline::NOW)?[..2], [1, 0]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![deny(unsafe_code)]

mod base;
pub mod driver;
mod entry;
mod files;
mod jobs;
mod objects;

pub use base::damage::Damage;
pub use base::job_fault::JobFault;
pub use base::options::{ModelOptions, OptionError};
pub use base::{event, timeline};
pub use driver::{Backing, Model};
pub use entry::open::{OpenError, Opened, open, open_with};
pub use rknpu_chip::Level;
