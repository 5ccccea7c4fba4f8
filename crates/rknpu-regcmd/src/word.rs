// SPDX-License-Identifier: MIT OR Apache-2.0
//! The 64-bit register command word.
//!
//! ```text
//! 63        48 47                    16 15        0
//! |  target   |         value          |  offset   |
//! ```
//!
//! Source: E-word, E-target-bits; the same in every known program.

use core::fmt;

use bitflags::bitflags;

/// Low byte of a target: write the register at `offset`.
const TARGET_WRITE: u16 = 0x01;
/// Target of the enable word.
const TARGET_ENABLE: u16 = 0x0081;
/// Target of the marker that precedes the enable word (E-marker).
const TARGET_MARKER: u16 = 0x0041;
/// The offset that the enable word carries: PC OPERATION_ENABLE.
const OFFSET_ENABLE: u16 = 0x0008;

/// An IO virtual address: the NPU's address of a byte, in the 4 GiB address space of
/// one open DRM file. 0 is a valid address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Iova(pub u32);

impl Iova {
    /// One past the highest address.
    pub const END: u64 = 1 << 32;
}

impl fmt::Display for Iova {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#010x}", self.0)
    }
}

/// A block of an NPU core whose registers programs write: one page of its register
/// window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Block {
    /// Program controller.
    Pc,
    /// Feature and weight fetch, input conversion, sequencing.
    Cna,
    /// MAC array and accumulators.
    Core,
    /// Post-processing and output.
    Dpu,
    /// Read engines of the DPU.
    DpuRdma,
    /// Pooling.
    Ppu,
    /// Read engine of the PPU.
    PpuRdma,
}

impl Block {
    /// All blocks, in the order of their pages.
    pub const ALL: [Self; 7] = [
        Self::Pc,
        Self::Cna,
        Self::Core,
        Self::Dpu,
        Self::DpuRdma,
        Self::Ppu,
        Self::PpuRdma,
    ];

    /// Page and name, from the register database.
    const fn definition(self) -> (u16, &'static str) {
        match self {
            Self::Pc => (0, "PC"),
            Self::Cna => (1, "CNA"),
            Self::Core => (3, "CORE"),
            Self::Dpu => (4, "DPU"),
            Self::DpuRdma => (5, "DPU_RDMA"),
            Self::Ppu => (6, "PPU"),
            Self::PpuRdma => (7, "PPU_RDMA"),
        }
    }

    /// Number of the block's 4 KiB page in the core's register window. Page 2
    /// is a hole (E-hole-page).
    #[must_use]
    pub const fn page(self) -> u16 {
        self.definition().0
    }

    /// The block's name as the register database writes it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        self.definition().1
    }

    /// Target of a word that writes one of the block's registers.
    #[must_use]
    pub const fn target(self) -> u16 {
        (0x100 << self.page()) | TARGET_WRITE
    }

    /// The block whose page holds `offset`.
    #[must_use]
    pub fn of_offset(offset: u16) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|block| block.page() == offset >> 12)
    }

    /// The block whose registers words of `target` write.
    #[must_use]
    pub fn from_target(target: u16) -> Option<Self> {
        Self::ALL.into_iter().find(|block| block.target() == target)
    }

    /// The block's bit of the enable mask; empty for the PC.
    #[must_use]
    pub const fn enable(self) -> EnableMask {
        EnableMask::from_bits_truncate(1 << self.page() >> 1)
    }
}

impl fmt::Display for Block {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

bitflags! {
    /// Blocks that an enable word starts: bit = page - 1 (E-enable-mask; bit 1
    /// is the hole at page 2).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct EnableMask: u32 {
        /// CNA.
        const CNA = 1 << 0;
        /// CORE.
        const CORE = 1 << 2;
        /// DPU.
        const DPU = 1 << 3;
        /// DPU_RDMA.
        const DPU_RDMA = 1 << 4;
        /// PPU.
        const PPU = 1 << 5;
        /// PPU_RDMA.
        const PPU_RDMA = 1 << 6;
    }
}

/// One register command.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
#[repr(transparent)]
pub struct Word(u64);

impl Word {
    /// Does nothing. It also fills the place of an absent link in a trailer.
    pub const NOP: Self = Self(0);
    /// The marker, directly before the enable word (E-marker).
    pub const MARKER: Self = Self::new(TARGET_MARKER, 0, 0);

    /// The word of `target`, `offset` and `value`.
    #[must_use]
    pub const fn new(target: u16, offset: u16, value: u32) -> Self {
        Self((target as u64) << 48 | (value as u64) << 16 | offset as u64)
    }

    /// The word that starts the blocks of `mask`.
    #[must_use]
    pub const fn enable(mask: EnableMask) -> Self {
        Self::new(TARGET_ENABLE, OFFSET_ENABLE, mask.bits())
    }

    /// The word with these bits.
    #[must_use]
    pub const fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    /// The bits of the word.
    #[must_use]
    pub const fn bits(self) -> u64 {
        self.0
    }

    /// Bits 63..48.
    #[must_use]
    pub const fn target(self) -> u16 {
        (self.0 >> 48) as u16
    }

    /// Bits 47..16.
    #[must_use]
    pub const fn value(self) -> u32 {
        (self.0 >> 16) as u32
    }

    /// Bits 15..0: a byte offset in the core's register window.
    #[must_use]
    pub const fn offset(self) -> u16 {
        self.0 as u16
    }

    /// Whether this is an enable word.
    #[must_use]
    pub const fn is_enable(self) -> bool {
        self.target() == TARGET_ENABLE
    }

    /// Whether the target makes this word do nothing (E-noop-target).
    #[must_use]
    pub const fn is_nop(self) -> bool {
        matches!(self.target(), 0x0000 | 0x0001)
    }

    /// Whether this is the marker.
    #[must_use]
    pub const fn is_marker(self) -> bool {
        self.target() == TARGET_MARKER
    }
}

impl fmt::Debug for Word {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Word({:#018x})", self.0)
    }
}
