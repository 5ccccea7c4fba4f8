// SPDX-License-Identifier: MIT OR Apache-2.0
//! Measured times of an engine's work.
//!
//! Each thread measures its own CPU work with a wall clock, in whole parts, not element by element.
//! The result is CPU time as long as no other program uses the CPU.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use crate::numbers::sync::lock;

/// Measured times over the life of an engine, over all devices and threads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Times {
    /// Quantising and packing weights, summed over threads.
    pub pack_weights: Duration,
    /// Quantising and packing activations, summed over threads.
    pub pack: Duration,
    /// Reading, adding and scaling outputs, and the softmax of attention, summed over threads.
    pub unpack: Duration,
    /// Computing jobs in place of the NPU, summed over threads.
    pub compute: Duration,
    /// Checking the first task of each kind on the CPU
    /// ([`PlanOptions::check_first`](crate::PlanOptions::check_first)), summed over callers.
    pub check: Duration,
    /// Callers waiting for a job and doing nothing else, summed over callers.
    pub wait: Duration,
    /// At least one job submitted and not yet known to have ended.
    pub in_flight: Duration,
    /// Completed jobs had a core, summed over jobs; as `jobs_failed`.
    pub jobs_ran: Duration,
    /// Jobs that failed had a core, each run of them counted. On the software model this is
    /// modelled time, whatever the host's speed: 500 ms for a killed job by default. On an NPU it
    /// is an upper bound: a job's time ends when the engine sees its end.
    pub jobs_failed: Duration,
}

/// A part of the CPU's work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Section {
    /// See [`Times::pack_weights`].
    PackWeights,
    /// See [`Times::pack`].
    Pack,
    /// See [`Times::unpack`].
    Unpack,
    /// See [`Times::compute`].
    Compute,
    /// See [`Times::check`].
    Check,
    /// See [`Times::wait`].
    Wait,
}

/// Measures the time from its creation to its drop.
#[derive(Debug)]
#[must_use = "time is measured until it is dropped"]
pub struct Stopwatch<'a> {
    clock: &'a SectionTimes,
    section: Section,
    started: Instant,
}

impl Drop for Stopwatch<'_> {
    fn drop(&mut self) {
        let times = &mut lock(&self.clock.0).times;
        let time = match self.section {
            Section::PackWeights => &mut times.pack_weights,
            Section::Pack => &mut times.pack,
            Section::Unpack => &mut times.unpack,
            Section::Compute => &mut times.compute,
            Section::Check => &mut times.check,
            Section::Wait => &mut times.wait,
        };
        *time += self.started.elapsed();
    }
}

/// Times that many threads add to.
#[derive(Debug, Default)]
pub(crate) struct SectionTimes(Mutex<TimesState>);

#[derive(Debug, Default)]
struct TimesState {
    times: Times,
    /// Jobs not yet known to have ended.
    in_flight: usize,
    /// When the first of them was submitted.
    since: Option<Instant>,
}

impl SectionTimes {
    pub(crate) fn stopwatch(&self, section: Section) -> Stopwatch<'_> {
        Stopwatch {
            clock: self,
            section,
            started: Instant::now(),
        }
    }

    /// Counts jobs as submitted.
    pub(crate) fn submitted(&self, jobs: usize) {
        let mut state = lock(&self.0);
        state.in_flight += jobs;
        if state.in_flight > 0 {
            state.since.get_or_insert_with(Instant::now);
        }
    }

    /// Counts a job as ended: its end was seen, or is no longer waited for.
    pub(crate) fn ended(&self) {
        let mut state = lock(&self.0);
        state.in_flight = state.in_flight.saturating_sub(1);
        if state.in_flight == 0
            && let Some(since) = state.since.take()
        {
            state.times.in_flight += since.elapsed();
        }
    }

    /// Adds a completed job that had its core for `time`.
    pub(crate) fn job_ran(&self, time: Duration) {
        lock(&self.0).times.jobs_ran += time;
    }

    /// Adds a run of a job that failed and had its core for `time`.
    pub(crate) fn job_failed(&self, time: Duration) {
        lock(&self.0).times.jobs_failed += time;
    }

    pub(crate) fn snapshot(&self) -> Times {
        let state = lock(&self.0);
        let running = state.since.map(|since| since.elapsed());
        Times {
            in_flight: state.times.in_flight + running.unwrap_or_default(),
            ..state.times
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stopwatch_adds_to_its_own_section() {
        let clock = SectionTimes::default();
        let tick = |section| {
            let watch = clock.stopwatch(section);
            while watch.started.elapsed().is_zero() {}
        };
        tick(Section::Pack);
        let first = clock.snapshot();
        assert!(!first.pack.is_zero());
        assert_eq!(
            first,
            Times {
                pack: first.pack,
                ..Times::default()
            }
        );
        tick(Section::Pack);
        tick(Section::Unpack);
        let second = clock.snapshot();
        assert!(second.pack > first.pack && !second.unpack.is_zero());
        assert!(second.pack_weights.is_zero());
    }

    #[test]
    fn jobs_are_in_flight_from_the_first_submit_to_the_last_end() {
        let clock = SectionTimes::default();
        let tick = || {
            let now = Instant::now();
            while now.elapsed().is_zero() {}
        };
        clock.submitted(0);
        tick();
        assert!(clock.snapshot().in_flight.is_zero());
        clock.submitted(2);
        clock.ended();
        tick();
        let first = clock.snapshot().in_flight;
        assert!(!first.is_zero());
        tick();
        clock.ended();
        let second = clock.snapshot().in_flight;
        assert!(second > first);
        tick();
        assert_eq!(clock.snapshot().in_flight, second);
        // An extra end is ignored.
        clock.ended();
        clock.submitted(1);
        tick();
        assert!(clock.snapshot().in_flight > second);
    }
}
