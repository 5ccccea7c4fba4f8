// SPDX-License-Identifier: MIT OR Apache-2.0
//! How much memory there is, and how much of it packed weights may take.

use super::root::SystemRoot;
use super::row::DoctorRow;

/// The most levels of control groups that are looked at.
const MOST_LEVELS: usize = 32;
/// The part of what is available that the llama.cpp backend takes (docs/llama.md,
/// `GGML_ROCKET_MEM`).
const BACKEND_PART: u64 = 2;

/// Memory of the machine, and the limit of the control group that this runs in.
pub(super) fn row(root: &SystemRoot) -> DoctorRow {
    const TOPIC: &str = "memory";
    let text = root.text("proc/meminfo").unwrap_or_default();
    let (Some(total), Some(available)) = (field(&text, "MemTotal:"), field(&text, "MemAvailable:"))
    else {
        let remedy = "See that /proc/meminfo can be read.";
        return DoctorRow::note(TOPIC, "not readable", remedy);
    };
    let budget = available / BACKEND_PART;
    let found = format!(
        "{} total, {} available; packed weights of llama.cpp may take {}",
        shown(total),
        shown(available),
        shown(budget)
    );
    match group_limit(root) {
        Some(limit) if limit < available => DoctorRow::note(
            TOPIC,
            format!("{found}; this control group is limited to {}", shown(limit)),
            "Set GGML_ROCKET_MEM to what the group leaves for weights, or raise its memory.max.",
        ),
        _ => DoctorRow::ok(TOPIC, found),
    }
}

/// A field of /proc/meminfo, in bytes.
fn field(meminfo: &str, name: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix(name))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

/// The least memory.max of the control group of this process and those above it
/// (version 2).
fn group_limit(root: &SystemRoot) -> Option<u64> {
    let groups = root.text("proc/self/cgroup")?;
    let group = groups.lines().find_map(|line| line.strip_prefix("0::"))?;
    let mut path = "sys/fs/cgroup".to_owned();
    let mut least: Option<u64> = None;
    for level in std::iter::once("").chain(group.split('/').take(MOST_LEVELS)) {
        if level == ".." {
            break;
        }
        if !level.is_empty() {
            path = format!("{path}/{level}");
        }
        let limit = root.number(&format!("{path}/memory.max"));
        least = least.into_iter().chain(limit).min();
    }
    least
}

/// Bytes for people.
fn shown(bytes: u64) -> String {
    const GIB: u64 = 1 << 30;
    let tenths = bytes % GIB * 10 / GIB;
    format!("{}.{tenths} GiB", bytes / GIB)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_have_kilobytes() {
        let text = "MemTotal:       16000 kB\nMemFree:  1 MB\n";
        assert_eq!(field(text, "MemTotal:"), Some(16000 * 1024));
        assert_eq!(field(text, "MemFree:"), None);
        assert_eq!(field(text, "MemAvailable:"), None);
        assert_eq!(field("A: 18446744073709551615 kB", "A:"), None);
        assert_eq!(shown(u64::MAX / 2), "8589934591.9 GiB");
        assert_eq!(shown(3 << 29), "1.5 GiB");
    }
}
