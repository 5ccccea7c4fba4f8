// SPDX-License-Identifier: MIT OR Apache-2.0
//! Errors with an external cause.

/// An error with a cause outside this repository and this machine.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct ExternalError(String);

/// Marks an error as external.
pub(crate) fn external(error: &anyhow::Error) -> anyhow::Error {
    ExternalError(format!("{error:#}")).into()
}
