// SPDX-License-Identifier: MIT OR Apache-2.0
//! Text, flags and exit codes that several commands share.

pub(crate) mod capture_file;
pub(crate) mod date;
pub(crate) mod end_signals;
pub(crate) mod exit;
pub(crate) mod flags;
pub(crate) mod output;
pub(crate) mod progress;
pub(crate) mod shape;
pub(crate) mod sudo;
pub(crate) mod table;
