// SPDX-License-Identifier: MIT OR Apache-2.0
//! Counts of what was offloaded and what was not, and why: the table that
//! `GGML_ROCKET_STATS=1` prints when the program ends.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::budget::Totals;
use crate::precision::Precision;
use crate::reason::Reason;

/// What the engine counted.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct DeviceCounts {
    /// Jobs submitted.
    pub(crate) jobs: u64,
    /// Tasks in them.
    pub(crate) tasks: u64,
    /// Bytes written for the device.
    pub(crate) bytes_to_device: u64,
    /// Bytes read back.
    pub(crate) bytes_from_device: u64,
}

/// The counts of one process.
#[derive(Debug, Default)]
pub(crate) struct Stats {
    computed: [AtomicU64; Precision::ALL.len()],
    macs: AtomicU64,
    failed: AtomicU64,
    declined: [AtomicU64; Reason::ALL.len()],
}

impl Stats {
    /// Counts a product that was computed.
    pub(crate) fn computed(&self, precision: Precision, macs: u64) {
        // Counters only: no other data is published through them.
        self.computed[precision as usize].fetch_add(1, Ordering::Relaxed);
        self.macs.fetch_add(macs, Ordering::Relaxed);
    }

    /// Counts a product that ended in an error.
    pub(crate) fn failed(&self) {
        self.failed.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a question answered with no.
    pub(crate) fn declined(&self, reason: Reason) {
        self.declined[reason as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// The table, one `name  count` a line.
    pub(crate) fn table(&self, device: &str, counts: DeviceCounts, weights: Totals) -> String {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let mut rows: Vec<(String, u64)> = Vec::new();
        for precision in Precision::ALL {
            rows.push((
                format!("products computed in {}", precision.name()),
                read(&self.computed[precision as usize]),
            ));
        }
        rows.push(("products failed".to_owned(), read(&self.failed)));
        rows.push((
            "multiply-adds (millions)".to_owned(),
            read(&self.macs) / 1_000_000,
        ));
        for (place, count) in [
            ("on the NPU", weights.npu),
            ("left to the CPU", weights.cpu),
        ] {
            rows.push((format!("weight tensors {place}"), count.tensors));
            rows.push((format!("KiB of weights {place}"), count.bytes / 1024));
        }
        rows.push(("jobs".to_owned(), counts.jobs));
        rows.push(("tasks".to_owned(), counts.tasks));
        rows.push((
            "KiB to the device".to_owned(),
            counts.bytes_to_device / 1024,
        ));
        rows.push((
            "KiB from the device".to_owned(),
            counts.bytes_from_device / 1024,
        ));
        for reason in Reason::ALL {
            let count = read(&self.declined[reason as usize]);
            if count > 0 {
                rows.push((format!("declined: {}", reason.words()), count));
            }
        }
        let width = rows.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
        let mut table = format!("ROCKET0 statistics: {device}\n");
        for (name, count) in rows {
            // Writing into a String cannot fail.
            let _ = writeln!(table, "  {name:width$}  {count:>12}");
        }
        table.push_str("  (declined: answers to the host's questions, which it repeats)\n");
        table
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::budget::Count;

    #[test]
    fn the_table_shows_what_was_counted() {
        let stats = Stats::default();
        stats.computed(Precision::Int8, 5_000_000);
        stats.computed(Precision::Int8, 2_000_000);
        stats.declined(Reason::SmallBatch);
        stats.failed();
        let table = stats.table(
            "software model: for testing",
            DeviceCounts {
                jobs: 9,
                ..DeviceCounts::default()
            },
            Totals {
                npu: Count {
                    tensors: 3,
                    bytes: 5 << 10,
                },
                cpu: Count::default(),
            },
        );
        let count = |name: &str| {
            let line = table.lines().find(|line| line.trim().starts_with(name));
            line.unwrap().split_whitespace().last().unwrap().to_owned()
        };
        assert_eq!(count("products computed in int8"), "2");
        assert_eq!(count("products computed in fp16"), "0");
        assert_eq!(count("products failed"), "1");
        assert_eq!(count("multiply-adds"), "7");
        assert_eq!(count("weight tensors on the NPU"), "3");
        assert_eq!(count("KiB of weights on the NPU"), "5");
        assert_eq!(count("weight tensors left to the CPU"), "0");
        assert_eq!(count("jobs"), "9");
        assert_eq!(count("declined: fewer rows"), "1");
        assert!(!table.contains("attention"));
    }
}
