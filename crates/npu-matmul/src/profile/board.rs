// SPDX-License-Identifier: MIT OR Apache-2.0
//! The board that a profile describes.

use std::fmt;

use rocket_uapi::DeviceInfo;
use serde::{Deserialize, Serialize};

use super::kernel;

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
}

impl Board {
    /// Whether a measurement on one board holds for the other: the same board, with the same build
    /// of a kernel.
    pub(super) fn is_like(&self, other: &Self) -> bool {
        let Self {
            board,
            kernel,
            is_model,
        } = self;
        (board, *is_model) == (&other.board, other.is_model)
            && kernel::is_alike(kernel, &other.kernel)
    }
}

impl fmt::Display for Board {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let board = match &*self.board {
            "" => "a machine without a name",
            named => named,
        };
        write!(f, "{board}, Linux {}", self.kernel)?;
        f.write_str(if self.is_model {
            ", software model"
        } else {
            ""
        })
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
