// SPDX-License-Identifier: MIT OR Apache-2.0
//! Failures of the outside world.

/// An error whose cause lies outside of this repository and this machine.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct ExternalError(String);

/// Marks an error as external.
pub(crate) fn external(error: &anyhow::Error) -> anyhow::Error {
    ExternalError(format!("{error:#}")).into()
}
