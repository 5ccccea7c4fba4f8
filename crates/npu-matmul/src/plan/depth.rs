// SPDX-License-Identifier: MIT OR Apache-2.0
//! The depth at which INT4 tiles of given weights cannot saturate.
//!
//! The NPU writes INT4 sums as 16 bits, and saturates. Activations are at most 8 in magnitude. So a
//! sum cannot saturate if the magnitudes of a kernel's weights in a tile add up to at most
//! `32767 / 8`. Any 384 channels meet this: the largest legal depth for all weights. Weights of
//! models meet it in several times as many, since few are near -8 or 7. Deeper tiles are fewer, and
//! each costs its results.

use rayon::prelude::*;

use super::tiles::{INT4_K_TILE_MAX, INT4_MAGNITUDE_MAX, even_k_tile};
use crate::numbers::dtype::{CHANNEL_GROUP, Dtype};

/// Largest sum of weight magnitudes that cannot saturate.
const MAGNITUDES_MAX: u32 = i16::MAX as u32 / INT4_MAGNITUDE_MAX as u32;

/// Depth of even K tiles, as few as possible, that cannot saturate with the INT4 weights `b`, rows
/// of `k`; at least [`INT4_K_TILE_MAX`]. No tile of this depth or less saturates, at whichever
/// multiple of 32 channels it begins.
#[must_use]
pub fn int4_depth(k: usize, b: &[i8]) -> usize {
    let groups = b.par_chunks(k.max(1)).map(groups_that_fit).min();
    let channels = groups.map_or(k, |groups| groups.saturating_mul(CHANNEL_GROUP));
    let unit = Dtype::Int4.k_tile_multiple();
    let deepest = if channels >= k {
        k
    } else {
        channels / unit * unit
    };
    // Even tiles, so that similar weights have the same plan.
    let tiles = k.div_ceil(deepest.max(INT4_K_TILE_MAX)).max(1);
    even_k_tile(Dtype::Int4, k, tiles).max(INT4_K_TILE_MAX)
}

/// The largest n for which any n consecutive groups of channels stay within [`MAGNITUDES_MAX`].
fn groups_that_fit(row: &[i8]) -> usize {
    let magnitude = |group: &[i8]| {
        group
            .iter()
            .map(|b| u32::from(b.unsigned_abs()))
            .sum::<u32>()
    };
    let sums: Vec<u32> = row.chunks(CHANNEL_GROUP).map(magnitude).collect();
    let (mut fit, mut sum, mut start) = (sums.len(), 0, 0);
    for end in 0..sums.len() {
        sum += sums[end];
        while sum > MAGNITUDES_MAX {
            // The groups from `start` to `end` exceed it.
            fit = fit.min(end - start);
            sum -= sums[start];
            start += 1;
        }
    }
    fit
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn depth_follows_from_magnitudes() {
        // (weight, channels that fit, rounded down to 128).
        for (weight, fit) in [(-8, 384), (8 - 1, 512), (-4, 896), (1, 3968)] {
            // One tile as deep as K, and eight even tiles.
            assert_eq!(int4_depth(fit, &vec![weight; 2 * fit]), fit);
            assert_eq!(int4_depth(8 * fit, &vec![weight; 8 * fit]), fit);
        }
        assert_eq!(int4_depth(100_000, &[0; 100_000]), 100_096);
        assert_eq!(int4_depth(600, &[7; 600]), INT4_K_TILE_MAX);
        assert_eq!((int4_depth(0, &[]), int4_depth(64, &[])), (384, 384));
        assert_eq!(int4_depth(500, &[-8; 500]), 512);
    }

    proptest! {
        #![proptest_config(test_support::cases(64))]

        /// The definition: no tile that begins at a group saturates with the
        /// worst activations.
        #[test]
        fn no_tile_saturates(
            k in 1..3000_usize,
            max in 0..8_i8,
            seed in prop::collection::vec(-8..=7_i8, 97),
        ) {
            let row: Vec<i8> = (0..k).map(|x| seed[x * x % 97].clamp(-max, max)).collect();
            let depth = int4_depth(k, &row);
            prop_assert_eq!(depth % CHANNEL_GROUP, 0);
            for start in (0..k).step_by(CHANNEL_GROUP) {
                let tile = &row[start..(start + depth).min(k)];
                let worst = |a: i32, other: i32| -> i32 {
                    tile.iter().map(|&b| i32::from(b) * if b > 0 { a } else { other }).sum()
                };
                prop_assert!(worst(7, -8) <= i32::from(i16::MAX));
                prop_assert!(worst(-8, 7) >= i32::from(i16::MIN));
            }
        }
    }
}
