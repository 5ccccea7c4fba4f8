// SPDX-License-Identifier: MIT OR Apache-2.0
//! Checks tiles against the rules of the hardware, and computes even tile sizes.

use std::ops::Range;

use rknpu_regcmd::ChipProfile;

use super::options::{PlanError, PlanOptions};
use crate::numbers::dtype::{Dtype, ROW_MULTIPLE};
pub(super) use crate::numbers::layout::{tile_task, to_u32};

/// The deepest INT4 tile whose 16-bit results cannot saturate, whatever the weights, rounded down
/// to [`Dtype::k_tile_multiple`]. Known weights may allow deeper tiles:
/// [`int4_depth`](super::int4_depth).
pub const INT4_K_TILE_MAX: usize = {
    let unit = Dtype::Int4.k_tile_multiple();
    i16::MAX as usize / INT4_MAGNITUDE_MAX.pow(2) / unit * unit
};

/// Most rows of a tile: the hardware's line count must hold one more.
const ROW_TILE_MAX: usize =
    (ChipProfile::RK3588.grains_max as usize - 1) / ROW_MULTIPLE * ROW_MULTIPLE;

/// Most output channels of one task: whole kernel groups of each precision.
pub(crate) const N_TILE_MAX: usize = ChipProfile::RK3588.output_channels_max as usize;
const _: () = {
    let mut index = 0;
    while index < Dtype::ALL.len() {
        assert!(N_TILE_MAX.is_multiple_of(Dtype::ALL[index].kernel_group()));
        index += 1;
    }
};

/// Largest magnitude of an INT4 operand.
pub(super) const INT4_MAGNITUDE_MAX: usize = 1 << (Dtype::Int4.input_bits() - 1);

/// The deepest K tile whose results are exact.
pub(super) fn k_tile_max(dtype: Dtype, options: &PlanOptions) -> usize {
    match dtype {
        Dtype::Int4 => options.int4_depth.unwrap_or(0).max(INT4_K_TILE_MAX),
        Dtype::Int8 | Dtype::Fp16 => usize::MAX,
    }
}

/// Checks one tile against the rules of the hardware.
pub(super) fn check_tile(dtype: Dtype, m: usize, k: usize, n: usize) -> Result<(), PlanError> {
    let checked = tile_task(dtype, m, k, n).check(&ChipProfile::RK3588);
    let refused = |source| PlanError::IllegalTile { m, k, n, source };
    checked.map(drop).map_err(refused)
}

/// A number of kernels for which the rule of the weight banks is as strict as for more kernels.
fn enough_kernels(dtype: Dtype) -> usize {
    let resident = ChipProfile::RK3588.resident_kernels as usize;
    dtype.kernel_group().max(resident)
}

/// Most rows of a legal tile of depth `k`; 0 if there is none.
pub(crate) fn max_rows(dtype: Dtype, k: usize) -> usize {
    let n = enough_kernels(dtype);
    let legal = |fours: usize| check_tile(dtype, fours * ROW_MULTIPLE, k, n).is_ok();
    largest(ROW_TILE_MAX / ROW_MULTIPLE, legal) * ROW_MULTIPLE
}

/// The depth of `tiles` even K tiles.
pub(super) fn even_k_tile(dtype: Dtype, k: usize, tiles: usize) -> usize {
    let unit = dtype.k_tile_multiple();
    k.div_ceil(unit).div_ceil(tiles).saturating_mul(unit)
}

/// The largest `x` in `1..=max` with `holds(x)`, else 0. `holds` must be true up to some point and
/// false from there on.
pub(super) fn largest(max: usize, holds: impl Fn(usize) -> bool) -> usize {
    let (mut yes, mut no) = (0, max + 1);
    while no - yes > 1 {
        let middle = yes + (no - yes) / 2;
        if holds(middle) {
            yes = middle
        } else {
            no = middle
        }
    }
    yes
}

/// The size of even tiles, a multiple of `unit` and at most `max`, that divide `total` into as few
/// tiles as size `max` does.
pub(crate) fn even_tile(total: usize, max: usize, unit: usize) -> usize {
    let max = max.max(1);
    total
        .div_ceil(total.div_ceil(max))
        .next_multiple_of(unit)
        .min(max)
}

/// Splits `range` into pieces of `len`; the last may be shorter.
pub(crate) fn pieces(range: Range<usize>, len: usize) -> impl Iterator<Item = Range<usize>> {
    let (len, end) = (len.max(1), range.end);
    range
        .step_by(len)
        .map(move |start| start..(start + len).min(end))
}
