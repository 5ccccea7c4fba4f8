// SPDX-License-Identifier: MIT OR Apache-2.0
//! Why a product, or attention, has no result.

use std::collections::TryReserveError;

use npu_matmul::Error;

use crate::memory::OutOfMemory;
use crate::quants::NotFinite;

/// Why a product, or attention, has no result.
#[derive(Debug, thiserror::Error)]
pub(crate) enum MulMatError {
    /// The device or the engine.
    #[error(transparent)]
    Engine(#[from] Error),
    /// No memory for what is between the host's operands and the engine's.
    #[error(transparent)]
    Memory(#[from] OutOfMemory),
    /// Weights that are no numbers.
    #[error(transparent)]
    Weights(#[from] NotFinite),
    /// Weights that the CPU has rearranged and that were not packed before.
    #[error("its weights were not packed when they were loaded")]
    NotPacked,
    /// A row that chose weights that do not exist.
    #[error("a row asks for expert {number} of {count}")]
    NoSuchExpert {
        /// The number of the expert that the row asks for.
        number: i32,
        /// Number of experts that there are.
        count: usize,
    },
    /// A tensor whose data is not where its strides say.
    #[error("the {0} are shorter than their strides say, or not aligned to their type")]
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
    /// Index of the call that failed.
    pub(crate) call: usize,
    /// What went wrong.
    pub(crate) error: MulMatError,
}

impl ListError {
    /// For `map_err`: an error of this call.
    pub(crate) fn of(call: usize) -> impl Fn(MulMatError) -> Self {
        move |error| Self { call, error }
    }
}
