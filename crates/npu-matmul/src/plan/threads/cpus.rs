// SPDX-License-Identifier: MIT OR Apache-2.0
//! The CPUs of this machine, and their speeds.

use std::fs;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

use rustix::thread::{CpuSet, sched_getaffinity};

use super::setting::ThreadsError;

/// Sysfs directory of CPUs.
const SYSFS: &str = "/sys/devices/system/cpu";

/// Files with a CPU's speed, preferred first: the capacity at the highest clock, out of 1024, on
/// Arm kernels (`drivers/base/arch_topology.c`), and the highest clock, kHz.
const SPEEDS: [&str; 2] = ["cpu_capacity", "cpufreq/cpuinfo_max_freq"];

/// CPUs that this process may use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Cpus {
    /// CPU numbers: fastest first, then by number.
    numbers: Vec<usize>,
    /// Whether all CPUs have the same known speed, or none is known.
    pub(super) uniform: bool,
}

impl Cpus {
    /// The CPUs in the calling thread's affinity mask, which a cpuset of its cgroup limits.
    pub(super) fn allowed() -> Result<Self, ThreadsError> {
        let mask = sched_getaffinity(None).map_err(|errno| ThreadsError::Affinity { errno })?;
        let allowed = (0..CpuSet::MAX_CPU).filter(|&cpu| mask.is_set(cpu));
        Ok(Self::of(Path::new(SYSFS), allowed))
    }

    /// Sorts these CPUs by the speeds in `sysfs`.
    fn of(sysfs: &Path, numbers: impl Iterator<Item = usize>) -> Self {
        let mut numbers: Vec<usize> = numbers.collect();
        // Use one kind of figure for all CPUs: different kinds cannot be compared.
        let speeds = SPEEDS.iter().find_map(|file| {
            let speed = |&cpu: &usize| number_in(&sysfs.join(format!("cpu{cpu}")).join(file));
            numbers.iter().map(speed).collect::<Option<Vec<u64>>>()
        });
        let Some(speeds) = speeds else {
            return Self {
                numbers,
                uniform: true,
            };
        };
        let mut ranked: Vec<_> = speeds.into_iter().zip(numbers).collect();
        ranked.sort_by_key(|&(speed, cpu)| (std::cmp::Reverse(speed), cpu));
        let uniform = ranked.first().map(|first| first.0) == ranked.last().map(|last| last.0);
        numbers = ranked.into_iter().map(|(_, cpu)| cpu).collect();
        Self { numbers, uniform }
    }

    /// The CPU for a thread: the first threads get the fastest CPUs. If there are more threads than
    /// CPUs, the order starts again.
    pub(super) fn for_thread(&self, index: usize) -> Option<usize> {
        self.numbers
            .get(index.checked_rem(self.numbers.len())?)
            .copied()
    }
}

fn number_in(file: &PathBuf) -> Option<u64> {
    fs::read_to_string(file).ok()?.trim().parse().ok()
}

/// Number of CPUs for this process, limited by its affinity mask and its cgroup.
pub(super) fn available() -> usize {
    std::thread::available_parallelism().map_or(1, NonZeroUsize::get)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A directory like sysfs, with one file for each CPU.
    fn sysfs(file: &str, values: &[(usize, &str)]) -> tempfile::TempDir {
        let directory = tempfile::tempdir().unwrap();
        for (cpu, value) in values {
            let path = directory.path().join(format!("cpu{cpu}")).join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, value).unwrap();
        }
        directory
    }

    fn order(cpus: &Cpus, threads: usize) -> Vec<usize> {
        let threads = 0..threads;
        threads.filter_map(|index| cpus.for_thread(index)).collect()
    }

    #[test]
    fn big_cores_come_first() {
        // As on an RK3588: four Cortex-A55, then four A76.
        let capacities = [0, 1, 2, 3, 4, 5, 6, 7].map(|cpu| match cpu {
            0..4 => (cpu, "530\n"),
            _ => (cpu, "1024\n"),
        });
        let directory = sysfs(SPEEDS[0], &capacities);
        let cpus = Cpus::of(directory.path(), 0..8);
        assert!(!cpus.uniform);
        assert_eq!(order(&cpus, 10), [4, 5, 6, 7, 0, 1, 2, 3, 4, 5]);
        // Only what the mask allows.
        let some = Cpus::of(directory.path(), [1, 2, 6].into_iter());
        assert_eq!(order(&some, 3), [6, 1, 2]);
        assert!(Cpus::of(directory.path(), 5..7).uniform);
    }

    #[test]
    fn without_capacities_the_clock_tells() {
        let clocks = [(0, "1800000"), (1, "2400000"), (2, "2256000")];
        let directory = sysfs(SPEEDS[1], &clocks);
        let cpus = Cpus::of(directory.path(), 0..3);
        assert_eq!(order(&cpus, 3), [1, 2, 0]);
        assert!(!cpus.uniform);
    }

    #[test]
    fn speeds_are_unknown_unless_all_cpus_have_one() {
        for values in [&[][..], &[(0, "1024")], &[(0, "1024"), (1, "fast")]] {
            let directory = sysfs(SPEEDS[0], values);
            let cpus = Cpus::of(directory.path(), 0..2);
            assert!(cpus.uniform, "{values:?}");
            assert_eq!(order(&cpus, 3), [0, 1, 0]);
        }
        let none = Cpus::of(Path::new("/nonexistent"), 0..0);
        assert_eq!(none.for_thread(0), None);
    }

    #[test]
    fn this_thread_may_use_some() {
        assert!(Cpus::allowed().unwrap().for_thread(0).is_some());
    }
}
