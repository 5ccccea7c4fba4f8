// SPDX-License-Identifier: MIT OR Apache-2.0
//! The number of parts of a matmul of few rows, such as one token for each of several sequences.
//!
//! With few rows the NPU mostly fetches weights: once, on all cores. Each part costs a job, but the
//! CPU packs and unpacks one part while the NPU computes another:
//!
//! ```text
//!   time = weights / bandwidth + parts * cost of a part + work of the CPU / parts
//! ```
//!
//! So the best number of parts needs no search: one more part gains as long as
//! `parts * (parts - 1) * cost of a part` is less than the CPU's work.

use super::waves::PACKED_BYTES_MIN;
use crate::dtype::Dtype;
use crate::profile::{KernelCost, Profile, UnpackTo, bytes_ps};

/// Most rows that count as few: the sequences that a server decodes together.
pub(super) const FEW_ROWS: usize = 32;

/// Most parts in one direction, with any number of rows.
pub(super) const PARTS_MAX: usize = 6;

/// A matmul of few rows, and its tiles.
pub(super) struct FewRows<'p> {
    pub(super) profile: &'p Profile,
    pub(super) dtype: Dtype,
    /// M, N and K.
    pub(super) size: [usize; 3],
    /// Devices that share N.
    pub(super) sharing: usize,
    /// Tiles of a device along N, and along K.
    pub(super) tiles: [usize; 2],
}

/// Costs of parts in one direction.
struct Direction {
    /// CPU time that the parts divide.
    divided_ps: u64,
    /// Cost of each part.
    part_ps: u64,
    /// Cost of two or more parts, however many.
    fixed_ps: u64,
    most: usize,
}

impl Direction {
    /// Returns `(ps, parts)`: the best number of parts, and the part of the time that depends on
    /// it.
    fn best(&self) -> (u64, usize) {
        let pays = |parts: &usize| {
            let pairs = (parts * (parts - 1)) as u64;
            self.part_ps.saturating_mul(pairs) < self.divided_ps
        };
        let most = self.most.min(PARTS_MAX);
        let parts = (2..=most).take_while(pays).last().unwrap_or(1);
        let fixed_ps = if parts > 1 { self.fixed_ps } else { 0 };
        let ps = self
            .part_ps
            .saturating_mul(parts as u64)
            .saturating_add(self.divided_ps / parts as u64)
            .saturating_add(fixed_ps);
        (ps, parts)
    }
}

impl FewRows<'_> {
    /// The best numbers of parts of N and K, at most `most`.
    pub(super) fn parts(&self, most: [usize; 2]) -> [usize; 2] {
        let [m, n, k] = self.size.map(|size| size as u64);
        let [n_tiles, k_tiles] = self.tiles.map(|tiles| tiles as u64);
        let sharing = self.sharing.max(1) as u64;
        let Profile { machine, host, .. } = self.profile;
        let ty = self.dtype.matmul_type();
        // Devices sync their buffers at the same time.
        let synced = |bytes: u64| host.sync_ps(bytes) / sharing.min(host.cores.max(1).into());

        let rows = m.saturating_mul(k).saturating_mul(sharing);
        let input_bits = self.dtype.input_bits() as u64;
        let a_bytes = rows.saturating_mul(input_bits) / 8;
        let pack_ps = host
            .kernel_ps(rows, KernelCost::pack(self.dtype))
            .saturating_add(synced(a_bytes));
        let a_bytes = a_bytes / sharing;

        let results = m.saturating_mul(n);
        let unpack = |to| host.kernel_ps(results, KernelCost::unpack(ty, to));
        let cached_ps = unpack(UnpackTo::CachedSum);
        let c_bytes = results
            .saturating_mul(self.dtype.output_bytes() as u64)
            .saturating_mul(k_tiles);
        let unpack_ps = cached_ps
            .saturating_mul(k_tiles.saturating_sub(1))
            .saturating_add(unpack(UnpackTo::Result))
            .saturating_add(synced(c_bytes));

        let driver = &machine.driver;
        // The witness of a job is a task too.
        let job_ps = driver
            .submit_ps
            .saturating_add(driver.attach_ps)
            .saturating_add(driver.kick_ps);
        let rate = machine.dram.rate(machine.clock_hz, sharing);
        let kicks = if n_tiles > 1 { 0 } else { k_tiles };
        // Each part fetches A again. If one tile was wide enough, each part also adds a task for
        // each K tile.
        let by_n = Direction {
            divided_ps: unpack_ps,
            part_ps: job_ps
                .saturating_add(driver.kick_ps.saturating_mul(kicks))
                .saturating_add(bytes_ps(a_bytes, rate)),
            fixed_ps: 0,
            most: most[0],
        };
        // The last part adds to sums that have left the caches. Parts that pack little are
        // submitted together.
        let is_packing_divided = a_bytes >= 2 * PACKED_BYTES_MIN as u64;
        let packed_ps = if is_packing_divided { pack_ps } else { 0 };
        let by_k = Direction {
            divided_ps: unpack_ps.saturating_add(packed_ps),
            part_ps: job_ps,
            fixed_ps: unpack(UnpackTo::Sum).saturating_sub(cached_ps),
            most: most[1],
        };
        let ((n_ps, n_parts), (k_ps, k_parts)) = (by_n.best(), by_k.best());
        if k_ps < n_ps.saturating_add(packed_ps) {
            [1, k_parts]
        } else {
            [n_parts, 1]
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #![proptest_config(test_support::cases(256))]

        /// The closed form is as good as a search over all numbers of parts.
        #[test]
        fn no_other_number_of_parts_takes_less(
            divided_ps in 0..1_000_000_u64,
            part_ps in 0..200_000_u64,
            most in 0..9_usize,
        ) {
            let direction = Direction { divided_ps, part_ps, fixed_ps: 0, most };
            let (ps, parts) = direction.best();
            prop_assert!(parts == 1 || parts <= most.min(PARTS_MAX));
            for other in 1..=most.min(PARTS_MAX) as u64 {
                // Each division rounds down.
                prop_assert!(ps <= part_ps * other + divided_ps / other + 1);
            }
        }
    }

    #[test]
    fn many_parts_that_cost_nothing_are_the_most() {
        let direction = |most| Direction {
            divided_ps: 1000,
            part_ps: 0,
            fixed_ps: 7,
            most,
        };
        assert_eq!(direction(4).best(), (250 + 7, 4));
        assert_eq!(direction(9).best().1, PARTS_MAX);
        assert_eq!(direction(1).best(), (1000, 1));
    }
}
