// SPDX-License-Identifier: MIT OR Apache-2.0
//! The rungs, the safest and best proven first.

use npu_matmul::Dtype;
use rknpu_regcmd::MatmulType::{Fp16ToFp32, Int4ToInt16, Int8ToInt32};
use rocket_uapi::DeviceInfo;

use super::experiments::{
    form_a, form_a_behind_flying, idle, placed, reusing, subnormals, tasks, weight_reusing,
};
use super::products::RungProduct;
use crate::calibrate::facts::depthwise;
use crate::calibrate::facts::flying::{FlyingOperation, flying};
use crate::experiment::runner::CoreRounds;
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
    /// Tiles of these precisions whose weights do not fit CBUF are not for this NPU.
    Streaming(&'static [Dtype]),
    /// Tiles whose int8 features leave no data bank to spare are not for this NPU.
    ExactBanks,
    /// No task of this precision may use what the one before left in CBUF.
    Reuse(Dtype),
    /// Results are less exact than they should be, and nothing can be done about it.
    Accuracy,
}

/// One experiment of the ladder.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rung {
    pub(crate) name: &'static str,
    /// The rungs without which it is not run. From the first one it differs in one thing.
    pub(crate) parents: &'static [&'static str],
    /// What is run, and who has run it before: ids of docs/evidence.md.
    pub(crate) what: &'static str,
    /// What is wrong if it fails, and its parent does not.
    pub(crate) cause: &'static str,
    pub(crate) meaning: RungMeaning,
    /// Whether the cores work at once, and not one after another.
    pub(crate) at_once: bool,
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
        at_once: false,
        build,
    }
}

/// The rung, on all cores at once.
const fn at_once(mut rung: Rung) -> Rung {
    rung.at_once = true;
    rung
}

use RungMeaning::{Accuracy, Essential, ExactBanks, Precision, Reuse, Streaming, Unused};

/// All rungs. A parent is before its children.
pub(crate) const LADDER: &[Rung] = &[
    rung(
        "driver",
        &[],
        (
            "buffers, and no job",
            "the driver cannot allocate buffers: see `npu-probe doctor`",
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
            "an fp16 addition by the DPU alone (E-flying-dual-0, allbilly on mainline 6.18)",
            "no job ends, or the NPU does not see memory as the CPU does: kernel, power or device tree",
        ),
        Essential,
        || flying(FlyingOperation::Add, [1.5; 8], [2.25; 8]),
    ),
    rung(
        "depthwise",
        &["flying-add"],
        (
            "an int8 convolution whose result on silicon is known (E-depthwise-pad, Mesa's capture)",
            "CNA and CORE do not compute, although the DPU does: board or kernel",
        ),
        Essential,
        depthwise::captured,
    ),
    rung(
        "fp16",
        &["depthwise"],
        (
            "an fp16 matmul of 4x32x16, form B (E-form-b-mainline)",
            "this project's fp16 program or its layouts are wrong: another project's convolution runs",
        ),
        Precision(Dtype::Fp16),
        || RungProduct::new(Fp16ToFp32, 4, 32, &[16]).experiment(),
    ),
    rung(
        "form-a",
        &["fp16"],
        (
            "the same, form A: DPU_RDMA is not started (E-form-a-mainline; E-form-a-hangs)",
            "programs of form A, which leave DPU_RDMA out, do not run",
        ),
        Unused,
        || form_a(RungProduct::new(Fp16ToFp32, 4, 32, &[16])),
    ),
    rung(
        "program-at-zero",
        &["fp16"],
        (
            "the same, with the program at IOVA 0 (E-guard-page)",
            "a program at IOVA 0 does not run",
        ),
        Unused,
        || placed(Placement::ProgramAtZero),
    ),
    rung(
        "weights-at-zero",
        &["fp16"],
        (
            "the same, with the weights at IOVA 0 (E-guard-page)",
            "operands at IOVA 0 do not work",
        ),
        Unused,
        || placed(Placement::WeightsAtZero),
    ),
    rung(
        "no-slack",
        &["fp16"],
        (
            "the same, with nothing mapped behind the features (E-over-read)",
            "the NPU reads beyond the end of the features",
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
            "int8 matmuls of 64x64x64, form B (E-form-b-mainline)",
            "this project's int8 program or its layouts are wrong: another project's convolution runs",
        ),
        Precision(Dtype::Int8),
        || RungProduct::new(Int8ToInt32, 64, 64, &[64]).experiment(),
    ),
    rung(
        "int8-exact-banks",
        &["int8"],
        (
            "int8 features that fill their data banks, with none to spare (E-spare-data-bank)",
            "int8 features need one data bank more than they fill",
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
            "int4 matmuls of 64x64x64, form B (E-form-b-mainline)",
            "this project's int4 program or its layouts are wrong: another project's convolution runs",
        ),
        Precision(Dtype::Int4),
        || RungProduct::new(Int4ToInt16, 64, 64, &[64]).experiment(),
    ),
    rung(
        "int8-form-a",
        &["form-a"],
        (
            "an int8 matmul of form A (E-form-a-vendor)",
            "int8 programs of form A do not run",
        ),
        Unused,
        || form_a(RungProduct::new(Int8ToInt32, 64, 64, &[64])),
    ),
    rung(
        "form-a-behind-flying",
        &["form-a", "flying-add"],
        (
            "the fp16 matmul of form A, behind an addition that leaves DPU_RDMA programmed (E-registers-persist)",
            "programs of form A do not run behind a task that starts DPU_RDMA",
        ),
        Unused,
        form_a_behind_flying,
    ),
    rung(
        "fp16-deep",
        &["fp16"],
        (
            "fp16 4x4096x32, sums of 4096 terms of either sign (E-fp-order)",
            "long fp16 sums are wrong",
        ),
        Precision(Dtype::Fp16),
        || RungProduct::new(Fp16ToFp32, 4, 4096, &[32]).experiment(),
    ),
    rung(
        "fp16-subnormals",
        &["fp16"],
        (
            "subnormal fp16 features in rows 2 and 3, subnormal weights in columns 8 to 15 (E-subnormals)",
            "fp16 operands below 2^-14 (subnormal) are not computed exactly",
        ),
        Accuracy,
        subnormals,
    ),
    rung(
        "fp16-large",
        &["fp16"],
        (
            "fp16 256x384x256 (E-resident-tiles)",
            "large fp16 tiles are wrong",
        ),
        Precision(Dtype::Fp16),
        || RungProduct::new(Fp16ToFp32, 256, 384, &[256]).experiment(),
    ),
    rung(
        "int8-large",
        &["int8"],
        (
            "int8 256x640x256 (E-resident-tiles)",
            "large int8 tiles are wrong",
        ),
        Precision(Dtype::Int8),
        || RungProduct::new(Int8ToInt32, 256, 640, &[256]).experiment(),
    ),
    rung(
        "int4-large",
        &["int4"],
        (
            "int4 256x1408x256 (E-resident-tiles)",
            "large int4 tiles are wrong",
        ),
        Precision(Dtype::Int4),
        || RungProduct::new(Int4ToInt16, 256, 1408, &[256]).experiment(),
    ),
    rung(
        "fp16-streams",
        &["fp16-large"],
        (
            "fp16 64x512x512: weights stream through their banks (E-streamed-tiles, of larger ones)",
            "weights that do not fit CBUF do not stream through it",
        ),
        Streaming(&Dtype::ALL),
        || RungProduct::new(Fp16ToFp32, 64, 512, &[512]).experiment(),
    ),
    rung(
        "fp16-streams-large",
        &["fp16-streams"],
        (
            "fp16 384x384x4096: weights stream through three banks (E-streamed-tiles)",
            "the largest fp16 tile is wrong",
        ),
        Streaming(&[Dtype::Fp16]),
        || RungProduct::new(Fp16ToFp32, 384, 384, &[4096]).experiment(),
    ),
    rung(
        "int8-streams",
        &["int8-large", "fp16-streams"],
        (
            "int8 480x544x4096: weights stream through their banks (E-streamed-tiles)",
            "int8 weights that do not fit CBUF do not stream through it",
        ),
        Streaming(&[Dtype::Int8]),
        || RungProduct::new(Int8ToInt32, 480, 544, &[4096]).experiment(),
    ),
    rung(
        "int8-full",
        &["int8-streams", "int8-exact-banks"],
        (
            "int8 544x544x4096: no bank to spare, and weights stream (E-streamed-tiles)",
            "the largest int8 tile is wrong",
        ),
        Streaming(&[Dtype::Int8]),
        || RungProduct::new(Int8ToInt32, 544, 544, &[4096]).experiment(),
    ),
    rung(
        "int4-streams",
        &["int4-large", "fp16-streams"],
        (
            "int4 256x1408x512: weights stream through their banks (E-streamed-tiles, of others)",
            "int4 weights that do not fit CBUF do not stream through it",
        ),
        Streaming(&[Dtype::Int4]),
        || RungProduct::new(Int4ToInt16, 256, 1408, &[512]).experiment(),
    ),
    at_once(rung(
        "three-files",
        &["int8-large"],
        (
            "the int8 matmul 256x640x256 through as many files as there are cores, at once (E-cores)",
            "cores that work at once disturb each other",
        ),
        Essential,
        || RungProduct::new(Int8ToInt32, 256, 640, &[256]).experiment(),
    )),
    rung(
        "tasks-2",
        &["int8"],
        (
            "one job of two int8 tasks (E-time-cores)",
            "the second task of a job does not run as it does alone",
        ),
        Essential,
        || tasks(&[32; 2]),
    ),
    rung(
        "tasks-16",
        &["tasks-2"],
        (
            "one job of 16 int8 tasks (E-time-cores)",
            "a job of 16 tasks does not run as its tasks alone do",
        ),
        Essential,
        || tasks(&[32; 16]),
    ),
    rung(
        "tasks",
        &["tasks-16"],
        (
            "one job of 64 int8 tasks (E-time-cores)",
            "a job of many tasks does not run as its tasks alone do",
        ),
        Essential,
        || tasks(&[32; 64]),
    ),
    rung(
        "fp16-reuse",
        &["fp16-large"],
        (
            "fp16 tasks of equal sizes, the second with DATA_REUSE (E-reuse-equal)",
            "fp16 features that a task finds in CBUF are wrong",
        ),
        Reuse(Dtype::Fp16),
        || reusing(RungProduct::new(Fp16ToFp32, 64, 64, &[64, 64])),
    ),
    rung(
        "fp16-reuse-other-n",
        &["fp16-reuse"],
        (
            "the same, with fewer columns in the second (E-reuse-unseen)",
            "fp16 features that a task of other columns finds in CBUF are wrong",
        ),
        Unused,
        || reusing(RungProduct::new(Fp16ToFp32, 64, 64, &[64, 32])),
    ),
    rung(
        "int8-reuse",
        &["fp16-reuse"],
        (
            "int8 tasks of equal sizes, the second with DATA_REUSE (E-reuse-unseen)",
            "int8 features that a task finds in CBUF are wrong",
        ),
        Unused,
        || reusing(RungProduct::new(Int8ToInt32, 64, 64, &[64, 64])),
    ),
    rung(
        "int4-reuse",
        &["int8-reuse"],
        (
            "int4 tasks of equal sizes, the second with DATA_REUSE (E-reuse-unseen)",
            "int4 features that a task finds in CBUF are wrong",
        ),
        Unused,
        || reusing(RungProduct::new(Int4ToInt16, 64, 64, &[64, 64])),
    ),
    rung(
        "int8-reuse-large",
        &["int8-reuse", "int8-large"],
        (
            "int8 tasks of 256x640x256, the second with DATA_REUSE (E-reuse-unseen)",
            "many int8 features that a task finds in CBUF are wrong",
        ),
        Unused,
        || reusing(RungProduct::new(Int8ToInt32, 256, 640, &[256, 256])),
    ),
    rung(
        "int4-reuse-large",
        &["int4-reuse", "int4-large"],
        (
            "int4 tasks of 256x1408x256, the second with DATA_REUSE (E-reuse-unseen)",
            "many int4 features that a task finds in CBUF are wrong",
        ),
        Unused,
        || reusing(RungProduct::new(Int4ToInt16, 256, 1408, &[256, 256])),
    ),
    rung(
        "int8-reuse-other-n",
        &["int8-reuse", "fp16-reuse-other-n"],
        (
            "the int8 tasks, with fewer columns in the second (E-reuse-unseen)",
            "int8 features that a task of other columns finds in CBUF are wrong",
        ),
        Unused,
        || reusing(RungProduct::new(Int8ToInt32, 64, 64, &[64, 32])),
    ),
    rung(
        "fp16-weight-reuse",
        &["fp16-reuse"],
        (
            "fp16 tasks of the same weights, the second with WEIGHT_REUSE (E-reuse)",
            "fp16 weights that a task finds in CBUF are wrong",
        ),
        Unused,
        || weight_reusing(Fp16ToFp32),
    ),
    rung(
        "int8-weight-reuse",
        &["int8-reuse"],
        (
            "int8 tasks of the same weights, the second with WEIGHT_REUSE (E-reuse-spare-bank, of convolutions)",
            "int8 weights that a task finds in CBUF are wrong",
        ),
        Unused,
        || weight_reusing(Int8ToInt32),
    ),
    rung(
        "int4-weight-reuse",
        &["int4-reuse"],
        (
            "int4 tasks of the same weights, the second with WEIGHT_REUSE (E-reuse)",
            "int4 weights that a task finds in CBUF are wrong",
        ),
        Unused,
        || weight_reusing(Int4ToInt16),
    ),
    rung(
        "fp16-reuse-streams",
        &["fp16-reuse", "fp16-streams"],
        (
            "fp16 tasks whose weights stream, the second with DATA_REUSE (E-reuse-unseen)",
            "fp16 features in CBUF are wrong after weights have streamed",
        ),
        Unused,
        || reusing(RungProduct::new(Fp16ToFp32, 64, 512, &[512, 512])),
    ),
    rung(
        "int8-reuse-streams",
        &["int8-reuse", "int8-streams", "fp16-reuse-streams"],
        (
            "int8 tasks whose weights stream, the second with DATA_REUSE (E-reuse-unseen)",
            "int8 features in CBUF are wrong after weights have streamed",
        ),
        Unused,
        || reusing(RungProduct::new(Int8ToInt32, 64, 1024, &[512, 512])),
    ),
    rung(
        "int4-reuse-streams",
        &["int4-reuse", "int4-streams", "int8-reuse-streams"],
        (
            "int4 tasks whose weights stream, the second with DATA_REUSE (E-reuse-unseen)",
            "int4 features in CBUF are wrong after weights have streamed",
        ),
        Unused,
        || reusing(RungProduct::new(Int4ToInt16, 64, 2048, &[512, 512])),
    ),
];

impl Rung {
    /// The rung runs three times on each core, large ones once. What the model computes of the
    /// same bytes is always the same: there each core runs it once, and one the large ones.
    pub(crate) fn rounds(&self, experiment: &Experiment, device: &DeviceInfo) -> CoreRounds {
        const TIMES: u32 = 3;
        /// Bytes of results that take long to compare on a board.
        const LARGE: usize = 1 << 20;
        let is_large = experiment.output > LARGE;
        let is_once = is_large || device.is_model;
        CoreRounds {
            files: match is_large && device.is_model {
                true => 1,
                false => device.cores.max(1),
            },
            rounds: if is_once { 1 } else { TIMES },
            at_once: self.at_once,
        }
    }
}
