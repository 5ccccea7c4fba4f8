// SPDX-License-Identifier: MIT OR Apache-2.0
//! What is known of the board: how fast it is, on which side of contested facts its
//! silicon is, and which tiles have run.
//!
//! `npu-probe calibrate` measures it once and writes a file, [`Profile::find`] reads
//! it, and all that plans takes it as it is: nothing is decided by a measurement made
//! in passing, so that the same machine with the same file makes the same plans in
//! every run. Without a file [`Profile::built_in`] holds. docs/profile.md has the
//! file's place and fields.

mod board;
mod choices;
mod envelope;
mod file;
mod find;
mod host;
mod kernel;
#[cfg(test)]
mod tests;
mod values;

pub use board::{Board, ContestedFact};
pub use choices::{Choices, ReuseChoices, SourcedChoice};
pub use envelope::MeasuredTile;
pub use file::ProfileError;
pub use host::{HostCores, KernelCost, UnpackTo};
pub(crate) use host::{PS_PER_SECOND, bytes_ps, clamped};
pub use values::Profile;
