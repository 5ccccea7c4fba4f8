// SPDX-License-Identifier: MIT OR Apache-2.0
//! Numbers of the command line, with errors that say what is expected.

use std::str::FromStr;

/// Parses a whole number.
pub(crate) fn number<T: FromStr>(text: &str) -> Result<T, &'static str> {
    text.parse().map_err(|_| "expected a whole number")
}

/// Parses a whole number of at least 1: `T` does not hold 0.
pub(crate) fn count<T: FromStr>(text: &str) -> Result<T, &'static str> {
    let parsed = text.parse();
    parsed.map_err(|_| "expected a whole number of at least 1")
}
