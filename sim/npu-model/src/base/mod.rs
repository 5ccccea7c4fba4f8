// SPDX-License-Identifier: MIT OR Apache-2.0
//! Plain data: options, events, timelines, memory, and how kernels differ.

pub(crate) mod abi;
pub(crate) mod bugs;
pub(crate) mod cache;
pub(crate) mod damage;
pub mod event;
pub(crate) mod job_fault;
pub(crate) mod lock;
#[allow(unsafe_code)]
pub(crate) mod memory;
pub(crate) mod options;
pub(crate) mod profile;
pub mod timeline;
