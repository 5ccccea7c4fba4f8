// SPDX-License-Identifier: MIT OR Apache-2.0
//! Pages of jobs that have ended, for jobs to come.

use crate::raw_job::RawTask;
use crate::rocket_file::RawBo;
use crate::units::Handle;

/// The witness program of one page, and what it writes there.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    pub(super) task: RawTask,
    /// What it multiplies.
    pub(super) operands: Handle,
    /// Offset of the atom that the program writes last.
    pub(super) atom: usize,
}

/// A page that no job has, kept by its file. It does not keep the file.
#[derive(Debug)]
pub(crate) struct IdleWitness {
    pub(crate) raw: RawBo,
    pub(super) place: Place,
}
