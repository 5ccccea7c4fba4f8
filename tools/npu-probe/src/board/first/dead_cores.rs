// SPDX-License-Identifier: MIT OR Apache-2.0
//! Cores that complete no job, and the overlay that disables them: a program cannot choose
//! the core on which its jobs run.

use std::collections::BTreeSet;

use super::results::FirstResults;
use crate::experiment::record::ExperimentRecord;

/// Interrupt lines of the cores (Linux, rk3588-base.dtsi).
const LINES: [&str; 3] = ["fdab0000.npu", "fdac0000.npu", "fdad0000.npu"];

/// The cores without a right job: those whose interrupt line no right job has raised. Without
/// lines the files have the cores' numbers, since the driver hands out idle cores in order.
pub(super) fn dead_cores(results: &FirstResults) -> BTreeSet<usize> {
    let records = || results.records.values();
    let mut dead = BTreeSet::new();
    for record in records() {
        dead.extend(record.dead_files.iter().map(|file| *file as usize));
    }
    let right = |record: &ExperimentRecord| -> Vec<String> {
        let jobs = record.jobs.iter().filter(|job| job.completed);
        jobs.flat_map(|job| job.raised.clone()).collect()
    };
    let raised: BTreeSet<String> = records().flat_map(right).collect();
    let silent = |(_, line): &(usize, &&str)| !raised.contains(**line);
    let silent = LINES.iter().enumerate().filter(silent);
    let silent: BTreeSet<usize> = silent.map(|(core, _)| core).collect();
    if silent.len() == dead.len() {
        dead = silent;
    }
    dead
}

/// The source of a device tree overlay that disables these cores. Core 0's node sets the clock
/// of all cores, so the first of the others sets it instead (6: SCMI_CLK_NPU).
pub(super) fn overlay(dead: &BTreeSet<usize>) -> String {
    let mut text = "/dts-v1/;\n/plugin/;\n\n".to_owned();
    for core in dead {
        text += &format!("&rknn_core_{core} {{ status = \"disabled\"; }};\n");
    }
    let working = (0..LINES.len()).find(|core| !dead.contains(core));
    if let (Some(core), true) = (working, dead.contains(&0)) {
        text += &format!(
            "&rknn_core_{core} {{ assigned-clocks = <&scmi_clk 6>; assigned-clock-rates = \
             <200000000>; }};\n"
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_core_sets_the_clock_that_core_0_sets() {
        let [first, second] = [0, 1].map(|core| overlay(&BTreeSet::from([core])));
        assert!(first.contains("&rknn_core_0 { status = \"disabled\"; };"));
        assert!(first.contains("&rknn_core_1 { assigned-clocks"));
        assert!(!second.contains("clock"), "{second}");
    }
}
