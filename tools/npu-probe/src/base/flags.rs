// SPDX-License-Identifier: MIT OR Apache-2.0
//! Options: those that several commands share, and those of commands with several parts.

mod bench;
mod decode;
mod dtype;
mod number;
pub(crate) mod planning;
mod selftest;
mod shared;

pub(crate) use bench::BenchFlags;
pub(crate) use decode::DecodeFlags;
pub(crate) use dtype::OperandDtypes;
pub(crate) use number::number;
pub(crate) use selftest::SelfTestFlags;
pub(crate) use shared::{DeviceFlags, ReportFlags, RunFiles};
