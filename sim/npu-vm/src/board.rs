// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where everything is: addresses and interrupts of the virtual machine.
//!
//! Those of the NPU are the RK3588's, as in the device tree of mainline Linux;
//! the rest is QEMU's `virt` machine (`hw/arm/virt.c`).

use std::ops::Range;

/// Address at which the guest's RAM starts.
pub const RAM: u64 = 0x4000_0000;

/// Bytes of RAM that QEMU is given: up to 4 GiB, so that the NPU is inside.
pub const RAM_BYTES: u64 = 0x1_0000_0000 - RAM;

/// MiB of RAM that the guest's kernel is to use: all below the NPU, so that
/// also buffer objects for which the driver has no answer fit.
pub const KERNEL_MIB: u64 = (core(0) - RAM) >> 20;

/// Most cores of an NPU.
pub const MAX_CORES: u32 = 3;

/// From a core's window to that of the next.
pub const CORE_BYTES: u64 = 0x1_0000;

/// Bytes of a page of registers.
pub const PAGE_BYTES: u64 = 0x1000;

/// The pages of a core that its driver maps: PC, CNA, CORE.
pub const NPU_PAGES: [(&str, u64); 3] = [("pc", 0), ("cna", 0x1000), ("core", 0x3000)];

/// The register banks of a core's IOMMU, from the core's window on. Both
/// always hold the same.
pub const MMU_BANKS: [u64; 2] = [0x9000, 0xa000];

/// Bytes of such a bank.
pub const MMU_BYTES: u64 = 0x100;

/// The reset controller: a bit for each reset line, set while it is asserted.
/// On the RK3588 they are among the clock controller's registers.
pub const RESETS: u64 = 0xfdb8_0000;

/// Reset lines of a core: `srst_a` and `srst_h`.
pub const RESETS_OF_CORE: u32 = 2;

/// All addresses of which [`crate::GuestNpu::stored`] wants to know.
pub const REGISTERS: Range<u64> = core(0)..RESETS + PAGE_BYTES;

/// Start of a core's window.
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
