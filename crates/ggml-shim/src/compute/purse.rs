// SPDX-License-Identifier: MIT OR Apache-2.0
//! How much time the NPU may lose before it rests: a pure state, to which its user tells the time.
//!
//! ```text
//! works   --- the purse is empty, or a job may still run ---> rests
//! rests   --- the pause is over -----------------------------> tries (a small job of our own)
//! tries   --- it failed: the pause doubles ------------------> rests
//!         --- it succeeded ----------------------------------> works
//! ```
//!
//! A prompt must not be much slower with the NPU than without it. A core that never starts a job
//! costs 0.5 s for each of its jobs, so failures are weighed by the time that they cost and not by
//! their number. A board that loses one job in thousands keeps its NPU.

use std::time::{Duration, Instant};

use npu_matmul::Times;

/// Time that the NPU may lose at first, and at most.
const FULL: Duration = Duration::from_secs(2);
/// Part of the time in which jobs ran well that the purse gets back.
const REFILL: u32 = 10;
/// The first pause, and the longest.
const FIRST_PAUSE: Duration = Duration::from_secs(60);
const LONGEST_PAUSE: Duration = Duration::from_secs(3600);

/// Time of the NPU's jobs since its engine was started; modelled on the software model.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct TimeInJobs {
    /// In jobs that completed.
    pub(crate) good: Duration,
    /// In jobs that failed, also if they completed when they ran a second time.
    pub(crate) lost: Duration,
}

impl From<&Times> for TimeInJobs {
    fn from(times: &Times) -> Self {
        Self {
            good: times.jobs_ran,
            lost: times.jobs_failed,
        }
    }
}

/// Whether the NPU is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Works,
    Rests { until: Instant },
    Tries,
}

/// The time that the NPU may still lose.
#[derive(Debug)]
pub(crate) struct Purse {
    left: Duration,
    /// What was counted so far.
    seen: TimeInJobs,
    state: State,
    pause: Duration,
    /// How often the NPU began or ended to rest.
    changes: u64,
}

impl Default for Purse {
    fn default() -> Self {
        Self {
            left: FULL,
            seen: TimeInJobs::default(),
            state: State::Works,
            pause: FIRST_PAUSE,
            changes: 0,
        }
    }
}

impl Purse {
    /// Whether the CPU computes everything at present.
    pub(crate) fn is_resting(&self) -> bool {
        self.state != State::Works
    }

    /// A number that differs after the NPU began or ended to rest.
    pub(crate) fn changes(&self) -> u64 {
        self.changes
    }

    /// Counts the jobs up to `total`. Returns the length of the pause if the NPU rests from now on.
    pub(crate) fn count(&mut self, total: TimeInJobs, now: Instant) -> Option<Duration> {
        let has_lost = total.lost > self.seen.lost;
        if self.refilled(total) == FULL {
            self.pause = FIRST_PAUSE;
        }
        self.left = self.left_with(total);
        self.seen = total;
        if has_lost && self.left.is_zero() {
            return self.rest(now);
        }
        None
    }

    /// What it holds with the good time up to `total`.
    fn refilled(&self, total: TimeInJobs) -> Duration {
        let good = total.good.saturating_sub(self.seen.good);
        self.left.saturating_add(good / REFILL).min(FULL)
    }

    /// The same less what was lost.
    fn left_with(&self, total: TimeInJobs) -> Duration {
        let lost = total.lost.saturating_sub(self.seen.lost);
        self.refilled(total).saturating_sub(lost)
    }

    /// Whether nothing is left with the jobs up to `total`.
    pub(crate) fn is_empty_with(&self, total: TimeInJobs) -> bool {
        self.left_with(total).is_zero()
    }

    /// The NPU rests from now on. Returns the length of the pause, unless it rested before.
    pub(crate) fn rest(&mut self, now: Instant) -> Option<Duration> {
        if self.is_resting() {
            return None;
        }
        self.changes += 1;
        Some(self.begin_pause(now))
    }

    /// Begins a pause; the next one is twice as long.
    fn begin_pause(&mut self, now: Instant) -> Duration {
        let pause = self.pause;
        self.state = State::Rests { until: now + pause };
        self.pause = (pause * 2).min(LONGEST_PAUSE);
        pause
    }

    /// Whether a pause is over. Then the caller tries the NPU and reports to [`Self::tried`]; until
    /// it does, this returns false.
    pub(crate) fn begin_trial(&mut self, now: Instant) -> bool {
        let is_due = matches!(self.state, State::Rests { until } if until <= now);
        if is_due {
            self.state = State::Tries;
        }
        is_due
    }

    /// Ends a trial that could not begin.
    pub(crate) fn not_tried(&mut self, now: Instant) {
        self.begin_pause(now);
    }

    /// Ends a trial, whose jobs are part of `total` and are not counted: what the NPU lost in them
    /// no prompt waited for.
    pub(crate) fn tried(&mut self, is_well: bool, total: TimeInJobs, now: Instant) {
        self.seen = total;
        if is_well {
            self.state = State::Works;
            self.changes += 1;
        } else {
            self.begin_pause(now);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn total(good: u64, lost: u64) -> TimeInJobs {
        TimeInJobs {
            good: ms(good),
            lost: ms(lost),
        }
    }

    #[test]
    fn two_seconds_may_be_lost() {
        let (mut purse, now) = (Purse::default(), Instant::now());
        assert_eq!(purse.count(total(0, 500), now), None);
        assert_eq!(purse.count(total(0, 1999), now), None);
        assert_eq!(purse.count(total(0, 2000), now), Some(FIRST_PAUSE));
        assert!(purse.is_resting());
        // Lists that were begun before.
        assert_eq!(purse.count(total(0, 2500), now), None);
        assert_eq!(purse.rest(now), None);
        assert_eq!(purse.changes(), 1);
    }

    #[test]
    fn a_tenth_of_the_good_time_comes_back() {
        let (mut purse, now) = (Purse::default(), Instant::now());
        // A full purse does not grow.
        assert_eq!(purse.count(total(100_000, 1900), now), None);
        assert_eq!(purse.count(total(105_000, 2400), now), None);
        assert_eq!(purse.left, ms(100));
        assert_eq!(purse.count(total(105_990, 2599), now), Some(FIRST_PAUSE));
    }

    #[test]
    fn a_pause_doubles_to_an_hour_and_ends_with_a_trial() {
        let (mut purse, mut now) = (Purse::default(), Instant::now());
        assert!(!purse.begin_trial(now));
        assert_eq!(purse.rest(now), Some(FIRST_PAUSE));
        let mut pauses = Vec::new();
        for _ in 0..8 {
            let mut pause = 0;
            while !purse.begin_trial(now) {
                pause += 1;
                now += ms(1000);
            }
            pauses.push(pause);
            // One at a time.
            assert!(!purse.begin_trial(now) && purse.is_resting());
            purse.tried(false, total(0, 500), now);
        }
        assert_eq!(pauses, [60, 120, 240, 480, 960, 1920, 3600, 3600]);
        now += LONGEST_PAUSE;
        assert!(purse.begin_trial(now));
        purse.tried(true, total(1, 500), now);
        assert!(!purse.is_resting());
        assert_eq!(purse.changes(), 2);
        // It has not worked well for long enough.
        assert_eq!(purse.rest(now), Some(LONGEST_PAUSE));
    }

    #[test]
    fn after_a_pause_the_first_loss_of_an_empty_purse_is_enough_and_a_full_one_forgets() {
        let (mut purse, mut now) = (Purse::default(), Instant::now());
        assert_eq!(purse.count(total(0, 3000), now), Some(FIRST_PAUSE));
        now += FIRST_PAUSE;
        assert!(purse.begin_trial(now));
        purse.tried(true, total(0, 3000), now);
        assert_eq!(purse.count(total(1000, 3000), now), None);
        assert_eq!(purse.count(total(1000, 3500), now), Some(FIRST_PAUSE * 2));
        now += FIRST_PAUSE * 2;
        assert!(purse.begin_trial(now));
        purse.tried(true, total(1000, 3500), now);
        assert_eq!(purse.count(total(21_000, 3500), now), None);
        assert_eq!(purse.count(total(21_000, 5500), now), Some(FIRST_PAUSE));
    }

    proptest! {
        #![proptest_config(test_support::cases(64))]

        /// While the NPU works, it has lost less than 2 s and a tenth of its good time.
        #[test]
        fn losses_are_bounded(steps in proptest::collection::vec((0..5000_u64, 0..700_u64), 1..60)) {
            let (mut purse, now) = (Purse::default(), Instant::now());
            let (mut good, mut lost) = (0, 0);
            for (more, less) in steps {
                (good, lost) = (good + more, lost + less);
                let rests = purse.count(total(good, lost), now).is_some();
                prop_assert_eq!(rests, purse.is_resting());
                if rests {
                    return Ok(());
                }
                prop_assert!(ms(lost) < FULL + ms(good) / REFILL);
            }
        }
    }
}
