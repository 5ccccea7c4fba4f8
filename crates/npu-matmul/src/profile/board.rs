// SPDX-License-Identifier: MIT OR Apache-2.0
//! The board that a profile describes.

use std::fmt;
use std::path::Path;

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
    /// The NPU clock that its device tree assigns, Hz (E-clock-rates). `None` if the tree cannot be
    /// read, as in containers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub assigned_hz: Option<u64>,
}

impl Board {
    /// File below `/` with the rates that the device tree assigns to the clocks of core 0, whose
    /// first is that of all cores (Linux, rk3588-base.dtsi).
    pub const ASSIGNED_RATES: &str =
        "sys/firmware/devicetree/base/npu@fdab0000/assigned-clock-rates";

    /// The first rate of that file's content, Hz.
    #[must_use]
    pub fn first_rate(rates: &[u8]) -> Option<u64> {
        Some(u32::from_be_bytes(*rates.first_chunk()?).into())
    }

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
            assigned_hz: std::fs::read(Path::new("/").join(Self::ASSIGNED_RATES))
                .ok()
                .and_then(|rates| Self::first_rate(&rates)),
        }
    }

    /// Whether a measurement on one board holds for the other: the same board, with the same build
    /// of a kernel and no other clock.
    pub(super) fn is_like(&self, other: &Self) -> bool {
        let is_same = self.board == other.board && self.is_model == other.is_model;
        let is_clock_known = self.assigned_hz.is_some() && other.assigned_hz.is_some();
        let is_clock_other = is_clock_known && self.assigned_hz != other.assigned_hz;
        is_same && !is_clock_other && is_alike(&self.kernel, &other.kernel)
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
        write!(f, "{board}, Linux {}{model}", self.kernel)?;
        match self.assigned_hz {
            Some(hz) => write!(f, ", NPU clock {} MHz assigned", hz / 1_000_000),
            None => Ok(()),
        }
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
/// (docs/driver.md). Clocks come from the device tree, and from patches, which a kernel's builder
/// keeps.
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
    fn a_profile_of_another_clock_is_for_another_board() {
        let board = |assigned_hz| Board {
            board: "Some Board".to_owned(),
            kernel: "7.1.0".to_owned(),
            is_model: false,
            assigned_hz,
        };
        let [slow, fast, unknown] = [Some(200_000_000), Some(600_000_000), None].map(board);
        assert!(!slow.is_like(&fast) && slow.is_like(&slow.clone()));
        assert!(slow.is_like(&unknown) && unknown.is_like(&fast));
        let named = fast.to_string();
        assert!(named.ends_with("NPU clock 600 MHz assigned"), "{named}");
    }

    #[test]
    fn an_update_is_alike_and_another_build_is_not() {
        for (one, other, expected) in [
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
            assert_eq!(is_alike(one, other), expected, "{one}, {other}");
        }
    }
}
