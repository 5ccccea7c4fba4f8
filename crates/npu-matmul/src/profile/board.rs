// SPDX-License-Identifier: MIT OR Apache-2.0
//! The board that a profile describes.

use std::fmt;

use rocket_uapi::{DeviceInfo, KernelVersion};
use serde::{Deserialize, Serialize};

/// The board that a profile describes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Board {
    /// Name in the device tree.
    pub board: String,
    /// Release of its kernel.
    pub kernel: String,
    /// Whether it is the software model, whose times are modelled.
    pub is_model: bool,
}

impl Board {
    /// Returns this machine's board, with this device.
    #[must_use]
    pub fn of(info: &DeviceInfo) -> Self {
        let text = |path| {
            let text = std::fs::read_to_string(path).unwrap_or_default();
            text.trim_matches(|c: char| c.is_whitespace() || c == '\0')
                .to_owned()
        };
        Self {
            board: text("/proc/device-tree/model"),
            kernel: text("/proc/sys/kernel/osrelease"),
            is_model: info.is_model,
        }
    }

    /// Whether a measurement on one board holds for the other: the same board, with the same build
    /// of a kernel.
    pub(super) fn is_like(&self, other: &Self) -> bool {
        let is_same = self.board == other.board && self.is_model == other.is_model;
        is_same && is_alike(&self.kernel, &other.kernel)
    }
}

impl fmt::Display for Board {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let board = match &*self.board {
            "" => "a machine without a name",
            named => named,
        };
        let model = if self.is_model {
            ", software model"
        } else {
            ""
        };
        write!(f, "{board}, Linux {}{model}", self.kernel)
    }
}

/// The verdict of this board on a contested fact: one on which sources disagree.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ContestedFact {
    /// Id of the fact, as in the software model's switches.
    pub id: String,
    /// Id of the alternative that holds on this board.
    pub verdict: String,
    /// The question that the fact answers, in a sentence.
    pub sentence: String,
}

/// Whether a calibration under one kernel release holds under another: any version of the same
/// build, if it has the driver. No release from 6.18 to 7.3.4 changed what calibration measures
/// (docs/driver.md). Clocks come from the device tree and patches, which a kernel's builder keeps.
fn is_alike(one: &str, other: &str) -> bool {
    let builds = [one, other].map(build);
    one == other || builds[0].is_some() && builds[0] == builds[1]
}

/// The builder of a release, from the text behind the version: `arm64` for `7.2.13-1-arm64`. `None`
/// for releases without a version, or older than the driver.
fn build(release: &str) -> Option<String> {
    let version = KernelVersion::parse(release)?;
    let rest = release.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.');
    // Build and release candidate numbers change with versions.
    let counts = |word: &&str| {
        let number = word.strip_prefix("rc").unwrap_or(word);
        !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())
    };
    let words = rest.split(['-', '+']).filter(|word| !counts(word));
    let words: Vec<&str> = words.filter(|word| !word.is_empty()).collect();
    (version >= KernelVersion::FIRST_WITH_ROCKET).then(|| words.join("-"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_update_is_alike_and_another_build_is_not() {
        for (one, other, alike) in [
            ("7.2.13-arm64", "7.2.13-arm64", true),
            ("6.18.2-arm64", "7.3.4-arm64", true),
            ("6.18.2-1-arm64", "6.18.40-12-arm64", true),
            ("6.18.0-rc3", "6.18.0", true),
            ("6.18.9+deb14-arm64", "6.18.12+deb14-arm64", true),
            ("7.1.0-edge-rockchip64", "7.1.0-current-rockchip64", false),
            ("7.1.0-600mhz", "7.1.0", false),
            ("6.1.75-vendor", "6.1.76-vendor", false),
            ("6.1.75-vendor", "6.1.75-vendor", true),
            ("next", "7.1.0", false),
            ("", "", true),
        ] {
            assert_eq!(is_alike(one, other), alike, "{one}, {other}");
        }
    }
}
