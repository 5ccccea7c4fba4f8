// SPDX-License-Identifier: MIT OR Apache-2.0
//! Under which conditions a figure was measured.

use std::fs;

use super::stock::Stock;

/// Versions, the processor, and how busy it is, as a sentence.
pub(super) fn of(stock: &Stock) -> String {
    format!(
        "Debian's ggml {} ({}), {} with {} threads of hardware, load average {}.",
        stock.ggml_version(),
        stock.arch(),
        processor(),
        std::thread::available_parallelism().map_or(0, usize::from),
        load()
    )
}

/// The processor's name, as the kernel has it; ARM has numbers only.
fn processor() -> String {
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let field = |name: &str| {
        let line = text.lines().find(|line| line.starts_with(name))?;
        Some(line.split_once(':')?.1.trim().to_owned())
    };
    field("model name")
        .or_else(|| Some(format!("ARM part {}", field("CPU part")?)))
        .unwrap_or_else(|| "an unknown processor".to_owned())
}

/// Processes that wanted to run in the last minute.
pub(super) fn load() -> String {
    let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let first = text.split_whitespace().next();
    first.unwrap_or("unknown").to_owned()
}
