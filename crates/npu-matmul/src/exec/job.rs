// SPDX-License-Identifier: MIT OR Apache-2.0
//! One job from plan to end: buffers, programs, submission. `wait` waits for it.

use std::ops::Range;
use std::sync::OnceLock;
use std::time::Instant;

use rknpu_regcmd::{Binding, Iova, LinkedProgram};
use rocket_uapi::{Bo, Deadline, FrozenBo, Job, JobBuilder, PendingJob};

use super::again::Again;
use super::checked_call::{EncodedRows, Operand};
use crate::device::buffers::{Buffers, ProgramsKey};
use crate::device::times::Section;
use crate::engine::Engine;
use crate::engine::activations::QuantisedRows;
use crate::numbers::layout::to_u32;
use crate::plan::emit;
use crate::plan::error::Error;
use crate::plan::first_run::TaskOperands;
use crate::plan::kept_plan::PlanJob;
use crate::plan::observe::{Activity, JobEvent};
use crate::plan::{BandCopy, BandSlice, JobPlan};

/// A job of a run, to submit alone or with jobs of other calls.
#[derive(Clone, Copy)]
pub(super) struct JobPlace {
    /// Index of the call.
    pub(super) call: usize,
    /// Index of the step in the plan.
    pub(super) step: usize,
    /// Index of the job in the step.
    pub(super) job: usize,
    /// The activations that the job reads.
    pub(super) slice: BandSlice,
    /// The number of its step, which joined steps have in common. On each device their jobs are
    /// submitted as one.
    pub(super) joint: usize,
}

/// The activations of a run: copies, each shared by all jobs that read it.
pub(super) struct BandCopies<'a> {
    /// What to pack. Readers are the jobs that have not ended, including those not submitted yet.
    planned: Vec<BandCopy<EncodedRows<'a>>>,
    /// The packed buffer of each, from the first reader's SUBMIT to the last one's end.
    packed: Vec<OnceLock<FrozenBo>>,
    /// Rows that are packed as integers: quantised as far as a submitted job reads them.
    pub(super) quantised: Vec<QuantisedRows<'a>>,
}

impl<'a> BandCopies<'a> {
    pub(super) fn new(
        planned: Vec<BandCopy<EncodedRows<'a>>>,
        quantised: Vec<QuantisedRows<'a>>,
    ) -> Self {
        let packed = planned.iter().map(|_| OnceLock::new()).collect();
        Self {
            planned,
            packed,
            quantised,
        }
    }

    /// Quantises the rows that the job of `place` reads.
    pub(super) fn quantise(&mut self, engine: &Engine, place: &JobPlace) -> Result<(), Error> {
        let BandCopy { a, band, .. } = &self.planned[place.slice.copy];
        match a.rows {
            Operand::Quantised(at) => self.quantised[at].quantise_to(engine, band.rows.end),
            Operand::Integers(_) | Operand::Halves(_) => Ok(()),
        }
    }

    /// Bytes of packed activations that still have readers, on the device with the most.
    pub(super) fn packed_bytes(&self, devices: usize) -> usize {
        let mut bytes = vec![0; devices];
        for (copy, bo) in self.planned.iter().zip(&self.packed) {
            if bo.get().is_some() {
                bytes[copy.device] += copy.band.activation_bytes;
            }
        }
        bytes.into_iter().max().unwrap_or(0)
    }

    /// The packed buffer, if any.
    pub(super) fn bo(&self, copy: usize) -> Option<&FrozenBo> {
        self.packed[copy].get()
    }

    /// Recycles buffers that no job reads any more; `ended` lists what the ended jobs read.
    pub(super) fn release(&mut self, engine: &Engine, ended: &[usize]) {
        for &copy in ended {
            let readers = &mut self.planned[copy].readers;
            *readers = readers.saturating_sub(1);
            if *readers == 0 {
                self.release_copy(engine, copy);
            }
        }
    }

    /// Recycles all buffers and rows; all jobs have ended.
    pub(super) fn release_all(&mut self, engine: &Engine) {
        for copy in 0..self.packed.len() {
            self.release_copy(engine, copy);
        }
        for rows in self.quantised.drain(..) {
            rows.recycle(engine);
        }
    }

    fn release_copy(&mut self, engine: &Engine, copy: usize) {
        if let Some(bo) = self.packed[copy].take() {
            engine.devices[self.planned[copy].device].release(bo);
        }
    }
}

/// Context of work on one device.
#[derive(Clone, Copy)]
pub(crate) struct DeviceWork<'e> {
    pub(crate) engine: &'e Engine,
    pub(crate) device: usize,
    /// The observer's token.
    pub(crate) token: u64,
    pub(crate) again: Again<'e>,
}

impl<'e> DeviceWork<'e> {
    pub(crate) const fn new(
        engine: &'e Engine,
        device: usize,
        token: u64,
        again: Again<'e>,
    ) -> Self {
        Self {
            engine,
            device,
            token,
            again,
        }
    }

    /// Reports work that began at `started` and has just ended.
    pub(crate) fn done(self, activity: Activity, started: Instant) {
        let device = Some(self.device);
        self.engine.done(self.token, device, activity, started);
    }

    /// The buffers of the device.
    pub(crate) fn buffers(&self) -> &Buffers {
        &self.engine.devices[self.device]
    }

    pub(crate) fn failed(self) -> impl Fn(rocket_uapi::Error) -> Error {
        Error::on_device(self.device)
    }

    /// The buffer of a copy: packed now, or for an earlier job.
    pub(super) fn packed(self, copies: &BandCopies<'_>, copy: usize) -> Result<FrozenBo, Error> {
        if let Some(bo) = copies.bo(copy) {
            return Ok(bo.clone());
        }
        let BandCopy { a, band, .. } = &copies.planned[copy];
        let bytes = band.activation_bytes;
        let bo = self.filled(bytes, Activity::Pack { bytes }, |memory| {
            a.pack(&copies.quantised, &self.engine.clock, band, memory)
        })?;
        // Only this device reads it, so that no other thread fills it.
        Ok(copies.packed[copy].get_or_init(|| bo).clone())
    }

    /// Fills a buffer for the NPU to read, by this activity.
    pub(crate) fn filled(
        self,
        bytes: usize,
        activity: Activity,
        fill: impl FnOnce(&mut [u8]) -> Result<(), Error>,
    ) -> Result<FrozenBo, Error> {
        let mut bo = self.buffers().take_operand(bytes).map_err(self.failed())?;
        let mut memory = bo.write(Deadline::FOREVER).map_err(self.failed())?;
        let from = Instant::now();
        fill(&mut memory[..bytes])?;
        self.done(activity, from);
        memory.finish().map_err(self.failed())?;
        self.engine.totals().bytes_to_device += bytes as u64;
        Ok(bo.freeze())
    }

    /// An empty job.
    pub(crate) fn job_builder(self) -> JobBuilder {
        Job::builder(&self.buffers().device)
    }

    /// Adds a job of a plan to `builder`. It reads ranges of `a` and `b`, and writes `c`.
    pub(crate) fn add(
        self,
        builder: JobBuilder,
        job: PlanJob<'_>,
        (a, a_range): (&FrozenBo, Range<usize>),
        (b, b_range): (&FrozenBo, Range<usize>),
        c: Bo,
    ) -> Result<JobBuilder, Error> {
        let PlanJob { id, plan } = job;
        if let Some(kind) = self.engine.first_runs.refused_in(plan) {
            return Err(Error::Distrusted { kind });
        }
        // Cannot overflow: a buffer object is below 2 GiB and ends below 4 GiB.
        let part = |id, bo: &FrozenBo, range: Range<usize>| Binding {
            id,
            iova: Iova(bo.iova().0 + range.start as u32),
            len: to_u32(range.len()),
        };
        let output = Binding {
            id: emit::OUTPUT,
            iova: c.iova(),
            len: to_u32(c.len()),
        };
        let operands = [
            part(emit::ACTIVATIONS, a, a_range),
            part(emit::WEIGHTS, b, b_range),
            output,
        ];
        let key = ProgramsKey { job: id, operands };
        let link = |key: &ProgramsKey| link(plan, &key.operands);
        let (programs, written) = self.buffers().programs(key, link, self.failed())?;
        self.engine.totals().bytes_to_device += written as u64;
        self.engine.observer.submitting(&JobEvent {
            dtype: plan.dtype,
            job: plan,
            programs: &programs.linked,
        });
        let builder = builder.program(&programs.bo);
        Ok(builder.reads(b).reads(a).writes(c))
    }

    /// Builds a job. Recycles its buffers if it is refused.
    pub(crate) fn build(self, builder: JobBuilder) -> Result<Job, Error> {
        builder.build().map_err(|error| {
            self.keep(error.reads, error.writes);
            Error::Build {
                device: self.device,
                source: error.refusal,
            }
        })
    }

    /// Submits jobs together. Recycles the buffers of jobs that the driver rejects.
    pub(crate) fn submit(self, jobs: Vec<Job>) -> Result<Vec<PendingJob>, Error> {
        let (from, count) = (Instant::now(), jobs.len());
        let submitted = self.buffers().device.submit(jobs).map_err(|error| {
            self.discard(error.jobs);
            self.failed()(error.source)
        })?;
        self.done(Activity::Submit { jobs: count }, from);
        self.engine.clock.submitted(count);
        self.engine.totals().submits += 1;
        Ok(submitted)
    }

    /// Reports and counts a job that was submitted at `submitted` and has ended. It has the tasks
    /// of these plans.
    pub(crate) fn ended<'j>(self, plans: impl Iterator<Item = &'j JobPlan>, submitted: Instant) {
        let (mut tasks, mut bytes) = (0, 0);
        for plan in plans {
            tasks += plan.tasks.len();
            bytes += plan.output_bytes as u64;
        }
        self.done(Activity::Job { tasks }, submitted);
        let mut totals = self.engine.totals();
        totals.jobs += 1;
        totals.tasks += tasks as u64;
        totals.bytes_from_device += bytes;
    }

    /// Compares first tasks of their kind with the CPU's results, if the engine checks them. The
    /// job read ranges of `a` and `b`, and wrote `c`.
    pub(crate) fn check(
        self,
        job: &JobPlan,
        (a, a_range): (&FrozenBo, Range<usize>),
        (b, b_range): (&FrozenBo, Range<usize>),
        c: &Bo,
    ) -> Result<(), Error> {
        let runs = &self.engine.first_runs;
        let tasks = runs.unchecked(job);
        if tasks.is_empty() {
            return Ok(());
        }
        let _checking = self.engine.stopwatch(Section::Check);
        let until = Deadline::FOREVER;
        let [a, b] = [a, b].map(|bo| bo.read(until).map_err(self.failed()));
        let (a, b, c) = (a?, b?, c.read(until).map_err(self.failed())?);
        let memory = TaskOperands {
            a: &a[a_range],
            b: &b[b_range],
            c: &c,
        };
        let checked = runs.check(&tasks, memory);
        self.engine.totals().checked_tasks += tasks.len() as u64;
        checked.map_err(|wrong| Error::WrongResult {
            device: self.device,
            source: Box::new(wrong),
        })
    }

    /// Recycles the buffers of jobs that do not run.
    pub(super) fn discard(self, jobs: Vec<Job>) {
        for job in jobs {
            let (reads, writes) = job.into_bos();
            self.keep(reads, writes);
        }
    }

    /// Recycles the buffers of a job.
    pub(crate) fn keep(self, reads: Vec<Bo>, writes: Vec<Bo>) {
        for bo in reads.into_iter().chain(writes) {
            self.buffers().put(bo);
        }
    }
}

/// Links the job's programs with the places of A, B and C.
fn link(job: &JobPlan, operands: &[Binding]) -> Result<Vec<LinkedProgram>, Error> {
    emit::programs(job)?
        .iter()
        .map(|program| program.link(operands).map_err(Error::from))
        .collect()
}
