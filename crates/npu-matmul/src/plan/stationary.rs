// SPDX-License-Identifier: MIT OR Apache-2.0
//! Whether a tile of A stays in CBUF for all of its channels.

use rknpu_regcmd::ProgramOptions;

use super::step::TaskPlan;
use super::tiles::to_u32;
use crate::dtype::Dtype;
use crate::emit;
use crate::layout;

/// Whether a task of a tile of `[rows, n, k]` finds its rows in CBUF if the task before it had
/// the same, and other weights of the same size.
pub(super) fn rows_stay(dtype: Dtype, tile: [usize; 3], program: &ProgramOptions) -> bool {
    let [rows, n, k] = tile;
    let task = |b: usize| TaskPlan {
        activation: 0,
        n: 0..n,
        m_padded: to_u32(rows),
        k_padded: to_u32(k),
        n_padded: to_u32(n),
        a: 0,
        b: to_u32(b),
        c: 0,
    };
    let next = task(layout::weight_bytes(dtype, n, k));
    emit::reuse(dtype.matmul_type(), &next, &task(0), program).features
}
