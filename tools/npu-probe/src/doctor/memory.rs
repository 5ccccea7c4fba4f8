// SPDX-License-Identifier: MIT OR Apache-2.0
//! The machine's memory, and how much of it packed weights may use.

use npu_offload::AvailableMemory;

use super::root::SystemRoot;
use super::row::DoctorRow;

/// Memory of the machine, and what the process's control groups leave.
pub(super) fn row(root: &SystemRoot) -> DoctorRow {
    const TOPIC: &str = "memory";
    let text = root.text("proc/meminfo").unwrap_or_default();
    let memory = AvailableMemory::read(|path| root.text(path));
    let (Some(total), Some(memory)) = (total(&text), memory) else {
        let remedy = "Check that /proc/meminfo is readable.";
        return DoctorRow::note(TOPIC, "not readable", remedy);
    };
    let found = format!(
        "{} total, {} available; llama.cpp may use {} for packed weights",
        shown(total),
        shown(memory.free),
        shown(memory.default_budget())
    );
    match memory.group_room {
        Some(room) if room < memory.free => DoctorRow::note(
            TOPIC,
            format!("{found}; this control group leaves {}", shown(room)),
            "To allow more for weights, set GGML_ROCKET_MEM, or raise memory.max of the group.",
        ),
        _ => DoctorRow::ok(TOPIC, found),
    }
}

/// `MemTotal` of /proc/meminfo, in bytes.
fn total(meminfo: &str) -> Option<u64> {
    let line = meminfo
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
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
    fn the_total_has_kilobytes() {
        assert_eq!(total("MemTotal:       16000 kB\n"), Some(16000 * 1024));
        assert_eq!(total("MemTotal:  1 MB\n"), None);
        assert_eq!(total("MemFree: 1 kB\n"), None);
        assert_eq!(total("MemTotal: 18446744073709551615 kB"), None);
    }
}
