// SPDX-License-Identifier: MIT OR Apache-2.0
//! The setting, as text and as values.

use std::fmt;
use std::io;
use std::num::NonZeroUsize;
use std::str::FromStr;

use rocket_uapi::NO_THREAD_REMEDY;
use rustix::io::Errno;
use rustix::thread::CpuSet;

/// The environment variable that programs take [`Threads`] from.
pub const THREADS_VARIABLE: &str = "NPU_THREADS";

/// Most threads of a pool: Linux names no more CPUs in a `cpu_set_t`.
pub(super) const MOST_THREADS: usize = CpuSet::MAX_CPU;

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
    #[error("{text:?} is not a thread setting: use 4, auto, 4,pin or auto,free; at most 1024")]
    Unreadable {
        /// The text of the variable.
        text: String,
    },
    /// The kernel does not tell which CPUs may be used.
    #[error("cannot read which CPUs this process may use: {errno}")]
    Affinity {
        /// The kernel's error.
        errno: Errno,
    },
    /// A thread cannot stay on a CPU.
    #[error("cannot pin a thread to CPU {cpu}: {errno}; use \",free\" to run without pinning")]
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

#[cfg(test)]
mod tests {
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
}
