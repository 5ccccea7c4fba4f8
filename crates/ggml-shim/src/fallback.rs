// SPDX-License-Identifier: MIT OR Apache-2.0
//! What this process does about failures of the NPU: whether ggml's CPU backend computes what the
//! NPU could not, and what the log has about it.
//!
//! A message about each failure would fill a log, and programs lose the end of their output then.
//! So one message tells of the first failure, and the statistics have the numbers.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::mul_mat_error::Consequence;

/// What is done about failures of the NPU.
#[derive(Debug)]
pub(crate) struct Fallback {
    /// `GGML_ROCKET_FALLBACK`.
    is_on: bool,
    /// Whether the log tells of a failure.
    told: AtomicBool,
}

impl Fallback {
    pub(crate) const fn new(is_on: bool) -> Self {
        Self {
            is_on,
            told: AtomicBool::new(false),
        }
    }

    /// Whether the CPU may compute what failed with this consequence.
    pub(crate) fn allows(&self, consequence: Consequence) -> bool {
        consequence != Consequence::Error && (self.is_on || !consequence.is_failure())
    }

    /// Returns true at the first call.
    pub(crate) fn is_first_failure(&self) -> bool {
        // Nothing else is published through it.
        !self.told.swap(true, Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_failures_of_the_npu_can_be_made_errors() {
        for (consequence, by_default, without) in [
            (Consequence::Error, false, false),
            (Consequence::Cpu, true, false),
            (Consequence::CpuAndDistrust, true, false),
            (Consequence::CpuQuietly, true, true),
            (Consequence::CpuOutOfRange, true, true),
        ] {
            let seen = [true, false].map(|is_on| Fallback::new(is_on).allows(consequence));
            assert_eq!(seen, [by_default, without], "{consequence:?}");
        }
    }
}
