// SPDX-License-Identifier: MIT OR Apache-2.0
//! The machine's memory, and how much of it the backend may keep.

use npu_offload::AvailableMemory;

use super::root::SystemRoot;
use super::row::DoctorRow;

/// The row of memory: the machine's, and what the process's control groups
/// leave.
pub(super) fn row(root: &SystemRoot) -> DoctorRow {
    let Some(memory) = AvailableMemory::read(|path| root.text(path)) else {
        let remedy = "Check that /proc/meminfo is readable.";
        return DoctorRow::note("not readable", remedy);
    };
    let found = format!(
        "{} total, {} available; the backend of llama.cpp may keep {}",
        shown(memory.total),
        shown(memory.free),
        shown(memory.default_budget())
    );
    match memory.group_room {
        Some(room) if room < memory.free => DoctorRow::note(
            format!("{found}; this control group leaves {}", shown(room)),
            "To allow more, set GGML_ROCKET_MEM, or raise memory.max of the group.",
        ),
        _ => DoctorRow::ok(found),
    }
}

/// The machine's memory, bytes.
pub(super) fn total(root: &SystemRoot) -> Option<u64> {
    AvailableMemory::read(|path| root.text(path)).map(|memory| memory.total)
}

/// Bytes as text, in GiB.
fn shown(bytes: u64) -> String {
    const GIB: u64 = 1 << 30;
    let tenths = bytes % GIB * 10 / GIB;
    format!("{}.{tenths} GiB", bytes / GIB)
}
