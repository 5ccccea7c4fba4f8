// SPDX-License-Identifier: MIT OR Apache-2.0
//! The rungs, the safest and best proven first.

use npu_matmul::Dtype;
use rknpu_regcmd::MatmulType::{Fp16ToFp32, Int4ToInt16, Int8ToInt32};
use rknpu_regcmd::{MatmulForm, ReuseRule};

use super::products::{RungProduct, proven};
use crate::calibrate::facts::depthwise;
use crate::calibrate::facts::flying::{FlyingOperation, flying};
use crate::experiment::{Experiment, Placement};

/// What the names of steps begin with, and those that change registers end with.
pub(super) const RUNG_STEP: &str = "rung-";
pub(crate) const HEALTH_STEP: &str = "health-";
pub(super) const FLIPS: &str = "-flips";

/// What is wrong if a rung fails, and its parent does not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RungMeaning {
    /// Nothing of this project works on such a board.
    Essential,
    /// By default nothing does what the rung does.
    Unused,
    /// Products of this precision are not for this NPU.
    Precision(Dtype),
    /// Tiles whose weights do not fit CBUF are not for this NPU.
    Streaming,
    /// Tiles whose int8 features leave no data bank to spare are not for this NPU.
    ExactBanks,
    /// No task of this precision may use what the one before left in CBUF.
    Reuse(Dtype),
}

/// One experiment of the ladder.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rung {
    pub(crate) name: &'static str,
    /// The rungs without which it is not run. From the first one it differs in one thing.
    pub(crate) parents: &'static [&'static str],
    /// What is run, and who has run it before.
    pub(crate) what: &'static str,
    /// What is wrong if it fails, and its parent does not.
    pub(crate) cause: &'static str,
    pub(crate) meaning: RungMeaning,
    pub(crate) build: fn() -> anyhow::Result<Experiment>,
}

impl Rung {
    pub(crate) fn named(name: &str) -> Option<&'static Self> {
        LADDER.iter().find(|rung| rung.name == name)
    }

    /// The rung from which it differs in one thing.
    pub(crate) fn parent(&self) -> Option<&'static Self> {
        Self::named(self.parents.first()?)
    }

    /// The rung's step of a run.
    pub(crate) fn step_name(&self) -> String {
        format!("{RUNG_STEP}{}", self.name)
    }

    /// The step that runs its parent after it failed.
    pub(crate) fn health_name(&self) -> String {
        format!("{HEALTH_STEP}{}", self.name)
    }

    /// The step that changes one register of its parent at a time.
    pub(crate) fn flips_name(&self) -> String {
        format!("{RUNG_STEP}{}{FLIPS}", self.name)
    }
}

const fn rung(
    name: &'static str,
    parents: &'static [&'static str],
    (what, cause): (&'static str, &'static str),
    meaning: RungMeaning,
    build: fn() -> anyhow::Result<Experiment>,
) -> Rung {
    Rung {
        name,
        parents,
        what,
        cause,
        meaning,
        build,
    }
}

use RungMeaning::{Essential, ExactBanks, Precision, Reuse, Streaming, Unused};

/// All rungs. A parent is before its children.
pub(crate) const LADDER: &[Rung] = &[
    rung(
        "driver",
        &[],
        (
            "buffers, and no job",
            "the driver gives no buffers: see `npu-probe doctor`",
        ),
        Essential,
        || {
            Ok(idle(
                RungProduct::new(Fp16ToFp32, 4, 32, &[16]).experiment()?,
            ))
        },
    ),
    rung(
        "flying-add",
        &["driver"],
        (
            "an fp16 addition by the DPU alone (allbilly, mainline 6.18)",
            "no job ends, or the NPU does not see memory as the CPU does: kernel, power or device tree",
        ),
        Essential,
        || flying(FlyingOperation::Add, [1.5; 8], [2.25; 8]),
    ),
    rung(
        "depthwise",
        &["flying-add"],
        (
            "an int8 convolution whose result on silicon is known (Mesa's delegate)",
            "CNA and CORE do not compute, though the DPU does: board or kernel",
        ),
        Essential,
        depthwise::captured,
    ),
    rung(
        "fp16",
        &["depthwise"],
        (
            "an fp16 product of 4x32x16, form B (librocketnpu, mainline 7.1)",
            "our fp16 program or its layouts are wrong, though a foreign convolution runs",
        ),
        Precision(Dtype::Fp16),
        || RungProduct::new(Fp16ToFp32, 4, 32, &[16]).experiment(),
    ),
    rung(
        "form-a",
        &["fp16"],
        (
            "the same, form A: DPU_RDMA is not started (allbilly, mainline 6.18)",
            "programs of form A, which leave DPU_RDMA out, do not run",
        ),
        Unused,
        || form_a(RungProduct::new(Fp16ToFp32, 4, 32, &[16])),
    ),
    rung(
        "program-at-zero",
        &["fp16"],
        (
            "the same, with the program at IOVA 0",
            "a program at IOVA 0 does not run",
        ),
        Unused,
        || placed(Placement::ProgramAtZero),
    ),
    rung(
        "weights-at-zero",
        &["fp16"],
        (
            "the same, with the weights at IOVA 0",
            "operands at IOVA 0 do not work",
        ),
        Unused,
        || placed(Placement::WeightsAtZero),
    ),
    rung(
        "no-slack",
        &["fp16"],
        (
            "the same, with nothing mapped behind the features",
            "the feature fetch reads on behind its operand",
        ),
        Unused,
        || {
            // Features of one page.
            let mut experiment = RungProduct::new(Fp16ToFp32, 32, 64, &[16]).experiment()?;
            experiment.placement = Placement::NothingBehindFeatures;
            Ok(experiment)
        },
    ),
    rung(
        "int8",
        &["depthwise"],
        (
            "int8 products of 64x64x64, form B (librocketnpu)",
            "our int8 program or its layouts are wrong, though a foreign convolution runs",
        ),
        Precision(Dtype::Int8),
        || RungProduct::new(Int8ToInt32, 64, 64, &[64]).experiment(),
    ),
    rung(
        "int8-exact-banks",
        &["int8"],
        (
            "int8 features that fill their data banks, with none to spare (mtx512, vendor's driver)",
            "int8 features need a data bank to spare",
        ),
        ExactBanks,
        || {
            let mut product = RungProduct::new(Int8ToInt32, 128, 512, &[64]);
            product.options.spare_data_bank = false;
            product.experiment()
        },
    ),
    rung(
        "int4",
        &["depthwise"],
        (
            "int4 products of 64x64x64, form B (librocketnpu)",
            "our int4 program or its layouts are wrong, though a foreign convolution runs",
        ),
        Precision(Dtype::Int4),
        || RungProduct::new(Int4ToInt16, 64, 64, &[64]).experiment(),
    ),
    rung(
        "int8-form-a",
        &["form-a"],
        (
            "an int8 product of form A (mtx512, vendor's driver)",
            "int8 programs of form A do not run",
        ),
        Unused,
        || form_a(RungProduct::new(Int8ToInt32, 64, 64, &[64])),
    ),
    rung(
        "fp16-large",
        &["fp16"],
        (
            "fp16 256x384x256 (librocketnpu)",
            "large fp16 tiles are wrong",
        ),
        Precision(Dtype::Fp16),
        || RungProduct::new(Fp16ToFp32, 256, 384, &[256]).experiment(),
    ),
    rung(
        "int8-large",
        &["int8"],
        (
            "int8 256x640x256 (librocketnpu)",
            "large int8 tiles are wrong",
        ),
        Precision(Dtype::Int8),
        || RungProduct::new(Int8ToInt32, 256, 640, &[256]).experiment(),
    ),
    rung(
        "int4-large",
        &["int4"],
        (
            "int4 256x1408x256 (librocketnpu)",
            "large int4 tiles are wrong",
        ),
        Precision(Dtype::Int4),
        || RungProduct::new(Int4ToInt16, 256, 1408, &[256]).experiment(),
    ),
    rung(
        "fp16-streams",
        &["fp16-large"],
        (
            "fp16 384x384x4096: weights stream through their banks (mtx512, vendor's driver)",
            "weights that do not fit CBUF do not stream through it",
        ),
        Streaming,
        || RungProduct::new(Fp16ToFp32, 384, 384, &[4096]).experiment(),
    ),
    rung(
        "int8-streams",
        &["int8-large", "fp16-streams"],
        (
            "int8 480x544x4096: weights stream through their banks",
            "int8 weights that do not fit CBUF do not stream through it",
        ),
        Streaming,
        || RungProduct::new(Int8ToInt32, 480, 544, &[4096]).experiment(),
    ),
    rung(
        "int8-full",
        &["int8-streams", "int8-exact-banks"],
        (
            "int8 544x544x4096: no bank to spare, and weights stream (mtx512, vendor's driver)",
            "the largest int8 tile is wrong",
        ),
        Streaming,
        || RungProduct::new(Int8ToInt32, 544, 544, &[4096]).experiment(),
    ),
    rung(
        "tasks",
        &["int8"],
        (
            "one job of 64 int8 tasks",
            "a job of many tasks does not run as its tasks alone do",
        ),
        Essential,
        || {
            let product = RungProduct::new(Int8ToInt32, 8, 64, &[32; 64]);
            product.experiment()
        },
    ),
    rung(
        "fp16-reuse",
        &["fp16-large"],
        (
            "fp16 tasks of equal sizes, the second with DATA_REUSE (librocketnpu)",
            "fp16 features that a task finds in CBUF are wrong",
        ),
        Reuse(Dtype::Fp16),
        || reusing(RungProduct::new(Fp16ToFp32, 64, 64, &[64, 64])),
    ),
    rung(
        "fp16-reuse-other-n",
        &["fp16-reuse"],
        (
            "the same, with fewer columns in the second",
            "fp16 features that a task of other columns finds in CBUF are wrong",
        ),
        Unused,
        || reusing(RungProduct::new(Fp16ToFp32, 64, 64, &[64, 32])),
    ),
    rung(
        "int8-reuse",
        &["fp16-reuse"],
        (
            "int8 tasks of equal sizes, the second with DATA_REUSE",
            "int8 features that a task finds in CBUF are wrong",
        ),
        Unused,
        || reusing(RungProduct::new(Int8ToInt32, 64, 64, &[64, 64])),
    ),
    rung(
        "int4-reuse",
        &["int8-reuse"],
        (
            "int4 tasks of equal sizes, the second with DATA_REUSE",
            "int4 features that a task finds in CBUF are wrong",
        ),
        Unused,
        || reusing(RungProduct::new(Int4ToInt16, 64, 64, &[64, 64])),
    ),
];

/// The buffers of an experiment without its jobs.
fn idle(mut experiment: Experiment) -> Experiment {
    experiment.jobs.clear();
    experiment
}

fn placed(placement: Placement) -> anyhow::Result<Experiment> {
    let mut experiment = RungProduct::new(Fp16ToFp32, 4, 32, &[16]).experiment()?;
    experiment.placement = placement;
    Ok(experiment)
}

fn form_a(mut product: RungProduct) -> anyhow::Result<Experiment> {
    product.options.form = MatmulForm::A;
    product.experiment()
}

fn reusing(mut product: RungProduct) -> anyhow::Result<Experiment> {
    product.options = proven(product.ty);
    product.options.reuse = ReuseRule::Always;
    product.experiment()
}

impl Rung {
    /// The rung's job as often as it is run: a scheduler moves it to another core with
    /// each job, so that it is on each of `cores` three times, and large ones once.
    pub(crate) fn experiment(&self, cores: u32) -> anyhow::Result<Experiment> {
        const TIMES: usize = 3;
        /// Bytes of results that take long to compare on a board.
        const LARGE: usize = 1 << 20;
        let mut experiment = (self.build)()?;
        let times = match experiment.output > LARGE {
            true => 1,
            false => TIMES,
        };
        let runs = times * cores.max(1) as usize;
        experiment.jobs = std::iter::repeat_n(experiment.jobs, runs)
            .flatten()
            .collect();
        Ok(experiment)
    }
}
