// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a staged product cannot do.

/// Why a staged product, or a buffer of it, cannot be used as it was asked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StagedError {
    /// There is no such buffer.
    #[error("there is no {operand} buffer {index}: this staged product has {count}")]
    NoSuchBuffer {
        /// "activation" or "result".
        operand: &'static str,
        /// What was asked for.
        index: usize,
        /// How many there are.
        count: usize,
    },
    /// Others may change it, so that there is no slice of it.
    #[error(
        "{operand} buffer {index} was exported: read and write it by the functions of its dma-buf"
    )]
    Exported {
        /// "activation" or "result".
        operand: &'static str,
        /// Index of the buffer.
        index: usize,
    },
    /// A job has it that did not end, or that nobody waited for.
    #[error(
        "{operand} buffer {index} is with a job that did not end; stage the product again for a \
         new one"
    )]
    Lost {
        /// "activation" or "result".
        operand: &'static str,
        /// Index of the buffer.
        index: usize,
    },
    /// All operands of a staged product are there at once.
    #[error(
        "the staged operands take more than {max} bytes on device {device}, which is all that it \
         addresses: stage fewer rows, or multiply without staging, which needs a part at a time"
    )]
    TooLarge {
        /// Index into the device pool.
        device: usize,
        /// Bytes that a file descriptor addresses.
        max: u64,
    },
}
