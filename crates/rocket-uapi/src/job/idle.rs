// SPDX-License-Identifier: MIT OR Apache-2.0
//! Witness pages of ended jobs, kept for later jobs.

use crate::raw_job::RawTask;
use crate::rocket_file::RawBo;
use crate::units::Handle;

/// The witness program of one page, with its operands and the place of its result.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    pub(super) task: RawTask,
    /// The buffer object of the operands.
    pub(super) operands: Handle,
    /// Offset of the atom that the program writes last.
    pub(super) atom: usize,
}

/// A witness page without a job. The file keeps it; the page holds no reference to the
/// file.
#[derive(Debug)]
pub(crate) struct IdleWitness {
    pub(crate) raw: RawBo,
    pub(super) place: Place,
}
