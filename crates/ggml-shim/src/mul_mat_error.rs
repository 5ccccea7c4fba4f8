// SPDX-License-Identifier: MIT OR Apache-2.0
//! Why a matmul, or attention, has no result.

use std::collections::TryReserveError;

use npu_matmul::Error;

use crate::memory::OutOfMemory;
use crate::quants::NotFinite;

/// Why a matmul, or attention, has no result.
#[derive(Debug, thiserror::Error)]
pub(crate) enum MulMatError {
    /// The device or the engine failed.
    #[error(transparent)]
    Engine(#[from] Error),
    /// No memory for data between the host's operands and the engine's.
    #[error(transparent)]
    Memory(#[from] OutOfMemory),
    /// Weights that are not finite numbers.
    #[error(transparent)]
    Weights(#[from] NotFinite),
    /// Weights that the CPU has rearranged and that were not packed before.
    #[error("its weights were not packed when they were loaded")]
    NotPacked,
    /// A row that chose weights that do not exist.
    #[error("a row selects expert {number}, but there are only {count}")]
    NoSuchExpert {
        /// The number of the expert that the row asks for.
        number: i32,
        count: usize,
    },
    /// A tensor whose data is not where its strides say.
    #[error("the {0} are shorter than their strides require, or not aligned to their type")]
    Data(&'static str),
}

impl From<TryReserveError> for MulMatError {
    fn from(_: TryReserveError) -> Self {
        OutOfMemory::Rows.into()
    }
}

/// Why a list of calls has no results.
#[derive(Debug)]
pub(crate) struct ListError {
    pub(crate) call: usize,
    pub(crate) error: MulMatError,
}

impl ListError {
    /// For `map_err`: an error of this call.
    pub(crate) fn of(call: usize) -> impl Fn(MulMatError) -> Self {
        move |error| Self { call, error }
    }
}
