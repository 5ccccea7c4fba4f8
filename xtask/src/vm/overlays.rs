// SPDX-License-Identifier: MIT OR Apache-2.0
//! `cargo xtask vm overlays`: compiles the overlays of docs/boards.md and applies them to the
//! device trees of all boards. Then it boots a guest with the faster clock, and checks that the
//! unpatched kernel sets the clock before the driver probes, and keeps it while the NPU sleeps.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use npu_vm::board;

use super::guest::Guest;
use super::initramfs::COMMAND;
use super::qemu::Streams;
use super::runner::{GuestRunner, LIMIT, ProgramFailed};
use super::tree::{apply, compile, property};
use crate::{build, paths};

/// The page with the overlays: the one that enables the NPU, then that of the clock.
const PAGE: &str = "docs/boards.md";
/// The rate that the second overlay assigns, Hz.
const RATE: &str = "600000000";
/// The power domain and the node of core 0 in the overlay. The guest's tree has no labels.
const DOMAIN: &str = "<&power 9>";
const CORE: &str = "&rknn_core_0";

/// Node of core 0 in trees, its device in the guest, and the clock's name in the guest.
const NODE: &str = "/npu@fdab0000";
const DEVICE: &str = "/sys/devices/platform/fdab0000.npu";
const CLOCK: &str = "npu-clock@fdb90000.BCLK";

/// The link of core 0 to the regulator that holds its power domain.
const HOLD: &str = "supplier:platform:regulator-npu-hold";

/// Records changes of rates and the driver's probe from the start of the kernel on.
const TRACED: &str = "trace_event=clk:clk_set_rate kprobe_event=p:kprobes/probe,rocket_probe";

/// Prints the trace; then the rate and the state of core 0 after the boot, after a self-test, when
/// the NPU sleeps, and after another self-test.
const SCRIPT: &str = r"
set -e
/bin/busybox --install -s /bin
mkdir -p /sys/kernel/tracing
grep -q tracefs /proc/mounts || mount -t tracefs tracefs /sys/kernel/tracing
grep -q debugfs /proc/mounts || mount -t debugfs debugfs /sys/kernel/debug
grep -E 'clk_set_rate|probe' /sys/kernel/tracing/trace || true
state() {
    echo $1 $(cat /sys/kernel/debug/clk/CLOCK/clk_rate) $(cat DEVICE/power/runtime_status)
}
state boot
ls DEVICE | grep hold || true
npu-probe --shape 64x64x64 >/dev/null
sleep 1
state asleep
npu-probe --shape 64x64x64 >/dev/null
sleep 1
state again

";

pub(crate) fn run(guest: &Guest) -> Result<()> {
    let mut runner = GuestRunner::prepare(guest)?;
    let folder = paths::target().join("overlays");
    fs::create_dir_all(&folder).context("making a directory")?;
    let sources = sources()?;
    let [enabling, clock] = ["npu", "clock"].map(|name| folder.join(format!("{name}.dtbo")));
    compile(&sources[0], &enabling)?;
    compile(&sources[1], &clock)?;
    apply_to_boards(&runner.trees(), &enabling, &clock)?;
    let in_guest = folder.join("guest.dtbo");
    ensure!(
        [DOMAIN, CORE].iter().all(|name| sources[1].contains(name)),
        "{PAGE}: the overlay of the clock does not name {DOMAIN} and {CORE}"
    );
    let without_labels = sources[1]
        .replace(DOMAIN, &format!("<{} 0>", board::POWER_HANDLE))
        .replace(CORE, &format!("&{{{NODE}}}"));
    compile(&without_labels, &in_guest)?;
    boot(&mut runner, None, &board::ASSIGNED_HZ.to_string())?;
    boot(&mut runner, Some(&in_guest), RATE)
}

/// The overlays' sources in the page.
fn sources() -> Result<[String; 2]> {
    let page = fs::read_to_string(paths::root().join(PAGE)).context(PAGE)?;
    let blocks = page.split("```dts\n").skip(1);
    let blocks: Vec<String> = blocks
        .filter_map(|rest| Some(rest.split_once("\n```")?.0.to_owned() + "\n"))
        .collect();
    let found = blocks.len();
    <[String; 2]>::try_from(blocks)
        .map_err(|_| anyhow::anyhow!("{PAGE} has {found} overlays, and should have two"))
}

/// Applies both overlays to the tree of each board that describes the NPU's regulator.
fn apply_to_boards(trees: &Path, enabling: &Path, clock: &Path) -> Result<()> {
    let mut counts = [0; 3];
    let result = clock.with_file_name("applied.dtb");
    let mut files: Vec<PathBuf> = fs::read_dir(trees)
        .with_context(|| format!("listing {}", trees.display()))?
        .map(|entry| Ok(entry?.path()))
        .collect::<Result<_>>()?;
    files.retain(|file| file.extension().is_some_and(|extension| extension == "dtb"));
    files.sort();
    for tree in &files {
        let status = property(tree, "s", NODE, "status")?;
        let is_enabled = status.as_deref().is_none_or(|status| status == "okay");
        let has_supply = property(tree, "s", "/__symbols__", "vdd_npu_s0")?.is_some();
        let group = match (is_enabled, has_supply) {
            (true, _) => 0,
            (false, true) => 1,
            (false, false) => 2,
        };
        counts[group] += 1;
        match group {
            0 => apply(tree, clock, &result)?,
            1 => {
                apply(tree, enabling, &result)?;
                apply(&result, clock, &result)?;
            }
            _ => continue,
        }
        let rate = property(&result, "u", NODE, "assigned-clock-rates")?;
        let status = property(&result, "s", NODE, "status")?;
        ensure!(
            rate.as_deref() == Some(RATE) && status.as_deref() == Some("okay"),
            "{}: the overlays give the clock {rate:?} and the status {status:?}",
            tree.display()
        );
    }
    let [on, off, without] = counts;
    ensure!(on > 0 && off > 0, "{} has too few trees", trees.display());
    println!(
        "ok trees: {on} boards with the NPU on, {off} with it off; {without} do not describe its \
         regulator"
    );
    Ok(())
}

/// Boots a guest and checks that the kernel sets the clock to `rate`.
fn boot(runner: &mut GuestRunner, overlay: Option<&Path>, rate: &str) -> Result<()> {
    runner.boot_with(overlay, TRACED);
    let (mut files, shell) = runner.with_shell()?;
    files.add(&build::guest("npu-probe")?, "/bin/npu-probe")?;
    let script = SCRIPT.replace("CLOCK", CLOCK).replace("DEVICE", DEVICE);
    files.set_list(COMMAND, &[&*shell, "sh", "-c", &*script]);
    let finished = runner.run(files, LIMIT, Streams::Kept)?;
    finished.tell_complaints();
    let (text, status) = (finished.text(), finished.status()?);
    let is_right = status.success() && finished.all_known && is_as_assigned(&text, rate);
    // The NPU waits for what holds its domain.
    let is_right = is_right && text.contains(HOLD) == overlay.is_some();
    println!(
        "{} guest: {rate} Hz",
        if is_right { "ok" } else { "not ok" }
    );
    if !is_right {
        println!("{text}{}", String::from_utf8_lossy(&finished.left.stderr));
        bail!(ProgramFailed(1));
    }
    Ok(())
}

/// Whether the clock was set once, before the driver probed, and kept while the NPU slept.
fn is_as_assigned(text: &str, rate: &str) -> bool {
    let set = |line: &str| line.contains("clk_set_rate:") && line.contains(CLOCK);
    let sets: Vec<usize> = (text.lines().enumerate())
        .filter_map(|(at, line)| set(line).then_some(at))
        .collect();
    let probe = text.lines().position(|line| line.contains("rocket_probe"));
    let states = ["boot", "asleep", "again"].map(|when| format!("{when} {rate} suspended"));
    let all = states
        .iter()
        .all(|state| text.lines().any(|line| line == state));
    all && sets.len() == 1 && probe.is_some_and(|probe| sets[0] < probe)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_is_set_late_or_lost_is_seen() {
        let right = "clk_set_rate: npu-clock@fdb90000.BCLK 600000000\nprobe: (rocket_probe+0x0)\n\
                     boot 600000000 suspended\nasleep 600000000 suspended\n\
                     again 600000000 suspended\n";
        assert!(is_as_assigned(right, RATE));
        let lost = right.replace("again 600000000", "again 200000000");
        let late = right
            .replace("probe:", "")
            .replace("clk_set", "probe: rocket_probe\nclk_set");
        for wrong in [lost, late, right.replace("suspended", "active")] {
            assert!(!is_as_assigned(&wrong, RATE), "{wrong}");
        }
    }
}
