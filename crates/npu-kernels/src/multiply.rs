// SPDX-License-Identifier: MIT OR Apache-2.0
//! Multiplies INT8 tiles on the CPU, from and to the NPU's layouts.
//!
//! A CPU that would wait for the NPU can compute some columns of a tile instead. It reads the rows
//! of A themselves and the NPU's weights, and writes sums as the NPU does: the rest of a matmul does
//! not see the difference, since both are exact.
//!
//! The loops (`blocks.rs`) take 1024 columns of A at a time, so that a panel of 16 rows, packed like
//! the NPU's activations, stays in the first-level cache, and the weights of some groups in the
//! second. The sums of four rows by four channels stay in registers.

use crate::ATOM_BYTES;
use crate::matrix::MatrixView;
use crate::unpack::Mode;

mod blocks;
#[cfg(target_arch = "aarch64")]
mod neon;

pub use blocks::KernelGroups;
use blocks::{GroupBlock, KRun, RowBlock, SIDE, multiply_by};

/// Multiplies rows of A by INT8 weights; stores the sums in a tile, or adds them to it.
///
/// - `a` has M rows and K columns, both any number. Columns from the depth of the weights on have no
///   effect, nor have weights of columns from K on.
/// - `tile` gets the sum of row m and channel n at `(n / 4 * M + m) * 4 + n % 4`. It has M x N
///   elements; of a shorter one, only whole groups of four elements are written.
///
/// These are the layouts of the NPU, so [`unpack`](crate::unpack::unpack) reads the tile. Sums wrap
/// around. Elements of the tile without a row and channel are unchanged; all are if K is 0.
///
/// The weights of 1024 columns are read again for each 16 rows: pass at most as many groups as leave
/// them in the second-level cache.
#[cfg_attr(target_arch = "aarch64", allow(unsafe_code))]
pub fn multiply(a: MatrixView<'_, i8>, b: KernelGroups<'_>, mode: Mode, tile: &mut [i32]) {
    #[cfg(target_arch = "aarch64")]
    if std::arch::is_aarch64_feature_detected!("dotprod") {
        // SAFETY: the host has dot products, and NEON is in the baseline of this target.
        return unsafe { neon::multiply(a, b, mode, tile) };
    }
    portable(a, b, mode, tile);
}

/// [`multiply`] without intrinsics.
fn portable(a: MatrixView<'_, i8>, b: KernelGroups<'_>, mode: Mode, tile: &mut [i32]) {
    multiply_by(a, b, mode, tile, sum_4x4);
}

fastest! {
    /// The sums of [`portable`].
    fn sum_4x4(
        rows: &[RowBlock],
        weights: &[GroupBlock],
        fours: (usize, usize),
    ) -> [[i32; SIDE]; SIDE] {
        let (m, n) = fours;
        let mut sums = [[0; SIDE]; SIDE];
        for (row, sums) in sums.iter_mut().enumerate() {
            for (channel, sum) in sums.iter_mut().enumerate() {
                let mut lanes = [0_i32; ATOM_BYTES];
                for (rows, weights) in rows.iter().zip(weights) {
                    for (rows, weights) in rows.iter().zip(&weights[n][channel]) {
                        add_products(&mut lanes, &rows[m][row], weights);
                    }
                }
                *sum = lanes.into_iter().fold(0, i32::wrapping_add);
            }
        }
        sums
    }
}

/// Adds the products of two runs, one to each lane.
#[inline(always)]
fn add_products(lanes: &mut [i32; ATOM_BYTES], left: &KRun, right: &KRun) {
    for (lane, (&l, &r)) in lanes.iter_mut().zip(left.iter().zip(right)) {
        // 16 bits hold any product.
        let product = i16::from(l) * i16::from(r);
        *lane = lane.wrapping_add(product.into());
    }
}

#[cfg(test)]
mod tests;
