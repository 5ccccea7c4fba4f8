// SPDX-License-Identifier: MIT OR Apache-2.0
//! Counts offloaded and declined operations, for the table of `GGML_ROCKET_STATS`.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use npu_matmul::{Counters, Times};
use npu_offload::ComputeType;

use crate::ggml::reason::DeclineReason;
use crate::report::describe::MEGAHERTZ;
use crate::weights::budget::WeightTotals;

/// Counts and times of the device.
#[derive(Debug, Default)]
pub(crate) struct DeviceStats {
    pub(crate) counters: Counters,
    /// Time of the CPU in each section of the engine's work.
    pub(crate) times: Times,
    /// Modelled time of the NPU for all matmuls, one after the other, picoseconds: the likely one,
    /// and the least.
    pub(crate) modelled_ps: [u64; 2],
    /// Clock of the NPU that it assumes, Hz.
    pub(crate) clock_hz: u64,
    /// Whether there is an NPU, whose time can be measured.
    pub(crate) is_measured: bool,
}

/// The counts of one process.
#[derive(Debug, Default)]
pub(crate) struct Stats {
    /// Matmuls by the index of their [`ComputeType`].
    pub(crate) computed: [u64; ComputeType::ALL.len()],
    /// Lists of matmuls that were computed together.
    pub(crate) lists: u64,
    pub(crate) macs: u64,
    pub(crate) attentions: u64,
    /// Pairs of rows and keys of attention, in each head.
    pub(crate) attention_pairs: u64,
    pub(crate) attention_time: Duration,
    /// Attention nodes that the CPU computed because of their scores.
    pub(crate) attention_out_of_range: u64,
    /// Matmuls, or attention, that ended in an error.
    pub(crate) failed: u64,
    /// Nodes that the CPU computed because the NPU failed or computed their precision wrong.
    pub(crate) left_to_cpu: u64,
    /// Lists of nodes that the NPU failed to compute, so that the CPU did.
    pub(crate) handed_over: u64,
    pub(crate) declined: BTreeMap<DeclineReason, u64>,
}

impl Stats {
    /// Returns the table, one `name  count` per line.
    pub(crate) fn table(
        &self,
        description: &str,
        device: &DeviceStats,
        weights: WeightTotals,
    ) -> String {
        let (counters, times) = (&device.counters, &device.times);
        let mut rows = Rows::default();
        for precision in ComputeType::ALL {
            let name = format!("matmuls computed in {}", precision.name());
            rows.count(&name, self.computed[precision as usize]);
        }
        rows.count("graphs failed", self.failed);
        rows.count("lists handed to the CPU", self.handed_over);
        if !times.jobs_failed.is_zero() {
            let how = if device.is_measured {
                "measured"
            } else {
                "modelled"
            };
            rows.ms(
                &format!("NPU ms lost in failed jobs ({how})"),
                times.jobs_failed,
            );
        }
        if self.left_to_cpu > 0 {
            let name = "nodes that the CPU computed after an NPU failure (see the log)";
            rows.count(name, self.left_to_cpu);
        }
        rows.count("lists of nodes", self.lists);
        rows.count("multiply-adds (millions)", self.macs / 1_000_000);
        rows.count("attention nodes computed", self.attentions);
        let pairs = self.attention_pairs / 1_000;
        rows.count("attention rows x keys (thousands)", pairs);
        if self.attention_out_of_range > 0 {
            let name = "attention nodes that the CPU computed (large scores)";
            rows.count(name, self.attention_out_of_range);
        }
        for (place, count) in [
            ("on the NPU", weights.npu),
            ("left to the CPU", weights.cpu),
        ] {
            rows.count(&format!("weight tensors {place}"), count.tensors);
            rows.count(&format!("KiB of weights {place}"), count.bytes / 1024);
        }
        rows.count("submits", counters.submits);
        rows.count("jobs", counters.jobs);
        rows.count("jobs run again", counters.jobs_run_again);
        // Only if the CPU may compute jobs.
        if counters.jobs_on_cpu > 0 {
            rows.count("jobs computed on the CPU", counters.jobs_on_cpu);
        }
        rows.count("tasks", counters.tasks);
        // Only on an NPU that is not calibrated.
        if counters.checked_tasks > 0 {
            rows.count("first tasks checked", counters.checked_tasks);
        }
        rows.count("KiB to the device", counters.bytes_to_device / 1024);
        rows.count("KiB from the device", counters.bytes_from_device / 1024);
        // A thread's time is the wall-clock time while it worked; the times of several threads are
        // added.
        rows.ms("thread-ms packing weights (measured)", times.pack_weights);
        rows.ms("thread-ms packing activations (measured)", times.pack);
        rows.ms("thread-ms unpacking outputs (measured)", times.unpack);
        if counters.jobs_on_cpu > 0 {
            rows.ms("thread-ms computing jobs (measured)", times.compute);
        }
        // Only if first tasks were checked.
        if !times.check.is_zero() {
            rows.ms("thread-ms checking first tasks (measured)", times.check);
        }
        // On the software model these would describe the model, not an NPU.
        if device.is_measured {
            rows.ms("thread-ms waiting for jobs (measured)", times.wait);
            rows.ms("NPU ms, with jobs submitted (measured)", times.in_flight);
        }
        let [likely, least] = device.modelled_ps.map(|ps| ps as f64 / PS_PER_MS);
        rows.add(
            "NPU ms, matmul by matmul, likely (modelled)",
            format!("{likely:.3}"),
        );
        rows.add(
            "NPU ms, matmul by matmul, at least (modelled)",
            format!("{least:.3}"),
        );
        if self.attentions > 0 {
            rows.ms("ms in attention (measured)", self.attention_time);
        }
        for (reason, count) in &self.declined {
            rows.count(&format!("declined: {reason}"), *count);
        }
        let width = rows.0.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
        let mut table = format!("ROCKET statistics: {description}\n");
        for (name, count) in rows.0 {
            // Writing into a String cannot fail.
            let _ = writeln!(table, "  {name:width$}  {count:>12}");
        }
        let clock = device.clock_hz / MEGAHERTZ;
        let _ = writeln!(
            table,
            "  (modelled: by the timing model, for an NPU at {clock} MHz)\n  (declined: counted each \
             time the program asks, and it asks repeatedly)"
        );
        table
    }
}

/// Milliseconds of a second, picoseconds of a millisecond.
const MS: f64 = 1e3;
const PS_PER_MS: f64 = 1e9;

/// Names and values of the table.
#[derive(Default)]
struct Rows(Vec<(String, String)>);

impl Rows {
    fn add(&mut self, name: &str, value: String) {
        self.0.push((name.to_owned(), value));
    }

    fn count(&mut self, name: &str, count: u64) {
        self.add(name, count.to_string());
    }

    fn ms(&mut self, name: &str, time: Duration) {
        self.add(name, format!("{:.3}", time.as_secs_f64() * MS));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::weights::budget::TensorCount;

    fn stats() -> Stats {
        let mut stats = Stats {
            macs: 7_000_000,
            attentions: 2,
            attention_pairs: 4_000_000,
            attention_time: Duration::from_micros(2_500),
            attention_out_of_range: 3,
            failed: 1,
            left_to_cpu: 2,
            handed_over: 3,
            declined: [(DeclineReason::SmallBatch, 1)].into(),
            ..Stats::default()
        };
        stats.computed[ComputeType::Int8Hadamard as usize] = 2;
        stats
    }

    /// The last word of the line that begins with `name`.
    fn value<'a>(table: &'a str, name: &str) -> &'a str {
        let line = table.lines().find(|line| line.trim().starts_with(name));
        line.unwrap().split_whitespace().last().unwrap()
    }

    #[test]
    fn the_table_shows_what_was_counted() {
        let mut device = DeviceStats {
            counters: Counters {
                jobs: 9,
                jobs_run_again: 8,
                checked_tasks: 4,
                ..Counters::default()
            },
            times: Times {
                pack: Duration::from_micros(1_500),
                wait: Duration::from_secs(2),
                jobs_failed: Duration::from_millis(500),
                ..Times::default()
            },
            modelled_ps: [2_250_000_000, 1_000_000_000],
            clock_hz: 600_000_000,
            is_measured: false,
        };
        let weights = WeightTotals {
            npu: TensorCount {
                tensors: 3,
                bytes: 5 << 10,
            },
            cpu: TensorCount::default(),
        };
        let table = stats().table("software model: for testing", &device, weights);
        for (name, expected) in [
            ("matmuls computed in int8-hadamard", "2"),
            ("matmuls computed in fp16", "0"),
            ("graphs failed", "1"),
            ("jobs run again", "8"),
            ("lists handed to the CPU", "3"),
            ("NPU ms lost in failed jobs (modelled)", "500.000"),
            ("multiply-adds", "7"),
            ("weight tensors on the NPU", "3"),
            ("KiB of weights on the NPU", "5"),
            ("weight tensors left to the CPU", "0"),
            ("jobs", "9"),
            ("first tasks checked", "4"),
            ("nodes that the CPU computed", "2"),
            ("declined: fewer rows", "1"),
            ("attention nodes computed", "2"),
            ("attention rows x keys", "4000"),
            ("attention nodes that the CPU computed", "3"),
            ("ms in attention (measured)", "2.500"),
            ("thread-ms packing activations (measured)", "1.500"),
            ("thread-ms unpacking outputs (measured)", "0.000"),
            ("NPU ms, matmul by matmul, likely (modelled)", "2.250"),
            ("NPU ms, matmul by matmul, at least (modelled)", "1.000"),
        ] {
            assert_eq!(value(&table, name), expected, "{name}");
        }
        assert!(!table.contains("declined: attention"));
        for absent in ["checking first tasks", "on the CPU", "computing jobs"] {
            assert!(!table.contains(absent), "{table}");
        }
        // The wait was for the software model.
        assert!(!table.contains("waiting"), "{table}");
        assert!(table.contains("at 600 MHz"), "{table}");

        // The time of a real NPU is measured.
        device.is_measured = true;
        device.times.in_flight = Duration::from_millis(4);
        device.times.check = Duration::from_millis(5);
        device.counters.jobs_on_cpu = 6;
        device.times.compute = Duration::from_millis(7);
        let table = stats().table("a board", &device, weights);
        assert_eq!(value(&table, "thread-ms waiting"), "2000.000");
        assert_eq!(value(&table, "NPU ms, with jobs submitted"), "4.000");
        assert_eq!(value(&table, "thread-ms checking"), "5.000");
        assert_eq!(value(&table, "jobs computed on the CPU"), "6");
        assert_eq!(value(&table, "thread-ms computing jobs"), "7.000");
    }
}
