// SPDX-License-Identifier: MIT OR Apache-2.0
//! The division of weights, made once when they are loaded, before M is known.

use std::ops::Range;

use rknpu_regcmd::Iova;
use serde::Serialize;

use super::options::{PlanError, PlanOptions};
use super::rule;
use super::tiles::{check_tile, even_k_tile, k_tile_max, pieces};
use crate::numbers::dtype::{Dtype, ROW_MULTIPLE};
use crate::numbers::layout;

/// Bytes that a file descriptor can address (mainline `drivers/accel/rocket`:
/// one 32-bit address space for each).
pub(crate) const DEVICE_BYTES_MAX: u64 = Iova::END;

/// Most bytes of one weight buffer. A buffer object is below 2 GiB. With half of that, buffers fill
/// the 4 GiB address space of a file descriptor without large gaps.
const BLOCK_BYTES_MAX: usize = 1 << 30;

/// A part of K: the channels `k`, padded to `padded` channels in memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KTile {
    /// Index among the K tiles.
    pub index: usize,
    /// The channels of the caller's matrices.
    pub k: Range<usize>,
    /// Depth in memory: a multiple of [`WeightPlan::k_multiple`].
    pub padded: usize,
}

/// The weights in one buffer of one device: some output channels over all of K.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize)]
pub struct WeightBlock {
    /// Index into the device pool.
    pub device: usize,
    /// Output channels of the caller's matrix. They begin at a kernel group.
    pub n: Range<usize>,
    /// Channels in memory: whole kernel groups.
    pub padded: usize,
}

/// The device of each output channel, and the tiles of K.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize)]
pub struct WeightPlan {
    /// Precision of the matmul.
    pub dtype: Dtype,
    /// Output channels.
    pub n: usize,
    /// Input channels.
    pub k: usize,
    /// Padded depth of every K tile but the last, which may be less: a multiple of
    /// [`Dtype::k_tile_multiple`], unless a caller fixed another.
    pub k_tile: usize,
    /// Most rows of a tile that is `k_tile` deep.
    pub row_tile_max: usize,
    /// Number of devices (file descriptors). If there are few channels, some have no block.
    pub devices: usize,
    /// The blocks, in the order of their channels.
    pub blocks: Vec<WeightBlock>,
}

impl WeightPlan {
    /// Divides B, `n x k`, among `devices` devices, for matmuls of the rows in
    /// [`PlanOptions::batch_rows`]. `rule` chooses the K tiles. N is divided evenly among the
    /// devices. Each channel is on one device, since a buffer object has an address only in its own
    /// file descriptor.
    ///
    /// # Errors
    /// [`PlanError`]; for a forced K tile, the rule that it breaks.
    pub fn new(
        dtype: Dtype,
        n: usize,
        k: usize,
        devices: usize,
        options: &PlanOptions,
    ) -> Result<Self, PlanError> {
        let group_bytes = check_sizes(dtype, n, k, devices)?;
        let k_tile = match options.k_tile {
            Some(forced) => forced_k_tile(dtype, k, forced, options)?,
            None => rule::k_tile(dtype, [n, k], devices, options),
        };
        let groups_max = BLOCK_BYTES_MAX / group_bytes;
        Ok(Self {
            dtype,
            n,
            k,
            k_tile,
            row_tile_max: options.rows_max(dtype, k_tile),
            devices,
            blocks: blocks(n, dtype.kernel_group(), groups_max, devices),
        })
    }

    /// Number of K tiles.
    #[must_use]
    pub fn k_tile_count(&self) -> usize {
        self.k.div_ceil(self.k_tile)
    }

    /// K tile `index`.
    #[must_use]
    pub fn k_tile(&self, index: usize) -> KTile {
        let start = (index * self.k_tile).min(self.k);
        let end = (start + self.k_tile).min(self.k);
        KTile {
            index,
            k: start..end,
            padded: (end - start).next_multiple_of(self.k_multiple()),
        }
    }

    /// All K tiles.
    pub fn k_tiles(&self) -> impl ExactSizeIterator<Item = KTile> + '_ {
        (0..self.k_tile_count()).map(|index| self.k_tile(index))
    }

    /// The depth of K tiles in memory is a multiple of this.
    #[must_use]
    pub const fn k_multiple(&self) -> usize {
        let multiple = self.dtype.k_tile_multiple();
        if self.k_tile.is_multiple_of(multiple) {
            multiple
        } else {
            self.dtype.k_multiple()
        }
    }

    /// K with its padding in memory.
    #[must_use]
    pub const fn k_padded(&self) -> usize {
        self.k.next_multiple_of(self.k_multiple())
    }

    /// Bytes of a block's buffer. It holds the K tiles one after the other, each as a separate
    /// operand.
    #[must_use]
    pub const fn block_bytes(&self, block: &WeightBlock) -> usize {
        layout::weight_bytes(self.dtype, block.padded, self.k_padded())
    }

    /// Offset in the block of the weights of K tile `k_tile` and channel `n`. `n` counts from the
    /// block's first channel and is a multiple of the kernel group.
    #[must_use]
    pub fn weight_offset(&self, block: &WeightBlock, k_tile: usize, n: usize) -> usize {
        layout::weight_bytes(self.dtype, block.padded, k_tile * self.k_tile)
            + layout::weight_bytes(self.dtype, n, self.k_tile(k_tile).padded)
    }

    /// Bytes of all buffers together.
    #[must_use]
    pub fn device_bytes(&self) -> u64 {
        self.blocks.iter().map(|b| self.block_bytes(b) as u64).sum()
    }
}

/// Checks that weights fit their buffers and devices; returns the bytes of a
/// kernel group over all of K.
pub(super) fn check_sizes(
    dtype: Dtype,
    n: usize,
    k: usize,
    devices: usize,
) -> Result<usize, PlanError> {
    for (dimension, size) in [("N", n), ("K", k)] {
        if size == 0 {
            return Err(PlanError::EmptyDimension { dimension });
        }
    }
    if devices == 0 {
        return Err(PlanError::NoDevice);
    }
    let group = dtype.kernel_group();
    let group_bytes = (k as u128).next_multiple_of(dtype.k_tile_multiple() as u128)
        * (group * dtype.input_bits() / 8) as u128;
    if group_bytes > BLOCK_BYTES_MAX as u128 {
        return Err(PlanError::GroupTooLarge {
            k,
            bytes: group_bytes,
            limit: BLOCK_BYTES_MAX,
        });
    }
    let bytes = n.div_ceil(group).div_ceil(devices) as u128 * group_bytes;
    if bytes > DEVICE_BYTES_MAX.into() {
        return Err(PlanError::WeightsTooLarge { bytes, devices });
    }
    Ok(group_bytes as usize)
}

/// Checks a K tile that the caller fixed, and reduces it to what K needs.
fn forced_k_tile(
    dtype: Dtype,
    k: usize,
    forced: usize,
    options: &PlanOptions,
) -> Result<usize, PlanError> {
    let max = k_tile_max(dtype, options);
    if forced > max {
        return Err(PlanError::Int4Saturation { k: forced, max });
    }
    check_tile(dtype, ROW_MULTIPLE, forced, dtype.kernel_group())?;
    options.check_measured(dtype, [ROW_MULTIPLE, forced, dtype.kernel_group()])?;
    Ok(forced.min(even_k_tile(dtype, k, 1)))
}

/// Spreads the kernel groups of `n` channels evenly over the devices, in blocks of at most
/// `groups_max`.
fn blocks(n: usize, group: usize, groups_max: usize, devices: usize) -> Vec<WeightBlock> {
    let groups = n.div_ceil(group);
    let mut blocks = Vec::new();
    let mut next = 0;
    for device in 0..devices {
        // The first devices take one group more each.
        let share = groups / devices + usize::from(device < groups % devices);
        let parts = pieces(next..next + share, groups_max);
        blocks.extend(parts.map(|part| WeightBlock {
            device,
            n: part.start * group..(part.end * group).min(n),
            padded: part.len() * group,
        }));
        next += share;
    }
    blocks
}
