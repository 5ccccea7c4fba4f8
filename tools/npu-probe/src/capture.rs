// SPDX-License-Identifier: MIT OR Apache-2.0
//! The programs that were submitted, as the engine showed them.

use std::sync::{Mutex, PoisonError};

use npu_matmul::{Observer, SubmittedJob};
use rknpu_regcmd::Word;

/// One task, just as the device got it.
#[derive(Clone, Debug)]
pub(crate) struct CapturedTask {
    /// Index of the file descriptor that it was submitted to.
    pub(crate) fd: usize,
    /// Padded sizes of the tile: rows, depth, columns.
    pub(crate) tile: [u32; 3],
    /// First row, channel and column of the product that the tile computes.
    pub(crate) origin: [usize; 3],
    /// The command words.
    pub(crate) words: Vec<Word>,
}

/// Tasks of a product, and the number of jobs they came in.
#[derive(Clone, Debug, Default)]
pub(crate) struct CapturedProduct {
    pub(crate) jobs: usize,
    pub(crate) tasks: Vec<CapturedTask>,
}

/// Collects the tasks of the jobs that an engine submits.
#[derive(Debug, Default)]
pub(crate) struct JobCollector(Mutex<CapturedProduct>);

impl JobCollector {
    /// What was submitted since the last call.
    pub(crate) fn take(&self) -> CapturedProduct {
        let mut captured = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut captured = std::mem::take(&mut *captured);
        // File descriptors submit at the same time: an order that does not depend on it.
        captured.tasks.sort_by_key(|task| (task.fd, task.origin));
        captured
    }
}

impl Observer for JobCollector {
    fn submitting(&self, submission: &SubmittedJob<'_>) {
        let tasks = submission
            .job
            .tasks
            .iter()
            .zip(submission.programs)
            .map(|(task, program)| {
                let a = &submission.job.band.activations[task.activation];
                CapturedTask {
                    fd: submission.job.device,
                    tile: [task.m_padded, task.k_padded, task.n_padded],
                    origin: [a.rows.start, a.k_tile.k.start, task.n.start],
                    words: program.words().to_vec(),
                }
            });
        let mut captured = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        captured.jobs += 1;
        captured.tasks.extend(tasks);
    }
}
