// SPDX-License-Identifier: MIT OR Apache-2.0
//! How a memory limit is shared.

use rocket_uapi::PAGE_BYTES;

use crate::device::weight_pool::CHUNK_BYTES;

/// Part of a limit that is kept for matmuls; the rest is for weights.
const KEPT_PART: u64 = 10;

/// A device's share of the weights has at least this many chunks.
const CHUNKS_OF_A_SHARE: u64 = 8;

/// Most memory kept for matmuls: more saves nothing with batches of 2048 tokens and an 8B model.
const KEPT_MAX: u64 = 1 << 30;

/// A memory limit, and the shares of it: weights, and what an engine keeps for its next call.
///
/// | share | bytes |
/// |---|---|
/// | matmuls | a tenth of the limit, at most 1 GiB |
/// | of these: idle buffers on all devices | 4/8 |
/// | programs, with the driver's and the host's copy | 2/8 |
/// | plans | 1/8 |
/// | vectors in the host | 1/8 |
/// | weights, with their scales, and unused space in their buffers | the rest |
///
/// A call needs more while it runs: activations and results of its jobs in flight
/// ([`MemoryPlan::device_at_most`](super::MemoryPlan::device_at_most)), and the weights that its
/// caller packs for it alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryShares {
    weights: u64,
    kept: u64,
}

impl MemoryShares {
    /// Shares `limit` bytes.
    #[must_use]
    pub const fn of(limit: u64) -> Self {
        let tenth = limit / KEPT_PART;
        let kept = if tenth < KEPT_MAX { tenth } else { KEPT_MAX };
        Self {
            weights: limit - kept,
            kept,
        }
    }

    /// `bytes` for weights, and the most that is useful for matmuls.
    #[must_use]
    pub const fn for_weights(bytes: u64) -> Self {
        Self {
            weights: bytes,
            kept: KEPT_MAX,
        }
    }

    /// Bytes for weights, with their scales, and unused space in their buffers.
    #[must_use]
    pub const fn weights(&self) -> u64 {
        self.weights
    }

    /// Bytes of idle buffers on each of `devices` devices.
    pub(crate) const fn idle(&self, devices: usize) -> usize {
        self.part(4) / at_least_one(devices)
    }

    /// Bytes of programs on all devices together.
    pub(crate) const fn programs(&self) -> usize {
        self.part(2)
    }

    /// Bytes of plans.
    pub(crate) const fn plans(&self) -> usize {
        self.part(1)
    }

    /// Bytes of vectors in the host.
    pub(crate) const fn scratch(&self) -> usize {
        self.part(1)
    }

    const fn part(&self, eighths: u64) -> usize {
        // At most 1 GiB.
        (self.kept / 8 * eighths) as usize
    }

    /// Bytes of a buffer object that small blocks of weights share on one of `devices` devices: so
    /// few that its unused space is a small part of the device's share.
    pub(crate) fn chunk(&self, devices: usize) -> usize {
        let share = self.weights / at_least_one(devices) as u64 / CHUNKS_OF_A_SHARE;
        let most = share.min(CHUNK_BYTES as u64) as usize;
        (most / PAGE_BYTES).max(8) * PAGE_BYTES
    }
}

const fn at_least_one(devices: usize) -> usize {
    if devices == 0 { 1 } else { devices }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_the_limit_and_no_more() {
        for limit in [0, 1, 4 << 20, 1 << 30, 5 << 30, 1 << 40, u64::MAX] {
            let shares = MemoryShares::of(limit);
            for devices in 1..=3 {
                let kept = shares.idle(devices) * devices
                    + shares.programs()
                    + shares.plans()
                    + shares.scratch();
                assert!(u128::from(shares.weights()) + kept as u128 <= u128::from(limit));
                assert!(kept as u64 + 8 * devices as u64 >= shares.kept - shares.kept % 8);
            }
        }
        assert_eq!(MemoryShares::of(1 << 40).kept, KEPT_MAX);
    }
}
