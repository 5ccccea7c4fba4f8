// SPDX-License-Identifier: MIT OR Apache-2.0
//! Looking at what an engine does, for tools that show it.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Instant;

use rknpu_regcmd::LinkedProgram;

use crate::dtype::Dtype;
use crate::plan::{JobPlan, Plan, Step};

/// One job, just before it is submitted.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct SubmittedJob<'a> {
    /// Precision of the product.
    pub dtype: Dtype,
    /// The step it belongs to.
    pub step: &'a Step,
    /// The job's plan.
    pub job: &'a JobPlan,
    /// The very programs that the device gets, one for each task.
    pub programs: &'a [LinkedProgram],
}

/// Something that was done for products.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Activity {
    /// Activations were quantised, once for all products of a call that share them.
    Quantise {
        /// Number of packed elements.
        elements: usize,
    },
    /// Activations were laid out in a buffer.
    Pack {
        /// Bytes of the buffer.
        bytes: usize,
    },
    /// Jobs were handed to the driver.
    Submit {
        /// Number of jobs.
        jobs: usize,
    },
    /// A job ran: from its SUBMIT until its end was seen, which others that
    /// were waited for before may have delayed.
    Job {
        /// Number of register programs.
        tasks: usize,
    },
    /// The caller did nothing but wait for a job.
    Wait,
    /// Scores of attention were turned into probabilities, in place.
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
    /// What [`Observer::token`] said on the thread that wanted the products.
    pub token: u64,
    /// Index into the device pool; `None` where it is not about one.
    pub device: Option<usize>,
    /// The kind of work: packing, a job, unpacking and so on.
    pub activity: Activity,
    /// When it began.
    pub started: Instant,
    /// When it ended.
    pub ended: Instant,
}

/// Is shown what an engine does. Calls come from several threads.
pub trait Observer: Debug + Send + Sync {
    /// A job is about to be submitted.
    fn submitting(&self, submission: &SubmittedJob<'_>) {
        let _ = submission;
    }

    /// Asked on the thread that calls the engine, for each part of what it does
    /// in the call: what then comes with each [`Done`] of that part.
    fn token(&self) -> u64 {
        0
    }

    /// A product is about to run by this plan.
    fn planned(&self, token: u64, plan: &Plan) {
        let _ = (token, plan);
    }

    /// Called by the thread that has done it; for [`Activity::Job`] by the one
    /// that has seen it.
    fn done(&self, done: &Done) {
        let _ = done;
    }
}

/// The observer of an engine, if it has one.
#[derive(Debug, Default)]
pub(crate) struct Watched(Option<Arc<dyn Observer>>);

impl Watched {
    pub(crate) fn by(observer: Arc<dyn Observer>) -> Self {
        Self(Some(observer))
    }

    pub(crate) fn submitting(&self, submission: &SubmittedJob<'_>) {
        if let Some(observer) = &self.0 {
            observer.submitting(submission);
        }
    }

    /// What it says about the caller.
    pub(crate) fn token(&self) -> u64 {
        self.0.as_ref().map_or(0, |observer| observer.token())
    }

    pub(crate) fn planned(&self, token: u64, plan: &Plan) {
        if let Some(observer) = &self.0 {
            observer.planned(token, plan);
        }
    }

    /// Shows what began at `started` and has just ended.
    pub(crate) fn done(
        &self,
        token: u64,
        device: Option<usize>,
        activity: Activity,
        started: Instant,
    ) {
        if let Some(observer) = &self.0 {
            observer.done(&Done {
                token,
                device,
                activity,
                started,
                ended: Instant::now(),
            });
        }
    }
}
