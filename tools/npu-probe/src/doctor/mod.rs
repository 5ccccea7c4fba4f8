// SPDX-License-Identifier: MIT OR Apache-2.0
//! `npu-probe doctor`: checks whether this machine can use its NPU.
//!
//! Reads procfs, sysfs, the device tree and /dev below a directory ([`SystemRoot`]). Opens no
//! device. Makes one row per requirement.

mod bugs;
mod clock;
mod cpu;
mod driver;
mod kernel;
mod log;
mod memory;
mod node;
mod root;
mod row;
mod software;
mod tree;

pub(crate) use root::{SystemRoot, is_public_path, open_without_waiting, read_records};
pub(crate) use row::{DoctorReport, DoctorRow};

use driver::DriverBinding;
use kernel::RunningKernel;
use log::KernelLog;
use tree::DeviceTree;

pub(crate) fn examine(root: &SystemRoot) -> DoctorReport {
    let tree = DeviceTree::of(root);
    let kernel = RunningKernel::of(root);
    let driver = DriverBinding::of(root);
    // A bound driver proves more than the tree, which containers hide.
    let works = driver.is_bound() && !tree.has_other_npu();
    let (npu_checks, usable) = if works || tree.has_npu() {
        npu_rows(root, &tree, &kernel, &driver)
    } else {
        let row = DoctorRow::ok(&kernel.release).about("kernel");
        (vec![row], None)
    };
    let mut rows = vec![tree.board_row(works).about("board")];
    rows.extend(npu_checks);
    rows.push(memory::row(root).about("memory"));
    rows.extend(software::rows(root));
    DoctorReport {
        version: env!("CARGO_PKG_VERSION").into(),
        usable_node: usable,
        rows,
    }
}

/// Rows of a board with the NPU, and the path of the usable node.
fn npu_rows(
    root: &SystemRoot,
    tree: &DeviceTree,
    kernel: &RunningKernel,
    driver: &DriverBinding,
) -> (Vec<DoctorRow>, Option<String>) {
    let log = KernelLog::of(root);
    let bound = driver.is_bound();
    let mut rows = vec![kernel.row(bound).about("kernel")];
    if kernel.may_have_rocket() {
        rows.push(kernel.options_row(root, bound).about("configuration"));
    }
    let enabled = tree.enabled_cores();
    rows.extend(enabled.map(|enabled| tree.cores_row(enabled).about("device tree")));
    let mut supplies = clock::supplies(root).into_iter();
    // A built-in driver was loaded before the kernel switches supplies off.
    let switched_off = supplies
        .find(|supply| supply.is_off || log.switched_off(&supply.name))
        .filter(|_| !kernel.has_rocket_built_in(root));
    let row = driver.row(
        root,
        enabled,
        kernel.may_have_rocket(),
        switched_off.as_ref().map(|supply| &*supply.name),
    );
    let row = row.with(if bound { Vec::new() } else { log.of_driver() });
    rows.push(row.about("driver"));
    if bound {
        rows.push(driver.iommu_row(root).about("IOMMU"));
        rows.push(log.numbers_row(root, &driver.cores).about("core numbers"));
        let interrupts = cpu::interrupt_count(root, &driver.cores);
        let killed = log.killed_row(interrupts, memory::total(root));
        rows.extend(killed.map(|row| row.about("killed jobs")));
    }
    let (nodes, usable) = node::rows(root, bound);
    rows.extend(nodes.into_iter().map(|row| row.about("device node")));
    rows.push(clock::row(root).about("clock"));
    rows.extend(clock::supply_row(root).map(|row| row.about("supply")));
    if bound {
        rows.push(driver.sleep_row(root).about("power of cores"));
        rows.push(cpu::interrupt_row(root, &driver.cores).about("interrupts"));
    }
    rows.extend(cpu::governor_row(root).map(|row| row.about("CPU governor")));
    rows.extend(cpu::idle_row(root).map(|row| row.about("CPU idle states")));
    let bugs = kernel.version.and_then(bugs::row);
    rows.extend(bugs.map(|row| row.about("driver bugs")));
    (rows, usable)
}
