// SPDX-License-Identifier: MIT OR Apache-2.0
//! How much slower than predicted the CPU computes jobs: with few threads, or beside other programs.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The mean of the latest jobs' times as a percentage of the predicted ones; at least 100.
#[derive(Debug)]
pub(crate) struct CpuPace(AtomicU64);

/// A single job counts at most so much: it may have waited for another program.
const PERCENT_MAX: u64 = 10_000;

impl Default for CpuPace {
    fn default() -> Self {
        Self(AtomicU64::new(100))
    }
}

impl CpuPace {
    /// Counts a job that took `time`, with its predicted picoseconds.
    pub(crate) fn note(&self, time: Duration, predicted_ps: u64) {
        let percent = time.as_nanos().saturating_mul(100_000) / u128::from(predicted_ps.max(1));
        let percent = u64::try_from(percent).unwrap_or(u64::MAX);
        // Threads that count at the same time may lose one of their jobs.
        let mean = self.0.load(Ordering::Relaxed);
        let mean = (3 * mean + percent.min(PERCENT_MAX)) / 4;
        self.0.store(mean.max(100), Ordering::Relaxed);
    }

    /// Waves to have in flight, if they are `waves` for a CPU as fast as predicted. One of them may
    /// be about to end.
    pub(crate) fn waves_in_flight(&self, waves: usize) -> usize {
        let percent = usize::try_from(self.0.load(Ordering::Relaxed)).unwrap_or(usize::MAX);
        let Some(whole) = waves.checked_sub(1) else {
            return 0;
        };
        whole
            .saturating_mul(percent)
            .div_ceil(100)
            .saturating_add(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slow_cpu_leaves_more_to_the_npu() {
        let pace = CpuPace::default();
        let waves = |pace: &CpuPace| [0, 1, 2, 4].map(|waves| pace.waves_in_flight(waves));
        assert_eq!(waves(&pace), [0, 1, 2, 4]);
        // As fast as predicted, and faster.
        pace.note(Duration::from_millis(1), 1_000_000_000);
        pace.note(Duration::ZERO, 1_000_000_000);
        assert_eq!(waves(&pace), [0, 1, 2, 4]);
        for _ in 0..20 {
            pace.note(Duration::from_millis(3), 1_000_000_000);
        }
        assert_eq!(waves(&pace), [0, 1, 4, 10]);
        pace.note(Duration::MAX, 0);
        assert!(pace.waves_in_flight(2) < 30);
        for _ in 0..40 {
            pace.note(Duration::from_millis(1), 1_000_000_000);
        }
        assert_eq!(waves(&pace), [0, 1, 2, 4]);
    }
}
