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
    let mut rows = vec![tree.board_row(works)];
    let mut usable = None;
    if works || tree.has_npu() {
        let (of_npu, node) = npu_rows(root, &tree, &kernel, &driver);
        rows.extend(of_npu);
        usable = node;
    } else {
        rows.push(DoctorRow::ok("kernel", &kernel.release));
    }
    rows.push(memory::row(root));
    rows.extend(software::rows(root));
    DoctorReport {
        version: env!("CARGO_PKG_VERSION").into(),
        usable,
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
    let mut rows = vec![kernel.row(bound)];
    if kernel.may_have_rocket() {
        rows.push(kernel.options_row(root, bound));
    }
    let enabled = tree.enabled_cores();
    rows.extend(enabled.map(|enabled| tree.cores_row(enabled)));
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
    rows.push(row.with(if bound { Vec::new() } else { log.of_driver() }));
    if bound {
        rows.push(driver.iommu_row(root));
        rows.push(log.numbers_row(root, &driver.cores));
    }
    let (nodes, usable) = node::rows(root, bound);
    rows.extend(nodes);
    rows.push(clock::row(root));
    rows.extend(clock::supply_row(root));
    if bound {
        rows.push(driver.sleep_row(root));
        rows.push(cpu::interrupt_row(root, &driver.cores));
    }
    rows.extend(cpu::governor_row(root));
    rows.extend(cpu::idle_row(root));
    rows.extend(kernel.version.and_then(bugs::row));
    (rows, usable)
}
