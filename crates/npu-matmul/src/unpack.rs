// SPDX-License-Identifier: MIT OR Apache-2.0
//! Unpacks output tiles: stores their rows in the result or adds them to it.

pub use npu_kernels::unpack::{
    Destination, Mode, Partial, ROWS, Scales, Split, TileRows, unpack, unpack_dequantised,
    unpack_scaled,
};

#[cfg(test)]
mod tests {
    use half::f16;
    use proptest::prelude::*;
    use rknpu_regcmd::MatmulType;

    use super::*;
    use crate::dtype::ATOM_BYTES;
    use crate::layout;

    /// One element by the layout's formula.
    fn element<const N: usize>(tile: &[u8], at: usize) -> [u8; N] {
        tile[at..at + N].try_into().unwrap()
    }

    fn check<T: Partial>(
        ty: MatmulType,
        tile: &[u8],
        rows: usize,
        read: impl Fn(usize) -> T::Sum,
        add: impl Fn(T::Sum, T::Sum) -> T::Sum,
        old: &[T::Sum],
    ) where
        T::Sum: PartialEq + std::fmt::Debug,
    {
        let columns = old.len();
        fn to<S>(rows: &mut [S], stride: usize) -> Destination<'_, S> {
            Destination {
                rows,
                stride,
                columns: 0..stride,
            }
        }
        let mut stored = old.repeat(rows);
        let tile_rows = TileRows {
            bytes: tile,
            rows,
            first: 0,
        };
        unpack::<T>(tile_rows, Mode::Store, to(&mut stored, columns));
        let mut added = old.repeat(rows);
        unpack::<T>(tile_rows, Mode::Add, to(&mut added, columns));
        for m in 0..rows {
            let (stored, added) = (&stored[m * columns..], &added[m * columns..]);
            for n in 0..columns {
                let at = layout::output(ty, rows, m, n);
                if at >= tile.len() {
                    assert_eq!((stored[n], added[n]), (old[n], old[n]));
                } else {
                    assert_eq!(stored[n], read(at));
                    assert_eq!(added[n], add(old[n], read(at)));
                }
            }
        }
    }

    proptest! {
        #![proptest_config(test_support::cases(32))]

        #[test]
        fn equals_the_formula(
            bytes in prop::collection::vec(any::<u8>(), 2048),
            rows in 1..16_usize,
            columns in 1..40_usize,
        ) {
            let surfaces = bytes.len() / ATOM_BYTES / rows;
            let tile = &bytes[..surfaces * rows * ATOM_BYTES];
            let old: Vec<i32> = (0..columns).map(|n| i32::MAX - n as i32).collect();
            check::<i32>(
                MatmulType::Int8ToInt32, tile, rows,
                |at| i32::from_le_bytes(element(tile, at)), i32::wrapping_add, &old,
            );
            check::<i16>(
                MatmulType::Int4ToInt16, tile, rows,
                |at| i32::from(i16::from_le_bytes(element(tile, at))), i32::wrapping_add, &old,
            );
        }

        #[test]
        fn floats_equal_the_formula(
            values in prop::collection::vec(-1e6_f32..1e6, 64),
            rows in 1..16_usize,
        ) {
            let surfaces = values.len() * 4 / ATOM_BYTES / rows;
            let tile: Vec<u8> = values[..surfaces * rows * 4]
                .iter()
                .flat_map(|v| v.to_le_bytes())
                .collect();
            check::<f32>(
                MatmulType::Fp16ToFp32, &tile, rows,
                |at| f32::from_le_bytes(element(&tile, at)), |a, b| a + b, &[1.5; 18],
            );
            let halves: Vec<u8> = values[..surfaces * rows * 4]
                .iter()
                .flat_map(|&v| [v, v / 3.0])
                .flat_map(|v| f16::from_f32(v / 20.0).to_le_bytes())
                .collect();
            check::<f16>(
                MatmulType::Fp16ToFp16, &halves, rows,
                |at| f16::from_le_bytes(element(&halves, at)), |a, b| a + b,
                &[f16::ONE; 18],
            );
        }
    }
}
