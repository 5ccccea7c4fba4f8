// SPDX-License-Identifier: MIT OR Apache-2.0
//! The job builder, which refuses jobs that would be dropped or leave their buffers.

use std::collections::HashSet;
use std::slice;

use rknpu_regcmd::{Direction, Extent, TaskType};
use thiserror::Error;

use crate::bo::{Bo, FrozenBo};
use crate::device::Device;
use crate::dma_buf::DmaBuf;
use crate::program_bo::{Placed, ProgramBo};
use crate::sync_file::SyncFile;
use crate::sys::Task;
use crate::units::Handle;

/// A job that can be submitted: programs with the buffers that contain all their accesses.
#[must_use = "a job does nothing until it is submitted"]
#[derive(Debug)]
pub struct Job {
    pub(super) device: Device,
    pub(super) tasks: Vec<Task>,
    pub(super) frozen: Vec<FrozenBo>,
    pub(super) reads: Vec<Bo>,
    pub(super) writes: Vec<Bo>,
    pub(super) shared_reads: Vec<DmaBuf>,
    pub(super) shared_writes: Vec<DmaBuf>,
    /// Fences that the job waits for besides those of its buffers.
    pub(super) after: Vec<SyncFile>,
    /// Type of the task that proves that the job ran.
    pub(super) witness: TaskType,
}

impl Job {
    /// A builder of an empty job for `device`.
    #[must_use]
    pub fn builder(device: &Device) -> JobBuilder {
        JobBuilder {
            job: Self {
                device: device.clone(),
                tasks: Vec::new(),
                frozen: Vec::new(),
                reads: Vec::new(),
                writes: Vec::new(),
                shared_reads: Vec::new(),
                shared_writes: Vec::new(),
                after: Vec::new(),
                witness: TaskType::Fp16ToFp32,
            },
            extents: Vec::new(),
            refusal: None,
        }
    }

    /// Returns the buffers of a job that was not submitted: those it reads, then those it
    /// writes.
    #[must_use]
    pub fn into_bos(self) -> (Vec<Bo>, Vec<Bo>) {
        (self.reads, self.writes)
    }
}

/// Collects a job's programs and buffers. A frozen buffer, such as a program buffer, may be
/// listed any number of times. An owned buffer cannot be listed twice, because it is moved
/// in.
#[derive(Debug)]
pub struct JobBuilder {
    job: Job,
    /// The bytes that the programs' DMA engines read and write.
    extents: Vec<Extent>,
    refusal: Option<Refusal>,
}

impl JobBuilder {
    /// Adds all programs of `programs`, in order.
    #[must_use]
    pub fn program(mut self, programs: &ProgramBo) -> Self {
        self.add(programs, programs.programs());
        self
    }

    /// Adds one program of `programs`.
    #[must_use]
    pub fn task(mut self, programs: &ProgramBo, index: usize) -> Self {
        if let Some(program) = programs.programs().get(index) {
            self.add(programs, slice::from_ref(program));
        } else {
            self.refusal.get_or_insert(Refusal::NoSuchProgram {
                index,
                len: programs.len(),
            });
        }
        self
    }

    fn add(&mut self, programs: &ProgramBo, placed: &[Placed]) {
        self.job.frozen.push(programs.bo().clone());
        for program in placed {
            self.job.tasks.push(program.task);
            self.job.witness = program.witness;
            self.extents.extend_from_slice(&program.extents);
        }
    }

    /// Lets the programs read `bo`.
    #[must_use]
    pub fn reads(mut self, bo: &FrozenBo) -> Self {
        self.job.frozen.push(bo.clone());
        self
    }

    /// Lets the programs read `bo`, and keeps it until the job has ended.
    #[must_use]
    pub fn reads_owned(mut self, bo: Bo) -> Self {
        self.job.reads.push(bo);
        self
    }

    /// Lets the programs write (and read) `bo`, and keeps it until the job has
    /// ended.
    #[must_use]
    pub fn writes(mut self, bo: Bo) -> Self {
        self.job.writes.push(bo);
        self
    }

    /// Lets the programs read the shared `bo`, and makes the job wait for all its writers.
    /// An imported `bo` only orders the job.
    #[must_use]
    pub fn reads_shared(mut self, bo: &DmaBuf) -> Self {
        self.job.shared_reads.push(bo.clone());
        self
    }

    /// Lets the programs write (and read) the shared `bo`. The job waits for all its users,
    /// and later users wait for the job. An imported `bo` only orders the job.
    #[must_use]
    pub fn writes_shared(mut self, bo: &DmaBuf) -> Self {
        self.job.shared_writes.push(bo.clone());
        self
    }

    /// Makes the job wait for `fence`, from any driver. A fence that never signals blocks
    /// the job and all later jobs of its file. For this SUBMIT exports the job's page, as
    /// [`crate::PendingJob::fence`] does.
    #[must_use]
    pub fn after(mut self, fence: SyncFile) -> Self {
        self.job.after.push(fence);
        self
    }

    /// Checks the job and builds it.
    ///
    /// # Errors
    /// The driver would drop the job silently, or a program accesses memory outside the
    /// job's buffers.
    pub fn build(self) -> Result<Job, BuildError> {
        let refusal = self.refusal.clone().or_else(|| self.check().err());
        let Some(refusal) = refusal else {
            return Ok(self.job);
        };
        let (reads, writes) = self.job.into_bos();
        Err(BuildError {
            refusal,
            reads,
            writes,
        })
    }

    fn check(&self) -> Result<(), Refusal> {
        match self.job.tasks.len() {
            0 => return Err(Refusal::NoPrograms),
            1..=MAX_PROGRAMS => {}
            count => return Err(Refusal::TooManyPrograms { count }),
        }
        if self.job.writes.is_empty() && self.job.shared_writes.is_empty() {
            return Err(Refusal::NothingWritten);
        }
        self.check_names()?;
        for extent in &self.extents {
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
        let frozen = self.job.frozen.iter().map(|bo| (bo.handle(), bo.device()));
        let owned = self.job.reads.iter().chain(&self.job.writes);
        let owned = owned.map(|bo| (bo.handle(), bo.device()));
        let shared = self.job.shared_reads.iter().chain(&self.job.shared_writes);
        let owned = owned.chain(shared.map(|bo| (bo.handle(), bo.device())));
        for (handle, device) in frozen.chain(owned.clone()) {
            if !device.is_same_file(&self.job.device) {
                return Err(Refusal::ForeignBo(handle));
            }
        }
        // Buffers that are moved in cannot repeat. This catches shared buffers, and a
        // backend that returns a handle twice.
        let mut seen: HashSet<Handle> = self.job.frozen.iter().map(|bo| bo.handle()).collect();
        for (handle, _) in owned {
            if !seen.insert(handle) {
                return Err(Refusal::NamedTwice(handle));
            }
        }
        Ok(())
    }

    fn in_reads(&self, extent: &Extent) -> bool {
        let frozen = self.job.frozen.iter().map(|bo| &**bo);
        let shared = addressable(&self.job.shared_reads);
        let mut reads = frozen.chain(&self.job.reads).chain(shared);
        reads.any(|bo| holds(bo, extent))
    }

    fn in_writes(&self, extent: &Extent) -> bool {
        let mut writes = self
            .job
            .writes
            .iter()
            .chain(addressable(&self.job.shared_writes));
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

/// Maximum number of programs in a job. The driver's only limit is memory for copies of
/// them, and a count with the top bits set makes it print a kernel warning.
const MAX_PROGRAMS: usize = 1 << 16;

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
    #[error("buffer object {} is listed twice; the driver would drop the job silently", u32::from(*.0))]
    NamedTwice(Handle),
    /// A BO belongs to another open file, where it has this handle.
    #[error("buffer object {} belongs to another open file, where addresses differ", u32::from(*.0))]
    ForeignBo(Handle),
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
