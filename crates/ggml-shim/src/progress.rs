// SPDX-License-Identifier: MIT OR Apache-2.0
//! Shows users who wait how far the packing of weights is.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::budget::MIB;

/// Least time between two lines.
const SILENCE: Duration = Duration::from_secs(2);

/// Progress of packing weights, for users who wait.
#[derive(Debug, Default)]
pub(crate) struct Progress(Mutex<Option<Packing>>);

#[derive(Debug)]
struct Packing {
    said: Instant,
    tensors: usize,
    bytes: usize,
}

impl Progress {
    /// Counts a packed tensor of `bytes` bytes in the file. Returns a line for the log, if there
    /// was none for some time.
    pub(crate) fn step(&self, bytes: usize) -> Option<String> {
        let mut packing = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        let packing = packing.get_or_insert(Packing {
            said: now,
            tensors: 0,
            bytes: 0,
        });
        packing.tensors += 1;
        packing.bytes += bytes;
        if now.duration_since(packing.said) < SILENCE {
            return None;
        }
        packing.said = now;
        let (tensors, mib) = (packing.tensors, packing.bytes as u64 / MIB);
        Some(format!(
            "packed {tensors} tensors, {mib} MiB of the model, for the NPU"
        ))
    }
}
