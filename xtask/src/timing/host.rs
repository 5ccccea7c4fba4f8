// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the client's processor spends around a product: laying out operands and
//! reading results. The cache maintenance that the driver does for it is the engine's
//! [`HostCores`](npu_matmul::plan::HostCores)'.

/// Times of one A76 of the board.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct HostCosts {
    /// Laying out an operand, picoseconds for each element.
    pub(super) pack_ps_per_element: u64,
    /// Reading a result out of its layout, picoseconds for each element,
    /// whatever its width: it is a gather.
    pub(super) read_ps_per_element: u64,
}

impl HostCosts {
    /// The library that most published figures are of (E-time-client):
    ///
    /// * 32 ms to lay out the 4096x3840 weights of a product;
    /// * 76 ms to read 320 tiles of 256x256 with NEON.
    pub(super) const LIBROCKETNPU: Self = Self {
        pack_ps_per_element: 2_035,
        read_ps_per_element: 3_624,
    };

    /// Picoseconds to lay out `elements`.
    pub(super) fn pack_ps(&self, elements: u64) -> u64 {
        elements.saturating_mul(self.pack_ps_per_element)
    }

    /// Picoseconds to read `elements`.
    pub(super) fn read_ps(&self, elements: u64) -> u64 {
        elements.saturating_mul(self.read_ps_per_element)
    }
}
