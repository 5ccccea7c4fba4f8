// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reasons why a job is not built. The error returns the buffers.

use rknpu_regcmd::Extent;
use thiserror::Error;

use crate::bo::Bo;
use crate::units::Handle;

/// Maximum number of programs in a job. The driver's only limit is memory for copies of
/// them, and a count with the top bits set makes it print a kernel warning.
pub(super) const MAX_PROGRAMS: usize = 1 << 16;

/// Why a job was not built: the driver would have dropped it silently, or the NPU would
/// have accessed memory outside its buffers.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Refusal {
    /// The job has no program.
    #[error("the job has no program; the driver would drop it silently")]
    NoPrograms,
    /// The program index is beyond the end of the program buffer.
    #[error("there is no program {index}: the buffer holds {len}, counted from 0")]
    NoSuchProgram {
        /// The requested index.
        index: usize,
        /// Programs that the buffer object holds.
        len: usize,
    },
    /// The job has more programs than any use needs.
    #[error("the job has {count} programs; split it into jobs of at most {MAX_PROGRAMS}")]
    TooManyPrograms {
        /// Programs of the job.
        count: usize,
    },
    /// The job writes no buffer object.
    #[error(
        "the job writes no buffer object, so it has no result; add its output to the written ones"
    )]
    NothingWritten,
    /// A BO is listed twice.
    #[error("buffer object {handle} is listed twice; the driver would drop the job silently")]
    NamedTwice {
        /// The handle that is listed twice.
        handle: Handle,
    },
    /// A BO belongs to another open file.
    #[error("buffer object {handle} belongs to another open file, where addresses differ")]
    ForeignBo {
        /// Its handle in the other file.
        handle: Handle,
    },
    /// A program reads outside the buffers of the job.
    #[error("the {0} is read, but lies in no buffer object of the job")]
    ReadOutside(Extent),
    /// A program writes outside the buffers that the job lists as written.
    #[error("the {0} is written, but lies in no buffer object that the job lists as written")]
    WriteOutside(Extent),
}

/// The reason why a job was not built, with the buffers meant for it.
#[derive(Debug, Error)]
#[error("{refusal}")]
pub struct BuildError {
    /// What is wrong with the job.
    pub refusal: Refusal,
    /// Buffers to read, in the order given.
    pub reads: Vec<Bo>,
    /// Buffers to write, in the order given.
    pub writes: Vec<Bo>,
}
