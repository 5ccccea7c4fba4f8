// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the client's processor spends around a product: laying out operands,
//! reading results, and the cache maintenance that the driver does for it.

/// Picoseconds of a second.
const PS_PER_SECOND: u64 = 1_000_000_000_000;

/// Times of one A76 of the board.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct HostCosts {
    /// Laying out an operand, picoseconds for each element.
    pub(super) pack_ps_per_element: u64,
    /// Reading a result out of its layout, picoseconds for each element,
    /// whatever its width: it is a gather.
    pub(super) read_ps_per_element: u64,
    /// Cache maintenance of PREP_BO or FINI_BO, bytes per second of the whole
    /// buffer object.
    pub(super) sync_bytes_per_second: u64,
}

impl HostCosts {
    /// The library that most published figures are of (E-time-client):
    ///
    /// * 32 ms to lay out the 4096x3840 weights of a product;
    /// * 76 ms to read 320 tiles of 256x256 with NEON;
    /// * 127 ms in 200 synchronisations of 64 tiles of 128 KiB.
    pub(super) const LIBROCKETNPU: Self = Self {
        pack_ps_per_element: 2_035,
        read_ps_per_element: 3_624,
        sync_bytes_per_second: 13_210_000_000,
    };

    /// Picoseconds to lay out `elements`.
    pub(super) fn pack_ps(&self, elements: u64) -> u64 {
        elements.saturating_mul(self.pack_ps_per_element)
    }

    /// Picoseconds to read `elements`.
    pub(super) fn read_ps(&self, elements: u64) -> u64 {
        elements.saturating_mul(self.read_ps_per_element)
    }

    /// Picoseconds to synchronise a buffer object of `bytes` bytes.
    pub(super) fn sync_ps(&self, bytes: u64) -> u64 {
        let ps = (u128::from(bytes) * u128::from(PS_PER_SECOND))
            .div_ceil(self.sync_bytes_per_second.into());
        u64::try_from(ps).unwrap_or(u64::MAX)
    }
}
