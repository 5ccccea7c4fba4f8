// SPDX-License-Identifier: MIT OR Apache-2.0
//! The guest's device tree: the parts of QEMU's `virt` machine that the guest
//! needs, and the NPU of the RK3588.
//!
//! The NPU's nodes are those of the board, with these differences: the clock whose
//! rate the tree assigns is a divider and the others are fixed, its resets are a
//! separate plain register, its interrupts are edges (see `Interrupts::pulse`), and
//! all cores are in one power domain, which does nothing. There is no supply; the
//! driver works without it.

use vm_fdt::FdtWriter;

use crate::board;

pub use vm_fdt::Error as TreeError;

/// Handles of nodes to which others refer.
mod handle {
    pub(super) const GIC: u32 = 1;
    pub(super) const CLOCK: u32 = 2;
    pub(super) const RESETS: u32 = 3;
    pub(super) const ROOT_CLOCK: u32 = 4;
    pub(super) const NPU_CLOCK: u32 = 5;
    pub(super) use crate::board::POWER_HANDLE as POWER;
    /// Handle of core 0's IOMMU; the others follow.
    pub(super) const MMU: u32 = 7;
}

/// First cell of an interrupt.
const SHARED: u32 = 0;
const PRIVATE: u32 = 1;
/// Third cell of an interrupt.
const EDGE_RISING: u32 = 1;
const LEVEL_HIGH: u32 = 4;

/// Parts of QEMU's machine: start and length, interrupt.
const GIC_DISTRIBUTOR: (u64, u64) = (0x0800_0000, 0x1_0000);
const GIC_REDISTRIBUTORS: (u64, u64) = (0x080a_0000, 0xf6_0000);
const UART: (u64, u64) = (0x0900_0000, 0x1000);
const UART_INTERRUPT: u32 = 1;
const VIRTIO: (u64, u64) = (0x0a00_0000, 0x200);
const VIRTIO_INTERRUPT: u32 = 16;
/// Private interrupts of the timers: secure, not secure, virtual, hypervisor.
const TIMERS: [u32; 4] = [13, 14, 11, 10];

/// Frequency of the UART's clock, and of the NPU's fixed clocks, which nothing reads.
const CLOCK_HZ: u32 = 24_000_000;
/// Frequency before the divider of the NPU's clock.
const ROOT_CLOCK_HZ: u32 = 1_200_000_000;
/// Clocks that the NPU's driver asks for, and the IOMMU's.
const NPU_CLOCKS: [&str; 4] = ["aclk", "hclk", "npu", "pclk"];
const MMU_CLOCKS: [&str; 2] = ["aclk", "iface"];

/// Makes the device tree of a guest with `processors` processors and an NPU of
/// `cores` cores. QEMU adds memory and the kernel's boot parameters.
///
/// # Errors
/// Errors of the format; none is known to occur.
pub fn device_tree(processors: u32, cores: u32) -> Result<Vec<u8>, TreeError> {
    let mut fdt = FdtWriter::new()?;
    let root = fdt.begin_node("")?;
    fdt.property_string("compatible", "linux,dummy-virt")?;
    fdt.property_string("model", "QEMU virt with the NPU of an RK3588")?;
    fdt.property_u32("#address-cells", 2)?;
    fdt.property_u32("#size-cells", 2)?;
    fdt.property_u32("interrupt-parent", handle::GIC)?;
    processors_of(&mut fdt, processors)?;
    basics(&mut fdt)?;
    resets(&mut fdt)?;
    npu_clock(&mut fdt)?;
    power(&mut fdt)?;
    for core in 0..cores {
        npu(&mut fdt, core)?;
        mmu(&mut fdt, core)?;
    }
    fdt.end_node(root)?;
    fdt.finish()
}

fn processors_of(fdt: &mut FdtWriter, count: u32) -> Result<(), TreeError> {
    let cpus = fdt.begin_node("cpus")?;
    fdt.property_u32("#address-cells", 1)?;
    fdt.property_u32("#size-cells", 0)?;
    for index in 0..count {
        let cpu = fdt.begin_node(&format!("cpu@{index:x}"))?;
        fdt.property_string("device_type", "cpu")?;
        fdt.property_string("compatible", "arm,cortex-a76")?;
        fdt.property_u32("reg", index)?;
        fdt.property_string("enable-method", "psci")?;
        fdt.end_node(cpu)?;
    }
    fdt.end_node(cpus)?;
    let psci = fdt.begin_node("psci")?;
    strings(fdt, "compatible", &["arm,psci-1.0", "arm,psci-0.2"])?;
    fdt.property_string("method", "hvc")?;
    fdt.end_node(psci)
}

fn basics(fdt: &mut FdtWriter) -> Result<(), TreeError> {
    // A seed: the first reader of random numbers need not wait for it.
    let chosen = fdt.begin_node("chosen")?;
    fdt.property("rng-seed", &[0x5a; 64])?;
    fdt.property_string("stdout-path", "/serial@9000000")?;
    fdt.end_node(chosen)?;

    let gic = fdt.begin_node("interrupt-controller@8000000")?;
    fdt.property_string("compatible", "arm,gic-v3")?;
    registers(fdt, &[GIC_DISTRIBUTOR, GIC_REDISTRIBUTORS])?;
    fdt.property_null("interrupt-controller")?;
    fdt.property_u32("#interrupt-cells", 3)?;
    fdt.property_phandle(handle::GIC)?;
    fdt.end_node(gic)?;

    let timer = fdt.begin_node("timer")?;
    fdt.property_string("compatible", "arm,armv8-timer")?;
    let lines: Vec<u32> = TIMERS
        .iter()
        .flat_map(|&line| [PRIVATE, line, LEVEL_HIGH])
        .collect();
    fdt.property_array_u32("interrupts", &lines)?;
    fdt.property_null("always-on")?;
    fdt.end_node(timer)?;

    let clock = fdt.begin_node("clock")?;
    fdt.property_string("compatible", "fixed-clock")?;
    fdt.property_u32("#clock-cells", 0)?;
    fdt.property_u32("clock-frequency", CLOCK_HZ)?;
    fdt.property_phandle(handle::CLOCK)?;
    fdt.end_node(clock)?;

    let uart = fdt.begin_node("serial@9000000")?;
    strings(fdt, "compatible", &["arm,pl011", "arm,primecell"])?;
    registers(fdt, &[UART])?;
    fdt.property_array_u32("interrupts", &[SHARED, UART_INTERRUPT, LEVEL_HIGH])?;
    clocks(fdt, &["uartclk", "apb_pclk"])?;
    fdt.end_node(uart)?;

    let virtio = fdt.begin_node("virtio_mmio@a000000")?;
    fdt.property_string("compatible", "virtio,mmio")?;
    registers(fdt, &[VIRTIO])?;
    fdt.property_array_u32("interrupts", &[SHARED, VIRTIO_INTERRUPT, EDGE_RISING])?;
    fdt.property_null("dma-coherent")?;
    fdt.end_node(virtio)
}

fn resets(fdt: &mut FdtWriter) -> Result<(), TreeError> {
    let node = fdt.begin_node(&format!("reset-controller@{:x}", board::RESETS))?;
    // The kernel's simple controller with bits that are set while asserted.
    fdt.property_string("compatible", "snps,dw-high-reset")?;
    registers(fdt, &[(board::RESETS, board::PAGE_BYTES)])?;
    fdt.property_u32("#reset-cells", 1)?;
    fdt.property_phandle(handle::RESETS)?;
    fdt.end_node(node)
}

/// A divider of the kernel that needs nothing but two registers.
fn npu_clock(fdt: &mut FdtWriter) -> Result<(), TreeError> {
    let root = fdt.begin_node("root-clock")?;
    fdt.property_string("compatible", "fixed-clock")?;
    fdt.property_u32("#clock-cells", 0)?;
    fdt.property_u32("clock-frequency", ROOT_CLOCK_HZ)?;
    fdt.property_phandle(handle::ROOT_CLOCK)?;
    fdt.end_node(root)?;
    let node = fdt.begin_node(&format!("npu-clock@{:x}", board::CLOCK))?;
    fdt.property_string("compatible", "fsl,vf610-sai-clock")?;
    registers(fdt, &[(board::CLOCK, board::PAGE_BYTES)])?;
    fdt.property_u32("clocks", handle::ROOT_CLOCK)?;
    fdt.property_u32("#clock-cells", 0)?;
    fdt.property_phandle(handle::NPU_CLOCK)?;
    fdt.end_node(node)
}

/// The kernel's power domains that need no registers.
fn power(fdt: &mut FdtWriter) -> Result<(), TreeError> {
    let node = fdt.begin_node("power-controller")?;
    fdt.property_string("compatible", "stericsson,ux500-pm-domains")?;
    fdt.property_u32("#power-domain-cells", 1)?;
    fdt.property_phandle(handle::POWER)?;
    fdt.end_node(node)
}

fn npu(fdt: &mut FdtWriter, core: u32) -> Result<(), TreeError> {
    let start = board::core(core);
    let node = fdt.begin_node(&format!("npu@{start:x}"))?;
    fdt.property_string("compatible", "rockchip,rk3588-rknn-core")?;
    let pages = board::NPU_PAGES;
    registers(fdt, &pages.map(|(_, at)| (start + at, board::PAGE_BYTES)))?;
    strings(fdt, "reg-names", &pages.map(|(name, _)| name))?;
    interrupt(fdt, core)?;
    let clocks = NPU_CLOCKS.map(|name| match name {
        "npu" => handle::NPU_CLOCK,
        _ => handle::CLOCK,
    });
    fdt.property_array_u32("clocks", &clocks)?;
    strings(fdt, "clock-names", &NPU_CLOCKS)?;
    if core == 0 {
        fdt.property_u32("assigned-clocks", handle::NPU_CLOCK)?;
        fdt.property_u32("assigned-clock-rates", board::ASSIGNED_HZ)?;
    }
    fdt.property_array_u32("power-domains", &[handle::POWER, 0])?;
    let first = core * board::RESETS_OF_CORE;
    let lines = [handle::RESETS, first, handle::RESETS, first + 1];
    fdt.property_array_u32("resets", &lines)?;
    strings(fdt, "reset-names", &["srst_a", "srst_h"])?;
    fdt.property_u32("iommus", handle::MMU + core)?;
    fdt.end_node(node)
}

fn mmu(fdt: &mut FdtWriter, core: u32) -> Result<(), TreeError> {
    let banks = board::MMU_BANKS.map(|at| (board::core(core) + at, board::MMU_BYTES));
    let node = fdt.begin_node(&format!("iommu@{:x}", banks[0].0))?;
    let compatible = ["rockchip,rk3588-iommu", "rockchip,rk3568-iommu"];
    strings(fdt, "compatible", &compatible)?;
    registers(fdt, &banks)?;
    interrupt(fdt, core)?;
    clocks(fdt, &MMU_CLOCKS)?;
    fdt.property_u32("#iommu-cells", 0)?;
    fdt.property_phandle(handle::MMU + core)?;
    fdt.end_node(node)
}

fn interrupt(fdt: &mut FdtWriter, core: u32) -> Result<(), TreeError> {
    let line = [SHARED, board::interrupt(core), EDGE_RISING];
    fdt.property_array_u32("interrupts", &line)
}

fn clocks(fdt: &mut FdtWriter, names: &[&str]) -> Result<(), TreeError> {
    fdt.property_array_u32("clocks", &vec![handle::CLOCK; names.len()])?;
    strings(fdt, "clock-names", names)
}

fn registers(fdt: &mut FdtWriter, ranges: &[(u64, u64)]) -> Result<(), TreeError> {
    let cells: Vec<u64> = ranges.iter().flat_map(|&(at, len)| [at, len]).collect();
    fdt.property_array_u64("reg", &cells)
}

fn strings(fdt: &mut FdtWriter, name: &str, values: &[&str]) -> Result<(), TreeError> {
    let values = values.iter().map(|&value| value.to_owned()).collect();
    fdt.property_string_list(name, values)
}
