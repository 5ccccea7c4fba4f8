// SPDX-License-Identifier: MIT OR Apache-2.0
//! `npu-probe doctor`: why the NPU works on this machine, or does not.
//!
//! Reads procfs, sysfs, the device tree and /dev below a directory ([`SystemRoot`]),
//! opens no device, and makes a row of each thing that has to be right.

mod bugs;
mod clock;
mod cpu;
mod driver;
mod kernel;
mod memory;
mod node;
mod release;
mod root;
mod row;
mod software;
mod tree;

pub(crate) use root::{SystemRoot, is_public_path};
pub(crate) use row::DoctorReport;

use driver::DriverBinding;
use kernel::RunningKernel;
use row::DoctorRow;
use tree::DeviceTree;

/// Looks at everything.
pub(crate) fn examine(root: &SystemRoot) -> DoctorReport {
    let tree = DeviceTree::of(root);
    let kernel = RunningKernel::of(root);
    let mut rows = vec![tree.board_row()];
    let mut usable = None;
    if tree.has_npu() {
        let (of_npu, node) = npu_rows(root, &tree, &kernel);
        rows.extend(of_npu);
        usable = node;
    } else {
        rows.push(kernel.plain_row());
    }
    rows.push(memory::row(root));
    rows.extend(software::rows(root));
    DoctorReport {
        version: env!("CARGO_PKG_VERSION"),
        usable,
        rows,
    }
}

/// Rows of a board with the NPU, and the node that can be used.
fn npu_rows(
    root: &SystemRoot,
    tree: &DeviceTree,
    kernel: &RunningKernel,
) -> (Vec<DoctorRow>, Option<String>) {
    let driver = DriverBinding::of(root);
    let bound = driver.is_bound();
    let mut rows = vec![kernel.row(bound)];
    if kernel.may_have_rocket() {
        rows.push(kernel.options_row(root, bound));
    }
    rows.push(tree.row());
    rows.push(driver.row(root, tree.enabled_cores(), kernel.may_have_rocket()));
    if bound {
        rows.push(driver.iommu_row(root));
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
