// SPDX-License-Identifier: MIT OR Apache-2.0
//! Why a job was not built; the buffers come back.

use rknpu_regcmd::Extent;
use thiserror::Error;

use crate::bo::Bo;
use crate::error::ProgramError;
use crate::units::Handle;

/// Most programs of a job. The driver's own limit is the memory for copies of
/// them, and a count with the top bits set makes it print a kernel warning.
pub(super) const MAX_PROGRAMS: usize = 1 << 16;

/// Why a job was not built: the driver would have dropped it without a word,
/// or the NPU would have left its buffers.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Refusal {
    /// No program.
    #[error("a job without a program; the driver would drop it without telling")]
    NoPrograms,
    /// A program index that the program buffer does not have.
    #[error("program {index} of a buffer that holds {len}")]
    NoSuchProgram {
        /// The index that was asked for.
        index: usize,
        /// Programs that the buffer object holds.
        len: usize,
    },
    /// More programs than any use has.
    #[error("a job of {count} programs; split it into jobs of at most {MAX_PROGRAMS}")]
    TooManyPrograms {
        /// Programs in all.
        count: usize,
    },
    /// A program without words, or with more than the NPU can fetch.
    #[error(transparent)]
    Program(#[from] ProgramError),
    /// Nothing is written.
    #[error("a job that writes no buffer object, and so has no result")]
    NothingWritten,
    /// A BO named twice.
    #[error("buffer object {handle} is named twice; the driver would drop the job without telling")]
    NamedTwice {
        /// The handle that came twice.
        handle: Handle,
    },
    /// A BO of another open file.
    #[error("buffer object {handle} belongs to another open file, where addresses differ")]
    ForeignBo {
        /// Its handle in the other file.
        handle: Handle,
    },
    /// A program reads what the job does not own.
    #[error("the {0} is read, but lies in no buffer object of the job")]
    ReadOutside(Extent),
    /// A program writes what the job does not own for writing.
    #[error("the {0} is written, but lies in no buffer object that the job lists as written")]
    WriteOutside(Extent),
}

/// A job that was not built, and the buffers meant for it.
#[derive(Debug, Error)]
#[error("{refusal}")]
pub struct BuildError {
    /// What is wrong with the job.
    pub refusal: Refusal,
    /// Buffers that would have been read, in the order given.
    pub reads: Vec<Bo>,
    /// Buffers that would have been written, in the order given.
    pub writes: Vec<Bo>,
}
