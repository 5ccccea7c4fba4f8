// SPDX-License-Identifier: MIT OR Apache-2.0
//! Packed weights in device memory.

use std::fmt;
use std::sync::Arc;

use rayon::prelude::*;

use crate::device::times::Section;
use crate::device::weight_pool::PoolBlock;
use crate::engine::{Engine, matrix};
use crate::matrix::MatrixView;
use crate::numbers::dtype::Dtype;
use crate::numbers::layout;
use crate::numbers::pack::{Format, pack_weight};
use crate::numbers::quantise::Quantisation;
use crate::numbers::quantise::rotate::Rotation;
use crate::plan::error::Error;
use crate::plan::weight_format::WeightFormat;
use crate::plan::{WeightBlock, WeightPlan};

/// Kernel groups that one thread packs at a time.
const GROUPS_PER_CHUNK: usize = 8;

/// Weights (B of C = A x B^T) in the device memory of an engine, freed on drop. Any number of
/// threads may multiply by them at once.
///
/// Only the engine that loaded them can use them ([`Error::ForeignWeights`]). A buffer object has
/// an address only in the open file that created it; the driver cannot map an imported one for the
/// NPU (Linux `rocket_gem.c`). The layout also follows that engine's plans and its number of files.
/// Threads that use the same weights should share one engine: each engine needs its own copy.
pub struct PackedWeights {
    format: WeightFormat,
    pub(crate) plan: Arc<WeightPlan>,
    /// Blocks, in the plan's order.
    pub(crate) blocks: Vec<PoolBlock>,
    /// Scales and rotation of quantised weights.
    pub(crate) scales: Option<WeightScales>,
    /// The engine whose devices hold the buffers.
    pub(crate) engine: u64,
}

/// Scales and rotation of quantised weights.
#[derive(Debug)]
pub(crate) struct WeightScales {
    pub(crate) quantisation: Quantisation,
    /// A scale for each output channel.
    pub(crate) columns: Vec<f32>,
    /// Rotation that the activations need.
    pub(crate) rotation: Option<Rotation>,
}

impl Engine {
    /// Packs `b` into new buffers of the devices.
    pub(crate) fn pack<F: Format>(
        &self,
        plan: Arc<WeightPlan>,
        format: WeightFormat,
        b: &[F::Host],
        scales: Option<WeightScales>,
    ) -> Result<PackedWeights, Error> {
        let b = matrix("B", b, plan.n, plan.k)?;
        let load = |block: &WeightBlock| {
            let buffers = &self.devices[block.device];
            let fill = |memory: &mut [u8]| pack_block::<F>(self, &plan, block, b, memory);
            let alloc = |bytes| buffers.alloc_operands(bytes);
            let loaded = buffers.weights.load(alloc, plan.block_bytes(block), fill);
            loaded.map_err(Error::on_device(block.device))
        };
        let load_all = || plan.blocks.iter().map(load).collect::<Result<_, _>>();
        let weights = PackedWeights {
            format,
            blocks: self.workers.run(load_all)?,
            plan,
            scales,
            engine: self.id,
        };
        self.totals().bytes_to_device += weights.device_bytes();
        Ok(weights)
    }
}

impl PackedWeights {
    /// N: number of output channels.
    #[must_use]
    pub fn n(&self) -> usize {
        self.plan.n
    }

    /// K: number of input channels.
    #[must_use]
    pub fn k(&self) -> usize {
        self.plan.k
    }

    /// Precision of the matmul on the NPU.
    #[must_use]
    pub fn dtype(&self) -> Dtype {
        self.plan.dtype
    }

    /// Format of the weights, which also determines the activations.
    #[must_use]
    pub const fn format(&self) -> WeightFormat {
        self.format
    }

    /// Bytes of device memory, in whole pages.
    #[must_use]
    pub fn device_bytes(&self) -> u64 {
        self.blocks.iter().map(|b| b.range.len() as u64).sum()
    }

    /// The plan: how the weights are split into blocks and tiles.
    #[must_use]
    pub fn plan(&self) -> &WeightPlan {
        &self.plan
    }
}

impl fmt::Debug for PackedWeights {
    /// Leaves out the buffers, which would print the device.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PackedWeights")
            .field("format", &self.format)
            .field("n", &self.n())
            .field("k", &self.k())
            .field("device_bytes", &self.device_bytes())
            .finish_non_exhaustive()
    }
}

/// Fills the memory of one block: its K tiles, one after the other.
fn pack_block<F: Format>(
    engine: &Engine,
    plan: &WeightPlan,
    block: &WeightBlock,
    b: MatrixView<'_, F::Host>,
    memory: &mut [u8],
) {
    let chunk = GROUPS_PER_CHUNK * plan.dtype.kernel_group();
    for tile in plan.k_tiles() {
        let start = plan.weight_offset(block, tile.index, 0);
        let bytes = layout::weight_bytes(plan.dtype, block.padded, tile.padded);
        let chunk_bytes = layout::weight_bytes(plan.dtype, chunk, tile.padded);
        memory[start..start + bytes]
            .par_chunks_mut(chunk_bytes)
            .enumerate()
            .for_each_init(
                || engine.stopwatch(Section::PackWeights),
                |_, (index, memory)| {
                    let first = block.n.start + index * chunk;
                    let kernels = first..(first + chunk).min(block.n.end);
                    pack_weight::<F>(b.block(kernels, tile.k.clone()), tile.padded, memory);
                },
            );
    }
}
