// SPDX-License-Identifier: MIT OR Apache-2.0
//! What can go wrong, and what to do about it.

use std::time::Duration;

use rknpu_regcmd::{LinkError, MatmulError};
use rocket_uapi::{FinishedJob, Refusal, WaitError};

use crate::dtype::Dtype;
use crate::dtype::Output;
use crate::first_run::WrongResult;
use crate::plan::PlanError;
use crate::threads::ThreadsError;

/// Why a product was not computed, or weights not loaded. The engine and its
/// devices stay usable; the result of the call that failed is undefined, its
/// other operands are untouched.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A slice does not have the length that the dimensions say.
    #[error("{operand} has {actual} elements, but {rows} x {columns} were announced")]
    OperandLength {
        /// "A", "B" or "C".
        operand: &'static str,
        /// Rows that the caller announced.
        rows: usize,
        /// Columns announced.
        columns: usize,
        /// Elements passed.
        actual: usize,
    },
    /// Operands of attention do not fit each other.
    #[error("attention: {what} is {actual}; with the other operands it must be {expected}")]
    AttentionShape {
        /// Which size.
        what: &'static str,
        /// What it is.
        actual: usize,
        /// What fits.
        expected: usize,
    },
    /// An INT4 operand holds a value that has no four bits.
    #[error("{operand}[{index}] is {value}; int4 operands hold -8 to 7")]
    Int4Range {
        /// "A" or "B".
        operand: &'static str,
        /// Index of the first such value.
        index: usize,
        /// The value.
        value: i8,
    },
    /// The weights were loaded for another kind of product.
    #[error("these weights are {actual}, but this call multiplies {expected} weights")]
    WrongWeights {
        /// What the call takes.
        expected: &'static str,
        /// What the weights are.
        actual: &'static str,
    },
    /// Weights that do not give such elements of C.
    #[error("these weights are {weights}, from which no matmul gives {output:?}")]
    WrongOutput {
        /// What the weights are.
        weights: &'static str,
        /// What was asked for.
        output: Output,
    },
    /// The weights live on the devices of another engine, in whose open files
    /// alone they have addresses; see [`PackedWeights`](crate::PackedWeights).
    #[error("these weights were loaded by another engine; load them with this one")]
    ForeignWeights,
    /// A quantised product so deep that sums could leave 32 bits.
    #[error(
        "sums of {k} products of int8 could leave 32 bits; those of {max} cannot: \
         load these weights as fp16"
    )]
    TooDeep {
        /// Depth of the sums.
        k: usize,
        /// The deepest that cannot overflow.
        max: usize,
    },
    /// There is no memory for what is made of the operands.
    #[error("out of memory: no room for the rows that the NPU is to read: {0}")]
    Memory(#[from] std::collections::TryReserveError),
    /// The engine's threads are not as they were wanted.
    #[error(transparent)]
    Threads(#[from] ThreadsError),
    /// There is no plan for these sizes.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// A planned tile has no register program: a bug of the plan.
    #[error("a planned tile is not legal, which is a bug in npu-matmul: {0}")]
    Program(#[from] MatmulError),
    /// A program leaves its buffers: a bug of the plan.
    #[error("a planned program leaves its buffers, which is a bug in npu-matmul: {0}")]
    Link(#[from] LinkError),
    /// The kernel driver, or its model, refused something.
    #[error("device {device}: {source}")]
    Device {
        /// Index into the device pool.
        device: usize,
        /// The error of the device.
        source: rocket_uapi::Error,
    },
    /// A job was not built: a bug of the plan.
    #[error("device {device}: a planned job was refused, which is a bug in npu-matmul: {source}")]
    Build {
        /// Index into the device pool.
        device: usize,
        /// What is wrong with it.
        source: Refusal,
    },
    /// A job was submitted and did not complete.
    #[error("device {device}: {source}")]
    Job {
        /// Index into the device pool.
        device: usize,
        /// What became of it.
        source: JobFailure,
    },
    /// The first task of its kind is wrong, on a board that nobody has calibrated; see
    /// [`PlanOptions::check_first`](crate::PlanOptions::check_first).
    #[error("device {device}: {source}")]
    WrongResult {
        /// Index into the device pool.
        device: usize,
        /// What is wrong, and what is done about it.
        source: Box<WrongResult>,
    },
    /// Products of this precision were wrong before, whatever was tried.
    #[error(
        "the NPU computed wrong {dtype} results before, so {dtype} matmuls are refused until \
         the program starts again; use another precision, and let `npu-probe first` find out why"
    )]
    Distrusted {
        /// The precision.
        dtype: Dtype,
    },
}

/// Why one of several products, or calls of attention, has no result, and with it none of
/// them.
#[derive(Debug, thiserror::Error)]
#[error("call {call}: {source}")]
pub struct GemmCallError {
    /// Its index among the calls. Of a SUBMIT that failed, the first whose jobs were in it.
    pub call: usize,
    /// What went wrong.
    pub source: Error,
}

impl GemmCallError {
    /// For `map_err`: an error of this call.
    pub(crate) fn of(call: usize) -> impl Fn(Error) -> Self {
        move |source| Self { call, source }
    }
}

impl From<GemmCallError> for Error {
    fn from(error: GemmCallError) -> Self {
        error.source
    }
}

/// What became of a job that did not complete.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JobFailure {
    /// The driver killed it.
    #[error(
        "the driver killed the job: it ran for longer than 500 ms, or its program hung; \
         `npu-probe --dump DIR` with the same sizes collects what is needed to find out"
    )]
    Killed,
    /// The driver accepted it and did not run it.
    #[error("the driver accepted the job and did not run it; the kernel log may tell why")]
    Dropped,
    /// The kernel did not end it, neither well nor by force.
    #[error("the job did not end within {} s; the kernel should have killed it", waited.as_secs())]
    TimedOut {
        /// How long it was waited for.
        waited: Duration,
    },
    /// The device did not say what became of it; one that has disappeared does
    /// not.
    #[error("the state of the job could not be learnt: {0}")]
    Device(rocket_uapi::Error),
    /// Its state is none of the above.
    #[error("{0}")]
    Unknown(String),
}

impl JobFailure {
    /// The failure in `error`, and the buffers of the job if it has ended. A
    /// job that has not ended is dropped here, which waits for it.
    pub(crate) fn of(error: WaitError, waited: Duration) -> (Self, Option<FinishedJob>) {
        let failure = match &error {
            WaitError::Killed { .. } => Self::Killed,
            WaitError::Dropped { .. } => Self::Dropped,
            WaitError::TimedOut { .. } => Self::TimedOut { waited },
            WaitError::Device { source, .. } => Self::Device(source.clone()),
            other => Self::Unknown(other.to_string()),
        };
        (failure, error.into_finished())
    }
}

impl Error {
    /// For `map_err`: an error of this device.
    pub(crate) fn on_device(device: usize) -> impl Fn(rocket_uapi::Error) -> Self {
        move |source| Self::Device { device, source }
    }
}
