// SPDX-License-Identifier: MIT OR Apache-2.0
//! How much slower than predicted the CPU computes jobs: with few threads, or beside other programs.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The mean of the latest jobs' times as a percentage of the predicted ones; at least 100.
#[derive(Debug)]
pub(crate) struct CpuPace(AtomicU64);

/// A job counts at most so much: its thread may have slept, or computed for another call.
const PERCENT_MAX: u64 = 400;

/// Percentages are rounded to multiples of this, so that noise does not change which buffers jobs
/// get, and with them their programs.
const PERCENT_STEP: u64 = 50;

impl Default for CpuPace {
    fn default() -> Self {
        Self(AtomicU64::new(100))
    }
}

impl CpuPace {
    /// Counts a job that took `time`, with its predicted picoseconds.
    pub(crate) fn note(&self, time: Duration, predicted_ps: u64) {
        let percent = time.as_nanos().saturating_mul(100_000) / u128::from(predicted_ps.max(1));
        self.count(u64::try_from(percent).unwrap_or(u64::MAX));
    }

    /// Counts a call of whose shared jobs the CPU took none. So after some calls it tries again.
    pub(crate) fn note_none(&self) {
        self.count(100);
    }

    fn count(&self, percent: u64) {
        // Of threads that count at the same time one may be lost.
        let mean = self.0.load(Ordering::Relaxed);
        let mean = (3 * mean + percent.clamp(100, PERCENT_MAX)) / 4;
        self.0.store(mean, Ordering::Relaxed);
    }

    /// The mean, rounded.
    pub(crate) fn percent(&self) -> u64 {
        let mean = self.0.load(Ordering::Relaxed);
        (mean + PERCENT_STEP / 2) / PERCENT_STEP * PERCENT_STEP
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slow_cpu_is_found_and_tried_again() {
        let pace = CpuPace::default();
        let millisecond = 1_000_000_000;
        pace.note(Duration::from_millis(1), millisecond);
        pace.note(Duration::ZERO, millisecond);
        assert_eq!(pace.percent(), 100);
        for _ in 0..20 {
            pace.note(Duration::from_millis(3), millisecond);
        }
        assert_eq!(pace.percent(), 300);
        pace.note(Duration::MAX, 0);
        assert!(pace.percent() <= 350);
        for _ in 0..20 {
            pace.note_none();
        }
        assert_eq!(pace.percent(), 100);
    }
}
