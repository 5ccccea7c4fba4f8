// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sums of sixteen dot products in NEON registers, with the dot products of ARMv8.2.

use std::arch::aarch64::{int8x16_t, int32x4_t, vdupq_n_s32, vpaddq_s32};
use std::arch::asm;

use zerocopy::transmute;

use super::blocks::{GroupBlock, KernelGroups, RowBlock, SIDE, multiply_by};
use crate::matrix::MatrixView;
use crate::unpack::Mode;

#[target_feature(enable = "neon,dotprod")]
pub(super) fn multiply(a: MatrixView<'_, i8>, b: KernelGroups<'_>, mode: Mode, tile: &mut [i32]) {
    multiply_by(a, b, mode, tile, |rows, weights, fours| {
        sum_4x4(rows, weights, fours)
    });
}

/// Half of the registers are sums, of four products each. Others hold the runs of half a block of
/// rows, and of a block of channels.
#[target_feature(enable = "neon,dotprod")]
fn sum_4x4(
    rows: &[RowBlock],
    weights: &[GroupBlock],
    (m, n): (usize, usize),
) -> [[i32; SIDE]; SIDE] {
    let mut sums = [[vdupq_n_s32(0); SIDE]; SIDE];
    for (rows, weights) in rows.iter().zip(weights) {
        let channels: [[int8x16_t; 2]; SIDE] = transmute!(weights[n]);
        for (half, rows) in rows.iter().enumerate() {
            let rows: [int8x16_t; SIDE] = transmute!(rows[m]);
            for (sums, row) in sums.iter_mut().zip(rows) {
                for (sum, channel) in sums.iter_mut().zip(channels) {
                    *sum = add_dots(*sum, row, channel[half]);
                }
            }
        }
    }
    sums.map(|[a, b, c, d]| transmute!(vpaddq_s32(vpaddq_s32(a, b), vpaddq_s32(c, d))))
}

/// Adds the dot product of four elements to each lane. (The standard library's intrinsic is not
/// stable.)
#[target_feature(enable = "neon,dotprod")]
#[inline]
#[allow(unsafe_code)]
fn add_dots(mut sums: int32x4_t, left: int8x16_t, right: int8x16_t) -> int32x4_t {
    // SAFETY: callers have dot products. The instruction changes no memory, and one register.
    unsafe {
        asm!(
            "sdot {sums:v}.4s, {left:v}.16b, {right:v}.16b",
            sums = inout(vreg) sums,
            left = in(vreg) left,
            right = in(vreg) right,
            options(pure, nomem, nostack, preserves_flags)
        );
    }
    sums
}
