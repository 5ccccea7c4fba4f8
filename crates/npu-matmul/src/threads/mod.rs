// SPDX-License-Identifier: MIT OR Apache-2.0
//! The threads that do the CPU's share: how many, and on which CPUs.

mod cpus;
mod start;

use std::fmt;
use std::io;
use std::num::NonZeroUsize;
use std::str::FromStr;

use cpus::Cpus;
use rayon::ThreadPool;
use rocket_uapi::NO_THREAD_REMEDY;
use rustix::io::Errno;
use rustix::thread::{CpuSet, sched_setaffinity};
pub use start::run_parallel;

/// The environment variable that programs take [`Threads`] from.
pub const THREADS_VARIABLE: &str = "NPU_THREADS";

/// Most threads of a pool: Linux names no more CPUs in a `cpu_set_t`.
const MOST_THREADS: usize = CpuSet::MAX_CPU;

/// How many threads, and whether each stays on one CPU.
///
/// As text: a number or `auto`, and behind it `,pin` or `,free` where it is not
/// left to the machine: `4`, `auto`, `4,pin`, `auto,free`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Threads {
    /// How many; `None` for as many as there are CPUs for this process, by its
    /// affinity mask and its cgroup's limits.
    pub count: Option<NonZeroUsize>,
    /// Whether each stays on one CPU, the fastest CPUs first.
    pub pinning: Pinning,
}

/// Whether each thread stays on one CPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Pinning {
    /// If the CPUs differ in speed, as those of an RK3588 do: few threads shall
    /// be on the fast ones.
    #[default]
    IfCpusDiffer,
    /// Each thread stays on its CPU.
    Pin,
    /// The kernel chooses.
    Free,
}

/// Why there are no such threads.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ThreadsError {
    /// The text is no setting.
    #[error("{text:?} is no number of threads: write 4, auto, 4,pin or auto,free, 1024 at most")]
    Unreadable {
        /// The text of the variable.
        text: String,
    },
    /// The kernel does not tell which CPUs may be used.
    #[error("cannot learn which CPUs this process may use: {errno}")]
    Affinity {
        /// The kernel's error.
        errno: Errno,
    },
    /// A thread cannot stay on a CPU.
    #[error("a thread cannot be kept on CPU {cpu}: {errno}; leave it out with \",free\"")]
    Pin {
        /// Number of the CPU.
        cpu: usize,
        /// What the kernel said.
        errno: Errno,
    },
    /// Not one thread could be started.
    #[error("no thread could be started: {error}; {NO_THREAD_REMEDY}")]
    Start {
        /// What the system said.
        error: io::Error,
    },
}

impl Threads {
    /// What [`THREADS_VARIABLE`] says; `None` if it is not set or empty.
    ///
    /// # Errors
    /// [`ThreadsError::Unreadable`].
    pub fn from_env() -> Result<Option<Self>, ThreadsError> {
        match std::env::var_os(THREADS_VARIABLE) {
            Some(text) if !text.is_empty() => text.to_string_lossy().parse().map(Some),
            _ => Ok(None),
        }
    }

    /// Starts them: fewer, if the system does not give as many.
    pub(crate) fn start(self) -> Result<Workers, ThreadsError> {
        let pinned_to = match self.pinning {
            Pinning::IfCpusDiffer => Some(Cpus::allowed()?).filter(|cpus| !cpus.are_alike()),
            Pinning::Pin => Some(Cpus::allowed()?),
            Pinning::Free => None,
        };
        let count = self.count.map_or_else(available, NonZeroUsize::get);
        // The names are as `top -H` shows them.
        let pool = start::own_pool(count, |index| format!("npu-cpu-{index}"))
            .map_err(|error| ThreadsError::Start { error })?;
        if let Some(cpus) = pinned_to {
            let pinned =
                pool.broadcast(|thread| cpus.for_thread(thread.index()).map_or(Ok(()), pin));
            pinned.into_iter().collect::<Result<(), _>>()?;
        }
        Ok(Workers(Some(pool)))
    }
}

/// CPUs for this process, by its affinity mask and the limits of its cgroup.
fn available() -> usize {
    std::thread::available_parallelism().map_or(1, NonZeroUsize::get)
}

/// Keeps the calling thread on one CPU.
fn pin(cpu: usize) -> Result<(), ThreadsError> {
    let mut only = CpuSet::new();
    only.set(cpu);
    sched_setaffinity(None, &only).map_err(|errno| ThreadsError::Pin { cpu, errno })
}

impl FromStr for Threads {
    type Err = ThreadsError;

    fn from_str(text: &str) -> Result<Self, ThreadsError> {
        let unreadable = || ThreadsError::Unreadable {
            text: text.to_owned(),
        };
        let (count, pinning) = match text.split_once(',') {
            None => (text, Pinning::IfCpusDiffer),
            Some((count, "pin")) => (count, Pinning::Pin),
            Some((count, "free")) => (count, Pinning::Free),
            Some(_) => return Err(unreadable()),
        };
        let count = match count {
            "auto" => None,
            count => {
                let count: NonZeroUsize = count.parse().map_err(|_| unreadable())?;
                if count.get() > MOST_THREADS {
                    return Err(unreadable());
                }
                Some(count)
            }
        };
        Ok(Self { count, pinning })
    }
}

impl fmt::Display for Threads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.count {
            Some(count) => write!(f, "{count}")?,
            None => f.write_str("auto")?,
        }
        f.write_str(match self.pinning {
            Pinning::IfCpusDiffer => "",
            Pinning::Pin => ",pin",
            Pinning::Free => ",free",
        })
    }
}

/// The threads of an engine: its own, or those of whoever calls it.
#[derive(Debug, Default)]
pub(crate) struct Workers(Option<ThreadPool>);

impl Workers {
    /// Runs `body` where its parallel parts use these threads.
    pub(crate) fn run<T: Send>(&self, body: impl FnOnce() -> T + Send) -> T {
        match &self.0 {
            Some(pool) => pool.install(body),
            None => run_parallel(body),
        }
    }
}

#[cfg(test)]
mod tests {
    use rustix::thread::sched_getaffinity;

    use super::*;

    #[test]
    fn settings_are_read_as_they_are_shown() {
        for text in ["1", "auto", "4,pin", "1024,free", "auto,pin", "auto,free"] {
            assert_eq!(text.parse::<Threads>().unwrap().to_string(), text);
        }
        assert_eq!("auto".parse::<Threads>().unwrap(), Threads::default());
        for text in [
            "",
            "0",
            "-1",
            "1025",
            "4,",
            "4,bind",
            "pin",
            ",pin",
            "4,pin,pin",
            "४",
        ] {
            let error = text.parse::<Threads>().unwrap_err();
            assert!(error.to_string().contains(&format!("{text:?}")), "{error}");
        }
    }

    #[test]
    fn there_are_as_many_as_were_wanted() {
        for text in ["1", "3", "3,free"] {
            let workers = text.parse::<Threads>().unwrap().start().unwrap();
            let count = workers.run(rayon::current_num_threads);
            assert_eq!(count.to_string(), text.split(',').next().unwrap());
        }
        let all = Threads::default().start().unwrap();
        assert_eq!(all.run(rayon::current_num_threads), available());
        let callers = Workers::default();
        assert_eq!(
            callers.run(rayon::current_num_threads),
            rayon::current_num_threads()
        );
    }

    /// Each has one CPU, of those that this thread may use, whose own mask stays.
    #[test]
    fn pinned_threads_have_one_cpu_each() {
        let before = sched_getaffinity(None).unwrap();
        let workers = "3,pin".parse::<Threads>().unwrap().start().unwrap();
        let masks = workers.0.as_ref().unwrap();
        let masks = masks.broadcast(|_| sched_getaffinity(None).unwrap());
        for mask in &masks {
            let cpus: Vec<_> = (0..MOST_THREADS).filter(|&cpu| mask.is_set(cpu)).collect();
            assert_eq!(cpus.len(), 1);
            assert!(before.is_set(cpus[0]));
        }
        assert_eq!(sched_getaffinity(None).unwrap(), before);
        let free = "2,free".parse::<Threads>().unwrap().start().unwrap();
        let masks = free.0.as_ref().unwrap();
        for mask in masks.broadcast(|_| sched_getaffinity(None).unwrap()) {
            assert_eq!(mask, before);
        }
    }
}
