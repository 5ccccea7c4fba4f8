// SPDX-License-Identifier: MIT OR Apache-2.0
//! Memory of weights, and whether it is available.

use std::fmt::Write;

use npu_matmul::PlanOptions;
use npu_matmul::memory::MemoryPlan;
use npu_matmul::plan::WeightPlan;
use serde::Serialize;

use crate::table::MIB;

/// Memory of a matmul's weights, computed without a device.
#[derive(Debug, Serialize)]
pub(super) struct MemoryReport {
    /// Bytes on each file descriptor, whole pages; none if a file descriptor cannot
    /// address its share.
    bytes_per_fd: Option<Vec<u64>>,
    bytes: u64,
    /// Bytes that a file descriptor can address beside its working buffers.
    bytes_per_fd_max: u64,
    /// Memory limit of all weights, if given.
    bytes_max: Option<u64>,
    fits: bool,
    /// Number of weights of this size that fit together.
    fit: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    why_not: Option<String>,
}

impl MemoryReport {
    /// The report for weights on `fds` file descriptors, of at most `max` bytes in all.
    pub(super) fn new(
        weights: &WeightPlan,
        fds: usize,
        max: Option<u64>,
        options: &PlanOptions,
    ) -> Self {
        let with = |max| {
            let mut memory = MemoryPlan::for_weights(fds, max, options);
            let added = memory.add(weights);
            (memory, added)
        };
        let (_, fits) = with(max.unwrap_or(u64::MAX));
        // Without a limit on RAM, only addresses limit the weights.
        let (alone, addressed) = with(u64::MAX);
        let per_fd_max = alone.device_limit();
        let bytes_per_fd = addressed
            .is_ok()
            .then(|| alone.per_device().collect::<Vec<_>>());
        let bytes = match &bytes_per_fd {
            Some(each) => each.iter().sum(),
            None => weights.device_bytes(),
        };
        let fit = bytes_per_fd.as_ref().map_or(0, |each| {
            let busiest = each.iter().copied().max().unwrap_or(0);
            let of_all = max.map_or(u64::MAX, |max| max / bytes.max(1));
            of_all.min(per_fd_max / busiest.max(1))
        });
        Self {
            bytes_per_fd,
            bytes,
            bytes_per_fd_max: per_fd_max,
            bytes_max: max,
            fits: fits.is_ok(),
            fit,
            why_not: fits.err().map(|error| error.to_string()),
        }
    }

    pub(super) fn text(&self) -> String {
        let mib = |bytes: u64| bytes as f64 / MIB;
        let mut text = format!("\nweights  {:.2} MiB", mib(self.bytes));
        if let Some(each) = &self.bytes_per_fd {
            let each: Vec<_> = each.iter().map(|&x| format!("{:.2}", mib(x))).collect();
            let _ = write!(text, ": {} on the file descriptors", each.join(", "));
        }
        let _ = write!(
            text,
            ", which address {:.0} MiB of weights each",
            mib(self.bytes_per_fd_max)
        );
        if let Some(max) = self.bytes_max {
            let _ = write!(text, "; {:.0} MiB in all", mib(max));
        }
        text.push('\n');
        let _ = match &self.why_not {
            None => writeln!(text, "  fit      {} times", self.fit),
            Some(why) => writeln!(text, "  do not fit: {why}"),
        };
        text
    }
}
