// SPDX-License-Identifier: MIT OR Apache-2.0
//! Bytes that the engines move for a task.

use crate::chip::ATOM_BYTES;
use crate::extent::DmaEngine;
use crate::regfile::RegisterFile;
use crate::task::{ChannelRead, ConvTask, DpuOutput, Read, Reads, compressed_lanes};

const ATOM: u64 = ATOM_BYTES as u64;

/// Bytes that each engine moves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct EngineBytes([u64; DmaEngine::ALL.len()]);

impl EngineBytes {
    /// Bytes of one engine.
    #[must_use]
    pub fn of(&self, engine: DmaEngine) -> u64 {
        self.0[engine as usize]
    }

    /// Bytes of all engines.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.0
            .iter()
            .fold(0, |sum, &bytes| sum.saturating_add(bytes))
    }

    pub(super) fn put(&mut self, engine: DmaEngine, bytes: u64) {
        self.0[engine as usize] = bytes;
    }

    pub(super) fn add(&mut self, other: &Self) {
        for (mine, more) in self.0.iter_mut().zip(other.0) {
            *mine = mine.saturating_add(more);
        }
    }
}

/// Groups of channels that are written.
pub(super) fn groups(output: &DpuOutput) -> u64 {
    output.written[2].div_ceil(output.group) as u64
}

/// Atoms of one group.
pub(super) fn atoms_of_group(output: &DpuOutput) -> u64 {
    (output.pixels() * output.group_atoms) as u64
}

/// Bytes of the features, and those that must be in CBUF at the start.
pub(super) fn features(conv: &ConvTask) -> (u64, u64) {
    if conv.cbuf.data_reuse {
        return (0, 0);
    }
    let [width, height, channels] = conv.features.fetched;
    let line = match conv.features.packed {
        Some(packed) => (width * packed) as u64,
        None => conv.features.atoms([width, 1, channels]).atoms() * ATOM,
    };
    let lines = |count: usize| line * count as u64;
    (lines(height), lines(conv.cbuf.grains.min(height)))
}

/// Bytes of the weights, and clocks of the decompressor.
pub(super) fn weights(regs: &RegisterFile, conv: &ConvTask) -> (u64, u64) {
    if conv.cbuf.weight_reuse {
        return (0, 0);
    }
    let raw = u64::from(conv.weights.bytes);
    match compressed_lanes(regs) {
        None => (raw, 0),
        Some(lanes) => (lanes.iter().sum(), raw.div_ceil(lanes.len() as u64)),
    }
}

/// Bytes that the four engines of DPU_RDMA read.
pub(super) fn operands(reads: &Reads, flying: bool) -> EngineBytes {
    let cube_bytes = |read: Option<Read>| read.map_or(0, |read| read.near.atoms() * ATOM);
    let per_channel = |read: Option<ChannelRead>| read.map_or(0, |read| read.bytes(reads.cube[2]));
    let mut bytes = EngineBytes::default();
    bytes.put(DmaEngine::Mrdma, cube_bytes(reads.main_read(flying)));
    bytes.put(DmaEngine::Erdma, cube_bytes(reads.element_read(flying)));
    bytes.put(DmaEngine::Brdma, per_channel(reads.bs) as u64);
    bytes.put(DmaEngine::Nrdma, per_channel(reads.bn) as u64);
    bytes
}
