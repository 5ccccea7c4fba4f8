// SPDX-License-Identifier: MIT OR Apache-2.0
//! The NPU's clock and supply, if the kernel shows them.

use npu_matmul::profile::Board;

use super::root::SystemRoot;
use super::row::DoctorRow;
use crate::base::flags::planning::HERTZ_PER_MHZ;
use crate::base::table::joined;

/// Directory where kernels that scale the NPU's clock show it; mainline does not.
const DEVFREQ: &str = "sys/class/devfreq";
/// File of all clocks; only root can read it.
const SUMMARY: &str = "sys/kernel/debug/clk/clk_summary";
/// The firmware's clock of all cores; else, if that is not listed, the bus clock.
const CLOCKS: [&str; 2] = ["scmi_clk_npu", "clk_npu_dsu0"];
/// Position of the rate in a clock's line: name, three counts, rate.
const RATE: usize = 4;
/// The NPU clock at boot, MHz (E-clock-boot).
const BOOT_MHZ: u64 = 200;
/// The power domains of the NPU (Linux, drivers/pmdomain/rockchip/pm-domains.c).
const DOMAINS: [&str; 4] = ["npu", "nputop", "npu1", "npu2"];
const REGULATORS: &str = "sys/class/regulator";

/// The row of the clock and its effect on speed.
pub(super) fn row(root: &SystemRoot) -> DoctorRow {
    // E-time-clock.
    let cost = "a core does 150 GFLOP/s at 200 MHz, and a 512x3840x4096 matmul takes 71 ms less \
                at 600 MHz";
    let remedy = "A device tree overlay can assign 600 MHz: docs/boards.md, `A faster clock`.";
    match rate(root) {
        Some((place, mhz)) if mhz <= BOOT_MHZ => {
            DoctorRow::note(format!("{mhz} MHz ({place})"), remedy).with([cost.to_owned()])
        }
        Some((place, mhz)) => DoctorRow::ok(format!("{mhz} MHz ({place})")),
        None if root.is_file(SUMMARY) => DoctorRow::note(
            "the kernel lists no known clock of the NPU",
            "Look for the NPU's clock in /sys/kernel/debug/clk/clk_summary.",
        ),
        None => match assigned_mhz(root) {
            Some(mhz) => {
                let found = format!("{mhz} MHz, assigned by the device tree");
                let slow = (mhz <= BOOT_MHZ).then(|| cost.to_owned());
                let see = "Run `npu-probe doctor` as root to see the clock itself (debugfs).";
                let remedy = if slow.is_some() { remedy } else { see };
                DoctorRow::note(found, remedy).with(slow)
            }
            None => DoctorRow::note(
                "not readable; mainline leaves the NPU at its boot clock, 200 MHz",
                "Run `npu-probe doctor` as root to see the clock (debugfs).",
            )
            .with([cost.to_owned()]),
        },
    }
}

/// The NPU clock that the device tree assigns, MHz.
fn assigned_mhz(root: &SystemRoot) -> Option<u64> {
    let hz = Board::first_rate(&root.bytes(Board::ASSIGNED_RATES)?)?;
    Some(hz / HERTZ_PER_MHZ)
}

/// The source of the clock rate, and the rate in MHz.
fn rate(root: &SystemRoot) -> Option<(String, u64)> {
    let scaled = root.names(DEVFREQ).into_iter();
    let mut scaled = scaled.filter(|name| name.ends_with("npu"));
    let hz = |name: String| root.number(&format!("{DEVFREQ}/{name}/cur_freq"));
    if let Some(hz) = scaled.find_map(hz) {
        return Some(("devfreq".to_owned(), hz / HERTZ_PER_MHZ));
    }
    let summary = root.text(SUMMARY)?;
    CLOCKS.iter().find_map(|clock| {
        let parse_line = |line: &str| {
            let words: Vec<&str> = line.split_whitespace().take(RATE + 1).collect();
            let hz: u64 = words.get(RATE)?.parse().ok()?;
            (words.first() == Some(clock)).then_some(hz / HERTZ_PER_MHZ)
        };
        Some(((*clock).to_owned(), summary.lines().find_map(parse_line)?))
    })
}

pub(super) struct NpuSupply {
    /// Its name in the device tree: `vdd_npu_s0`.
    pub(super) name: String,
    pub(super) is_off: bool,
    /// Its name, state and voltage, as text.
    shown: String,
}

pub(super) fn supplies(root: &SystemRoot) -> Vec<NpuSupply> {
    let supply = |regulator: String| {
        let read = |file: &str| root.line(&format!("{REGULATORS}/{regulator}/{file}"));
        let name = read("name").filter(|name| name.contains("npu"))?;
        let state = read("state");
        let volts = read("microvolts").map(|volts| format!("{volts} uV"));
        let shown = [Some(name.clone()), state.clone(), volts];
        Some(NpuSupply {
            is_off: state.is_some_and(|state| state == "disabled"),
            shown: joined(shown.into_iter().flatten(), " "),
            name,
        })
    };
    let regulators = root.names(REGULATORS).into_iter();
    regulators.filter_map(supply).take(16).collect()
}

/// The row of the NPU's power domains and regulators; none if nothing is readable.
pub(super) fn supply_row(root: &SystemRoot) -> Option<DoctorRow> {
    let domains = DOMAINS.iter().filter_map(|domain| {
        let state = root.line(&format!("sys/kernel/debug/pm_genpd/{domain}/current_state"))?;
        Some(format!("domain {domain} {state}"))
    });
    let supplies = supplies(root).into_iter().map(|supply| supply.shown);
    let all: Vec<String> = supplies.chain(domains).collect();
    (!all.is_empty()).then(|| DoctorRow::ok(all.join(", ")))
}
