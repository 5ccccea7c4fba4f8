// SPDX-License-Identifier: MIT OR Apache-2.0
//! How many cases a property test runs: one answer for all members.

use proptest::test_runner::Config;

/// Environment variable that proptest itself reads, but only for tests that do
/// not choose a number of cases.
const VARIABLE: &str = "PROPTEST_CASES";

/// Under Miri, which is some hundred times slower, one case in so many is run.
const MIRI_SHARE: u32 = 32;

/// `usual` cases, or as many as PROPTEST_CASES says; a few under Miri. Failing
/// cases are printed, not written into the source tree.
#[must_use]
pub fn cases(usual: u32) -> Config {
    let wanted = std::env::var(VARIABLE).ok();
    let cases = wanted
        .and_then(|text| text.parse().ok())
        .unwrap_or(if cfg!(miri) {
            (usual / MIRI_SHARE).max(2)
        } else {
            usual
        });
    Config {
        cases,
        failure_persistence: None,
        ..Config::default()
    }
}
