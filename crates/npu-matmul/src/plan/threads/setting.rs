// SPDX-License-Identifier: MIT OR Apache-2.0
//! Thread settings, as text and as values.

use std::fmt;
use std::io;
use std::num::NonZeroUsize;
use std::str::FromStr;

use rocket_uapi::NO_THREAD_REMEDY;
use rustix::io::Errno;
use rustix::thread::CpuSet;

/// Environment variable that programs read [`Threads`] from.
pub const THREADS_VARIABLE: &str = "NPU_THREADS";

/// Largest number of threads in a pool: the number of CPUs in Linux's `cpu_set_t`.
pub(super) const MOST_THREADS: usize = CpuSet::MAX_CPU;

/// Number of threads, and whether each is pinned to one CPU.
///
/// As text: a number or `auto`, optionally followed by `,pin` or `,free`: `4`, `auto`, `4,pin`,
/// `auto,free`. Without suffix the machine decides; see [`Pinning::IfCpusDiffer`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Threads {
    /// Number of threads; `None` for one for each CPU that the affinity mask and cgroup allow.
    pub count: Option<NonZeroUsize>,
    /// Whether each thread is pinned to one CPU, the fastest CPUs first.
    pub pinning: Pinning,
}

/// Whether each thread is pinned to one CPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Pinning {
    /// Pins if the CPUs differ in speed, as on an RK3588, so that few threads use the fast ones.
    #[default]
    IfCpusDiffer,
    /// Pins each thread to one CPU.
    Pin,
    /// The kernel chooses the CPU.
    Free,
}

/// Why the threads could not be started.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ThreadsError {
    /// The text is not a valid setting.
    #[error("{text:?} is not a thread setting: use 4, auto, 4,pin or auto,free; at most 1024")]
    Unreadable {
        /// The text of the variable.
        text: String,
    },
    /// The kernel did not return the CPUs of this process.
    #[error("cannot read which CPUs this process may use: {errno}")]
    Affinity {
        /// The kernel's error.
        errno: Errno,
    },
    /// A thread could not be pinned.
    #[error("cannot pin a thread to CPU {cpu}: {errno}; use \",free\" to run without pinning")]
    Pin {
        /// Number of the CPU.
        cpu: usize,
        /// The kernel's error.
        errno: Errno,
    },
    /// Not one thread could be started.
    #[error("no thread could be started: {error}; {NO_THREAD_REMEDY}")]
    Start {
        /// The system's error.
        error: io::Error,
    },
}

impl Threads {
    /// Reads [`THREADS_VARIABLE`]; `None` if it is unset or empty.
    ///
    /// # Errors
    /// [`ThreadsError::Unreadable`] if it is not a valid setting.
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
