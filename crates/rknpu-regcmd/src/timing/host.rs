// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the client's processor spends around a product: laying out operands,
//! reading results, and the cache maintenance that the driver does for it.

use super::machine::{PS_PER_SECOND, bytes_ps};

/// Times of one A76 of the board.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostCosts {
    /// Laying out an operand, picoseconds for each element.
    pub pack_ps_per_element: u64,
    /// Reading a result out of its layout, picoseconds for each element,
    /// whatever its width: it is a gather.
    pub read_ps_per_element: u64,
    /// Cache maintenance of PREP_BO or FINI_BO, bytes per second of the whole
    /// buffer object.
    pub sync_bytes_per_second: u64,
}

impl HostCosts {
    /// The library that most published figures are of (E-time-client):
    ///
    /// * 32 ms to lay out the 4096x3840 weights of a product;
    /// * 76 ms to read 320 tiles of 256x256 with NEON;
    /// * 127 ms in 200 synchronisations of 64 tiles of 128 KiB.
    pub const LIBROCKETNPU: Self = Self {
        pack_ps_per_element: 2_035,
        read_ps_per_element: 3_624,
        sync_bytes_per_second: 13_210_000_000,
    };

    /// Picoseconds to lay out `elements`.
    #[must_use]
    pub fn pack_ps(&self, elements: u64) -> u64 {
        elements.saturating_mul(self.pack_ps_per_element)
    }

    /// Picoseconds to read `elements`.
    #[must_use]
    pub fn read_ps(&self, elements: u64) -> u64 {
        elements.saturating_mul(self.read_ps_per_element)
    }

    /// Picoseconds to synchronise a buffer object of `bytes` bytes.
    #[must_use]
    pub fn sync_ps(&self, bytes: u64) -> u64 {
        bytes_ps(bytes, self.sync_bytes_per_second)
    }
}

/// Seconds of a number of picoseconds.
#[must_use]
pub fn seconds(ps: u64) -> f64 {
    ps as f64 / PS_PER_SECOND as f64
}
