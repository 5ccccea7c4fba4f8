// SPDX-License-Identifier: MIT OR Apache-2.0
//! Counts offloaded and declined operations, for the table that `GGML_ROCKET_STATS=1` prints when
//! the program ends.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use npu_matmul::Times;

use crate::budget::WeightTotals;
use crate::describe::MEGAHERTZ;
use crate::reason::DeclineReason;
use npu_offload::ComputeType;

/// Counts of the engine: work for the device, and bytes to and from it.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct DeviceCounts {
    pub(crate) submits: u64,
    pub(crate) jobs: u64,
    pub(crate) tasks: u64,
    /// First tasks of their kind that the CPU computed again.
    pub(crate) checked_tasks: u64,
    /// Bytes written for the device.
    pub(crate) bytes_to_device: u64,
    /// Bytes read back.
    pub(crate) bytes_from_device: u64,
    /// Time of the CPU in each section of the work.
    pub(crate) times: Times,
}

/// Modelled time of the NPU for all matmuls, one after the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ModelledTime {
    /// Sum of the modelled times, picoseconds.
    pub(crate) ps: u64,
    /// Clock of the NPU that they assume, Hz.
    pub(crate) clock_hz: u64,
}

/// The NPU's time, modelled or measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NpuTime {
    /// The modelled time, if it was computed.
    pub(crate) modelled: Option<ModelledTime>,
    /// Whether there is an NPU, whose time can be measured.
    pub(crate) is_measured: bool,
}

/// The counts of one process.
#[derive(Debug, Default)]
pub(crate) struct Stats {
    computed: [AtomicU64; ComputeType::ALL.len()],
    lists: AtomicU64,
    macs: AtomicU64,
    attentions: AtomicU64,
    attention_pairs: AtomicU64,
    attention_ns: AtomicU64,
    failed: AtomicU64,
    left_to_cpu: AtomicU64,
    declined: DeclineCounts,
}

#[derive(Debug)]
struct DeclineCounts([AtomicU64; DeclineReason::ALL.len()]);

impl Default for DeclineCounts {
    fn default() -> Self {
        Self([const { AtomicU64::new(0) }; DeclineReason::ALL.len()])
    }
}

impl Stats {
    /// Counts a list of matmuls that were computed together.
    pub(crate) fn list(&self) {
        self.lists.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn computed(&self, precision: ComputeType, macs: u64) {
        // Counters only: no other data is published through them.
        self.computed[precision as usize].fetch_add(1, Ordering::Relaxed);
        self.macs.fetch_add(macs, Ordering::Relaxed);
    }

    /// Counts an attention node with `pairs` pairs of rows and keys, in each head.
    pub(crate) fn attended(&self, pairs: u64) {
        self.attentions.fetch_add(1, Ordering::Relaxed);
        self.attention_pairs.fetch_add(pairs, Ordering::Relaxed);
    }

    /// Adds the time of a list of attention.
    pub(crate) fn attention_time(&self, time: Duration) {
        let ns = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self.attention_ns.fetch_add(ns, Ordering::Relaxed);
    }

    /// Counts a matmul, or attention, that ended in an error.
    pub(crate) fn failed(&self) {
        self.failed.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts nodes that the CPU computes because the NPU failed or computed their precision wrong.
    pub(crate) fn left_to_cpu(&self, nodes: u64) {
        self.left_to_cpu.fetch_add(nodes, Ordering::Relaxed);
    }

    /// Counts an operation that was declined.
    pub(crate) fn declined(&self, reason: DeclineReason) {
        self.declined.0[reason as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the table, one `name  count` per line.
    pub(crate) fn table(
        &self,
        device: &str,
        counts: DeviceCounts,
        weights: WeightTotals,
        npu: NpuTime,
    ) -> String {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let mut rows: Vec<(String, u64)> = Vec::new();
        for precision in ComputeType::ALL {
            rows.push((
                format!("matmuls computed in {}", precision.name()),
                read(&self.computed[precision as usize]),
            ));
        }
        rows.push(("matmuls failed".to_owned(), read(&self.failed)));
        let left = read(&self.left_to_cpu);
        if left > 0 {
            rows.push((
                "nodes that the CPU computed after an NPU failure (see the log)".to_owned(),
                left,
            ));
        }
        rows.push(("lists of matmuls".to_owned(), read(&self.lists)));
        rows.push((
            "multiply-adds (millions)".to_owned(),
            read(&self.macs) / 1_000_000,
        ));
        let attentions = read(&self.attentions);
        rows.push(("attention nodes computed".to_owned(), attentions));
        rows.push((
            "attention rows x keys (thousands)".to_owned(),
            read(&self.attention_pairs) / 1_000,
        ));
        for (place, count) in [
            ("on the NPU", weights.npu),
            ("left to the CPU", weights.cpu),
        ] {
            rows.push((format!("weight tensors {place}"), count.tensors));
            rows.push((format!("KiB of weights {place}"), count.bytes / 1024));
        }
        rows.push(("submits".to_owned(), counts.submits));
        rows.push(("jobs".to_owned(), counts.jobs));
        rows.push(("tasks".to_owned(), counts.tasks));
        // Only on an NPU that is not calibrated.
        if counts.checked_tasks > 0 {
            rows.push(("first tasks checked".to_owned(), counts.checked_tasks));
        }
        rows.push((
            "KiB to the device".to_owned(),
            counts.bytes_to_device / 1024,
        ));
        rows.push((
            "KiB from the device".to_owned(),
            counts.bytes_from_device / 1024,
        ));
        let rows = rows
            .into_iter()
            .map(|(name, count)| (name, count.to_string()));
        let mut rows: Vec<_> = rows.chain(times(counts.times, npu)).collect();
        if attentions > 0 {
            let time = Duration::from_nanos(read(&self.attention_ns));
            rows.push(("ms in attention (measured)".to_owned(), measured(time)));
        }
        for reason in DeclineReason::ALL {
            let count = read(&self.declined.0[reason as usize]);
            if count > 0 {
                let name = format!("declined: {}", reason.words());
                rows.push((name, count.to_string()));
            }
        }
        let width = rows.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
        let mut table = format!("ROCKET statistics: {device}\n");
        for (name, count) in rows {
            // Writing into a String cannot fail.
            let _ = writeln!(table, "  {name:width$}  {count:>12}");
        }
        if let Some(modelled) = npu.modelled {
            let clock = modelled.clock_hz / MEGAHERTZ;
            let _ = writeln!(
                table,
                "  (modelled: by the timing model, for an NPU at {clock} MHz)"
            );
        }
        table
            .push_str("  (declined: counted each time the program asks, and it asks repeatedly)\n");
        table
    }
}

/// Milliseconds of a second, picoseconds of a millisecond.
const MS: f64 = 1e3;
const PS_PER_MS: f64 = 1e9;

/// Formats milliseconds.
fn measured(time: Duration) -> String {
    format!("{:.3}", time.as_secs_f64() * MS)
}

/// Rows about times. A thread's time is the wall-clock time while it worked; the times of several
/// threads are added.
fn times(times: Times, npu: NpuTime) -> Vec<(String, String)> {
    let mut rows = vec![
        (
            "thread-ms packing weights (measured)",
            measured(times.pack_weights),
        ),
        (
            "thread-ms packing activations (measured)",
            measured(times.pack),
        ),
        (
            "thread-ms unpacking outputs (measured)",
            measured(times.unpack),
        ),
    ];
    // Only if first tasks were checked.
    if !times.check.is_zero() {
        rows.push((
            "thread-ms checking first tasks (measured)",
            measured(times.check),
        ));
    }
    // On the software model these would describe the model, not an NPU.
    if npu.is_measured {
        rows.push((
            "thread-ms waiting for jobs (measured)",
            measured(times.wait),
        ));
        rows.push((
            "NPU ms, with jobs submitted (measured)",
            measured(times.in_flight),
        ));
    }
    if let Some(modelled) = npu.modelled {
        rows.push((
            "NPU ms, matmul by matmul (modelled)",
            format!("{:.3}", modelled.ps as f64 / PS_PER_MS),
        ));
    }
    rows.into_iter()
        .map(|(name, time)| (name.to_owned(), time))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::budget::TensorCount;

    #[test]
    fn the_table_shows_what_was_counted() {
        let stats = Stats::default();
        stats.computed(ComputeType::Int8Hadamard, 5_000_000);
        stats.computed(ComputeType::Int8Hadamard, 2_000_000);
        stats.declined(DeclineReason::SmallBatch);
        stats.failed();
        stats.attended(1_500_000);
        stats.attended(2_500_000);
        stats.attention_time(Duration::from_micros(2_500));
        stats.left_to_cpu(2);
        let table = stats.table(
            "software model: for testing",
            DeviceCounts {
                jobs: 9,
                checked_tasks: 4,
                times: Times {
                    pack: Duration::from_micros(1_500),
                    wait: Duration::from_secs(2),
                    ..Times::default()
                },
                ..DeviceCounts::default()
            },
            WeightTotals {
                npu: TensorCount {
                    tensors: 3,
                    bytes: 5 << 10,
                },
                cpu: TensorCount::default(),
            },
            NpuTime {
                modelled: Some(ModelledTime {
                    ps: 2_250_000_000,
                    clock_hz: 600_000_000,
                }),
                is_measured: false,
            },
        );
        let count = |name: &str| {
            let line = table.lines().find(|line| line.trim().starts_with(name));
            line.unwrap().split_whitespace().last().unwrap().to_owned()
        };
        assert_eq!(count("matmuls computed in int8-hadamard"), "2");
        assert_eq!(count("matmuls computed in fp16"), "0");
        assert_eq!(count("matmuls failed"), "1");
        assert_eq!(count("multiply-adds"), "7");
        assert_eq!(count("weight tensors on the NPU"), "3");
        assert_eq!(count("KiB of weights on the NPU"), "5");
        assert_eq!(count("weight tensors left to the CPU"), "0");
        assert_eq!(count("jobs"), "9");
        assert_eq!(count("first tasks checked"), "4");
        assert_eq!(count("nodes that the CPU computed"), "2");
        assert_eq!(count("declined: fewer rows"), "1");
        assert_eq!(count("attention nodes computed"), "2");
        assert_eq!(count("attention rows x keys"), "4000");
        assert_eq!(count("ms in attention (measured)"), "2.500");
        assert!(!table.contains("declined: attention"));
        assert!(!table.contains("checking first tasks"));
        assert_eq!(count("thread-ms packing activations (measured)"), "1.500");
        assert_eq!(count("thread-ms unpacking outputs (measured)"), "0.000");
        assert_eq!(count("NPU ms, matmul by matmul (modelled)"), "2.250");
        // The wait was for the software model.
        assert!(!table.contains("waiting"), "{table}");
        assert!(table.contains("at 600 MHz"), "{table}");
    }

    #[test]
    fn the_time_of_a_real_npu_is_measured() {
        let real = NpuTime {
            modelled: None,
            is_measured: true,
        };
        let spent = Times {
            wait: Duration::from_millis(3),
            in_flight: Duration::from_millis(4),
            check: Duration::from_millis(5),
            ..Times::default()
        };
        let rows = times(spent, real);
        let of = |word: &str| {
            let row = rows.iter().find(|(name, _)| name.contains(word));
            row.unwrap().1.clone()
        };
        assert_eq!(of("waiting"), "3.000");
        assert_eq!(of("submitted"), "4.000");
        assert_eq!(of("checking"), "5.000");
    }
}
