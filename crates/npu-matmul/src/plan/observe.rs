// SPDX-License-Identifier: MIT OR Apache-2.0
//! Observation of an engine's work, for tools such as tracers.

use std::fmt::Debug;
use std::time::Instant;

use rknpu_regcmd::LinkedProgram;

use crate::numbers::dtype::Dtype;
use crate::plan::{JobPlan, Plan};

/// A job of a plan, just before its SUBMIT, alone or joined with others.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct JobEvent<'a> {
    /// Precision of the matmul.
    pub dtype: Dtype,
    /// The job's plan.
    pub job: &'a JobPlan,
    /// The programs exactly as the device gets them, one for each task.
    pub programs: &'a [LinkedProgram],
}

/// A part of the work for a matmul or attention.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Activity {
    /// Activations were quantised, once for all matmuls of a call that share them.
    Quantise {
        /// Number of packed elements.
        elements: usize,
    },
    /// Activations were packed into a buffer.
    Pack {
        /// Bytes of the buffer.
        bytes: usize,
    },
    /// Jobs were submitted to the driver.
    Submit {
        /// Number of jobs.
        jobs: usize,
    },
    /// A job ran: from its SUBMIT until its end was seen. Waiting for earlier jobs may have delayed
    /// the latter.
    Job {
        /// Number of register programs.
        tasks: usize,
    },
    /// The CPU computed a job in place of the NPU.
    Compute {
        /// Number of tasks that the NPU would have run.
        tasks: usize,
    },
    /// The caller waited for a job and did nothing else.
    Wait,
    /// Scores of attention were turned into probabilities.
    Softmax {
        /// Bytes of the scores.
        bytes: usize,
    },
    /// Outputs were read and added up.
    Unpack {
        /// Bytes of the buffer.
        bytes: usize,
    },
}

/// An [`Activity`] with its times.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Done {
    /// Result of [`Observer::token`] on the calling thread.
    pub token: u64,
    /// Index into the device pool; `None` if the work belongs to no device.
    pub device: Option<usize>,
    /// The kind of work: packing, a job, unpacking and so on.
    pub activity: Activity,
    /// Start time.
    pub started: Instant,
    /// End time.
    pub ended: Instant,
}

/// Receives reports about an engine's work, from several threads.
pub trait Observer: Debug + Send + Sync {
    /// A job of a plan is about to be submitted.
    fn submitting(&self, submission: &JobEvent<'_>) {
        let _ = submission;
    }

    /// Returns a number that each [`Done`] of this part of the call will carry. The engine asks on
    /// the calling thread, once for each part of a call.
    fn token(&self) -> u64 {
        0
    }

    /// A matmul is about to run with this plan.
    fn planned(&self, token: u64, plan: &Plan) {
        let _ = (token, plan);
    }

    /// Work has ended. Called on the thread that did it; for [`Activity::Job`] on the thread that
    /// saw the end.
    fn done(&self, done: &Done) {
        let _ = done;
    }
}

/// Ignores all reports.
impl Observer for () {}
