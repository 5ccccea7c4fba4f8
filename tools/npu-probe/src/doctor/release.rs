// SPDX-License-Identifier: MIT OR Apache-2.0
//! The version in a kernel's release.

use std::fmt;

/// Major and minor version, in the order of their age.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct KernelVersion(pub(super) u32, pub(super) u32);

impl KernelVersion {
    /// The first with the rocket driver.
    pub(super) const FIRST_WITH_ROCKET: Self = Self(6, 18);

    /// The version in text such as `7.2.13-arm64` or `7.2`.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let mut numbers = text.split(|c: char| !c.is_ascii_digit());
        let mut number = || numbers.next()?.parse().ok();
        Some(Self(number()?, number()?))
    }
}

impl fmt::Display for KernelVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.0, self.1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_have_versions_or_none() {
        for (text, version) in [
            ("7.2.13-arm64", Some(KernelVersion(7, 2))),
            ("6.18", Some(KernelVersion(6, 18))),
            ("6.18-rc3", Some(KernelVersion(6, 18))),
            ("next", None),
            ("7", None),
            ("99999999999.1", None),
            ("", None),
        ] {
            assert_eq!(KernelVersion::parse(text), version, "{text}");
        }
        assert!(KernelVersion(6, 9) < KernelVersion::FIRST_WITH_ROCKET);
        assert!(KernelVersion(7, 0) > KernelVersion::FIRST_WITH_ROCKET);
    }
}
