// SPDX-License-Identifier: MIT OR Apache-2.0
//! Adding up the results of K tiles on the NPU.
//!
//! Else the CPU reads the results of each K tile. Here the tasks of a job write
//! them into a buffer of their own, which the CPU never sees, and more tasks add
//! them up: the DPU reads two runs of int32 and writes a third
//! ([`AddTask`](rknpu_regcmd::AddTask)). The last of them writes the job's output,
//! and the CPU reads that once.
//!
//! ```text
//!   partials   | P0 | P1 | P2 | P3 | S1 | S2 |      a plane for each K tile, and
//!                 \___/____|____|____^    ^         for each sum but the last
//!                  \_______/____|_________|
//!   output     |       = S2 + P3       |
//! ```
//!
//! A plane has the results of all row tiles and channels of the job, in the order
//! of its tasks, so that a sum is one run of bytes however they are tiled. No sum
//! overwrites what a task of the job reads: a job that looks dropped can run again
//! (docs/uapi.md). A job's tasks run one after the other, each kicked when the one
//! before has said that its writes are done (mainline `drivers/accel/rocket`).
//!
//! A task costs its kick, and three passes over a plane cost memory's time: whether
//! that is less than the CPU's share is for the model of the device to say.

use rknpu_regcmd::{AddTask, add_pieces};
use serde::Serialize;

use super::cost::sum_time_bound_ns;
use super::to_u32;

/// Who adds up the results of K tiles.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Accumulate {
    /// The CPU, as it reads them.
    #[default]
    Cpu,
    /// The NPU, in tasks of its own, where it can: INT8 products with several K
    /// tiles in a job, of a depth of at most [`NPU_SUM_DEPTH_MAX`], whose K tiles
    /// have no scales of their own. The CPU adds up the rest.
    ///
    /// The programs ran under the vendor's kernel (E-int32-add). Under mainline
    /// `rocket` nobody has told of a run yet: measure before use.
    Npu,
}

/// The deepest product whose partial sums are added up on the NPU: 32 bits hold
/// every sum of so many products of two bytes. Whether the NPU wraps around where
/// they do not, no source tells, and INT8 results are modulo 2^32.
pub const NPU_SUM_DEPTH_MAX: usize = i32::MAX as usize / (128 * 128);

/// One addition on the NPU: the sizes and places of an
/// [`AddTask`](rknpu_regcmd::AddTask).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SumPlan {
    /// Atoms of a surface.
    pub width: u32,
    /// Channels.
    pub channels: u32,
    /// Byte offset of the first operand in the buffer of partial results.
    pub a: u32,
    /// Byte offset of the second.
    pub b: u32,
    /// Where the sums go.
    pub to: SumPlace,
}

/// Where sums go, with a byte offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SumPlace {
    /// The buffer of partial results.
    Partials(u32),
    /// The job's output.
    Output(u32),
}

/// Planes of a job's partial results: those of `k_tiles` K tiles, and all sums but
/// the last.
pub(super) const fn planes(k_tiles: usize) -> usize {
    k_tiles + k_tiles.saturating_sub(2)
}

/// The additions of a job of `k_tiles` K tiles, with planes of `bytes` bytes, in
/// the order in which they run.
pub(super) fn sums(bytes: usize, k_tiles: usize) -> Vec<SumPlan> {
    // Sizes of planes are tiles': whole groups of 32 channels of 4 bytes.
    let atoms = bytes as u64 / u64::from(rknpu_regcmd::ATOM_BYTES);
    let mut all = Vec::new();
    for tile in 1..k_tiles {
        let before = if tile == 1 { 0 } else { k_tiles + tile - 2 };
        let last = tile == k_tiles - 1;
        let mut offset = 0;
        for (width, channels) in add_pieces(atoms).into_iter().flatten() {
            // Buffers are below 2 GiB, so offsets have 32 bits.
            let at = |plane: usize| to_u32(plane * bytes + offset);
            all.push(SumPlan {
                width,
                channels,
                a: at(before),
                b: at(tile),
                to: if last {
                    SumPlace::Output(at(0))
                } else {
                    SumPlace::Partials(at(k_tiles + tile - 1))
                },
            });
            offset += width as usize * channels as usize * size_of::<i32>();
        }
    }
    all
}

/// What the additions of a job come to, at most.
pub(super) struct SumLoad {
    pub(super) tasks: u128,
    pub(super) time_ns: u128,
}

/// The same for planes of at most `bytes` bytes.
pub(super) fn load(bytes: u128, k_tiles: usize) -> SumLoad {
    /// The most that one task adds.
    const TASK_BYTES: u128 =
        (AddTask::WIDTH_MAX * AddTask::CHANNELS_MAX) as u128 * size_of::<i32>() as u128;
    let sums = k_tiles as u128 - 1;
    // The rest of a run takes two tasks at most.
    let tasks = bytes / TASK_BYTES + 2;
    SumLoad {
        tasks: sums * tasks,
        time_ns: sums * sum_time_bound_ns(tasks, bytes),
    }
}
