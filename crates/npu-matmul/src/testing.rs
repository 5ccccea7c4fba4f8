// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the tests of several modules need.

use proptest::test_runner::Config;

/// `usual` cases of a property, or as many as `PROPTEST_CASES` says.
pub(crate) fn cases(usual: u32) -> Config {
    match std::env::var_os("PROPTEST_CASES") {
        Some(_) => Config::default(),
        None => Config::with_cases(usual),
    }
}
