// SPDX-License-Identifier: MIT OR Apache-2.0
//! Prepacked weights, resident on the devices.

use std::fmt;
use std::sync::Arc;

use rayon::prelude::*;

use crate::arena::ResidentBlock;
use crate::dtype::Dtype;
use crate::engine::Engine;
use crate::error::Error;
use crate::layout;
use crate::matrix::MatrixView;
use crate::pack::{Format, pack_weight};
use crate::plan::{WeightBlock, WeightPlan};
use crate::quantise::rotate::Rotation;
use crate::times::Section;
use crate::weight_format::WeightFormat;

/// Kernel groups that one thread packs at a time.
const GROUPS_PER_CHUNK: usize = 8;

/// B of C = A x B^T, in the memory of an engine's devices. Any thread may
/// multiply by it, several at once. Its memory is freed when it is dropped.
///
/// It is of the engine that loaded it, and no other multiplies by it
/// ([`Error::ForeignWeights`]): a buffer object has an address only in the open
/// file that made it (Linux `rocket_gem.c`; nothing maps an imported one for the
/// NPU), and its parts lie where the plans of that engine, for as many files,
/// expect them. Threads that compute with the same weights share the engine; an
/// engine for each thread holds a copy for each.
pub struct PackedWeights {
    format: WeightFormat,
    plan: Arc<WeightPlan>,
    /// Those of the plan.
    blocks: Vec<ResidentBlock>,
    /// What quantised weights have besides.
    scales: Option<WeightScales>,
    /// The engine whose devices hold the buffers.
    engine: u64,
}

/// What quantised weights have besides their integers.
#[derive(Debug)]
pub(crate) struct WeightScales {
    /// Of all output channels for the first group of K, then for the next.
    pub(crate) columns: Vec<f32>,
    /// How activations are to be rotated.
    pub(crate) rotation: Option<Rotation>,
}

impl PackedWeights {
    /// Packs `b` into new buffers.
    pub(crate) fn new<F: Format>(
        engine: &Engine,
        plan: Arc<WeightPlan>,
        format: WeightFormat,
        b: MatrixView<'_, F::Host>,
        scales: Option<WeightScales>,
    ) -> Result<Self, Error> {
        let load = |block: &WeightBlock| {
            let buffers = engine.buffers(block.device);
            let fill = |memory: &mut [u8]| pack_block::<F>(engine, &plan, block, b, memory);
            (buffers.weights())
                .load(
                    |bytes| buffers.alloc_operands(bytes),
                    plan.block_bytes(block),
                    fill,
                )
                .map_err(Error::on_device(block.device))
        };
        let blocks = plan.blocks.iter().map(load).collect::<Result<_, _>>()?;
        Ok(Self {
            format,
            plan,
            blocks,
            scales,
            engine: engine.id(),
        })
    }

    /// Output channels: N.
    #[must_use]
    pub fn n(&self) -> usize {
        self.plan.n
    }

    /// Input channels: K.
    #[must_use]
    pub fn k(&self) -> usize {
        self.plan.k
    }

    /// Precision of the products.
    #[must_use]
    pub fn dtype(&self) -> Dtype {
        self.plan.dtype
    }

    /// What they are, and what activations they take.
    #[must_use]
    pub const fn format(&self) -> WeightFormat {
        self.format
    }

    /// Bytes of device memory, in whole pages.
    #[must_use]
    pub fn device_bytes(&self) -> u64 {
        self.blocks.iter().map(|b| b.len() as u64).sum()
    }

    /// Bytes that the host keeps beside the device's: scales.
    #[must_use]
    pub fn host_bytes(&self) -> u64 {
        let scales = self.scales.as_ref().map_or(0, |s| size_of_val(&*s.columns));
        scales as u64
    }

    pub(crate) const fn quantised(&self) -> Option<&WeightScales> {
        self.scales.as_ref()
    }

    /// How they were cut.
    #[must_use]
    pub fn plan(&self) -> &WeightPlan {
        &self.plan
    }

    /// The same, as others with that plan share it.
    pub(crate) const fn shared_plan(&self) -> &Arc<WeightPlan> {
        &self.plan
    }

    /// A block of the plan.
    pub(crate) fn block(&self, block: usize) -> &ResidentBlock {
        &self.blocks[block]
    }

    pub(crate) fn engine(&self) -> u64 {
        self.engine
    }
}

impl fmt::Debug for PackedWeights {
    /// Without the buffers: they would show the device behind them.
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
