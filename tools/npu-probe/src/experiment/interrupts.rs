// SPDX-License-Identifier: MIT OR Apache-2.0
//! Detects the core that ran a job: each core has a separate interrupt line, shared with its
//! IOMMU, and the kernel counts interrupts per line.

use std::collections::BTreeMap;
use std::fs;

const COUNTS: &str = "/proc/interrupts";
/// End of the device name of an NPU core's interrupt line.
const NPU: &str = ".npu";

/// Number of interrupts of each core's line since boot, by device name.
pub(super) fn counts() -> Result<BTreeMap<String, u64>, String> {
    let text = fs::read_to_string(COUNTS).map_err(|error| format!("{COUNTS}: {error}"))?;
    let counts = parse(&text);
    if counts.is_empty() {
        Err(format!("{COUNTS} has no line of an NPU"))
    } else {
        Ok(counts)
    }
}

/// The lines with more interrupts than in `before`.
pub(super) fn raised_since(before: &BTreeMap<String, u64>) -> Vec<String> {
    let now = counts().unwrap_or_default();
    let raised = |(name, count): &(String, u64)| before.get(name).is_some_and(|was| was < count);
    now.into_iter()
        .filter(raised)
        .map(|(name, _)| name)
        .collect()
}

/// Parses lines like `45:  12  0  GICv3 142 Level  fdab9000.iommu, fdab0000.npu`: one count
/// per processor, then words, and the names of all devices on the line.
fn parse(text: &str) -> BTreeMap<String, u64> {
    let line = |line: &str| {
        let mut words = line.split_whitespace().skip(1);
        let counts = words.clone().map_while(|word| word.parse::<u64>().ok());
        let name = words.find(|word| word.trim_end_matches(',').ends_with(NPU))?;
        Some((name.trim_end_matches(',').to_owned(), counts.sum()))
    };
    text.lines().filter_map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_cores_are_found_and_added_up() {
        let text = "           CPU0       CPU1\n 13:  9  8  GICv3  27 Level  arch_timer\n \
             45: 12  30  GICv3 142 Level     fdab9000.iommu, fdab0000.npu\n \
             46:  0   0  GICv3 143 Level     fdac0000.npu, fdaca000.iommu\nErr: 0\n";
        let expected = [("fdab0000.npu", 42), ("fdac0000.npu", 0)];
        let expected = expected.map(|(name, count)| (name.to_owned(), count));
        assert_eq!(parse(text), BTreeMap::from(expected));
    }
}
