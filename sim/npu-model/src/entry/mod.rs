// SPDX-License-Identifier: MIT OR Apache-2.0
//! Calls in, errno out.

#[allow(unsafe_code)]
pub(crate) mod file_operations;
pub(crate) mod ioctl;
pub(crate) mod model;
pub(crate) mod open;
