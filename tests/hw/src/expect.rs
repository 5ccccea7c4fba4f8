// SPDX-License-Identifier: MIT OR Apache-2.0
//! What differs, or may one day differ, between kernels: data.

/// What a kernel is expected to answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Expected {
    /// The first kernel that answers so.
    pub since: &'static str,
    /// Name, description and date in VERSION.
    pub texts: [&'static str; 3],
    /// Version in VERSION: major, minor, patch level.
    pub version: (i32, i32, i32),
    /// DRM_CAP_PRIME: 1 import, 2 export.
    pub cap_prime: u64,
    /// DRM_CAP_SYNCOBJ and DRM_CAP_SYNCOBJ_TIMELINE.
    pub cap_syncobj: u64,
}

/// By kernel, oldest first. Linux 6.18 brought the driver; 7.2 was observed
/// call by call and 7.3 has the same code in these places.
pub const EXPECTED: &[Expected] = &[Expected {
    since: "Linux 6.18",
    texts: ["rocket", "rocket DRM", "0"],
    version: (0, 0, 0),
    cap_prime: 3,
    cap_syncobj: 0,
}];

/// The kernel that the software model follows.
pub const MODEL_KERNEL: &str = "7.2.12";

impl Expected {
    /// What a kernel with this release string should answer: as the newest
    /// known one that is not newer.
    #[must_use]
    pub fn of(release: &str) -> &'static Self {
        let release = version(release);
        EXPECTED
            .iter()
            .rev()
            .find(|expected| version(expected.since) <= release)
            .unwrap_or(&EXPECTED[0])
    }
}

/// The running kernel's release string.
#[must_use]
pub fn running_kernel() -> String {
    rustix::system::uname()
        .release()
        .to_string_lossy()
        .into_owned()
}

/// Major and minor version in text such as `7.2.12-arm64` or `Linux 6.18`.
fn version(text: &str) -> (u32, u32) {
    let mut numbers = text
        .split(|c: char| !c.is_ascii_digit())
        .filter_map(|digits| digits.parse().ok());
    (
        numbers.next().unwrap_or_default(),
        numbers.next().unwrap_or_default(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_are_ordered_as_numbers() {
        assert_eq!(version("Linux 6.18"), (6, 18));
        assert_eq!(version("7.2.12-arm64"), (7, 2));
        assert!(version("6.9") < version("6.18"));
        assert_eq!(version("odd"), (0, 0));
    }

    #[test]
    fn every_release_has_expectations() {
        for release in ["6.1.75-rknpu", "6.18.0", "7.2.12", "99.0", ""] {
            assert_eq!(Expected::of(release).texts[0], "rocket");
        }
    }
}
