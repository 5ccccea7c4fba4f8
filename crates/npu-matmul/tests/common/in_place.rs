// SPDX-License-Identifier: MIT OR Apache-2.0
//! Operands of staged products, element by element, by what the product says of
//! its buffers.
#![allow(dead_code, reason = "each test binary uses its part")]

use half::f16;
use npu_matmul::Staged;
use npu_matmul::layout::Position;

/// Fills all buffers of activations in place.
pub(crate) fn fill(staged: &mut Staged<'_>, put: impl Fn(&mut [u8], Position, usize, usize)) {
    for buffer in 0..staged.activation_buffers().len() {
        let tiles = staged.activation_buffers()[buffer].tiles.clone();
        let mut memory = staged.activations_mut(buffer).unwrap();
        for tile in tiles {
            for row in tile.rows.clone() {
                for column in tile.columns.clone() {
                    let at = tile.position(row, column).unwrap();
                    put(&mut memory, at, row, column);
                }
            }
        }
        memory.finish().unwrap();
    }
}

pub(crate) fn fill_i8(staged: &mut Staged<'_>, a: &[i8], k: usize) {
    fill(staged, |memory, at, row, channel| {
        memory[at.byte] = a[row * k + channel].cast_unsigned();
    });
}

pub(crate) fn fill_f16(staged: &mut Staged<'_>, a: &[f16], k: usize) {
    fill(staged, |memory, at, row, channel| {
        memory[at.byte..at.byte + 2].copy_from_slice(&a[row * k + channel].to_le_bytes());
    });
}

pub(crate) fn fill_i4(staged: &mut Staged<'_>, a: &[i8], k: usize) {
    fill(staged, |memory, at, row, channel| {
        let nibble = a[row * k + channel].cast_unsigned() & 0xf;
        let others = memory[at.byte] & !(0xf << at.bit);
        memory[at.byte] = others | nibble << at.bit;
    });
}

/// C from the buffers of results, each read by `read`: of the same element those
/// of all parts of K added up. No element is missing.
pub(crate) fn gather<T: Default + Copy + std::ops::Add<Output = T>, const BYTES: usize>(
    staged: &Staged<'_>,
    mut read: impl FnMut(usize) -> Vec<u8>,
    element: impl Fn([u8; BYTES]) -> T,
) -> Vec<T> {
    let (m, n, k) = (
        staged.plan().m,
        staged.plan().weights.n,
        staged.plan().weights.k,
    );
    let mut c = vec![T::default(); m * n];
    let mut depths = vec![0; m * n];
    for (index, buffer) in staged.result_buffers().iter().enumerate() {
        let memory = read(index);
        for tile in &buffer.tiles {
            for row in tile.rows.clone() {
                for column in tile.columns.clone() {
                    let at = tile.position(row, column).unwrap().byte;
                    let bytes = memory[at..at + BYTES].try_into().unwrap();
                    let sum = &mut c[row * n + column];
                    *sum = *sum + element(bytes);
                    depths[row * n + column] += tile.depth.len();
                }
            }
        }
    }
    assert!(depths.iter().all(|&depth| depth == k));
    c
}

/// The same, read in place.
pub(crate) fn results<T: Default + Copy + std::ops::Add<Output = T>, const BYTES: usize>(
    staged: &Staged<'_>,
    element: impl Fn([u8; BYTES]) -> T,
) -> Vec<T> {
    gather(
        staged,
        |index| staged.results(index).unwrap().to_vec(),
        element,
    )
}
