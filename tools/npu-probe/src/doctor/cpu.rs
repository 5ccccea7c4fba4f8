// SPDX-License-Identifier: MIT OR Apache-2.0
//! The CPUs: which ones handle the NPU's interrupts, their clocks and idle states.

use std::collections::{BTreeMap, BTreeSet};

use super::root::SystemRoot;
use super::row::DoctorRow;
use crate::base::table::joined;

const CPUS: &str = "sys/devices/system/cpu";
/// Part numbers of the RK3588's CPUs in MIDR_EL1 (Arm's reference manuals of both CPUs).
const PARTS: [(&str, &str); 2] = [("0xd05", "A55"), ("0xd0b", "A76")];
/// Most CPUs of a list.
const MOST_CPUS: u32 = 4096;
/// Wake-ups longer than this, in microseconds, are reported: a submit of a tiny job
/// takes about 50 (E-time-submit).
const LONG_WAKE: u64 = 50;

fn kinds(root: &SystemRoot) -> BTreeMap<u32, &'static str> {
    let text = root.text("proc/cpuinfo").unwrap_or_default();
    let mut kinds = BTreeMap::new();
    let mut cpu = None;
    for line in text.lines() {
        let Some((name, value)) = line.split_once(':') else {
            continue;
        };
        match name.trim() {
            "processor" => cpu = value.trim().parse::<u32>().ok(),
            "CPU part" => {
                let kind = PARTS.iter().find(|(part, _)| *part == value.trim());
                if let (Some(cpu), Some((_, kind))) = (cpu, kind) {
                    kinds.insert(cpu, *kind);
                }
            }
            _ => {}
        }
    }
    kinds
}

/// The CPUs in a list such as `0-3,6`.
fn list(text: &str) -> Option<Vec<u32>> {
    let mut cpus = Vec::new();
    for part in text.trim().split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (first.parse::<u32>().ok()?, last.parse::<u32>().ok()?);
        if last >= MOST_CPUS || cpus.len() >= MOST_CPUS as usize {
            return None;
        }
        cpus.extend(first..=last);
    }
    Some(cpus)
}

struct CoreInterrupt {
    number: u32,
    /// The CPUs that handle it, as the kernel writes them.
    cpus: String,
}

/// The row of the CPUs that handle interrupts of the platform devices `cores`.
pub(super) fn interrupt_row(root: &SystemRoot, cores: &[String]) -> DoctorRow {
    let found = interrupts(root, cores);
    if found.is_empty() {
        return DoctorRow::note(
            "not readable (/proc/interrupts)",
            "Check /proc/interrupts as root.",
        );
    }
    let kinds = kinds(root);
    let describe = |interrupt: &CoreInterrupt| {
        let cpus = list(&interrupt.cpus).unwrap_or_default();
        let of: BTreeSet<_> = cpus.iter().map(|cpu| kinds.get(cpu)).collect();
        // The kind is shown only if all CPUs are of one kind.
        let kind = match of.first() {
            Some(Some(kind)) if of.len() == 1 => format!(" ({kind})"),
            _ => String::new(),
        };
        format!("{} on CPU {}{kind}", interrupt.number, interrupt.cpus)
    };
    let told = joined(found.iter().map(describe), ", ");
    let on_small = |interrupt: &&CoreInterrupt| {
        let cpus = list(&interrupt.cpus).unwrap_or_default();
        cpus.iter().any(|cpu| kinds.get(cpu) == Some(&"A55"))
    };
    let slow = found.iter().filter(on_small);
    let slow = joined(slow.map(|interrupt| interrupt.number), ", ");
    let big = kinds.iter().find(|(_, kind)| **kind == "A76");
    let (Some((first, _)), false) = (big, slow.is_empty()) else {
        return DoctorRow::ok(told);
    };
    let remedy = format!(
        "As root, write {first} to /proc/irq/N/smp_affinity_list for N = {slow}, and keep \
         irqbalance from moving them back."
    );
    // E-time-submit.
    let cost = "a submit of a tiny job takes 51 to 54 us with its interrupt on an A55, 31 to 33 \
                on an A76";
    DoctorRow::note(told, remedy).with([cost.to_owned()])
}

/// How often the lines of the platform devices `cores` were raised; `None` if unknown.
pub(super) fn interrupt_count(root: &SystemRoot, cores: &[String]) -> Option<u64> {
    let text = root.text("proc/interrupts")?;
    let parse_line = |line: &str| {
        let (_, rest) = line.split_once(':')?;
        let mut words = rest.split([' ', ',', '\t']);
        if !words.any(|word| cores.iter().any(|core| core == word)) {
            return None;
        }
        let counts = rest
            .split_whitespace()
            .map_while(|word| word.parse::<u64>().ok());
        Some(counts.fold(0, u64::saturating_add))
    };
    let counts: Vec<u64> = text.lines().filter_map(parse_line).collect();
    (!counts.is_empty()).then(|| counts.into_iter().fold(0, u64::saturating_add))
}

fn interrupts(root: &SystemRoot, cores: &[String]) -> Vec<CoreInterrupt> {
    let text = root.text("proc/interrupts").unwrap_or_default();
    let parse_line = |line: &str| {
        let (number, rest) = line.split_once(':')?;
        let mut words = rest.split([' ', ',', '\t']);
        if !words.any(|word| cores.iter().any(|core| core == word)) {
            return None;
        }
        let number: u32 = number.trim().parse().ok()?;
        let file = |name: &str| root.line(&format!("proc/irq/{number}/{name}"));
        let cpus = file("effective_affinity_list").or_else(|| file("smp_affinity_list"));
        Some(CoreInterrupt {
            number,
            cpus: cpus.unwrap_or_else(|| "unknown".to_owned()),
        })
    };
    text.lines().filter_map(parse_line).take(16).collect()
}

/// The row of the CPUs' clock governors; none if the kernel does not scale CPU clocks.
pub(super) fn governor_row(root: &SystemRoot) -> Option<DoctorRow> {
    let directory = format!("{CPUS}/cpufreq");
    let policies = root.names(&directory).into_iter().take(64);
    let policies: Vec<String> = policies
        .filter_map(|policy| {
            let read = |file: &str| root.line(&format!("{directory}/{policy}/{file}"));
            let cpus = read("related_cpus")?.replace(' ', ",");
            Some(format!("CPU {cpus} {}", read("scaling_governor")?))
        })
        .collect();
    if policies.is_empty() {
        return None;
    }
    let saves_power = policies.iter().any(|policy| policy.ends_with(" powersave"));
    let remedy = "Use `schedutil` or `performance` (`cpupower frequency-set -g`): powersave keeps \
                  CPUs at their lowest clock, and they prepare the NPU's data.";
    let remedy = saves_power.then_some(remedy);
    Some(DoctorRow::judged(policies.join("; "), remedy))
}

/// The row of the CPUs' idle states; none if there are none.
pub(super) fn idle_row(root: &SystemRoot) -> Option<DoctorRow> {
    let directory = format!("{CPUS}/cpu0/cpuidle");
    let states = root.names(&directory).into_iter().take(16);
    let states: Vec<(String, u64)> = states
        .filter_map(|state| {
            let path = format!("{directory}/{state}");
            let is_off = root.number(&format!("{path}/disable")) == Some(1);
            let latency = root.number(&format!("{path}/latency"))?;
            (!is_off).then_some((root.line(&format!("{path}/name"))?, latency))
        })
        .collect();
    let longest = states.iter().map(|(_, latency)| *latency).max()?;
    let states = states.iter();
    let told = states.map(|(name, latency)| format!("{name} {latency} us"));
    let told = joined(told, ", ");
    let remedy = "If latency matters, write 0 to /dev/cpu_dma_latency and keep it open: a CPU in \
                  deep sleep sees the end of a job later.";
    let remedy = (longest > LONG_WAKE).then_some(remedy);
    Some(DoctorRow::judged(format!("{told} to wake"), remedy))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_name_cpus() {
        assert_eq!(list("0-3,6\n"), Some(vec![0, 1, 2, 3, 6]));
        assert_eq!(list("4"), Some(vec![4]));
        for text in ["", "x", "1-", "0-99999999", "3-1x"] {
            assert_eq!(list(text), None, "{text}");
        }
        assert_eq!(list("5-2"), Some(vec![]));
    }
}
