// SPDX-License-Identifier: MIT OR Apache-2.0
//! Choices for programs and buffers where sources contradict each other, or where an alternative
//! has never run on the mainline driver. The built-in values have run there. A board's profile may
//! allow more after an experiment has passed on that board.

use std::borrow::Cow;

use rknpu_regcmd::{MatmulForm, ProgramOptions, ReuseRule};
use serde::{Deserialize, Serialize};

use crate::numbers::dtype::Dtype;

/// A choice and its evidence.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SourcedChoice<T> {
    /// The value chosen.
    pub value: T,
    /// Evidence that it runs: an id of docs/evidence.md, or the command that found it on the
    /// profile's own board.
    pub evidence: Cow<'static, str>,
}

impl<T> SourcedChoice<T> {
    const fn published(value: T, evidence: &'static str) -> Self {
        Self {
            value,
            evidence: Cow::Borrowed(evidence),
        }
    }
}

/// Which tasks reuse data left in CBUF, for each precision of the operands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReuseChoices {
    /// For INT8 operands.
    pub int8: SourcedChoice<ReuseRule>,
    /// For INT4 operands.
    pub int4: SourcedChoice<ReuseRule>,
    /// For FP16 operands.
    pub fp16: SourcedChoice<ReuseRule>,
}

impl ReuseChoices {
    /// The choice for this precision.
    #[must_use]
    pub const fn of(&self, dtype: Dtype) -> &SourcedChoice<ReuseRule> {
        match dtype {
            Dtype::Int8 => &self.int8,
            Dtype::Int4 => &self.int4,
            Dtype::Fp16 => &self.fp16,
        }
    }

    /// The choice for this precision, mutable.
    pub const fn of_mut(&mut self, dtype: Dtype) -> &mut SourcedChoice<ReuseRule> {
        match dtype {
            Dtype::Int8 => &mut self.int8,
            Dtype::Int4 => &mut self.int4,
            Dtype::Fp16 => &mut self.fp16,
        }
    }
}

/// All choices of a profile.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Choices {
    /// Which tasks reuse data left in CBUF.
    pub reuse: ReuseChoices,
    /// Whether INT8 features get one CBUF bank more than they fill, if the weights still have
    /// enough banks.
    pub int8_spare_bank: SourcedChoice<bool>,
    /// Bytes of a buffer behind the data that the NPU reads.
    pub slack_bytes: SourcedChoice<usize>,
    /// Whether a job may have tasks of several matmuls, whose weights are in several buffers.
    #[serde(default = "joined_jobs")]
    pub joined_jobs: SourcedChoice<bool>,
    /// Most tasks of a job.
    #[serde(default = "job_tasks")]
    pub job_tasks: SourcedChoice<usize>,
    /// Most cores that work at the same time.
    #[serde(default = "cores")]
    pub cores: SourcedChoice<usize>,
}

/// Nobody is known to have run a job with weights in several buffers. The driver's code has no
/// limit.
const fn joined_jobs() -> SourcedChoice<bool> {
    SourcedChoice::published(true, "E-job-sizes")
}

const fn job_tasks() -> SourcedChoice<usize> {
    SourcedChoice::published(1024, "E-job-sizes")
}

const fn cores() -> SourcedChoice<usize> {
    SourcedChoice::published(3, "E-cores")
}

/// Bytes of one CBUF bank: the longest overread of a feature fetch seen so far.
const SLACK_BYTES: usize = 32 << 10;

impl Choices {
    pub(super) const fn published() -> Self {
        use ReuseRule::{EqualResident, Never};
        Self {
            reuse: ReuseChoices {
                int8: SourcedChoice::published(Never, "E-reuse-unseen"),
                int4: SourcedChoice::published(Never, "E-reuse-unseen"),
                fp16: SourcedChoice::published(EqualResident, "E-reuse-equal"),
            },
            int8_spare_bank: SourcedChoice::published(true, "E-spare-data-bank"),
            slack_bytes: SourcedChoice::published(SLACK_BYTES, "E-over-read"),
            joined_jobs: joined_jobs(),
            job_tasks: job_tasks(),
            cores: cores(),
        }
    }

    /// Replaces the reuse rule for every precision.
    #[must_use]
    pub fn with_reuse(mut self, rule: ReuseRule) -> Self {
        for dtype in Dtype::ALL {
            self.reuse.of_mut(dtype).value = rule;
        }
        self
    }

    /// Program options for matmuls of this precision.
    #[must_use]
    pub const fn program(&self, dtype: Dtype) -> ProgramOptions {
        ProgramOptions {
            // Form A saves 144 bytes of a program, and has hung (E-form-a-hangs).
            form: MatmulForm::B,
            spare_data_bank: matches!(dtype, Dtype::Int8) && self.int8_spare_bank.value,
            reuse: self.reuse.of(dtype).value,
        }
    }
}
