// SPDX-License-Identifier: MIT OR Apache-2.0
//! Kernel versions, parsed from release strings.

use std::fmt;

/// Major version, minor version and number of the stable release. The order is by these
/// numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct KernelVersion(pub u32, pub u32, pub u32);

impl KernelVersion {
    /// The first version with the rocket driver (Linux, `drivers/accel/rocket`).
    pub const FIRST_WITH_ROCKET: Self = Self(6, 18, 0);

    /// Parses the version at the start of a release such as `7.2.13-arm64` or `7.2`.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let end = text.find(|c: char| !c.is_ascii_digit() && c != '.');
        let mut numbers = text[..end.unwrap_or(text.len())].split('.');
        let mut number = || numbers.next()?.parse().ok();
        Some(Self(number()?, number()?, number().unwrap_or(0)))
    }

    /// The release that this stable release belongs to: 6.18 for 6.18.40.
    #[must_use]
    pub const fn series(self) -> Self {
        Self(self.0, self.1, 0)
    }
}

impl fmt::Display for KernelVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.0, self.1)?;
        match self.2 {
            0 => Ok(()),
            stable => write!(f, ".{stable}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_have_versions_or_none() {
        for (text, version) in [
            ("7.2.13-arm64", Some(KernelVersion(7, 2, 13))),
            ("6.18", Some(KernelVersion(6, 18, 0))),
            ("6.18-rc3", Some(KernelVersion(6, 18, 0))),
            ("6.18.40+deb14-arm64", Some(KernelVersion(6, 18, 40))),
            ("next", None),
            ("7", None),
            ("99999999999.1", None),
            ("", None),
        ] {
            assert_eq!(KernelVersion::parse(text), version, "{text}");
        }
        assert!(KernelVersion(6, 9, 80) < KernelVersion::FIRST_WITH_ROCKET);
        assert!(KernelVersion(7, 0, 0) > KernelVersion::FIRST_WITH_ROCKET);
    }
}
