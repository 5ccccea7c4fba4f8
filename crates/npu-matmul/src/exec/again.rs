// SPDX-License-Identifier: MIT OR Apache-2.0
//! Whether a job that the driver ended early runs again.

use std::fmt;

/// Returns whether the caller has given up a call. Threads of the engine ask it, each before it
/// runs a failed job again.
pub type AbortCheck<'a> = &'a (dyn Fn() -> bool + Sync);

/// What becomes of jobs that the driver killed or dropped.
#[derive(Clone, Copy)]
pub(crate) enum Again<'a> {
    /// Each runs once more.
    Once,
    /// Each runs once more, unless the call is aborted.
    OnceUnless(AbortCheck<'a>),
    /// They fail.
    Never,
}

impl Again<'_> {
    /// Whether the caller has given up the call.
    pub(super) fn is_aborted(self) -> bool {
        match self {
            Self::Once | Self::Never => false,
            Self::OnceUnless(is_aborted) => is_aborted(),
        }
    }
}

impl fmt::Debug for Again<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Once => "Once",
            Self::OnceUnless(_) => "OnceUnless",
            Self::Never => "Never",
        })
    }
}
