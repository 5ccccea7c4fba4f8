// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which operand stays in CBUF from task to task, so that it is fetched once.
//!
//! A tile of A always fits, so where a job has several tiles of N it can stay for all of
//! them. A tile of B stays for all rows of a job, if it fits its banks.

use rknpu_regcmd::ProgramOptions;

use super::step::{Stationary, TaskPlan};
use super::{Plan, to_u32};
use crate::dtype::Dtype;
use crate::emit;
use crate::layout;

/// Sizes of a tile, padded.
#[derive(Clone, Copy)]
pub(super) struct Tile {
    pub(super) rows: usize,
    pub(super) k: usize,
    pub(super) n: usize,
}

impl Tile {
    /// Bytes of A and of B.
    fn bytes(self, dtype: Dtype) -> [usize; 2] {
        let a = layout::activation_bytes(dtype, self.rows, self.k);
        [a, layout::weight_bytes(dtype, self.n, self.k)]
    }
}

/// Whether a task finds A in CBUF if the one before it had other weights of the same size, and B
/// if that had other rows.
pub(super) fn stays(dtype: Dtype, tile: Tile, program: &ProgramOptions) -> [bool; 2] {
    let [a_bytes, b_bytes] = tile.bytes(dtype);
    let task = |a: usize, b: usize| TaskPlan {
        activation: 0,
        n: 0..tile.n,
        m_padded: to_u32(tile.rows),
        k_padded: to_u32(tile.k),
        n_padded: to_u32(tile.n),
        a: to_u32(a),
        b: to_u32(b),
        c: 0,
    };
    let reuse = |next| emit::reuse(dtype.matmul_type(), &next, &task(0, 0), program);
    [
        reuse(task(0, b_bytes)).features,
        reuse(task(a_bytes, 0)).weights,
    ]
}

impl Plan {
    /// With the order of tasks that fetches least.
    pub(super) fn ordered(mut self) -> Self {
        let dtype = self.weights.dtype;
        let channels = self.groups_per_job * dtype.kernel_group();
        let tile = Tile {
            rows: self.row_tile,
            k: self.weights.k_tile,
            n: channels.min(self.n_tile),
        };
        let n_tiles = channels.div_ceil(self.n_tile);
        let found = [
            self.row_tiles_per_job * (n_tiles - 1),
            n_tiles * (self.row_tiles_per_job - 1),
        ];
        let [a_stays, b_stays] = stays(dtype, tile, &self.program);
        let [a_bytes, b_bytes] = tile.bytes(dtype);
        let saved = |stays, times, bytes| if stays { times * bytes } else { 0 };
        self.stationary =
            match saved(b_stays, found[1], b_bytes) > saved(a_stays, found[0], a_bytes) {
                true => Stationary::Weights,
                false => Stationary::Activations,
            };
        self
    }
}
