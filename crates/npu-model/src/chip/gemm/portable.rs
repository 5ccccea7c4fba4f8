// SPDX-License-Identifier: MIT OR Apache-2.0
//! The definition of the sums, as plain loops.

use super::{BLOCK, Element, LANES, MR, Sums};

/// Adds each product to the sum that its place in the row says.
pub(super) fn block<T: Element>(
    a: [&[T]; MR],
    b: &[&[T]; BLOCK],
    sums: &mut [[Sums<T::Sum>; BLOCK]; MR],
) {
    for (a, sums) in a.iter().zip(sums) {
        for (b, sums) in b.iter().zip(sums) {
            let mut running = *sums;
            for (a, b) in a.chunks_exact(LANES).zip(b.chunks_exact(LANES)) {
                for lane in 0..LANES {
                    T::add(&mut running[lane], a[lane], b[lane]);
                }
            }
            *sums = running;
        }
    }
}
