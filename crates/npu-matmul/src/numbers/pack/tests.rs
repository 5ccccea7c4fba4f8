// SPDX-License-Identifier: MIT OR Apache-2.0
//! Compares packed tiles with the formulas of the layout, element by element.

use half::f16;
use proptest::prelude::*;

use super::*;
use crate::numbers::layout::{self, Position};

/// Packs a block into buffers full of junk. Elements are where the layout says, and padding is 0.
fn check<F: Format>(matrix: &[F::Host], [rows, columns]: [usize; 2], bits: fn(F::Host) -> u16) {
    let dtype = F::DTYPE;
    let whole = MatrixView::new(matrix, rows, columns).unwrap();
    let block = whole.block(rows / 4..rows, columns / 3..columns);
    let element = |row, column: usize| block.row(row).get(column).map_or(0, |x| bits(*x));
    let read = |tile: &[u8], Position { byte, bit }| {
        let tail = tile.get(byte + 1).copied().unwrap_or(0);
        let word = u16::from_le_bytes([tile[byte], tail]) >> bit;
        word & (u16::MAX >> (16 - dtype.input_bits()))
    };
    let k = block.columns().next_multiple_of(dtype.k_multiple());
    let m = block.rows().next_multiple_of(4);
    let n = block.rows().next_multiple_of(dtype.kernel_group());
    let mut a = vec![0xa5; layout::activation_bytes(dtype, m, k)];
    pack_activation::<F>(block, m, &mut a);
    let mut b = vec![0xa5; layout::weight_bytes(dtype, n, k)];
    pack_weight::<F>(block, k, &mut b);
    for channel in 0..k {
        for row in 0..m {
            let packed = read(&a, layout::activation(dtype, m, row, channel));
            assert_eq!(packed, element(row, channel), "activation {row}, {channel}");
        }
        for kernel in 0..n {
            let packed = read(&b, layout::weight(dtype, k, kernel, channel));
            assert_eq!(
                packed,
                element(kernel, channel),
                "weight {kernel}, {channel}"
            );
        }
    }
}

proptest! {
    #![proptest_config(test_support::cases(24))]

    #[test]
    fn elements_are_where_the_layout_says(
        size in [1..80_usize, 1..150],
        words in prop::collection::vec(any::<u16>(), 80 * 150),
    ) {
        let words = &words[..size[0] * size[1]];
        let bytes: Vec<_> = words.iter().map(|&x| x as i8).collect();
        check::<Int8>(&bytes, size, |x| x.cast_unsigned().into());
        check::<Int4>(&bytes, size, |x| (x.cast_unsigned() & 15).into());
        let halves: Vec<_> = words.iter().copied().map(f16::from_bits).collect();
        check::<Fp16>(&halves, size, f16::to_bits);
    }
}

#[test]
fn a_degenerate_tile_is_left_alone() {
    let data = [1_i8, 2];
    let view = MatrixView::new(&data, 1, 2).unwrap();
    pack_activation::<Int8>(view, 0, &mut []);
    pack_weight::<Int8>(view, 0, &mut []);
}
