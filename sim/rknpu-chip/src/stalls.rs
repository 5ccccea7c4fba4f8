// SPDX-License-Identifier: MIT OR Apache-2.0
//! A fault of boards: some jobs never start.
//!
//! On an RK3588 with the vendor's driver a submitted job sometimes never starts, and the same job
//! is always right when it is submitted again. What decides that is not known, so here it is each
//! Nth job. The chip does not know jobs; the driver's model and the virtual machine ask.

use std::collections::BTreeSet;
use std::num::NonZeroU64;
use std::sync::{Mutex, PoisonError};

/// Selects the jobs that never start: each Nth. The same job again starts, and does not count; but
/// if N is 1, no job ever starts.
#[derive(Debug)]
pub struct Stalls {
    every: NonZeroU64,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Jobs so far, without those that were submitted again.
    jobs: u64,
    /// Jobs that did not start and were not submitted again.
    stalled: BTreeSet<JobPlace>,
}

/// Identifies a job: its address space, and the address of its first program there.
type JobPlace = (u64, u32);

impl Stalls {
    /// Each `every`th job does not start.
    #[must_use]
    pub fn new(every: NonZeroU64) -> Self {
        Self {
            every,
            state: Mutex::default(),
        }
    }

    /// Whether this job, which a core is about to start, never starts. `space` identifies its
    /// address space, `program` is the address of its first program.
    pub fn strikes(&self, space: u64, program: u32) -> bool {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let place = (space, program);
        let is_single = self.every == NonZeroU64::MIN;
        if !is_single && state.stalled.remove(&place) {
            return false;
        }
        state.jobs += 1;
        let strikes = state.jobs.is_multiple_of(self.every.get());
        if strikes && !is_single {
            state.stalled.insert(place);
        }
        strikes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_nth_job_stalls_and_starts_when_it_comes_again() {
        let stalls = Stalls::new(NonZeroU64::new(3).unwrap());
        let struck: Vec<bool> = [1, 2, 3, 3, 1, 2, 1, 1, 3]
            .into_iter()
            .map(|program| stalls.strikes(7, program))
            .collect();
        // The fourth and the eighth are the same jobs again.
        let expected = [false, false, true, false, false, false, true, false, false];
        assert_eq!(struck, expected);
        // An equal address in another address space is another job.
        assert!(!stalls.strikes(7, 5) && stalls.strikes(8, 5) && !stalls.strikes(8, 5));
    }

    #[test]
    fn with_one_no_job_ever_starts() {
        let stalls = Stalls::new(NonZeroU64::MIN);
        assert!((0..4).all(|job| stalls.strikes(0, job / 2)));
    }
}
