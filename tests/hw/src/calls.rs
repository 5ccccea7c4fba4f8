// SPDX-License-Identifier: MIT OR Apache-2.0
//! Counts calls of kernel functions (Linux, Documentation/trace/kprobetrace.rst).

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::Path;

use crate::check::{Must, NotPassed, RowOutcome, ensure};

const TRACING: &str = "/sys/kernel/tracing";

/// The group of the probes, with which their names begin.
const GROUP: &str = "rocket_conformance";

/// Counts the calls of a kernel function until it is dropped.
#[derive(Debug)]
pub(crate) struct Calls {
    function: &'static str,
}

impl Calls {
    /// Counts from now on. Skips the row if the process may not.
    pub(crate) fn of(function: &'static str) -> Result<Self, NotPassed> {
        // Removes a probe that an earlier run has left.
        let _ = remove(function);
        let place = format!("{TRACING}/kprobe_events");
        let added = write(&place, &format!("p:{GROUP}/{function} {function}"));
        added.map_err(|error| NotPassed::Skip(format!("{place}: {error}")))?;
        let calls = Self { function };
        write(&enable(function), "1").must("a probe")?;
        Ok(calls)
    }

    pub(crate) fn count(&self) -> Result<u64, NotPassed> {
        let profile = fs::read_to_string(Path::new(TRACING).join("kprobe_profile"));
        let profile = profile.must("reading the counts of the probes")?;
        let count = profile.lines().find_map(|line| {
            let mut words = line.split_whitespace();
            (words.next() == Some(self.function)).then(|| words.next()?.parse().ok())?
        });
        count.ok_or_else(|| NotPassed::Fail(format!("no count of {}", self.function)))
    }
}

impl Drop for Calls {
    fn drop(&mut self) {
        // A probe that cannot be removed only costs time.
        let _ = remove(self.function);
    }
}

fn enable(function: &str) -> String {
    format!("{TRACING}/events/{GROUP}/{function}/enable")
}

fn remove(function: &str) -> io::Result<()> {
    write(&enable(function), "0")?;
    let place = format!("{TRACING}/kprobe_events");
    write(&place, &format!("-:{GROUP}/{function}"))
}

/// Appends a line in one write, as tracefs requires. Earlier lines stay.
fn write(path: &str, line: &str) -> io::Result<()> {
    let mut file = OpenOptions::new().append(true).open(path)?;
    file.write_all(format!("{line}\n").as_bytes())
}

/// Fails unless the kernel calls `takes` and `gives` equally often within `work`.
pub(crate) fn balanced(
    takes: &'static str,
    gives: &'static str,
    work: impl FnOnce() -> RowOutcome,
) -> RowOutcome {
    let (took, gave) = (Calls::of(takes)?, Calls::of(gives)?);
    work()?;
    let (took, gave) = (took.count()?, gave.count()?);
    let what = format!("as many calls of {gives} ({gave}) as of {takes} ({took})");
    ensure(&what, took == gave)
}
