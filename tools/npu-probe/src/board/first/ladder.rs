// SPDX-License-Identifier: MIT OR Apache-2.0
//! The rungs, the safest and best proven first.

use std::time::Duration;

use npu_matmul::Dtype;
use rknpu_regcmd::regs::{cna, dpu};
use rocket_uapi::DeviceInfo;

use crate::experiment::matmul::{ExperimentMatmul, fp16, fp16_bytes, int4, int8, make_subnormal};
use crate::experiment::programs::depthwise;
use crate::experiment::programs::flying::{FlyingOperation, flying};
use crate::experiment::runner::CoreRounds;
use crate::experiment::{Experiment, ExperimentWitness, OUT, Placement, input};

/// Prefixes of step names, and suffix of steps that change single registers.
pub(super) const RUNG_STEP: &str = "rung-";
pub(crate) const HEALTH_STEP: &str = "health-";
const FLIPS: &str = "-flips";
/// The rung without jobs.
const BUFFERS: &str = "driver";
const INT8: &str = "int8";

/// Consequence for the board if a rung fails and its parent passes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RungMeaning {
    /// Nothing of this project works on such a board.
    Essential,
    /// Nothing: no default plan does what the rung does.
    Unused,
    /// Matmuls of this precision cannot run on this NPU.
    Precision(Dtype),
    /// Tiles of these precisions whose weights do not fit CBUF cannot run on this NPU.
    Streaming(&'static [Dtype]),
    /// Tiles whose int8 features leave no spare data bank cannot run on this NPU.
    ExactBanks,
    /// Tiles of this precision that are larger than the built-in ones cannot run on this NPU.
    Larger(Dtype),
    /// Jobs must not have tasks of several matmuls.
    Joined,
    /// Jobs must not have more than so many tasks.
    JobTasks(usize),
    /// One core must work at a time.
    AtOnce,
    /// Tasks of this precision must not reuse CBUF data of the task before.
    Reuse(Dtype),
    /// Results are less exact than they should be; there is no workaround.
    Accuracy,
}

impl RungMeaning {
    /// Whether such a failure forbids tiles of this precision whose weights stream.
    pub(super) fn forbids_streams(self, dtype: Dtype) -> bool {
        match self {
            Self::Precision(of) | Self::Larger(of) => of == dtype,
            Self::Streaming(of) => of.contains(&dtype),
            Self::ExactBanks => dtype == Dtype::Int8,
            Self::Essential
            | Self::Unused
            | Self::Joined
            | Self::JobTasks(_)
            | Self::AtOnce
            | Self::Reuse(_)
            | Self::Accuracy => false,
        }
    }
}

/// When the jobs of a rung run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RungPace {
    /// On one core after another.
    OneByOne,
    /// On all cores at the same time.
    Together,
    /// On all cores at the same time, again and again.
    ForAMinute,
    /// On one core after another, behind a pause.
    AfterIdle,
    /// In pairs: the driver may run the second job of each on another core.
    InPairs,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Rung {
    pub(crate) name: &'static str,
    /// Rungs that must pass before it runs. It differs from the first of them in one thing.
    pub(crate) parents: &'static [&'static str],
    /// The experiment, with evidence ids of earlier runs (docs/evidence.md).
    pub(crate) what: &'static str,
    /// The cause, if it fails and its parent passes.
    pub(crate) cause: &'static str,
    pub(crate) meaning: RungMeaning,
    pub(crate) pace: RungPace,
    make: fn() -> anyhow::Result<Experiment>,
}

impl Rung {
    pub(crate) fn named(name: &str) -> Option<&'static Self> {
        LADDER.iter().find(|rung| rung.name == name)
    }

    /// Its experiment. Only rungs from `int8` on rely on this project's int8 program, and only
    /// behind an int8 task: nobody has mixed precisions in a job (E-types-mixed).
    pub(crate) fn experiment(&self) -> anyhow::Result<Experiment> {
        let mut experiment = (self.make)()?;
        let last = experiment.jobs.last().and_then(|job| job.last());
        let is_int8 = last.is_some_and(|task| {
            task.value::<cna::ConvCon1>().in_precision() == rknpu_regcmd::Precision::Int8.code()
        });
        if !(is_int8 && self.is_from(INT8)) {
            experiment.witness = ExperimentWitness::LastTask;
        }
        Ok(experiment)
    }

    /// Whether it is this rung, or builds on it.
    fn is_from(&self, name: &str) -> bool {
        let mut parents = self.parents.iter().filter_map(|parent| Self::named(parent));
        self.name == name || parents.any(|parent| parent.is_from(name))
    }

    /// Whether it is one of those that only need buffers; all others build on them.
    pub(crate) fn is_root(&self) -> bool {
        self.parents == [BUFFERS]
    }

    /// The parent, if it runs jobs.
    pub(crate) fn parent_with_jobs(&self) -> Option<&'static Self> {
        self.parent().filter(|parent| parent.name != BUFFERS)
    }

    /// The first parent, from which the rung differs in one thing.
    pub(crate) fn parent(&self) -> Option<&'static Self> {
        Self::named(self.parents.first()?)
    }

    pub(crate) fn step_name(&self) -> String {
        format!("{RUNG_STEP}{}", self.name)
    }

    /// Name of the step that runs the parent after the rung failed.
    pub(crate) fn health_name(&self) -> String {
        format!("{HEALTH_STEP}{}", self.name)
    }

    /// Name of the step that changes one register of the parent at a time.
    pub(crate) fn flips_name(&self) -> String {
        format!("{RUNG_STEP}{}{FLIPS}", self.name)
    }

    /// A rung runs three times on each core; a large or a repeated one once. On the model, whose results
    /// never vary, it runs once on each core; a large one on one core.
    pub(crate) fn rounds(
        &self,
        experiment: &Experiment,
        device: &DeviceInfo,
        dead: &[u32],
    ) -> CoreRounds {
        const TIMES: u32 = 3;
        /// Bytes of results that take long to compare on a board.
        const LARGE: usize = 1 << 20;
        let is_large = experiment.output > LARGE;
        let is_idle = self.pace == RungPace::AfterIdle;
        let is_once = is_large || device.is_model || self.pace == RungPace::ForAMinute;
        let lasts = self.pace == RungPace::ForAMinute && dead.is_empty();
        CoreRounds {
            files: if is_large && device.is_model && dead.is_empty() {
                1
            } else {
                device.cores.max(1)
            },
            // The model starts awake, so only the second round is behind a pause.
            rounds: match (is_idle && device.is_model, is_once) {
                (true, _) => 2,
                (_, true) => 1,
                _ => TIMES,
            },
            at_once: matches!(self.pace, RungPace::Together | RungPace::ForAMinute),
            lasting: match device.is_model {
                _ if !lasts => Duration::ZERO,
                true => Duration::from_millis(200),
                false => Duration::from_secs(60),
            },
            // The driver suspends a core that has been idle for 50 ms.
            pause: if is_idle {
                Duration::from_millis(500)
            } else {
                Duration::ZERO
            },
        }
    }
}

/// Rows of the table: name, parents, meaning of a failure, experiment, description with
/// evidence, cause of a failure.
macro_rules! rungs {
    ($($name:literal after [$($parent:literal),*]: $meaning:expr, $experiment:expr,
        $(run $pace:ident,)? $what:literal, $cause:literal;)*) => {
        &[$(Rung {
            name: $name,
            parents: &[$($parent),*],
            what: $what,
            cause: $cause,
            meaning: $meaning,
            pace: rungs!(@ $($pace)?),
            make: || $experiment,
        }),*]
    };
    (@) => { RungPace::OneByOne };
    (@ $pace:ident) => { RungPace::$pace };
}

use RungMeaning::{
    Accuracy, AtOnce, Essential, ExactBanks, JobTasks, Joined, Larger, Precision, Reuse, Streaming,
    Unused,
};

/// Tasks of the largest job that others have run.
const JOB_TASKS: usize = 64;

/// Rows, depth and columns of the largest tiles whose weights stream.
pub(super) const FP16_STREAMED: [u32; 3] = [384, 384, 4096];
pub(super) const INT8_STREAMED: [u32; 3] = [544, 544, 4096];

/// All rungs. Parents come before their children.
pub(crate) const LADDER: &[Rung] = rungs! {
    "driver" after []: Essential, idle(),
        "allocates buffers, and submits no job",
        "the driver cannot allocate buffers: see `npu-probe doctor`";
    "flying-add" after ["driver"]: Unused,
        flying(FlyingOperation::Add, [1.5; 8], [2.25; 8]),
        "an fp16 addition by the DPU alone (E-flying-dual-0, allbilly on mainline 6.18)",
        "an addition by the DPU alone gives other results";
    "depthwise" after ["driver"]: Unused, depthwise::captured(),
        "an int8 convolution whose result on silicon is known (E-depthwise-pad, Mesa's capture)",
        "a depthwise convolution with padding gives other results than in another project's run";
    "fp16" after ["driver"]: Precision(Dtype::Fp16), fp16(4, 32, &[16]).experiment(),
        "an fp16 matmul of 4x32x16, form B (E-form-b-mainline)",
        "this project's fp16 program or its layouts are wrong, since other programs run";
    "form-a" after ["fp16"]: Unused, fp16(4, 32, &[16]).form_a().experiment(),
        "the same fp16 matmul in form A: DPU_RDMA is not started (E-form-a-mainline; \
         E-form-a-hangs)",
        "programs of form A, which do not start DPU_RDMA, do not run";
    "program-at-zero" after ["fp16"]: Unused,
        fp16(4, 32, &[16]).placed(Placement::ProgramAtZero).experiment(),
        "the same fp16 matmul, with its program at IOVA 0 (E-guard-page)",
        "a program at IOVA 0 does not run";
    "weights-at-zero" after ["fp16"]: Unused,
        fp16(4, 32, &[16]).placed(Placement::WeightsAtZero).experiment(),
        "the same fp16 matmul, with its weights at IOVA 0 (E-guard-page)",
        "operands at IOVA 0 do not work";
    // The features take exactly one page.
    "no-slack" after ["fp16"]: Unused,
        fp16(32, 64, &[16]).placed(Placement::NothingBehindFeatures).experiment(),
        "an fp16 matmul of 32x64x16, with nothing mapped behind its features (E-over-read)",
        "the NPU reads beyond the end of the features";
    "int8" after ["driver"]: Precision(Dtype::Int8), int8(64, 64, &[64]).experiment(),
        "int8 matmuls of 64x64x64, form B (E-form-b-mainline)",
        "this project's int8 program or its layouts are wrong, since other programs run";
    "int8-exact-banks" after ["int8"]: ExactBanks,
        int8(128, 512, &[64]).without_spare_bank().experiment(),
        "int8 features that fill their data banks, with no spare bank (E-spare-data-bank)",
        "int8 features need one data bank more than they fill";
    "int8-weight-banks" after ["int8-exact-banks"]: ExactBanks,
        int8(4, 512, &[704]).experiment(),
        "int8 4x512x704: one data bank, eleven weight banks, and no spare bank (E-spare-data-bank)",
        "int8 weights that leave features one bank, with no spare one, are wrong";
    "int4" after ["driver"]: Precision(Dtype::Int4), int4(64, 64, &[64]).experiment(),
        "int4 matmuls of 64x64x64, form B (E-form-b-mainline)",
        "this project's int4 program or its layouts are wrong, since other programs run";
    "int8-form-a" after ["form-a"]: Unused, int8(64, 64, &[64]).form_a().experiment(),
        "an int8 matmul of form A (E-form-a-vendor)",
        "int8 programs of form A do not run";
    "form-a-behind-flying" after ["form-a", "flying-add"]: Unused, form_a_behind_flying(),
        "the fp16 matmul of form A, behind an addition that leaves DPU_RDMA programmed \
         (E-registers-persist)",
        "programs of form A do not run behind a task that starts DPU_RDMA";
    "fp16-deep" after ["fp16"]: Precision(Dtype::Fp16), fp16(4, 4096, &[32]).experiment(),
        "fp16 4x4096x32, sums of 4096 terms of either sign (E-fp-order)",
        "long fp16 sums are wrong";
    "fp16-subnormals" after ["fp16"]: Accuracy, subnormals(),
        "subnormal fp16 features in rows 2 and 3, subnormal weights in columns 8 to 15 \
         (E-subnormals)",
        "fp16 operands below 2^-14 (subnormal) are not computed exactly: the CPU computes what the \
         check of first results finds too inexact";
    "fp16-large" after ["fp16"]: Precision(Dtype::Fp16), fp16(256, 384, &[256]).experiment(),
        "fp16 256x384x256 (E-resident-tiles)",
        "large fp16 tiles are wrong";
    "attention-scores" after ["fp16-large"]: Larger(Dtype::Fp16),
        fp16(ATTENTION_ROWS, 64, &[ATTENTION_KEYS]).experiment(),
        "fp16 344x64x512, the first matmul of attention (E-streamed-tiles, of others)",
        "the scores of attention are wrong in tiles of more than 256 rows";
    "attention-values" after ["attention-scores"]: Larger(Dtype::Fp16), attention_values(), run InPairs,
        "the same, then fp16 344x256x80 of the probabilities that the CPU makes of these scores: \
         both matmuls of attention (E-streamed-tiles, of others)",
        "probabilities times values are wrong in tiles of more than 256 rows";
    "int8-large" after ["int8"]: Precision(Dtype::Int8), int8(256, 640, &[256]).experiment(),
        "int8 256x640x256 (E-resident-tiles)",
        "large int8 tiles are wrong";
    "int4-large" after ["int4"]: Precision(Dtype::Int4), int4(256, 1408, &[256]).experiment(),
        "int4 256x1408x256 (E-resident-tiles)",
        "large int4 tiles are wrong";
    "fp16-streams" after ["fp16-large"]: Streaming(&Dtype::ALL), fp16(64, 512, &[512]).experiment(),
        "fp16 64x512x512: weights stream through their banks (E-streamed-tiles, of larger ones)",
        "weights that do not fit CBUF do not stream through it";
    "fp16-streams-large" after ["fp16-streams"]: Streaming(&[Dtype::Fp16]),
        one_tile(fp16, FP16_STREAMED),
        "fp16 384x384x4096: weights stream through three banks (E-streamed-tiles)",
        "the largest fp16 tile is wrong";
    "int8-streams" after ["int8-large", "fp16-streams"]: Streaming(&[Dtype::Int8]),
        int8(480, 544, &[4096]).experiment(),
        "int8 480x544x4096: weights stream through their banks (E-streamed-tiles)",
        "int8 weights that do not fit CBUF do not stream through it";
    "int8-full" after ["int8-streams", "int8-exact-banks"]: Streaming(&[Dtype::Int8]),
        one_tile(int8, INT8_STREAMED),
        "int8 544x544x4096: no bank to spare, and weights stream (E-streamed-tiles)",
        "the largest int8 tile is wrong";
    "int4-streams" after ["int4-large", "fp16-streams"]: Streaming(&[Dtype::Int4]),
        int4(256, 1408, &[512]).experiment(),
        "int4 256x1408x512: weights stream through their banks (E-streamed-tiles, of others)",
        "int4 weights that do not fit CBUF do not stream through it";
    "three-files" after ["int8-large"]: AtOnce, int8(256, 640, &[256]).experiment(), run Together,
        "the int8 matmul 256x640x256 on all cores at the same time, one file per core (E-cores)",
        "cores that work at the same time disturb each other";
    "minute" after ["three-files"]: AtOnce, int8(64, 64, &[64]).experiment(), run ForAMinute,
        "small int8 matmuls on all cores at the same time, for a minute (E-cores)",
        "cores that work at the same time for a minute give wrong results, or stop";
    "streams-at-once" after ["fp16-streams", "three-files"]: Streaming(&Dtype::ALL),
        fp16(64, 512, &[512]).experiment(), run Together,
        "fp16 64x512x512 on all cores at the same time: weights stream (E-cores)",
        "weights do not stream on all cores at the same time";
    "tasks-2" after ["int8"]: Essential, int8(8, 64, &[32; 2]).experiment(),
        "one job of two int8 tasks (E-time-cores)",
        "the second task of a job fails, although it works alone";
    "tasks-16" after ["tasks-2"]: JobTasks(2), int8(8, 64, &[32; 16]).experiment(),
        "one job of 16 int8 tasks (E-time-cores)",
        "a job of 16 tasks fails, although its tasks work alone";
    "tasks" after ["tasks-16"]: JobTasks(16), int8(8, 64, &[32; JOB_TASKS]).experiment(),
        "one job of 64 int8 tasks (E-time-cores)",
        "a job of many tasks fails, although its tasks work alone";
    "tasks-128" after ["tasks"]: JobTasks(JOB_TASKS), int8(8, 64, &[32; 128]).experiment(),
        "one job of 128 int8 tasks (E-job-sizes)",
        "a job of more than 64 tasks fails";
    "two-weights" after ["tasks-2"]: Joined, two_weights(),
        "one job of two int8 matmuls, with weights in separate buffers (E-job-sizes)",
        "a job with weights in two buffers fails";
    "types" after ["tasks-2", "fp16"]: Unused, types(),
        "one job of int8, fp16 and int8 tasks (E-types-mixed)",
        "tasks of different precisions in one job fail";
    "after-idle" after ["int8"]: Essential, int8(64, 64, &[64]).experiment(), run AfterIdle,
        "the int8 matmul on cores that the driver has suspended (E-cores)",
        "a core that was idle for 50 ms does not work again: write `on` to power/control of the \
         NPU's devices in sysfs, and run this command again";
    "fp16-reuse" after ["fp16-large"]: Reuse(Dtype::Fp16),
        fp16(64, 64, &[64, 64]).reusing().experiment(),
        "fp16 tasks of equal sizes, the second with DATA_REUSE (E-reuse-equal)",
        "fp16 features that a task reuses from CBUF are wrong";
    "fp16-reuse-other-n" after ["fp16-reuse"]: Unused,
        fp16(64, 64, &[64, 32]).reusing().experiment(),
        "fp16 tasks, the second with DATA_REUSE and fewer columns (E-reuse-unseen)",
        "fp16 features that a task with fewer columns reuses from CBUF are wrong";
    "int8-reuse" after ["fp16-reuse"]: Unused, int8(64, 64, &[64, 64]).reusing().experiment(),
        "int8 tasks of equal sizes, the second with DATA_REUSE (E-reuse-unseen)",
        "int8 features that a task reuses from CBUF are wrong";
    "int4-reuse" after ["int8-reuse"]: Unused, int4(64, 64, &[64, 64]).reusing().experiment(),
        "int4 tasks of equal sizes, the second with DATA_REUSE (E-reuse-unseen)",
        "int4 features that a task reuses from CBUF are wrong";
    "int8-reuse-large" after ["int8-reuse", "int8-large"]: Unused,
        int8(256, 640, &[256, 256]).reusing().experiment(),
        "int8 tasks of 256x640x256, the second with DATA_REUSE (E-reuse-unseen)",
        "large int8 features that a task reuses from CBUF are wrong";
    "int4-reuse-large" after ["int4-reuse", "int4-large"]: Unused,
        int4(256, 1408, &[256, 256]).reusing().experiment(),
        "int4 tasks of 256x1408x256, the second with DATA_REUSE (E-reuse-unseen)",
        "large int4 features that a task reuses from CBUF are wrong";
    "int8-reuse-other-n" after ["int8-reuse", "fp16-reuse-other-n"]: Unused,
        int8(64, 64, &[64, 32]).reusing().experiment(),
        "int8 tasks, the second with DATA_REUSE and fewer columns (E-reuse-unseen)",
        "int8 features that a task with fewer columns reuses from CBUF are wrong";
    "fp16-weight-reuse" after ["fp16-reuse"]: Unused,
        fp16(64, 64, &[64, 64]).of_same_weights().reusing().experiment(),
        "fp16 tasks of the same weights, the second with WEIGHT_REUSE (E-reuse)",
        "fp16 weights that a task reuses from CBUF are wrong";
    "int8-weight-reuse" after ["int8-reuse"]: Unused,
        int8(64, 64, &[64, 64]).of_same_weights().reusing().experiment(),
        "int8 tasks of the same weights, the second with WEIGHT_REUSE (E-reuse-spare-bank, of \
         convolutions)",
        "int8 weights that a task reuses from CBUF are wrong";
    "int4-weight-reuse" after ["int4-reuse"]: Unused,
        int4(64, 64, &[64, 64]).of_same_weights().reusing().experiment(),
        "int4 tasks of the same weights, the second with WEIGHT_REUSE (E-reuse)",
        "int4 weights that a task reuses from CBUF are wrong";
    "fp16-reuse-streams" after ["fp16-reuse", "fp16-streams"]: Unused,
        fp16(64, 512, &[512, 512]).reusing().experiment(),
        "fp16 tasks whose weights stream, the second with DATA_REUSE (E-reuse-unseen)",
        "fp16 features in CBUF are wrong after weights have streamed";
    "int8-reuse-streams" after ["int8-reuse", "int8-streams", "fp16-reuse-streams"]: Unused,
        int8(64, 1024, &[512, 512]).reusing().experiment(),
        "int8 tasks whose weights stream, the second with DATA_REUSE (E-reuse-unseen)",
        "int8 features in CBUF are wrong after weights have streamed";
    "int4-reuse-streams" after ["int4-reuse", "int4-streams", "int8-reuse-streams"]: Unused,
        int4(64, 2048, &[512, 512]).reusing().experiment(),
        "int4 tasks whose weights stream, the second with DATA_REUSE (E-reuse-unseen)",
        "int4 features in CBUF are wrong after weights have streamed";
};

/// A matmul of one tile of this size, M x K x N.
fn one_tile(
    matmul: fn(u32, u32, &[u32]) -> ExperimentMatmul,
    [m, k, n]: [u32; 3],
) -> anyhow::Result<Experiment> {
    matmul(m, k, &[n]).experiment()
}

/// Rows of a tile of attention, and its keys.
const ATTENTION_ROWS: u32 = 344;
const ATTENTION_KEYS: u32 = 512;

/// Scores of queries and keys, then probabilities times values. The CPU makes the probabilities of
/// the first keys' scores in between.
fn attention_values() -> anyhow::Result<Experiment> {
    let mut experiment = fp16(ATTENTION_ROWS, 64, &[ATTENTION_KEYS]).experiment()?;
    let mut values = fp16(ATTENTION_ROWS, 256, &[80]).experiment()?;
    let task = values.task();
    task.put_address::<cna::FeatureDataAddr>(input(2).at(0));
    task.put_address::<cna::DcompAddr0>(input(3).at(0));
    experiment.inputs.extend(values.inputs);
    experiment.jobs.extend(values.jobs);
    experiment.unobserved = 1;
    experiment.feeds = Some((input(2), probabilities));
    Ok(experiment)
}

/// Probabilities times 2^14 of fp32 scores, from 2^6 on. Powers of two make sums of 256 products
/// with random values exact in every order.
fn probabilities(scores: &[u8]) -> Vec<u8> {
    /// Values per atom.
    const SCORES: usize = 4;
    const HALVES: usize = 8;
    const HALVING: f32 = 4.0;
    let (rows, keys) = (ATTENTION_ROWS as usize, ATTENTION_KEYS as usize);
    let scores = scores.as_chunks().0;
    let score = |row: usize, key: usize| {
        let at = (key / SCORES * rows + row) * SCORES + key % SCORES;
        scores
            .get(at)
            .map_or(0.0, |score| f32::from_le_bytes(*score))
    };
    let most: Vec<_> = (0..rows)
        .map(|row| {
            (0..keys)
                .map(|key| score(row, key))
                .fold(f32::MIN, f32::max)
        })
        .collect();
    fp16_bytes((0..rows * keys / 2).map(|at| {
        let (row, key) = (
            at / HALVES % rows,
            at / HALVES / rows * HALVES + at % HALVES,
        );
        let halvings = ((most[row] - score(row, key)) / HALVING) as u32;
        (1_u32 << (14 - halvings.min(8))) as f32
    }))
}

/// Two matmuls of the same features. The weights of the second are in a separate buffer.
fn two_weights() -> anyhow::Result<Experiment> {
    let mut experiment = int8(8, 64, &[32; 2]).experiment()?;
    let second = experiment.jobs.first_mut().and_then(|job| job.get_mut(1));
    let weights = experiment.inputs.get_mut(1);
    if let (Some(task), Some(weights)) = (second, weights) {
        let second_weights = weights.split_off(weights.len() / 2);
        experiment.inputs.push(second_weights);
        task.put_address::<cna::DcompAddr0>(input(2).at(0));
    }
    Ok(experiment)
}

/// An int8, an fp16 and an int8 matmul in one job. All results follow each other.
pub(super) fn types() -> anyhow::Result<Experiment> {
    let mut experiment = int8(8, 64, &[32; 2]).experiment()?;
    let mut between = fp16(4, 32, &[16]).experiment()?;
    let task = between.task();
    task.put_address::<cna::FeatureDataAddr>(input(2).at(0));
    task.put_address::<cna::DcompAddr0>(input(3).at(0));
    task.put_address::<dpu::DstBaseAddr>(OUT.at(experiment.output as u32));
    experiment.output += between.output;
    experiment.inputs.extend(between.inputs);
    experiment.jobs[0].splice(1..1, between.jobs.concat());
    Ok(experiment)
}

/// The buffers of a matmul, without a job.
fn idle() -> anyhow::Result<Experiment> {
    let mut experiment = fp16(4, 32, &[16]).experiment()?;
    experiment.jobs.clear();
    Ok(experiment)
}

/// A matmul of form A, behind an addition that leaves DPU_RDMA programmed.
pub(super) fn form_a_behind_flying() -> anyhow::Result<Experiment> {
    let mut experiment = fp16(4, 32, &[16]).form_a().experiment()?;
    let mut addition = flying(FlyingOperation::Add, [0.0; 8], [0.0; 8])?;
    // The addition reads the first atoms of the matmul's operands, and writes behind
    // its results.
    let destination = OUT.at(experiment.output as u32);
    addition.task().put_address::<dpu::DstBaseAddr>(destination);
    experiment.output += addition.output;
    experiment.jobs[0].splice(0..0, addition.jobs.concat());
    Ok(experiment)
}

/// A matmul of subnormals: in a pair of a row and a column, none, one or both are
/// subnormal.
pub(super) fn subnormals() -> anyhow::Result<Experiment> {
    const ROWS: usize = 4;
    const CHANNELS: usize = 32;
    /// fp16 values per atom.
    const ATOM: usize = 8;
    let mut experiment = fp16(ROWS as u32, CHANNELS as u32, &[16]).experiment()?;
    if let [features, weights] = &mut experiment.inputs[..] {
        make_subnormal(features, 3, |index| index / ATOM % ROWS >= 2);
        make_subnormal(weights, 4, |index| index / CHANNELS >= 8);
    }
    Ok(experiment)
}
