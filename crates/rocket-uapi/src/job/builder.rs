// SPDX-License-Identifier: MIT OR Apache-2.0
//! The job builder, which refuses jobs that would be dropped or leave their buffers.

use std::collections::BTreeSet;

use rknpu_regcmd::{Direction, Extent};

use super::refusal::{BuildError, MAX_PROGRAMS, Refusal};
use crate::bo::{Bo, FrozenBo};
use crate::device::Device;
use crate::dma_buf::DmaBuf;
use crate::error::ProgramError;
use crate::program_bo::{Placed, ProgramBo};
use crate::raw_job::RawTask;
use crate::sync_file::SyncFile;
use crate::units::Handle;

/// A job that can be submitted: programs with the buffers that contain all their accesses.
#[must_use = "a job does nothing until it is submitted"]
#[derive(Debug)]
pub struct Job {
    pub(super) device: Device,
    pub(super) tasks: Vec<RawTask>,
    pub(super) frozen: Vec<FrozenBo>,
    pub(super) reads: Vec<Bo>,
    pub(super) writes: Vec<Bo>,
    pub(super) shared_reads: Vec<DmaBuf>,
    pub(super) shared_writes: Vec<DmaBuf>,
    /// Fences that the job waits for besides those of its buffers.
    pub(super) after: Vec<SyncFile>,
}

impl Job {
    /// A builder of an empty job for `device`.
    #[must_use]
    pub fn builder(device: &Device) -> JobBuilder {
        JobBuilder {
            device: device.clone(),
            programs: Vec::new(),
            frozen: Vec::new(),
            reads: Vec::new(),
            writes: Vec::new(),
            shared_reads: Vec::new(),
            shared_writes: Vec::new(),
            after: Vec::new(),
            refusal: None,
        }
    }

    /// Returns the buffers of a job that was not submitted: those it reads, then those it
    /// writes.
    #[must_use]
    pub fn into_bos(self) -> (Vec<Bo>, Vec<Bo>) {
        (self.reads, self.writes)
    }

    /// Handles that the job only reads, each once.
    pub(super) fn read_handles(&self) -> Vec<Handle> {
        let handles: BTreeSet<Handle> = self
            .frozen
            .iter()
            .map(FrozenBo::handle)
            .chain(self.reads.iter().map(Bo::handle))
            .chain(self.shared_reads.iter().map(DmaBuf::handle))
            .collect();
        handles.into_iter().collect()
    }

    /// Handles that the job writes, each once.
    pub(super) fn write_handles(&self) -> Vec<Handle> {
        let shared = self.shared_writes.iter().map(DmaBuf::handle);
        self.writes.iter().map(Bo::handle).chain(shared).collect()
    }
}

/// Collects a job's programs and buffers. A frozen buffer, such as a program buffer, may be
/// listed any number of times. An owned buffer cannot be listed twice, because it is moved
/// in.
#[derive(Debug)]
pub struct JobBuilder {
    device: Device,
    programs: Vec<Placed>,
    frozen: Vec<FrozenBo>,
    reads: Vec<Bo>,
    writes: Vec<Bo>,
    shared_reads: Vec<DmaBuf>,
    shared_writes: Vec<DmaBuf>,
    after: Vec<SyncFile>,
    refusal: Option<Refusal>,
}

impl JobBuilder {
    /// Adds all programs of `programs`, in order.
    #[must_use]
    pub fn program(mut self, programs: &ProgramBo) -> Self {
        self.frozen.push(programs.bo().clone());
        self.programs.extend_from_slice(programs.programs());
        self
    }

    /// Adds one program of `programs`.
    #[must_use]
    pub fn task(mut self, programs: &ProgramBo, index: usize) -> Self {
        if let Some(program) = programs.programs().get(index) {
            self.frozen.push(programs.bo().clone());
            self.programs.push(program.clone());
        } else {
            self.refusal.get_or_insert(Refusal::NoSuchProgram {
                index,
                len: programs.len(),
            });
        }
        self
    }

    /// Lets the programs read `bo`.
    #[must_use]
    pub fn reads(mut self, bo: &FrozenBo) -> Self {
        self.frozen.push(bo.clone());
        self
    }

    /// Lets the programs read `bo`, and keeps it until the job has ended.
    #[must_use]
    pub fn reads_owned(mut self, bo: Bo) -> Self {
        self.reads.push(bo);
        self
    }

    /// Lets the programs write (and read) `bo`, and keeps it until the job has
    /// ended.
    #[must_use]
    pub fn writes(mut self, bo: Bo) -> Self {
        self.writes.push(bo);
        self
    }

    /// Lets the programs read the shared `bo`, and makes the job wait for all its writers.
    /// An imported `bo` only orders the job.
    #[must_use]
    pub fn reads_shared(mut self, bo: &DmaBuf) -> Self {
        self.shared_reads.push(bo.clone());
        self
    }

    /// Lets the programs write (and read) the shared `bo`. The job waits for all its users,
    /// and later users wait for the job. An imported `bo` only orders the job.
    #[must_use]
    pub fn writes_shared(mut self, bo: &DmaBuf) -> Self {
        self.shared_writes.push(bo.clone());
        self
    }

    /// Makes the job wait for `fence`, from any driver. A fence that never signals blocks
    /// the job and all later jobs of its file. For this SUBMIT exports the job's page, as
    /// [`crate::PendingJob::fence`] does.
    #[must_use]
    pub fn after(mut self, fence: SyncFile) -> Self {
        self.after.push(fence);
        self
    }

    /// Checks the job and builds it.
    ///
    /// # Errors
    /// The driver would drop the job silently, or a program accesses memory outside the
    /// job's buffers.
    pub fn build(self) -> Result<Job, BuildError> {
        if let Some(refusal) = self.refusal.clone().or_else(|| self.check().err()) {
            return Err(BuildError {
                refusal,
                reads: self.reads,
                writes: self.writes,
            });
        }
        Ok(Job {
            tasks: self.programs.iter().map(|program| program.task).collect(),
            device: self.device,
            frozen: self.frozen,
            reads: self.reads,
            writes: self.writes,
            shared_reads: self.shared_reads,
            shared_writes: self.shared_writes,
            after: self.after,
        })
    }

    fn check(&self) -> Result<(), Refusal> {
        match self.programs.len() {
            0 => return Err(Refusal::NoPrograms),
            1..=MAX_PROGRAMS => {}
            count => return Err(Refusal::TooManyPrograms { count }),
        }
        for (index, program) in self.programs.iter().enumerate() {
            // `ProgramBo` makes only valid programs; the driver would drop a job with
            // another.
            ProgramError::check(index, program.task.words as usize)?;
        }
        if self.writes.is_empty() && self.shared_writes.is_empty() {
            return Err(Refusal::NothingWritten);
        }
        self.check_names()?;
        for extent in self.extents() {
            let in_write = self.in_writes(extent);
            match extent.engine.direction() {
                Direction::Write if !in_write => return Err(Refusal::WriteOutside(*extent)),
                Direction::Read if !in_write && !self.in_reads(extent) => {
                    return Err(Refusal::ReadOutside(*extent));
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn check_names(&self) -> Result<(), Refusal> {
        let frozen = self.frozen.iter().map(|bo| (bo.handle(), bo.device()));
        let owned = self.reads.iter().chain(&self.writes);
        let owned = owned.map(|bo| (bo.handle(), bo.device()));
        let shared = self.shared_reads.iter().chain(&self.shared_writes);
        let owned = owned.chain(shared.map(|bo| (bo.handle(), bo.device())));
        for (handle, device) in frozen.chain(owned.clone()) {
            if !device.is_same_file(&self.device) {
                return Err(Refusal::ForeignBo { handle });
            }
        }
        // Buffers that are moved in cannot repeat. This catches shared buffers, and a
        // backend that returns a handle twice.
        let mut seen: BTreeSet<Handle> = self.frozen.iter().map(FrozenBo::handle).collect();
        for (handle, _) in owned {
            if !seen.insert(handle) {
                return Err(Refusal::NamedTwice { handle });
            }
        }
        Ok(())
    }

    fn extents(&self) -> impl Iterator<Item = &Extent> {
        self.programs.iter().flat_map(|program| &program.extents)
    }

    fn in_reads(&self, extent: &Extent) -> bool {
        let frozen = |bo: &FrozenBo| extent.within(bo.iova(), bo.len() as u32);
        let mut reads = self.reads.iter().chain(addressable(&self.shared_reads));
        self.frozen.iter().any(frozen) || reads.any(|bo| holds(bo, extent))
    }

    fn in_writes(&self, extent: &Extent) -> bool {
        let mut writes = self.writes.iter().chain(addressable(&self.shared_writes));
        writes.any(|bo| holds(bo, extent))
    }
}

/// The shared objects that programs can address.
fn addressable(shared: &[DmaBuf]) -> impl Iterator<Item = &Bo> {
    shared.iter().filter_map(DmaBuf::addressable)
}

fn holds(bo: &Bo, extent: &Extent) -> bool {
    extent.within(bo.iova(), bo.len() as u32)
}
