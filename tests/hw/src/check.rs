// SPDX-License-Identifier: MIT OR Apache-2.0
//! The outcome of a row, and the checks that decide it.

use std::fmt;

use rocket_uapi::{BuildError, Error, SubmitError, WaitError};

/// Why a row did not pass.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotPassed {
    /// The driver does something else than expected.
    Fail(String),
    /// The row cannot run here.
    Skip(String),
}

/// How a row ended.
pub type RowOutcome = Result<(), NotPassed>;

/// Fails unless the driver did what is expected.
pub(crate) fn expect<T: PartialEq + fmt::Debug>(what: &str, got: T, want: T) -> RowOutcome {
    if got == want {
        Ok(())
    } else {
        Err(NotPassed::Fail(format!(
            "{what}: {got:?}, expected {want:?}"
        )))
    }
}

pub(crate) fn ensure(what: &str, condition: bool) -> RowOutcome {
    if condition {
        Ok(())
    } else {
        Err(NotPassed::Fail(format!("check failed: {what}")))
    }
}

/// Fails unless a call failed with the error `want`.
pub(crate) fn refused<T, E: PartialEq + fmt::Debug>(
    what: &str,
    got: Result<T, E>,
    want: E,
) -> RowOutcome {
    expect(what, got.map(drop), Err(want))
}

/// A step that must work for the row to mean anything.
pub(crate) trait Must<T> {
    /// The value, or a failure that names the step.
    fn must(self, step: &str) -> Result<T, NotPassed>;
}

impl<T, E: fmt::Display> Must<T> for Result<T, E> {
    fn must(self, step: &str) -> Result<T, NotPassed> {
        self.map_err(|error| NotPassed::Fail(format!("{step}: {error}")))
    }
}

macro_rules! fails_with {
    ($($error:ty)*) => { $(
        impl From<$error> for NotPassed {
            fn from(error: $error) -> Self {
                Self::Fail(error.to_string())
            }
        }
    )* };
}

fails_with!(Error BuildError SubmitError WaitError);
