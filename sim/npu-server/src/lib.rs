// SPDX-License-Identifier: MIT OR Apache-2.0
//! The server behind `librocket_preload.so`: one device for many processes.
//!
//! Each connection is an open file of the device; see [`npu_wire`] for what is
//! said on it. A connection has a thread that takes calls in, and each call
//! that may have to ask its client something, or to wait, runs on a thread of
//! a pool, so that no client's call waits for another's.
//!
//! Nothing a client sends is trusted: wrong messages are answered with `EPROTO`
//! or dropped, and what is allocated for a client is bounded before it is.
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
pub use listener::{Server, ServerError, raise_descriptor_limit, shared_server_limits};
pub use model::ModelService;
pub use service::{MapOf, OpenFile, Service};
pub use shadow::{Shadow, ShadowError};
