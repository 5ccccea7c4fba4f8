// SPDX-License-Identifier: MIT OR Apache-2.0
//! Board profiles: speeds, verdicts on contested facts, and tiles that have run.
//!
//! `npu-probe calibrate` measures a board once and writes a file; [`Profile::find`] reads it. All
//! planning uses the profile as it is and never measures: the same machine with the same file makes
//! the same plans in every run. Without a file, [`Profile::built_in`] is used. docs/profile.md
//! describes the file.

mod board;
mod choices;
mod envelope;
mod file;
mod find;
mod host;
mod sides;
#[cfg(test)]
mod tests;
mod values;

pub use board::{Board, ContestedFact};
pub use choices::{Choices, ReuseChoices, SourcedChoice};
pub use envelope::MeasuredTile;
pub use file::ProfileError;
pub use host::{HostCores, KernelCost, UnpackTo};
pub(crate) use host::{PS_PER_SECOND, bytes_ps, clamped};
pub use sides::{CostSide, KernelTimes};
pub use values::Profile;
