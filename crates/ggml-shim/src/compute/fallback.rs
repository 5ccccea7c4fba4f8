// SPDX-License-Identifier: MIT OR Apache-2.0
//! What this process does about failures of the NPU: whether ggml's CPU backend computes what the
//! NPU could not, whether the NPU rests, and what the log has about it.
//!
//! A message about each failure would fill a log, and programs lose the end of their output then.
//! So each kind of failure has one message, and the statistics have the numbers.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::compute::purse::{Purse, TimeInJobs};
use crate::ggml::shared::lock;
use crate::weights::node_error::Consequence;

/// Longest wait for a trial when the process ends, and how often it looks. A forked process has no
/// thread that would end it.
const TRIAL_LIMIT: Duration = Duration::from_secs(2);
const TRIAL_STEP: Duration = Duration::from_millis(10);

/// What is done about failures of the NPU.
#[derive(Debug)]
pub(crate) struct Fallback {
    /// `GGML_ROCKET_FALLBACK`.
    is_on: bool,
    purse: Mutex<Purse>,
    /// What the log has.
    pub(crate) told: Told,
    /// The thread of the last trial of an NPU that rests.
    trial: Mutex<Option<JoinHandle<()>>>,
}

/// Messages that the log has once.
#[derive(Debug, Default)]
pub(crate) struct Told {
    pub(crate) failure: Once,
    pub(crate) second_run: Once,
    pub(crate) rest: Once,
}

#[derive(Debug, Default)]
pub(crate) struct Once(AtomicBool);

impl Once {
    /// Returns true at the first call.
    pub(crate) fn is_first(&self) -> bool {
        // Nothing else is published through it.
        !self.0.swap(true, Ordering::Relaxed)
    }
}

impl Fallback {
    pub(crate) fn new(is_on: bool) -> Self {
        Self {
            is_on,
            purse: Mutex::default(),
            told: Told::default(),
            trial: Mutex::default(),
        }
    }

    /// Whether the CPU may compute what failed with this consequence.
    pub(crate) fn allows(&self, consequence: Consequence) -> bool {
        consequence != Consequence::Error && (self.is_on || !consequence.is_failure())
    }

    fn purse(&self) -> MutexGuard<'_, Purse> {
        lock(&self.purse)
    }

    /// Whether the CPU computes everything at present.
    pub(crate) fn is_resting(&self) -> bool {
        self.purse().is_resting()
    }

    /// A number that differs after the NPU began or ended to rest.
    pub(crate) fn changes(&self) -> u64 {
        self.purse().changes()
    }

    /// Whether the NPU will rest because of the jobs up to `total`.
    pub(crate) fn has_lost_too_much(&self, total: TimeInJobs) -> bool {
        self.is_on && self.purse().is_empty_with(total)
    }

    /// Counts the jobs up to `total`, and a failure with a consequence. Returns the length of
    /// the pause if the NPU rests from now on.
    pub(crate) fn count(
        &self,
        total: TimeInJobs,
        consequence: Option<Consequence>,
    ) -> Option<Duration> {
        if !self.is_on {
            return None;
        }
        let now = Instant::now();
        let mut purse = self.purse();
        let pause = purse.count(total, now);
        match consequence {
            Some(Consequence::CpuAndRest) => pause.or_else(|| purse.rest(now)),
            _ => pause,
        }
    }

    /// Runs `trial` in a thread, if a pause is over: no prompt waits for it. It returns whether the
    /// NPU is well, and the time of all jobs so far.
    pub(crate) fn try_if_due(
        &'static self,
        trial: impl FnOnce() -> (bool, TimeInJobs) + Send + 'static,
    ) {
        if !self.purse().begin_trial(Instant::now()) {
            return;
        }
        let run = || {
            let (is_well, total) = trial();
            self.purse().tried(is_well, total, Instant::now());
        };
        let thread = thread::Builder::new().name("rocket-trial".to_owned());
        match thread.spawn(run) {
            Ok(trial) => *lock(&self.trial) = Some(trial),
            Err(_) => self.purse().not_tried(Instant::now()),
        }
    }

    /// Waits for a trial that runs.
    pub(crate) fn finish(&self) {
        let Some(trial) = lock(&self.trial).take() else {
            return;
        };
        let end = Instant::now() + TRIAL_LIMIT;
        while !trial.is_finished() && Instant::now() < end {
            thread::sleep(TRIAL_STEP);
        }
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
            (Consequence::CpuAndRest, true, false),
            (Consequence::CpuQuietly, true, true),
            (Consequence::CpuOutOfRange, true, true),
        ] {
            let seen = [true, false].map(|is_on| Fallback::new(is_on).allows(consequence));
            assert_eq!(seen, [by_default, without], "{consequence:?}");
        }
    }

    #[test]
    fn an_npu_rests_at_once_if_a_job_may_still_run_and_never_without_the_fallback() {
        let total = TimeInJobs::default();
        for (is_on, consequence, rests) in [
            (true, Consequence::Cpu, false),
            (true, Consequence::CpuAndRest, true),
            (false, Consequence::CpuAndRest, false),
        ] {
            let fallback = Fallback::new(is_on);
            let pause = fallback.count(total, Some(consequence));
            assert_eq!((pause.is_some(), fallback.is_resting()), (rests, rests));
        }
        let lost = Duration::from_secs(5);
        let total = TimeInJobs { lost, ..total };
        assert!(Fallback::new(true).has_lost_too_much(total));
        assert!(!Fallback::new(false).has_lost_too_much(total));
        assert!(Fallback::new(false).count(total, None).is_none());
    }
}
