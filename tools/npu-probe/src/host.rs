// SPDX-License-Identifier: MIT OR Apache-2.0
//! The description of this machine in reports.

use std::borrow::Cow;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::doctor::SystemRoot;

/// The machine: kernel, board and architecture.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub(crate) struct HostMachine {
    /// The running kernel's release.
    pub(crate) kernel: Option<String>,
    /// The board's name in the device tree; PCs have none.
    pub(crate) board: Option<String>,
    /// The processor architecture that this program was built for.
    pub(crate) architecture: Cow<'static, str>,
}

impl HostMachine {
    pub(crate) fn read() -> Self {
        let root = SystemRoot::new(Path::new("/"), false);
        Self {
            kernel: root.line("proc/sys/kernel/osrelease"),
            board: root.line("proc/device-tree/model"),
            architecture: std::env::consts::ARCH.into(),
        }
    }

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_left_out() {
        let host = HostMachine {
            board: Some("Some Board".to_owned()),
            ..HostMachine::default()
        };
        assert_eq!(host.text(), "kernel     unknown on , Some Board\n");
        let bare = HostMachine::default();
        assert_eq!(bare.text(), "kernel     unknown on \n");
        assert!(HostMachine::read().text().contains(std::env::consts::ARCH));
    }
}
