// SPDX-License-Identifier: MIT OR Apache-2.0
//! Shows users who wait how far the packing of weights is.

use std::time::{Duration, Instant};

use crate::weights::budget::MIB;

/// Least time between two lines.
const SILENCE: Duration = Duration::from_secs(2);

#[derive(Debug, Default)]
pub(crate) struct Progress {
    said: Option<Instant>,
    tensors: usize,
    bytes: usize,
}

impl Progress {
    /// Counts a packed tensor of `bytes` bytes in the file. Returns a line for the log, if there
    /// was none for some time.
    pub(crate) fn step(&mut self, bytes: usize) -> Option<String> {
        let now = Instant::now();
        let said = *self.said.get_or_insert(now);
        self.tensors += 1;
        self.bytes += bytes;
        if now.duration_since(said) < SILENCE {
            return None;
        }
        self.said = Some(now);
        let (tensors, mib) = (self.tensors, self.bytes as u64 / MIB);
        Some(format!(
            "packed {tensors} tensors, {mib} MiB of the model, for the NPU"
        ))
    }
}
