// SPDX-License-Identifier: MIT OR Apache-2.0
//! Packs the columns of a matrix as weights: a block of B^T becomes one weight tile.
//!
//! The tile has groups of 16 kernels. A group has runs of 32 channels: one run of each kernel, then
//! the next run of each. Here a kernel is a column, and its channels are rows.

use half::f16;
use zerocopy::{transmute, transmute_mut};

use crate::matrix::MatrixView;

/// Kernels of a group of 16-bit weights.
const GROUP: usize = 16;

/// Channels of a run.
const RUN: usize = 32;

/// Bytes of one run of each kernel in a group.
const BLOCK: usize = GROUP * RUN * 2;

/// Fills `tile` with the columns of a block. The tile has `k_padded` channels, a multiple of 32,
/// and as many whole kernel groups as fit. Kernels and channels outside the block become zeros.
pub fn pack_columns(block: MatrixView<'_, f16>, k_padded: usize, tile: &mut [u8]) {
    let runs = k_padded / RUN;
    let (blocks, _) = tile.as_chunks_mut::<BLOCK>();
    for (index, runs_of_group) in blocks.chunks_mut(runs.max(1)).enumerate() {
        let columns = index * GROUP..(index + 1) * GROUP;
        for (run, out) in runs_of_group.iter_mut().enumerate() {
            let part = block.block(run * RUN..(run + 1) * RUN, columns.clone());
            pack_run(part, out);
        }
    }
}

fn pack_run(part: MatrixView<'_, f16>, out: &mut [u8; BLOCK]) {
    let mut rows = [[0_u16; GROUP]; RUN];
    for (at, row) in rows.iter_mut().enumerate().take(part.rows()) {
        for (to, from) in row.iter_mut().zip(part.row(at)) {
            *to = from.to_bits().to_le();
        }
    }
    transpose(transmute_mut!(&mut rows), transmute_mut!(out));
}

/// The two halves of a block.
type BlockHalves = [[u16; BLOCK / 4]; 2];

fastest! {
    /// Transposes a block. An element's index has the bits of its row above those of its column.
    /// Interleaving the two halves moves the highest index bit to the lowest place; once for each
    /// row bit puts the column bits on top.
    fn transpose(block: &mut BlockHalves, out: &mut [u8; BLOCK]) {
        let mut spare = [[0; 2]; BLOCK / 4];
        for _ in 0..RUN.ilog2() {
            for (pair, at) in spare.iter_mut().zip(0..) {
                *pair = [block[0][at], block[1][at]];
            }
            *block = transmute!(spare);
        }
        *out = transmute!(*block);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #![proptest_config(test_support::cases(24))]

        #[test]
        fn each_element_is_where_the_order_says(
            rows in 1..100_usize,
            columns in 1..70_usize,
            gap in 0..5_usize,
        ) {
            let stride = columns + gap;
            let data: Vec<_> = (0..rows * stride).map(|at| f16::from_bits(at as u16 + 1)).collect();
            let matrix = MatrixView::strided(&data, rows, columns, stride).unwrap();
            let (n, k) = (columns.next_multiple_of(GROUP), rows.next_multiple_of(RUN));
            let mut tile = vec![0xa5; n * k * 2];
            pack_columns(matrix, k, &mut tile);
            let mut memory = tile.as_chunks::<2>().0.iter();
            for group in 0..n / GROUP {
                for run in 0..k / RUN {
                    for kernel in 0..GROUP {
                        for channel in 0..RUN {
                            let (row, column) = (run * RUN + channel, group * GROUP + kernel);
                            let exists = row < rows && column < columns;
                            let expected = if exists { data[row * stride + column] } else { f16::ZERO };
                            prop_assert_eq!(memory.next(), Some(&expected.to_le_bytes()));
                        }
                    }
                }
            }
        }
    }
}
