// SPDX-License-Identifier: MIT OR Apache-2.0
//! The memory that packed weights may take, and memory sizes as users write them.

use std::fs;
use std::path::Path;

/// The available memory divided by this is the default budget. The model and the CPU's rearranged
/// copy of it are not loaded yet: together they take about as much as weights packed in INT8.
const PART: u64 = 2;

/// The most levels of control groups that are read.
const MOST_LEVELS: usize = 32;

/// Memory of the machine, and how much of it this process can get now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AvailableMemory {
    /// Memory of the machine, bytes: `MemTotal`.
    pub total: u64,
    /// Memory that the kernel calls available, bytes: `MemAvailable`.
    pub free: u64,
    /// The least that the limits of this process's control group and of those above it leave, bytes
    /// (version 2: `memory.max`); `None` if none has a limit. File pages that can be dropped count
    /// as free, like in the kernel's own figure.
    pub group_room: Option<u64>,
}

impl AvailableMemory {
    /// Reads it from the files of `/proc` and `/sys`; `None` if they lack a figure. `read` returns
    /// the text of a file by its path without the leading `/`.
    #[must_use]
    pub fn read(read: impl Fn(&str) -> Option<String>) -> Option<Self> {
        let meminfo = read("proc/meminfo")?;
        let bytes = |name| {
            let kib = field(&meminfo, name)?.strip_suffix("kB")?;
            kib.trim().parse::<u64>().ok()?.checked_mul(1024)
        };
        Some(Self {
            total: bytes("MemTotal:")?,
            free: bytes("MemAvailable:")?,
            group_room: group_room(&read),
        })
    }

    /// Reads it from the `/proc` and `/sys` below `root`; `None` if they lack a figure.
    #[must_use]
    pub fn below(root: &Path) -> Option<Self> {
        Self::read(|path| fs::read_to_string(root.join(path)).ok())
    }

    /// Default budget of packed weights, bytes: half of [`Self::bytes`].
    #[must_use]
    pub fn default_budget(&self) -> u64 {
        self.bytes() / PART
    }

    /// Memory that this process can get, bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.group_room.unwrap_or(u64::MAX).min(self.free)
    }
}

/// Parses a number of bytes with an optional `K`, `M` or `G` for the powers of 1024, which `B` or
/// `iB` may follow; `None` if the text is no such size.
#[must_use]
pub fn parse_bytes(text: &str) -> Option<u64> {
    let ends = ["KiB", "MiB", "GiB", "KB", "MB", "GB"];
    let end = ends.into_iter().find(|end| text.ends_with(end));
    let text = end.map_or(text, |end| &text[..text.len() - end.len() + 1]);
    let (number, unit) = match text.char_indices().next_back()? {
        (at, 'k' | 'K') => (&text[..at], 1 << 10),
        (at, 'm' | 'M') => (&text[..at], 1 << 20),
        (at, 'g' | 'G') => (&text[..at], 1 << 30),
        _ => (text, 1_u64),
    };
    number.parse::<u64>().ok()?.checked_mul(unit)
}

/// Least room of this process's control groups, bytes; `None` if none has a limit.
fn group_room(read: &impl Fn(&str) -> Option<String>) -> Option<u64> {
    let groups = read("proc/self/cgroup")?;
    let group = groups.lines().find_map(|line| line.strip_prefix("0::/"))?;
    let mut path = "sys/fs/cgroup".to_owned();
    let mut least = room(read, &path);
    let levels = group.split('/').filter(|level| !level.is_empty());
    for level in levels.take(MOST_LEVELS) {
        // The group is outside of what the namespace shows.
        if level == ".." {
            break;
        }
        path = format!("{path}/{level}");
        least = least.into_iter().chain(room(read, &path)).min();
    }
    least
}

/// Bytes that the limit of a group leaves; `None` without a limit.
fn room(read: &impl Fn(&str) -> Option<String>, group: &str) -> Option<u64> {
    let number = |name: &str| {
        let text = read(&format!("{group}/{name}"))?;
        text.trim().parse::<u64>().ok()
    };
    let limit = number("memory.max")?;
    let used = number("memory.current").unwrap_or(0);
    let stat = read(&format!("{group}/memory.stat")).unwrap_or_default();
    let files = field(&stat, "inactive_file ").and_then(|bytes| bytes.parse().ok());
    Some(limit.saturating_sub(used.saturating_sub(files.unwrap_or(0))))
}

fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    Some(line.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    /// The memory of a machine with these files below `/`.
    fn memory(files: &[(&str, &str)]) -> Option<AvailableMemory> {
        AvailableMemory::read(|path| {
            let found = files.iter().find(|(known, _)| *known == path);
            found.map(|(_, text)| (*text).to_owned())
        })
    }

    fn budget(files: &[(&str, &str)]) -> Option<u64> {
        memory(files).map(|memory| memory.default_budget())
    }

    const MEMINFO: (&str, &str) = (
        "proc/meminfo",
        "MemTotal: 16000 kB\nMemFree:  1 kB\nMemAvailable:    8192000 kB\n",
    );

    #[test]
    fn half_of_what_is_available() {
        assert_eq!(budget(&[MEMINFO]), Some(4000 * MIB));
        assert_eq!(budget(&[("proc/meminfo", "MemTotal: 1 kB\n")]), None);
        assert_eq!(budget(&[]), None);
        let total = |meminfo: &str| {
            let meminfo = format!("{meminfo}\nMemAvailable: 1 kB\n");
            memory(&[("proc/meminfo", &meminfo)]).map(|memory| memory.total)
        };
        assert_eq!(total("MemTotal:       16000 kB\n"), Some(16000 * 1024));
        assert_eq!(total("MemTotal:  1 MB\n"), None);
        assert_eq!(total("MemFree: 1 kB\n"), None);
        assert_eq!(total("MemTotal: 18446744073709551615 kB"), None);
    }

    #[test]
    fn the_least_room_of_a_group_and_those_above_it_counts() {
        let mib = |mib: u64| (mib * MIB).to_string();
        let (limit, used, parent) = (mib(3000), mib(1200), mib(1000));
        let group = ("proc/self/cgroup", "1:name=x:/\n0::/a/b\n");
        let own = ("sys/fs/cgroup/a/b/memory.max", limit.as_str());
        let current = ("sys/fs/cgroup/a/b/memory.current", used.as_str());
        assert_eq!(budget(&[MEMINFO, group, own]), Some(1500 * MIB));
        assert_eq!(budget(&[MEMINFO, group, own, current]), Some(900 * MIB));
        let files = format!("anon 1\ninactive_file {}\n", 200 * MIB);
        let stat = ("sys/fs/cgroup/a/b/memory.stat", files.as_str());
        let all = [MEMINFO, group, own, current, stat];
        assert_eq!(budget(&all), Some(1000 * MIB));
        let above = ("sys/fs/cgroup/a/memory.max", parent.as_str());
        assert_eq!(budget(&[MEMINFO, group, own, above]), Some(500 * MIB));
        let none = ("sys/fs/cgroup/a/b/memory.max", "max\n");
        assert_eq!(budget(&[MEMINFO, group, none]), Some(4000 * MIB));
        let outside = ("proc/self/cgroup", "0::/../a\n");
        assert_eq!(budget(&[MEMINFO, outside, above]), Some(4000 * MIB));
    }

    #[test]
    fn sizes_have_units_or_none() {
        for (text, bytes) in [
            ("0", Some(0)),
            ("4096", Some(4096)),
            ("3K", Some(3 << 10)),
            ("512m", Some(512 << 20)),
            ("2G", Some(2 << 30)),
            ("1.5G", None),
            ("G", None),
            ("", None),
            ("-1", None),
            ("2GB", Some(2 << 30)),
            ("7KiB", Some(7 << 10)),
            ("iB", None),
            ("2TB", None),
            ("99999999999999G", None),
        ] {
            assert_eq!(parse_bytes(text), bytes, "{text}");
        }
    }

    #[test]
    fn this_machine_has_some() {
        let memory = AvailableMemory::below(Path::new("/")).unwrap();
        assert!(memory.default_budget() > 0 && memory.total >= memory.free);
    }
}
