// SPDX-License-Identifier: MIT OR Apache-2.0
//! Memory layouts of the NPU's operands and results: the position of each element.
//!
//! The chip dictates these formats; `pack` and `unpack` implement them. One tile of C = A x B^T:
//!
//! ```text
//! A, M x K: "NC1HWC2". K is cut into surfaces of one atom (16 bytes) depth;
//! a surface holds one atom of each row, row after row.
//!
//!          k: 0..C2      C2..2*C2                    C2 channels an atom:
//!          +---------+   +---------+                   int4 32, int8 16, fp16 8
//!    m = 0 | atom 0  |   | atom M  |
//!    m = 1 | atom 1  |   | atom M+1|  ...
//!      :   |   :     |   |   :     |
//!  m = M-1 | atom M-1|   | atom 2M-1|
//!          +---------+   +---------+
//!           surface 0     surface 1
//!
//! B, N x K: kernels in groups of G, channels in groups of 32, in the order
//! (N/G, K/32, G, 32). A group of channels of one kernel is one run:
//!
//!    kernel group 0                          kernel group 1 ...
//!    | channels 0..32        | 32..64    |
//!    | n=0 | n=1 | .. | n=G-1| n=0 | ..  |     G: int4 64, int8 32, fp16 16
//!
//! C, M x N: as A, with atoms of int32/fp32 (4 channels) or int16 (8).
//! ```
//!
//! int4: two elements a byte, the even index in the low nibble.
//!
//! Sources: E-feature-layout, E-weight-groups, E-weight-order.

use rknpu_regcmd::{BufferId, MatmulTask};

use crate::numbers::dtype::{ATOM_BYTES, CHANNEL_GROUP, Dtype};

/// Position of an operand element.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    /// Byte offset in the tile.
    pub byte: usize,
    /// Lowest bit of the element in that byte: 4 for the high nibble of an int4 pair, else 0.
    pub bit: u32,
}

impl Position {
    /// Position of the element with this index in a packed array.
    const fn of_index(dtype: Dtype, index: usize) -> Self {
        let bits = index * dtype.input_bits();
        Self {
            byte: bits / 8,
            bit: (bits % 8) as u32,
        }
    }
}

/// Position of element (m, k) in an activation tile of `rows` rows.
#[must_use]
pub const fn activation(dtype: Dtype, rows: usize, m: usize, k: usize) -> Position {
    let c2 = dtype.operand().per_atom();
    let atom = (k / c2) * rows + m;
    Position::of_index(dtype, atom * c2 + k % c2)
}

/// Position of element (n, k) in a weight tile with `k_padded` channels, a multiple of
/// [`CHANNEL_GROUP`].
#[must_use]
pub const fn weight(dtype: Dtype, k_padded: usize, n: usize, k: usize) -> Position {
    let g = dtype.kernel_group();
    let i = CHANNEL_GROUP;
    let index = (n / g) * g * k_padded + (k / i) * i * g + (n % g) * i + k % i;
    Position::of_index(dtype, index)
}

/// Byte offset of element (m, n) of an output tile of `rows` rows.
#[must_use]
pub const fn output(dtype: Dtype, rows: usize, m: usize, n: usize) -> usize {
    let bytes = dtype.output_bytes();
    let c2 = ATOM_BYTES / bytes;
    ((n / c2) * rows + m) * ATOM_BYTES + (n % c2) * bytes
}

/// Bytes of an activation tile. `k` must be a multiple of [`Dtype::k_multiple`].
#[must_use]
pub const fn activation_bytes(dtype: Dtype, rows: usize, k: usize) -> usize {
    dtype.input_bytes(rows * k)
}

/// Bytes of a weight tile. `n` must be whole kernel groups, `k` whole channel groups.
#[must_use]
pub const fn weight_bytes(dtype: Dtype, n: usize, k: usize) -> usize {
    dtype.input_bytes(n * k)
}

/// Bytes of an output tile. `n` must be a multiple of the kernel group; the NPU writes all of it.
#[must_use]
pub const fn output_bytes(dtype: Dtype, rows: usize, n: usize) -> usize {
    rows * n * dtype.output_bytes()
}

/// The task of a tile with dummy addresses, for checks only.
pub(crate) fn tile_task(dtype: Dtype, m: usize, k: usize, n: usize) -> MatmulTask {
    MatmulTask {
        ty: dtype.matmul_type(),
        m: to_u32(m),
        k: to_u32(k),
        n: to_u32(n),
        a: BufferId(0).at(0),
        b: BufferId(1).at(0),
        c: BufferId(2).at(0),
    }
}

/// Converts a size to 32 bits. Larger ones become one that every rule rejects.
pub(crate) fn to_u32(size: usize) -> u32 {
    u32::try_from(size).unwrap_or(u32::MAX)
}
