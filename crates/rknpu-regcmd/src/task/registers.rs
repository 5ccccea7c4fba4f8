// SPDX-License-Identifier: MIT OR Apache-2.0
//! Access to registers and to the sizes in them.

use crate::chip::ATOM_BYTES;
use crate::field::Register;
use crate::regfile::RegisterFile;

/// A source of register values: a register file, or a reader that notes unwritten
/// registers.
pub(crate) trait ReadRegisters {
    fn get<R: Register>(&self) -> R;
}

impl ReadRegisters for RegisterFile {
    fn get<R: Register>(&self) -> R {
        Self::get(self)
    }
}

/// Sizes, from registers that hold size - 1.
pub(super) fn sizes<const N: usize>(less_one: [u32; N]) -> [usize; N] {
    less_one.map(|size| size as usize + 1)
}

/// Atoms that hold `channels` elements of `bits` bits.
pub(crate) const fn surfaces(channels: usize, bits: u32) -> usize {
    channels.div_ceil((ATOM_BYTES * 8 / bits) as usize)
}
