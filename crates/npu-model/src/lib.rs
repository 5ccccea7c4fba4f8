// SPDX-License-Identifier: MIT OR Apache-2.0
//! The RK3588 NPU and its kernel driver in software.
//!
//! Three layers, each usable without the one above:
//!
//! * [`chip`]: the silicon. Register windows and a bus, nothing else.
//! * [`driver`]: the `rocket` kernel driver. Raw ioctls in, errno out.
//! * [`Model`]: both together, one device that can be opened.
#![deny(unsafe_code)]

#[allow(unsafe_code)]
mod backend;
pub mod chip;
pub mod driver;
pub mod event;
mod model;
mod select;
pub mod trace;

pub use chip::Level;
pub use driver::Backing;
pub use model::{Model, ModelOptions};
pub use select::{DEVICE_VARIABLE, Selector};
