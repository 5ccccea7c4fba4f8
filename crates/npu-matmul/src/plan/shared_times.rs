// SPDX-License-Identifier: MIT OR Apache-2.0
//! When the CPU may take a job that waits for the NPU.

/// Predicted times by which NPU and CPU share jobs, in picoseconds. A CPU that is slower than
/// predicted takes `percent` of its times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SharedTimes {
    /// Of the CPU for a job.
    pub(crate) job_ps: u64,
    /// Of the CPU for reading the results of a step.
    pub(crate) read_ps: u64,
    /// Of the NPU for a step.
    pub(crate) step_ps: u64,
}

impl SharedTimes {
    /// The times by which the CPU takes the fewest jobs.
    pub(crate) fn slowest(self, other: Self) -> Self {
        Self {
            job_ps: self.job_ps.max(other.job_ps),
            read_ps: self.read_ps.max(other.read_ps),
            step_ps: self.step_ps.min(other.step_ps),
        }
    }

    /// Waves to have in flight before the CPU takes a job: the first may be about to end, and the
    /// others take the NPU as long as the job takes the CPU.
    pub(crate) fn waves_in_flight(self, percent: u64) -> usize {
        let job_ps = u128::from(self.job_ps) * u128::from(percent) / 100;
        let waves = job_ps.div_ceil(u128::from(self.step_ps.max(1))).max(1);
        usize::try_from(waves)
            .unwrap_or(usize::MAX)
            .saturating_add(1)
    }

    /// Whether the NPU takes as long for `waves` waves as the CPU for one job and for reading their
    /// results. If not, the NPU would wait for the CPU.
    pub(crate) fn leaves_time(self, waves: usize, percent: u64) -> bool {
        let waves = waves as u128;
        let read_ps = u128::from(self.read_ps).saturating_mul(waves);
        let cpu_ps = read_ps.saturating_add(self.job_ps.into());
        let npu_ps = u128::from(self.step_ps).saturating_mul(waves);
        cpu_ps.saturating_mul(percent.into()) <= npu_ps.saturating_mul(100)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cpu_takes_a_job_only_if_the_npu_is_busy_for_longer() {
        let times = SharedTimes {
            job_ps: 30,
            read_ps: 2,
            step_ps: 10,
        };
        assert_eq!(
            [100, 150, 400].map(|at| times.waves_in_flight(at)),
            [4, 6, 13]
        );
        // 3 x 10 < 30 + 3 x 2, and 4 x 10 > 30 + 4 x 2.
        let leaves = |percent| (0..20).position(|waves| times.leaves_time(waves, percent));
        assert_eq!([100, 150, 400].map(leaves), [Some(4), Some(7), None]);
        let fast = SharedTimes { job_ps: 1, ..times };
        assert_eq!(fast.waves_in_flight(100), 2);
        assert_eq!(fast.slowest(times), times);
        let huge = SharedTimes {
            job_ps: u64::MAX,
            step_ps: 1,
            ..times
        };
        assert!(huge.waves_in_flight(u64::MAX) == usize::MAX && !huge.leaves_time(9, u64::MAX));
    }
}
