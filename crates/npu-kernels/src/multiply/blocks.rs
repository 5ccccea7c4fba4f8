// SPDX-License-Identifier: MIT OR Apache-2.0
//! The loops around the sums of four rows by four channels.

use zerocopy::{FromBytes, IntoBytes};

use crate::ATOM_BYTES;
use crate::matrix::MatrixView;
use crate::pack::{Bytes, pack};
use crate::unpack::Mode;

/// Elements of K in a block of weights: channels of a group.
const BLOCK: usize = 32;

/// Elements of K of a panel. Half as many would cost 5 % more instructions: each panel's sums are
/// reduced and stored.
const DEPTH: usize = 1024;

/// Rows of a panel.
const ROWS: usize = 16;

/// Rows and channels whose sums stay in registers.
pub(super) const SIDE: usize = 4;

/// Consecutive elements of K.
pub(super) type KRun = [i8; ATOM_BYTES];

/// A block of K of a panel: for each half of it, the runs of all rows, by fours.
pub(super) type RowBlock = [[[KRun; SIDE]; ROWS / SIDE]; BLOCK / ATOM_BYTES];

/// A block of K of a kernel group: the halves of each channel, by fours.
pub(super) type GroupBlock = [[[KRun; BLOCK / ATOM_BYTES]; SIDE]; 32 / SIDE];

/// INT8 weights of one K tile: kernel groups of 32 channels, one after the other. N is the number of
/// channels of all whole groups.
///
/// The weight of channel n and column k is at
/// `n / 32 * 32 * depth + k / 32 * 1024 + n % 32 * 32 + k % 32`.
#[derive(Clone, Copy, Debug)]
pub struct KernelGroups<'a> {
    /// The weights.
    pub weights: &'a [i8],
    /// Columns in memory: K with padding, a multiple of 32.
    pub depth: usize,
}

/// Adds up, over all blocks, the products of rows `4 * fours.0..` with channels `4 * fours.1..`.
/// Returns a list of channels for each row.
pub(super) trait Sum4x4:
    Fn(&[RowBlock], &[GroupBlock], (usize, usize)) -> [[i32; SIDE]; SIDE]
{
}

impl<F: Fn(&[RowBlock], &[GroupBlock], (usize, usize)) -> [[i32; SIDE]; SIDE]> Sum4x4 for F {}

/// [`multiply`](super::multiply()), with the innermost loops given.
#[inline(always)]
pub(super) fn multiply_by(
    a: MatrixView<'_, i8>,
    b: KernelGroups<'_>,
    mode: Mode,
    tile: &mut [i32],
    sum: impl Sum4x4,
) {
    let (rows, depth) = (a.rows(), b.depth / BLOCK);
    let blocks = a.columns().div_ceil(BLOCK).min(depth);
    let (atoms, _) = tile.as_chunks_mut::<SIDE>();
    if rows == 0 || blocks == 0 {
        return;
    }
    let Ok((weights, _)) = <[GroupBlock]>::ref_from_prefix(b.weights.as_bytes()) else {
        return;
    };
    let mut panel = [RowBlock::default(); DEPTH / BLOCK];
    for first_block in (0..blocks).step_by(DEPTH / BLOCK) {
        let part = first_block..(first_block + DEPTH / BLOCK).min(blocks);
        let panel = &mut panel[..part.len()];
        let adds = first_block > 0 || mode == Mode::Add;
        for first_row in (0..rows.min(atoms.len())).step_by(ROWS) {
            let columns = part.start * BLOCK..part.end * BLOCK;
            let block = a.block(first_row..first_row + ROWS, columns);
            pack::<ATOM_BYTES, Bytes>(block, ROWS, panel.as_mut_bytes());
            let groups = weights.chunks_exact(depth);
            let tiles = atoms.chunks_mut(rows.saturating_mul(32 / SIDE));
            for (group, surfaces) in groups.zip(tiles) {
                for (surface, n) in surfaces.chunks_mut(rows).zip(0..) {
                    let atoms = surface.get_mut(first_row..).unwrap_or_default();
                    for (atoms, m) in atoms.chunks_mut(SIDE).zip(0..ROWS / SIDE) {
                        let sums = sum(panel, &group[part.clone()], (m, n));
                        for (atom, sums) in atoms.iter_mut().zip(sums) {
                            for (to, sum) in atom.iter_mut().zip(sums) {
                                *to = if adds { to.wrapping_add(sum) } else { sum };
                            }
                        }
                    }
                }
            }
        }
    }
}
