// SPDX-License-Identifier: MIT OR Apache-2.0
//! What this machine says of itself: whoever reads a report from elsewhere
//! asks for it first.

use std::fs;

use serde::Serialize;

/// The machine, as far as it tells.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct HostMachine {
    /// The running kernel's release.
    pub(crate) kernel: Option<String>,
    /// The board's name in the device tree; PCs have none.
    pub(crate) board: Option<String>,
    /// The processor architecture that this program was built for.
    pub(crate) architecture: &'static str,
}

impl HostMachine {
    pub(crate) fn look() -> Self {
        Self {
            kernel: first_text("/proc/sys/kernel/osrelease"),
            board: first_text("/proc/device-tree/model"),
            architecture: std::env::consts::ARCH,
        }
    }

    /// The report as a line of text.
    pub(crate) fn text(&self) -> String {
        let kernel = self.kernel.as_deref().unwrap_or("unknown");
        let mut text = format!("kernel     {kernel} on {}", self.architecture);
        if let Some(board) = &self.board {
            text.push_str(", ");
            text.push_str(board);
        }
        text + "\n"
    }
}

/// The text in a small file, without what ends it: a newline in procfs, a zero
/// byte in the device tree.
fn first_text(path: &str) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    let text = text.trim_matches(|c: char| c.is_whitespace() || c == '\0');
    (!text.is_empty()).then(|| text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_left_out() {
        assert_eq!(first_text("/nonexistent"), None);
        let host = HostMachine {
            board: Some("Some Board".to_owned()),
            ..HostMachine::default()
        };
        assert_eq!(host.text(), "kernel     unknown on , Some Board\n");
        assert!(HostMachine::look().text().contains(std::env::consts::ARCH));
    }
}
