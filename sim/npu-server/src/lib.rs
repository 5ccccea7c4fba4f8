// SPDX-License-Identifier: MIT OR Apache-2.0
//! The server behind `librocket_preload.so`: one device for many processes.
//!
//! Each connection is an open file of the device; [`npu_wire`] has the
//! protocol. A connection has a thread that receives calls. Each call that may
//! ask its client something, or wait, runs on a thread of a pool, so no
//! client's call waits for another's.
//!
//! Nothing that a client sends is trusted: wrong messages get `EPROTO` or are
//! dropped, and allocations for a client are bounded beforehand.
#![deny(unsafe_code)]

mod channel;
mod connection;
mod counts;
mod forward;
mod listener;
mod model;
mod pool;
mod process;
mod service;
mod shadow;

pub use counts::Counts;
pub use forward::{ForwardService, NodeError};
pub use listener::{Server, ServerError, raise_descriptor_limit};
pub use service::{OpenFile, Service};
pub use shadow::ShadowError;
