// SPDX-License-Identifier: MIT OR Apache-2.0
//! When each engine of a core works on a task.
//!
//! ```text
//! fetch   command words
//! fill    the first lines and the first group of kernels into CBUF
//! flow    all other reads and writes, while the MAC array (DPU, PPU) computes:
//!         as long as the longer of the two
//! drain   the output of the last group
//! ```
//!
//! All engines of a core share its path to memory, so within a phase only the sum of
//! their bytes counts. Tasks follow each other without overlap. The mainline driver
//! runs them so; within a chain it is an assumption.

use alloc::vec::Vec;

use super::machine::{Machine, amount_ps};
use super::work::TaskWork;
use crate::extent::{Direction, DmaEngine};

/// The phases of a task, as bytes to move and time to compute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Phase {
    pub(super) bytes: u64,
    pub(super) compute_ps: u64,
}

impl TaskWork {
    pub(super) fn phases(&self, machine: &Machine) -> [Phase; 4] {
        let moved = |bytes| Phase {
            bytes,
            compute_ps: 0,
        };
        let fill = self
            .feature_fill_bytes
            .saturating_add(self.weight_fill_bytes);
        let edges = fill.saturating_add(self.drain_bytes);
        let slowest_clocks = self
            .mac_clocks
            .max(self.decompress_clocks)
            .max(self.dpu_clocks)
            .max(self.ppu_clocks);
        [
            moved(self.command_bytes),
            moved(fill),
            Phase {
                bytes: self.bytes.total().saturating_sub(edges),
                compute_ps: machine.clocks_ps(slowest_clocks),
            },
            moved(self.drain_bytes),
        ]
    }

    /// Modelled time of the task on a core that has the memory for itself,
    /// without what the driver adds, in picoseconds.
    #[must_use]
    pub fn duration_ps(&self, machine: &Machine) -> u64 {
        self.ends(machine)[3]
    }

    /// The parts of [`Self::duration_ps`].
    #[must_use]
    pub fn parts(&self, machine: &Machine) -> Parts {
        let rate = machine.rate(1);
        let [fetch, fill, flow, drain] = self.phases(machine);
        let moving = |phase: Phase| amount_ps(phase.bytes, rate);
        let edges = [fetch, fill, drain].map(moving);
        Parts {
            edges_ps: edges.iter().fold(0, |sum, &ps| sum.saturating_add(ps)),
            computing_ps: flow.compute_ps,
            memory_ps: moving(flow).saturating_sub(flow.compute_ps),
        }
    }

    /// When each phase ends, on a core that has the memory for itself.
    fn ends(&self, machine: &Machine) -> [u64; 4] {
        let rate = machine.rate(1);
        let mut now = 0u64;
        self.phases(machine).map(|phase| {
            let time = amount_ps(phase.bytes, rate).max(phase.compute_ps);
            now = now.saturating_add(time);
            now
        })
    }

    /// When each engine works, on a core that has the memory for itself.
    /// Times are modelled and count from the start of the fetch.
    #[must_use]
    pub fn spans(&self, machine: &Machine) -> Vec<Span> {
        between(self, machine, 0, self.ends(machine))
    }
}

/// The parts of the modelled time of a task, picoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Parts {
    /// Moving data while nothing computes: command words, the first operands, the
    /// last results.
    pub edges_ps: u64,
    /// Computing.
    pub computing_ps: u64,
    /// Time by which moving data takes longer than the computing meanwhile.
    pub memory_ps: u64,
}

impl Parts {
    /// The sum of the parts, picoseconds.
    #[must_use]
    pub fn total_ps(&self) -> u64 {
        self.edges_ps
            .saturating_add(self.computing_ps)
            .saturating_add(self.memory_ps)
    }

    /// Adds the parts of another task.
    pub fn add(&mut self, other: &Self) {
        self.edges_ps = self.edges_ps.saturating_add(other.edges_ps);
        self.computing_ps = self.computing_ps.saturating_add(other.computing_ps);
        self.memory_ps = self.memory_ps.saturating_add(other.memory_ps);
    }
}

/// The engine or block of a [`Span`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Stage {
    /// PC: fetch of the command words.
    Fetch,
    /// An engine that moves data.
    Dma(DmaEngine),
    /// The MAC array.
    Mac,
    /// Post-processing.
    Dpu,
    /// Pooling.
    Ppu,
}

impl Stage {
    /// All stages, in the order of the data flow.
    pub const ALL: [Self; 13] = [
        Self::Fetch,
        Self::Dma(DmaEngine::Feature),
        Self::Dma(DmaEngine::Weight),
        Self::Mac,
        Self::Dma(DmaEngine::Mrdma),
        Self::Dma(DmaEngine::Brdma),
        Self::Dma(DmaEngine::Nrdma),
        Self::Dma(DmaEngine::Erdma),
        Self::Dpu,
        Self::Dma(DmaEngine::DpuWrite),
        Self::Dma(DmaEngine::PpuRead),
        Self::Ppu,
        Self::Dma(DmaEngine::PpuWrite),
    ];
}

impl core::fmt::Display for Stage {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Fetch => f.pad("command fetch"),
            Self::Dma(engine) => engine.fmt(f),
            Self::Mac => f.pad("MAC array"),
            Self::Dpu => f.pad("DPU"),
            Self::Ppu => f.pad("PPU"),
        }
    }
}

/// A time in which an engine works, all of the time or part of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// The engine or block.
    pub stage: Stage,
    /// Modelled start, picoseconds.
    pub start_ps: u64,
    /// Modelled end, picoseconds.
    pub end_ps: u64,
    /// Bytes moved.
    pub bytes: u64,
    /// How long a block that computes is busy within it, picoseconds.
    pub busy_ps: u64,
}

/// When each engine that has something to do works, in the order of the data flow.
/// The phases of `work` end at `ends`.
pub(super) fn between(work: &TaskWork, machine: &Machine, start: u64, ends: [u64; 4]) -> Vec<Span> {
    let [fetched, filled, flowed, drained] = ends;
    let mut spans = Vec::new();
    for stage in Stage::ALL {
        let (bytes, clocks, start_ps, end_ps) = match stage {
            Stage::Fetch => (work.command_bytes, 0, start, fetched),
            Stage::Dma(engine) => {
                let bytes = work.bytes.of(engine);
                // An operand that is complete before the first MAC ends with the
                // fill.
                let loaded = |first| if first == bytes { filled } else { flowed };
                let (from, to) = match engine {
                    DmaEngine::Feature => (fetched, loaded(work.feature_fill_bytes)),
                    DmaEngine::Weight => (fetched, loaded(work.weight_fill_bytes)),
                    engine if engine.direction() == Direction::Write => (filled, drained),
                    _ => (filled, flowed),
                };
                (bytes, 0, from, to)
            }
            Stage::Mac => (0, work.mac_clocks, filled, flowed),
            Stage::Dpu => (0, work.dpu_clocks, filled, drained),
            Stage::Ppu => (0, work.ppu_clocks, filled, flowed),
        };
        if bytes > 0 || clocks > 0 {
            spans.push(Span {
                stage,
                start_ps,
                end_ps,
                bytes,
                busy_ps: machine.clocks_ps(clocks),
            });
        }
    }
    spans
}
