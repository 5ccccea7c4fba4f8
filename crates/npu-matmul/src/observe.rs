// SPDX-License-Identifier: MIT OR Apache-2.0
//! Looking at what is submitted, for tools that show it.

use std::fmt::Debug;

use rknpu_regcmd::LinkedProgram;

use crate::dtype::Precision;
use crate::plan::{JobPlan, Step};

/// One job, just before it is submitted.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Submission<'a> {
    /// Precision of the product.
    pub precision: Precision,
    /// The step it belongs to.
    pub step: &'a Step,
    /// Its plan.
    pub job: &'a JobPlan,
    /// The very programs that the device gets, one for each task.
    pub programs: &'a [LinkedProgram],
}

/// Is shown each job of an engine. Calls come from several threads.
pub trait Observer: Debug + Send + Sync {
    /// A job is about to be submitted.
    fn submitting(&self, submission: &Submission<'_>);
}
