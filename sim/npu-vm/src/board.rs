// SPDX-License-Identifier: MIT OR Apache-2.0
//! Addresses and interrupts of the virtual machine.
//!
//! The NPU's are the RK3588's, as in the device tree of mainline Linux; the
//! rest is QEMU's `virt` machine (`hw/arm/virt.c`).

use std::ops::Range;

/// Address at which the guest's RAM starts.
pub const RAM: u64 = 0x4000_0000;

/// Bytes of QEMU's RAM: up to address 4 GiB, so that the NPU is inside.
pub const RAM_BYTES: u64 = 0x1_0000_0000 - RAM;

/// MiB of RAM for the guest's kernel: all below the NPU, so that buffer objects
/// fit that the driver cannot handle.
pub const KERNEL_MIB: u64 = (core(0) - RAM) >> 20;

/// Most cores of an NPU.
pub const MAX_CORES: u32 = 3;

/// Distance between the windows of two cores.
pub const CORE_BYTES: u64 = 0x1_0000;

/// Bytes of a page of registers.
pub const PAGE_BYTES: u64 = 0x1000;

/// The pages of a core that its driver maps, with offsets: PC, CNA, CORE.
pub const NPU_PAGES: [(&str, u64); 3] = [("pc", 0), ("cna", 0x1000), ("core", 0x3000)];

/// Offsets of the register banks of a core's IOMMU. Both always hold the same.
pub const MMU_BANKS: [u64; 2] = [0x9000, 0xa000];

/// Bytes of such a bank.
pub const MMU_BYTES: u64 = 0x100;

/// The reset controller: a bit for each reset line, set while it is asserted.
/// The RK3588 has these bits in its clock controller.
pub const RESETS: u64 = 0xfdb8_0000;

/// A clock whose rate the kernel can set: plain registers of a divider, in place of the board's
/// firmware.
pub const CLOCK: u64 = 0xfdb9_0000;

/// Rate that the device tree assigns to that clock, as the board's tree does, Hz (E-clock-boot).
pub const ASSIGNED_HZ: u32 = 200_000_000;

/// Handle of the power controller's node in the device tree.
pub const POWER_HANDLE: u32 = 6;

/// Reset lines of a core: `srst_a` and `srst_h`.
pub const RESETS_OF_CORE: u32 = 2;

/// All addresses that [`crate::GuestNpu::stored`] handles.
pub const REGISTERS: Range<u64> = core(0)..RESETS + PAGE_BYTES;

/// Start address of a core's window.
#[must_use]
pub const fn core(index: u32) -> u64 {
    0xfdab_0000 + index as u64 * CORE_BYTES
}

/// The shared peripheral interrupt of a core and its IOMMU.
#[must_use]
pub const fn interrupt(core: u32) -> u32 {
    110 + core
}

/// The bits of the core's lines in the reset controller's register.
#[must_use]
pub(crate) const fn reset_bits(core: u32) -> u32 {
    ((1 << RESETS_OF_CORE) - 1) << (core * RESETS_OF_CORE)
}
