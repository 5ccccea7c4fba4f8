// SPDX-License-Identifier: MIT OR Apache-2.0
//! Computes every offset of a band of rows, and of the tasks of a job on it.

use std::ops::Range;
use std::sync::Arc;

use rknpu_regcmd::{MatmulType, ProgramOptions};

use super::cost::task_time_bound_ns;
use super::step::{ActivationTile, Band, JobPlan, KTile, TaskPlan};
use super::tiles::to_u32;
use crate::dtype::{Dtype, ROW_MULTIPLE};
use crate::layout;

impl Band {
    /// A band of these rows and K tiles of A. In memory one K tile follows the other.
    pub(crate) fn new(dtype: Dtype, rows: Range<usize>, k_tiles: Vec<KTile>) -> Self {
        let padded = rows.len().next_multiple_of(ROW_MULTIPLE);
        let mut activation_bytes = 0;
        let activations = k_tiles.iter().map(|k_tile| {
            let offset = activation_bytes;
            activation_bytes += layout::activation_bytes(dtype, padded, k_tile.padded);
            ActivationTile {
                rows: rows.clone(),
                padded,
                k_tile: k_tile.clone(),
                offset,
            }
        });
        let activations = activations.collect();
        Self {
            rows,
            k_tiles,
            activations,
            activation_bytes,
        }
    }
}

/// Tasks of a job. Each task writes behind the results of the one before.
pub(crate) struct TaskList {
    dtype: Dtype,
    ty: MatmulType,
    band: Arc<Band>,
    tasks: Vec<TaskPlan>,
    output_bytes: usize,
    time_bound_ns: u64,
}

impl TaskList {
    /// An empty list.
    pub(crate) const fn new(dtype: Dtype, ty: MatmulType, band: Arc<Band>) -> Self {
        Self {
            dtype,
            ty,
            band,
            tasks: Vec::new(),
            output_bytes: 0,
            time_bound_ns: 0,
        }
    }

    /// Adds a task: this tile of the band times the channels `n`, whose weights are at `b`.
    pub(crate) fn push(&mut self, activation: usize, n: Range<usize>, b: usize) {
        let a = &self.band.activations[activation];
        let n_padded = n.len().next_multiple_of(self.dtype.kernel_group());
        self.tasks.push(TaskPlan {
            activation,
            n,
            m_padded: to_u32(a.padded),
            k_padded: to_u32(a.k_tile.padded),
            n_padded: to_u32(n_padded),
            // Buffers are below 2 GiB, so offsets have 32 bits.
            a: to_u32(a.offset),
            b: to_u32(b),
            c: to_u32(self.output_bytes),
        });
        self.output_bytes += layout::output_bytes(self.ty, a.padded, n_padded);
        self.time_bound_ns += task_time_bound_ns(self.dtype, a.padded, a.k_tile.padded, n_padded);
    }

    /// The job of the channels `n`, with the weights of `block`.
    pub(crate) fn job(
        self,
        device: usize,
        block: usize,
        program: ProgramOptions,
        n: Range<usize>,
    ) -> JobPlan {
        JobPlan {
            device,
            block,
            ty: self.ty,
            program,
            band: self.band,
            n,
            tasks: self.tasks,
            output_bytes: self.output_bytes,
            time_bound_ns: self.time_bound_ns,
        }
    }
}
