// SPDX-License-Identifier: MIT OR Apache-2.0
//! Compares packing with a scalar reference, which places each element by the layout's formula.

use half::f16;
use proptest::prelude::*;

use super::*;
use crate::dtype::Dtype;
use crate::layout::{self, Position};
use crate::matrix::MatrixView;

fn put(tile: &mut [u8], at: Position, bits: u16, dtype: Dtype) {
    let value = bits.to_le_bytes();
    tile[at.byte] |= value[0] << at.bit;
    if dtype == Dtype::Fp16 {
        tile[at.byte + 1] |= value[1];
    }
}

/// Packs `len` bytes by the formula `position(row, column)`.
fn pack_reference<F: Format>(
    block: MatrixView<'_, F::Host>,
    len: usize,
    bits: impl Fn(F::Host) -> u16,
    position: impl Fn(usize, usize) -> Position,
) -> Vec<u8> {
    let mut tile = vec![0; len];
    for row in 0..block.rows() {
        for (column, &value) in block.row(row).iter().enumerate() {
            put(&mut tile, position(row, column), bits(value), F::DTYPE);
        }
    }
    tile
}

/// Packs a block both ways, into a buffer full of junk.
fn check<F: Format>(
    matrix: &[F::Host],
    [rows, columns]: [usize; 2],
    bits: impl Fn(F::Host) -> u16 + Copy,
) {
    let p = F::DTYPE;
    let whole = MatrixView::new(matrix, rows, columns).unwrap();
    let block = whole.block(rows / 4..rows, columns / 3..columns);

    let k = block.columns().next_multiple_of(p.k_multiple());
    let tile_rows = block.rows().next_multiple_of(4);
    let mut tile = vec![0xa5; layout::activation_bytes(p, tile_rows, k)];
    pack_activation::<F>(block, tile_rows, &mut tile);
    let expected = pack_reference::<F>(block, tile.len(), bits, |m, k| {
        layout::activation(p, tile_rows, m, k)
    });
    assert_eq!(tile, expected, "activation {rows}x{columns}");

    let n = block.rows().next_multiple_of(p.kernel_group());
    let mut tile = vec![0xa5; layout::weight_bytes(p, n, k)];
    pack_weight::<F>(block, k, &mut tile);
    let expected = pack_reference::<F>(block, tile.len(), bits, |n, channel| {
        layout::weight(p, k, n, channel)
    });
    assert_eq!(tile, expected, "weight {rows}x{columns}");
}

fn matrix<T: std::fmt::Debug>(
    element: impl Strategy<Value = T> + Clone,
) -> impl Strategy<Value = ([usize; 2], Vec<T>)> {
    (1..80_usize, 1..150_usize).prop_flat_map(move |(rows, columns)| {
        let data = prop::collection::vec(element.clone(), rows * columns);
        (Just([rows, columns]), data)
    })
}

proptest! {
    #![proptest_config(test_support::cases(24))]

    #[test]
    fn int8_equals_reference((size, data) in matrix(any::<i8>())) {
        check::<Int8>(&data, size, |x| x.cast_unsigned().into());
    }

    #[test]
    fn int4_equals_reference((size, data) in matrix(-8..=7_i8)) {
        check::<Int4>(&data, size, |x| (x.cast_unsigned() & 15).into());
    }

    #[test]
    fn fp16_equals_reference((size, data) in matrix(any::<u16>().prop_map(f16::from_bits))) {
        check::<Fp16>(&data, size, f16::to_bits);
    }
}

#[test]
fn a_degenerate_tile_is_left_alone() {
    let data = [1_i8, 2];
    let view = MatrixView::new(&data, 1, 2).unwrap();
    pack_activation::<Int8>(view, 0, &mut []);
    pack_weight::<Int8>(view, 0, &mut []);
}
