// SPDX-License-Identifier: MIT OR Apache-2.0
//! Errors: what happened, and what to do about it.

use std::time::Duration;

use rknpu_regcmd::{LinkError, MatmulError};
use rocket_uapi::{Refusal, WaitError};

use crate::numbers::dtype::Dtype;
use crate::plan::PlanError;
use crate::plan::first_run::{MatmulKind, WrongResult};
use crate::plan::threads::ThreadsError;

/// Why a matmul did not run or weights were not loaded.
///
/// The engine and its devices stay usable. The result of the failed call is undefined; its other
/// operands are unchanged.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The length of a slice does not match the dimensions.
    #[error("{operand} has {actual} elements; its given size is {rows} x {columns}")]
    OperandLength {
        /// "A", "B" or "C".
        operand: &'static str,
        /// Rows that the caller gave.
        rows: usize,
        /// Columns that the caller gave.
        columns: usize,
        /// Elements passed.
        actual: usize,
    },
    /// The sizes of attention operands do not match.
    #[error("attention: {what} is {actual}; the other operands require {expected}")]
    AttentionShape {
        /// Which size.
        what: &'static str,
        /// The size of this operand.
        actual: usize,
        /// The size that matches the other operands.
        expected: usize,
    },
    /// Scores of attention are too large, or not numbers: the result would not be exact.
    #[error(
        "attention: the largest score of a row is {maximum}; scores are exact up to {limit}: \
         compute this attention on the CPU"
    )]
    AttentionOutOfRange {
        /// The largest score of the row, NaN if there is one.
        maximum: f32,
        /// The largest magnitude that is exact enough.
        limit: f32,
    },
    /// An INT4 operand contains a value that does not fit in four bits.
    #[error("{operand}[{index}] is {value}; int4 operands hold -8 to 7")]
    Int4Range {
        /// "A" or "B".
        operand: &'static str,
        /// Index of the first such value.
        index: usize,
        /// The value.
        value: i8,
    },
    /// The activations have a type that these weights do not take.
    #[error("these weights are {actual}, but these activations need {expected} weights")]
    WrongWeights {
        /// Weights that take such activations.
        expected: &'static str,
        /// Format of the weights.
        actual: &'static str,
    },
    /// A matmul with these weights does not give results of this type.
    #[error("a matmul with {weights} weights cannot give {output} results")]
    WrongOutput {
        /// Format of the weights.
        weights: &'static str,
        /// Type of the caller's C.
        output: &'static str,
    },
    /// The weights were loaded by another engine. They have addresses only in that engine's open
    /// files; see [`PackedWeights`](crate::PackedWeights).
    #[error("these weights were loaded by another engine; load them with this one")]
    ForeignWeights,
    /// K is so large that the sums of an integer matmul could overflow 32 bits.
    #[error(
        "a sum of {k} integer products could overflow 32 bits; at most {max} are allowed: split K \
         and add the results, or use fp16 weights"
    )]
    TooDeep {
        /// Number of terms of each sum.
        k: usize,
        /// Largest number of terms that cannot overflow.
        max: usize,
    },
    /// No host memory for converted operands.
    #[error("out of memory for the rows that the NPU reads: {0}")]
    Memory(#[from] std::collections::TryReserveError),
    /// The engine's threads could not be started as requested.
    #[error(transparent)]
    Threads(#[from] ThreadsError),
    /// These sizes cannot be planned.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// A planned tile has no register program: a bug in the plan.
    #[error("a planned tile is not legal, which is a bug in npu-matmul: {0}")]
    Program(#[from] MatmulError),
    /// A program accesses memory outside its buffers: a bug in the plan.
    #[error(
        "a planned program accesses memory outside its buffers, which is a bug in npu-matmul: {0}"
    )]
    Link(#[from] LinkError),
    /// The kernel driver or its model returned an error.
    #[error("device {device}: {source}")]
    Device {
        /// Index into the device pool.
        device: usize,
        /// The device's error.
        source: rocket_uapi::Error,
    },
    /// A job could not be built: a bug in the plan.
    #[error("device {device}: a planned job was refused, which is a bug in npu-matmul: {source}")]
    Build {
        /// Index into the device pool.
        device: usize,
        /// Why it could not be built.
        source: Refusal,
    },
    /// A job was submitted but did not complete. The engine runs a job that the driver killed or
    /// dropped a second time before it gives up.
    #[error("device {device}: {source}{}", times(*runs))]
    Job {
        /// Index into the device pool.
        device: usize,
        /// What happened to the job, the last time.
        source: JobFailure,
        /// How often the job ran: once or twice.
        runs: u32,
    },
    /// The caller gave up the call, so a job that failed did not run again; see
    /// [`Engine::run_abortable`](crate::Engine::run_abortable).
    #[error("the call was aborted before a failed job ran again")]
    Aborted,
    /// A trial matmul gave a wrong result; see [`Engine::probe`](crate::Engine::probe).
    #[error(
        "a trial matmul in {dtype} gave {got} instead of {expected} in column {column}; run \
         `npu-probe first` to find the cause"
    )]
    WrongProbe {
        /// Precision of the matmul.
        dtype: Dtype,
        /// Column of the result.
        column: usize,
        /// What the NPU computed.
        got: f32,
        /// The right value.
        expected: f32,
    },
    /// The first task of its kind gave a wrong result on an uncalibrated board; see
    /// [`PlanOptions::check_first`](crate::PlanOptions::check_first).
    #[error("device {device}: {source}")]
    WrongResult {
        /// Index into the device pool.
        device: usize,
        /// What is wrong, and what the engine does about it.
        source: Box<WrongResult>,
    },
    /// Matmuls of this kind gave wrong results before, with every workaround.
    #[error(
        "the NPU computed wrong results before, so {kind} are disabled until the program \
         restarts; use another precision, and run `npu-probe first` to find the cause"
    )]
    Distrusted {
        /// The kind of matmul.
        kind: MatmulKind,
    },
}

/// The error of one of several matmuls or attention calls; none of the calls has a result.
#[derive(Debug, thiserror::Error)]
#[error("call {call}: {source}")]
pub struct EngineCallError {
    /// Index of the call. If a SUBMIT or a job of several calls failed, the first of these.
    pub call: usize,
    /// What went wrong.
    pub source: Error,
}

impl EngineCallError {
    /// For `map_err`: an error of this call.
    pub(crate) fn of(call: usize) -> impl Fn(Error) -> Self {
        move |source| Self { call, source }
    }
}

impl From<EngineCallError> for Error {
    fn from(error: EngineCallError) -> Self {
        error.source
    }
}

/// The classes of errors, for callers that decide what to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The call, its operands or their values are at fault, or there is a bug in this library. The
    /// same call would fail again.
    Call,
    /// The caller gave up.
    Aborted,
    /// No memory, NPU addresses, file descriptors or threads.
    NoMemory,
    /// The driver killed or dropped a job, at its second run too. No job of the call runs any more.
    JobEnded,
    /// A job may still run, or the device is lost. Each later call could wait as long.
    DeviceLost,
    /// The driver refused a call for another reason. No job of the call runs any more.
    Refused,
    /// The NPU computed a wrong result, now or before.
    WrongResult,
}

impl Error {
    /// The class of this error.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::OperandLength { .. }
            | Self::AttentionShape { .. }
            | Self::AttentionOutOfRange { .. }
            | Self::Int4Range { .. }
            | Self::WrongWeights { .. }
            | Self::WrongOutput { .. }
            | Self::ForeignWeights
            | Self::TooDeep { .. }
            | Self::Threads(_)
            | Self::Plan(_)
            | Self::Program(_)
            | Self::Link(_)
            | Self::Build { .. } => ErrorKind::Call,
            Self::Aborted => ErrorKind::Aborted,
            Self::Memory(_) => ErrorKind::NoMemory,
            Self::Device { source, .. } => kind_of_device(source),
            Self::Job { source, .. } => match source {
                JobFailure::Killed | JobFailure::Dropped | JobFailure::DroppedOrKilled => {
                    ErrorKind::JobEnded
                }
                JobFailure::TimedOut { .. } | JobFailure::Device(_) | JobFailure::Unknown(_) => {
                    ErrorKind::DeviceLost
                }
            },
            Self::WrongResult { .. } | Self::WrongProbe { .. } | Self::Distrusted { .. } => {
                ErrorKind::WrongResult
            }
        }
    }
}

/// The class of an error of a device, outside of a wait for a job.
fn kind_of_device(error: &rocket_uapi::Error) -> ErrorKind {
    use rocket_uapi::{Errno, Error};
    match error {
        Error::OutOfMemory(_)
        | Error::OutOfFileDescriptors(_)
        | Error::OutOfSystemFiles(_)
        | Error::AddressTooHigh { .. }
        | Error::Refused {
            errno: Errno::NOMEM | Errno::NOSPC | Errno::AGAIN,
            ..
        } => ErrorKind::NoMemory,
        Error::DeviceGone(_) | Error::TimedOut(_) | Error::FenceTimedOut => ErrorKind::DeviceLost,
        Error::Length(_) => ErrorKind::Call,
        _ => ErrorKind::Refused,
    }
}

/// The end of a sentence about a job that ran this often.
const fn times(runs: u32) -> &'static str {
    if runs > 1 { " (it ran twice)" } else { "" }
}

/// What happened to a job that did not complete.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JobFailure {
    /// The driver killed the job.
    #[error(
        "the driver killed the job: it ran for longer than 500 ms, or its program hung; \
         run `npu-probe --dump DIR` with the same sizes to record the job"
    )]
    Killed,
    /// The driver accepted the job but did not run it.
    #[error("the driver accepted the job and did not run it; the kernel log may say why")]
    Dropped,
    /// The driver dropped or killed the job; this process looked too late to distinguish the two.
    #[error(
        "the driver accepted the job and did not run it to its end: it dropped or killed it; the \
         kernel log may say why"
    )]
    DroppedOrKilled,
    /// The job neither completed nor was killed in time. It may still run.
    #[error("the job did not end within {} s; the kernel should have killed it", waited.as_secs())]
    TimedOut {
        /// Time waited.
        waited: Duration,
    },
    /// The device did not return the state of the job, for example because it has disappeared. The
    /// job may still run.
    #[error("cannot read the state of the job: {0}")]
    Device(rocket_uapi::Error),
    /// Any other state.
    #[error("{0}")]
    Unknown(String),
}

impl JobFailure {
    /// The failure in `error`.
    pub(crate) fn of(error: &WaitError, waited: Duration) -> Self {
        match error {
            WaitError::Killed(_) => Self::Killed,
            WaitError::Dropped(_) => Self::Dropped,
            WaitError::DroppedOrKilled(_) => Self::DroppedOrKilled,
            WaitError::TimedOut { .. } => Self::TimedOut { waited },
            WaitError::Device { source, .. } => Self::Device(source.clone()),
            other => Self::Unknown(other.to_string()),
        }
    }
}

impl Error {
    /// For `map_err`: an error of this device.
    pub(crate) fn on_device(device: usize) -> impl Fn(rocket_uapi::Error) -> Self {
        move |source| Self::Device { device, source }
    }
}
