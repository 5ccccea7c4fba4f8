// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs an experiment. Only this module submits programs to a device that the linker of
//! rknpu-regcmd would refuse.
//!
//! `ExperimentBuffers::submit` says why that is sound. A job that does not end leaks its
//! buffers.

use std::collections::BTreeSet;
use std::mem::ManuallyDrop;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use npu_model::{Level, Model, ModelOptions};
use rknpu_chip::Contested;
use rknpu_regcmd::regs::dpu;
use rknpu_regcmd::{
    ATOM_BYTES, BufferId, BufferRef, ChipProfile, Direction, Iova, MatmulTask, TaskType, Word,
    extents, tasks,
};
use rocket_uapi::{Bo, ByteLen, Deadline, Device, RawJob, sys};

use super::{Experiment, ExperimentWitness, OUT, Placement, TaskTemplate, input, interrupts};
use crate::matmul::program;

/// Fill value of an output before each job; unwritten bytes keep it.
pub(crate) const SENTINEL: u8 = 0xaa;

/// Unused bytes in front of and behind the data of each buffer.
pub(crate) const GUARD: usize = 64 << 10;

/// How long to wait for a job: several times the driver's limit of 500 ms, since jobs of
/// other files may run first.
const PATIENCE: Duration = Duration::from_secs(10);
/// The same for the model, which may run on a slow or emulated processor.
const MODEL_PATIENCE: Duration = Duration::from_secs(600);

/// Programs begin at multiples of this many bytes.
const PROGRAM_ALIGNMENT: usize = 64;

/// Buffers of the witness and of the programs.
const WITNESS_IN: BufferId = BufferId(1000);
const WITNESS_OUT: BufferId = BufferId(1001);
const PROGRAM: BufferId = BufferId(1002);

/// [`ExperimentWitness::Matmul`]. B is the larger operand.
const MATMUL: MatmulTask = MatmulTask {
    ty: TaskType::Int8ToInt32,
    m: 4,
    k: 32,
    n: 32,
    a: WITNESS_IN.at(0),
    b: WITNESS_IN.at(0),
    c: WITNESS_OUT.at(0),
};

/// The visible outcome of one job of an experiment.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct SeenJob {
    /// Whether its witness ran; otherwise the driver killed it.
    pub(crate) completed: bool,
    /// The output with its guards.
    pub(crate) output: Vec<u8>,
}

impl SeenJob {
    /// Whether the job ran no task: none wrote anything.
    fn never_started(&self) -> bool {
        let data = self
            .output
            .get(GUARD..self.output.len().saturating_sub(GUARD));
        let is_untouched = |data: &[u8]| data.iter().all(|byte| *byte == SENTINEL);
        !self.completed && data.is_some_and(is_untouched)
    }

    /// Indices of the atoms in its output that differ from `right`.
    pub(crate) fn wrong_atoms(&self, right: &Self) -> BTreeSet<usize> {
        const ATOM: usize = rknpu_regcmd::ATOM_BYTES as usize;
        let pairs = self.output.chunks(ATOM).zip(right.output.chunks(ATOM));
        let wrong = pairs.enumerate().filter(|(_, (own, right))| own != right);
        wrong.map(|(index, _)| index).collect()
    }
}

/// The bytes of an output, without its guards.
pub(crate) fn data<'a>(experiment: &Experiment, seen: &'a SeenJob) -> &'a [u8] {
    let end = GUARD + experiment.output;
    seen.output.get(GUARD..end).unwrap_or_default()
}

/// The log of an experiment: programs, times and interrupts.
#[derive(Clone, Debug, Default)]
pub(crate) struct ExperimentLog {
    /// Words of each task of the last job, with their addresses.
    pub(crate) programs: Vec<Vec<Word>>,
    /// Per job: the time from SUBMIT until its outputs were read.
    pub(crate) times: Vec<Duration>,
    /// Per job: the NPU's interrupt lines that were raised meanwhile.
    pub(crate) raised: Vec<Vec<String>>,
    /// Why interrupts are unknown; if this is set, they are not read.
    pub(crate) no_interrupts: Option<String>,
    /// Jobs of rounds that were repeated and had the results of the first round.
    pub(crate) repeated: u64,
    /// Jobs that never started, and were submitted again.
    pub(crate) not_started: u64,
}

impl ExperimentLog {
    /// A log that does not read interrupts.
    fn quiet() -> Self {
        Self {
            no_interrupts: Some("not requested".to_owned()),
            ..Self::default()
        }
    }
}

/// How many times, and where, the jobs of an experiment run.
///
/// The driver's scheduler gives an idle file the core that the fewest files used last. If
/// each file stays open while the next one runs its first job, the files reach each core
/// once (docs/driver.md); a single file would alternate between two cores.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CoreRounds {
    /// Files that are open together: one for each core.
    pub(crate) files: u32,
    /// How often all files are opened.
    pub(crate) rounds: u32,
    /// Whether the jobs of all files are submitted before any of them is waited for.
    pub(crate) at_once: bool,
    /// How long the last round is repeated.
    pub(crate) lasting: Duration,
    /// A pause before each round, without jobs.
    pub(crate) pause: Duration,
}

impl CoreRounds {
    /// Once, through one file.
    pub(crate) const ONCE: Self = Self {
        files: 1,
        rounds: 1,
        at_once: false,
        lasting: Duration::ZERO,
        pause: Duration::ZERO,
    };
}

/// Runs `experiment`; returns the outcomes of the observed jobs.
pub(crate) fn run(device: &Device, experiment: &Experiment) -> anyhow::Result<Vec<SeenJob>> {
    run_on_cores(
        device,
        experiment,
        CoreRounds::ONCE,
        &mut ExperimentLog::quiet(),
    )
}

/// A silent model with these sides of contested facts, which skips the time of a hang.
pub(crate) fn model(contested: Contested) -> Arc<Model> {
    Model::new(ModelOptions {
        level: Level::Silent,
        contested,
        hang_timeout: Duration::ZERO,
        ..ModelOptions::default()
    })
}

/// Runs `experiment` on a [`model`].
pub(crate) fn run_on_model(
    experiment: &Experiment,
    contested: Contested,
) -> anyhow::Result<Vec<SeenJob>> {
    run(&model(contested).open_device(), experiment)
}

/// [`run`] on each core; logs each job before it runs. Returns the outcomes by round, then
/// by file; if the experiment is unordered, sorted, each one once. The log stays in run order.
pub(crate) fn run_on_cores(
    device: &Device,
    experiment: &Experiment,
    rounds: CoreRounds,
    log: &mut ExperimentLog,
) -> anyhow::Result<Vec<SeenJob>> {
    let together = if rounds.at_once {
        rounds.files as usize
    } else {
        1
    };
    let mut seen = Vec::new();
    for _ in 0..rounds.rounds {
        std::thread::sleep(rounds.pause);
        let mut files = Vec::new();
        for _ in 0..rounds.files {
            let file = device.reopen().context("cannot open the device again")?;
            files.push(ExperimentBuffers::new(&file, experiment)?);
            let Some(first) = files.len().checked_sub(together) else {
                continue;
            };
            for (index, job) in experiment.jobs.iter().enumerate() {
                let own = &mut files[first..];
                if index >= experiment.unobserved {
                    seen.extend(run_together(own, job, log)?);
                    continue;
                }
                let did = run_together(own, job, &mut ExperimentLog::quiet())?;
                for (file, did) in own.iter_mut().zip(did) {
                    file.feed(experiment, &did)?;
                }
            }
        }
        if let (Some(job), false) = (experiment.jobs.first(), rounds.lasting.is_zero()) {
            seen.extend(repeat(&mut files, job, rounds.lasting, log)?);
        }
        files.into_iter().for_each(ExperimentBuffers::close);
    }
    if experiment.is_unordered {
        seen.sort();
        seen.dedup();
    }
    Ok(seen)
}

/// Runs a job through all files at once, again and again. Returns the outcomes of the first round
/// and of those that differ from it. A job that never starts is submitted again, once.
fn repeat(
    files: &mut [ExperimentBuffers],
    job: &[TaskTemplate],
    lasting: Duration,
    log: &mut ExperimentLog,
) -> anyhow::Result<Vec<SeenJob>> {
    /// Outcomes to return; more are alike.
    const MOST: usize = 32;
    /// Rounds of a slow or emulated processor.
    const LEAST: u32 = 16;
    let begin = Instant::now();
    // Times and interrupts of all rounds would fill the record.
    let mut quiet = ExperimentLog::quiet();
    let (mut seen, mut rounds) = (Vec::new(), 0);
    while (begin.elapsed() < lasting || rounds < LEAST) && seen.len() < MOST {
        rounds += 1;
        let mut round = run_together(files, job, &mut quiet)?;
        for (file, outcome) in files.iter_mut().zip(&mut round) {
            if outcome.never_started() {
                log.not_started += 1;
                if let Some(again) =
                    run_together(std::slice::from_mut(file), job, &mut quiet)?.pop()
                {
                    *outcome = again;
                }
            }
        }
        if seen.starts_with(&round) {
            log.repeated += round.len() as u64;
        } else {
            seen.extend(round);
        }
    }
    Ok(seen)
}

/// Submits a job through each file, then waits for all of them.
fn run_together(
    files: &mut [ExperimentBuffers],
    job: &[TaskTemplate],
    log: &mut ExperimentLog,
) -> anyhow::Result<Vec<SeenJob>> {
    let before = log.no_interrupts.is_none().then(interrupts::counts);
    let mut starts = Vec::new();
    for file in &mut *files {
        starts.push(file.start(job, log)?);
    }
    let mut seen = Vec::new();
    for (file, start) in files.iter().zip(starts) {
        seen.push(file.finish(start, log)?);
    }
    match before {
        Some(Ok(before)) => {
            let raised = interrupts::raised_since(&before);
            log.raised.extend(vec![raised; files.len()]);
        }
        Some(Err(reason)) => log.no_interrupts = Some(reason),
        None => {}
    }
    Ok(seen)
}

/// A buffer of an experiment: its name, its memory, and the offset of its data.
struct PlacedBuffer {
    id: BufferId,
    bo: Bo,
    start: usize,
}

/// The buffers of one experiment. Dropping it leaks them: only
/// [`ExperimentBuffers::close`] knows that no job is running.
struct ExperimentBuffers {
    file: Device,
    buffers: ManuallyDrop<Vec<PlacedBuffer>>,
    /// The program of [`MATMUL`], if it is the witness.
    matmul: Option<TaskTemplate>,
    /// The end of what the witness of the last job writes, in [`WITNESS_OUT`].
    witness_end: usize,
}

impl ExperimentBuffers {
    fn new(file: &Device, experiment: &Experiment) -> anyhow::Result<Self> {
        let (matmul, written) = match experiment.witness {
            ExperimentWitness::Matmul => {
                let program = MATMUL.program(&ChipProfile::RK3588)?;
                (Some(TaskTemplate::of(&program)), MATMUL.c_bytes() as usize)
            }
            ExperimentWitness::LastTask => (None, experiment.output),
        };
        let words = |job: &Vec<TaskTemplate>| -> usize {
            let witness = matmul.as_ref().or(job.last());
            job.iter().chain(witness).map(room_for).sum()
        };
        let room = experiment.jobs.iter().map(words).max().unwrap_or(0);
        let mut contents = vec![
            (OUT, vec![SENTINEL; experiment.output]),
            (WITNESS_IN, vec![0; MATMUL.b_bytes() as usize]),
            (WITNESS_OUT, vec![SENTINEL; written]),
        ];
        let inputs = experiment.inputs.iter().cloned();
        contents.extend((0..).map(input).zip(inputs));
        contents.push((PROGRAM, vec![0; room]));
        let (at_zero, at_end) = match experiment.placement {
            Placement::Guarded => (None, None),
            Placement::ProgramAtZero => (Some(PROGRAM), None),
            Placement::WeightsAtZero => (Some(input(1)), None),
            Placement::NothingBehindFeatures => (None, Some(input(0))),
        };
        let exists = |id: BufferId| contents.iter().any(|(one, _)| *one == id);
        ensure!(
            at_zero.into_iter().chain(at_end).all(exists),
            "there is no input to place"
        );
        // The driver gives each file the lowest free address.
        contents.sort_by_key(|(id, _)| (Some(*id) != at_zero, Some(*id) == at_end));
        let place = |(id, bytes): (BufferId, Vec<u8>)| {
            let is_unguarded = id == PROGRAM || Some(id) == at_zero;
            let start = if is_unguarded { 0 } else { GUARD };
            let tail = if Some(id) == at_end { 0 } else { GUARD };
            let bo = allocate(file, &bytes, start, tail)?;
            anyhow::Ok(PlacedBuffer { id, bo, start })
        };
        let buffers: Vec<_> = contents.into_iter().map(place).collect::<Result<_, _>>()?;
        Ok(Self {
            file: file.clone(),
            buffers: ManuallyDrop::new(buffers),
            matmul,
            witness_end: 0,
        })
    }

    /// Frees the buffers; every job has ended.
    fn close(self) {
        drop(ManuallyDrop::into_inner(self.buffers));
    }

    /// Makes the contents of an input from what a job did, if the experiment has such an input.
    fn feed(&mut self, experiment: &Experiment, did: &SeenJob) -> anyhow::Result<()> {
        let Some((id, make)) = experiment.feeds else {
            return Ok(());
        };
        let mut buffers = self.buffers.iter_mut();
        let buffer = buffers.find(|buffer| buffer.id == id);
        let PlacedBuffer { bo, start, .. } = buffer.context("there is no input to make")?;
        let contents = make(data(experiment, did));
        let mut bytes = bo.write(Deadline::FOREVER)?;
        bytes
            .get_mut(*start..*start + contents.len())
            .context("an input is too short")?
            .copy_from_slice(&contents);
        bytes.finish()?;
        Ok(())
    }

    fn place(&self, to: BufferRef) -> Option<Iova> {
        let PlacedBuffer { bo, start, .. } = self.buffer(to.buffer)?;
        Some(Iova(bo.iova().0 + *start as u32 + to.offset))
    }

    fn buffer(&self, wanted: BufferId) -> Option<&PlacedBuffer> {
        self.buffers.iter().find(|buffer| buffer.id == wanted)
    }

    /// Submits a job with the witness as its last task. A fence would show the same, but not
    /// if it is queried too late.
    fn start(&mut self, job: &[TaskTemplate], log: &mut ExperimentLog) -> anyhow::Result<Instant> {
        for buffer in self.buffers.iter_mut() {
            if [OUT, WITNESS_OUT].contains(&buffer.id) {
                let mut bytes = buffer.bo.write(Deadline::FOREVER)?;
                bytes.fill(SENTINEL);
                bytes.finish()?;
            }
        }
        let witness = match (&self.matmul, job.last()) {
            (Some(matmul), _) => matmul.clone(),
            (None, Some(last)) => {
                let output = last.target::<dpu::DstBaseAddr>();
                let output = output.context("the last task of a job has no output")?;
                let mut again = last.clone();
                again.put_address::<dpu::DstBaseAddr>(WITNESS_OUT.at(output.offset));
                again
            }
            (None, None) => bail!("a job without tasks"),
        };
        let recipes: Vec<_> = job.iter().chain([&witness]).collect();
        let mut programs = Vec::new();
        for task in &recipes {
            let words = task.words(|to| self.place(to));
            programs.push(words.context("a program uses a missing buffer")?);
        }
        self.witness_end = self.prove(&recipes, &programs.concat())?;
        let tasks = self.load(&programs)?;
        log.programs = programs;
        let start = Instant::now();
        self.submit(&tasks)?;
        Ok(start)
    }

    /// Waits for the job that was submitted at `start`.
    fn finish(&self, start: Instant, log: &mut ExperimentLog) -> anyhow::Result<SeenJob> {
        let output = self.await_output(OUT)?;
        log.times.push(start.elapsed());
        let witness = self.await_output(WITNESS_OUT)?;
        let completed = if self.matmul.is_some() {
            let sums = witness.get(GUARD..self.witness_end);
            sums.is_some_and(|sums| !sums.is_empty() && sums.iter().all(|byte| *byte == 0))
        } else {
            let last = self.witness_end.checked_sub(ATOM_BYTES as usize);
            let last = last.and_then(|start| witness.get(start..self.witness_end));
            last.is_some_and(|atom| atom.iter().any(|byte| *byte != SENTINEL))
        };
        Ok(SeenJob { completed, output })
    }

    /// Checks that each access of the tasks in `words` lies inside a buffer of data. A register
    /// that a task does not write has the value of an earlier task of the same job, which
    /// runs on the same core. If no task wrote it, as in `fresh-stages`, it affects no
    /// address: it belongs to BS and BN, whose readers the program turns off. Returns the end
    /// of what the last task writes, in [`WITNESS_OUT`].
    fn prove(&self, recipes: &[&TaskTemplate], words: &[Word]) -> anyhow::Result<usize> {
        let tasks: Vec<_> = tasks(words).collect();
        if tasks.len() != recipes.len() {
            bail!("a program starts no task, or more than one");
        }
        let witness = self.buffer(WITNESS_OUT).context("there is no witness")?;
        let mut written = 0;
        for (template, mut task) in recipes.iter().zip(tasks) {
            for register in &template.stand_ins {
                task.regs.set(register.offset(), register.value());
            }
            for extent in extents(&task.regs, task.enable)? {
                let mut data = self.buffers.iter().filter(|buffer| buffer.id != PROGRAM);
                let inside =
                    |buffer: &PlacedBuffer| extent.within(buffer.bo.iova(), buffer.bo.len() as u32);
                if !data.any(inside) {
                    bail!("{extent} is outside of the experiment's buffers");
                }
                let (iova, len) = (witness.bo.iova(), witness.bo.len() as u32);
                if extent.engine.direction() == Direction::Write && extent.within(iova, len) {
                    written = written.max(extent.end - u64::from(iova.0));
                }
            }
        }
        Ok(usize::try_from(written)?)
    }

    /// Writes the programs to the buffer from which PC fetches them.
    fn load(&mut self, programs: &[Vec<Word>]) -> anyhow::Result<Vec<sys::Task>> {
        let mut buffers = self.buffers.iter_mut();
        let buffer = buffers.find(|buffer| buffer.id == PROGRAM);
        let buffer = &mut buffer.context("there is no program buffer")?.bo;
        let base = buffer.iova().0;
        let mut bytes = buffer.write(Deadline::FOREVER)?;
        bytes.fill(0);
        let mut tasks = Vec::new();
        let mut at = 0;
        for words in programs {
            let encoded = program::to_binary(words);
            bytes
                .get_mut(at..at + encoded.len())
                .context("the programs do not fit their buffer")?
                .copy_from_slice(&encoded);
            tasks.push(sys::Task {
                regcmd: base + at as u32,
                regcmd_count: words.len() as u32,
            });
            at = (at + encoded.len() + size_of::<Word>()).next_multiple_of(PROGRAM_ALIGNMENT);
        }
        bytes.finish()?;
        Ok(tasks)
    }

    #[allow(
        unsafe_code,
        reason = "programs that are not known to work cannot be linked"
    )]
    fn submit(&self, tasks: &[sys::Task]) -> anyhow::Result<()> {
        let is_output = |id: BufferId| [OUT, WITNESS_OUT].contains(&id);
        let (writes, reads): (Vec<_>, Vec<_>) =
            self.buffers.iter().partition(|buffer| is_output(buffer.id));
        let handle = |buffer: &PlacedBuffer| buffer.bo.handle();
        let writes: Vec<_> = writes.into_iter().map(handle).collect();
        let reads: Vec<_> = reads.into_iter().map(handle).collect();
        let job = RawJob {
            tasks,
            reads: &reads,
            writes: &writes,
        };
        // SAFETY: `file` was opened for this experiment and has only the buffers of this
        // `ExperimentBuffers`: the NPU reaches no others through it, whatever a program writes
        // to its registers, since all other accesses fault in the IOMMU; and `prove` has
        // computed that each access lies inside one of them. They stay alive until the job
        // has ended: `close` is called after waits for the outputs of every job have
        // succeeded, and nothing else frees them. No guard or slice of them exists:
        // `start` and `load` dropped theirs, and `await_output` makes new ones when the
        // job has ended.
        unsafe { self.file.submit_raw(&[job]) }.context("the driver refused a job")
    }

    /// Waits for the job, and reads one of its outputs.
    fn await_output(&self, id: BufferId) -> anyhow::Result<Vec<u8>> {
        let buffer = self.buffer(id).context("there is no output")?;
        let patience = if self.file.info().is_model {
            MODEL_PATIENCE
        } else {
            PATIENCE
        };
        let bytes = buffer
            .bo
            .read(Deadline::after(patience))
            .context("a job did not end")?;
        Ok(bytes.to_vec())
    }
}

/// A buffer object with `bytes`, and unused bytes before and after them.
fn allocate(file: &Device, bytes: &[u8], before: usize, tail: usize) -> anyhow::Result<Bo> {
    let mut bo = file.alloc(ByteLen::new(before + bytes.len() + tail)?)?;
    let mut guard = bo.write(Deadline::FOREVER)?;
    guard
        .get_mut(before..before + bytes.len())
        .context("the buffer object is too short")?
        .copy_from_slice(bytes);
    guard.finish()?;
    Ok(bo)
}

/// Bytes of a program, including the word that PC fetches behind it.
fn room_for(task: &TaskTemplate) -> usize {
    ((task.len() + 1) * size_of::<Word>()).next_multiple_of(PROGRAM_ALIGNMENT)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::calibrate::facts::list::FACTS;

    fn run(experiment: &Experiment) -> anyhow::Result<Vec<SeenJob>> {
        run_on_model(experiment, Contested::default())
    }

    fn settling(fact: &str) -> Experiment {
        let found = FACTS.iter().find(|one| one.name == fact).unwrap();
        (found.experiment)().unwrap()
    }

    #[test]
    fn every_experiment_writes_its_output_and_nothing_beside_it() {
        for fact in FACTS {
            let experiment = (fact.experiment)().unwrap();
            for seen in run(&experiment).unwrap() {
                let (before, rest) = seen.output.split_at(GUARD);
                let (data, tail) = rest.split_at(experiment.output);
                let untouched = |bytes: &[u8]| bytes.iter().all(|byte| *byte == SENTINEL);
                assert!(!untouched(data), "{} writes nothing", fact.name);
                let beside = untouched(before) && untouched(tail);
                assert!(beside && tail.len() >= GUARD, "{}", fact.name);
            }
        }
    }

    #[test]
    fn programs_that_reach_outside_are_refused() {
        let mut experiment = settling("int8-to-fp16");
        assert!(run(&experiment).is_ok());
        let far = dpu::DstSurfStride::new().with_dst_surf_stride(1 << 16);
        experiment.task().put(far.unwrap());
        let error = run(&experiment).unwrap_err().to_string();
        assert!(
            error.contains("outside of the experiment's buffers"),
            "{error}"
        );
    }

    #[test]
    fn a_job_that_hangs_is_seen_as_one() {
        let mut experiment = settling("int8-to-fp16");
        experiment.jobs.push(experiment.jobs[0].clone());
        experiment.task().enable(rknpu_regcmd::EnableMask::CNA);
        let seen = run(&experiment).unwrap();
        assert_eq!(
            seen.iter().map(|one| one.completed).collect::<Vec<_>>(),
            [false, true]
        );
        assert!(seen[0].output.iter().all(|byte| *byte == SENTINEL));
        // Jobs on cores that nobody chose count in any order, and once.
        experiment.jobs.rotate_left(1);
        experiment.jobs.extend(experiment.jobs.clone());
        experiment.is_unordered = true;
        assert_eq!(run(&experiment).unwrap(), seen);
    }

    /// The output shows every unknown behaviour of look-ups.
    #[test]
    fn look_ups_show_ties_roundings_and_ends() {
        let experiment = settling("lut-ends");
        let half = |bytes: &[u8]| half::f16::from_le_bytes([bytes[0], bytes[1]]).to_f32();
        let arguments: Vec<f32> = experiment.inputs[0].chunks_exact(2).map(half).collect();
        let seen = run(&experiment).unwrap();
        let [rising, falling] = [&seen[0], &seen[1]].map(|seen| {
            |argument: f32| {
                let rounded = half::f16::from_f32(argument).to_f32();
                let at = arguments.iter().position(|one| *one == rounded).unwrap();
                half(&seen.output[GUARD + 2 * at..])
            }
        });
        // At index steps ties go to even; between entries results round towards minus
        // infinity.
        assert_eq!([-0.5, -1.5, -2.5].map(rising), [0.0, -2.0, -2.0]);
        assert_eq!([15.0, 17.0, 31.0].map(rising), [0.0, 1.0, 1.0]);
        assert_eq!([15.0, 17.0, 31.0].map(falling), [-1.0, -2.0, -2.0]);
        // Behind an end entry that is not negative, the result falls linearly to zero.
        assert_eq!([16416.0, 65504.0].map(rising), [1020.0, 0.0]);
        assert_eq!([-16416.0, -65504.0].map(falling), [16368.0, 0.0]);
        // Behind a negative end entry, the result stays that entry.
        assert_eq!([-18000.0, -65504.0].map(rising), [-16384.0; 2]);
        assert_eq!([18000.0, 65504.0].map(falling), [-1024.0; 2]);
    }
}
