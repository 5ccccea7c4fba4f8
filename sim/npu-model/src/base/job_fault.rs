// SPDX-License-Identifier: MIT OR Apache-2.0
//! Faults of imagined boards: what nobody is known to have run on silicon goes wrong, and nothing
//! else. Each shows whether a client finds it and avoids it.

use std::time::Duration;

use rknpu_regcmd::regs::{cna, dpu};
use rknpu_regcmd::{ChipProfile, EnableMask, Register, TaskRegisters};

/// A kind of task or job that goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobFault {
    /// Tasks of more than 256 rows whose weights stay in CBUF are wrong.
    TallTiles,
    /// The same, if their features also take more than four banks.
    TallDeepTiles,
    /// Tasks whose weights stay in CBUF and take eleven banks are wrong.
    WeightBanks,
    /// Tasks whose weights stream through CBUF hang on core 2.
    StreamsOnCore2,
    /// Tasks whose weights stream hang while another core has a job.
    StreamsAtOnce,
    /// A third buffer object with weights of one precision hangs its job.
    SeveralWeights,
    /// A task of another precision than the task before hangs.
    MixedTypes,
    /// The 66th task of a job hangs.
    ManyTasks,
    /// A job on a core that had none for 300 ms (by the host's clock) hangs.
    Idle,
    /// From the 20th job on, jobs are wrong that run while another core has one.
    CoresForLong,
}

/// How a task goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FaultEffect {
    /// It never raises its interrupt.
    Hang,
    /// The first atom of its result is another one.
    Wrong,
}

/// What a fault can see of a task.
pub(crate) struct FaultyTask<'a> {
    pub(crate) core: usize,
    /// Number of its job on the device, from 1 on, and its index there.
    pub(crate) job: u64,
    pub(crate) index: usize,
    /// How long the core had no job before this one.
    pub(crate) idle: Duration,
    pub(crate) task: &'a TaskRegisters,
}

/// The tasks of a job before this one.
#[derive(Debug, Default)]
pub(crate) struct JobSoFar {
    precision: Option<u32>,
    /// Precisions and buffer objects of weights.
    weights: Vec<(u32, u64)>,
}

const ROWS: u32 = 256;
const DATA_BANKS: u32 = 4;
const WEIGHT_BANKS: u32 = 10;
const WEIGHTS: usize = 2;
const TASKS: usize = 65;
const IDLE: Duration = Duration::from_millis(300);
const JOBS: u64 = 20;

impl JobFault {
    pub(crate) const NAMES: [(&'static str, Self); 10] = [
        ("tall-tiles", Self::TallTiles),
        ("tall-deep-tiles", Self::TallDeepTiles),
        ("weight-banks", Self::WeightBanks),
        ("streams-on-core-2", Self::StreamsOnCore2),
        ("streams-at-once", Self::StreamsAtOnce),
        ("several-weights", Self::SeveralWeights),
        ("mixed-types", Self::MixedTypes),
        ("many-tasks", Self::ManyTasks),
        ("idle", Self::Idle),
        ("cores-for-long", Self::CoresForLong),
    ];

    /// What this fault does to the task. `object` finds the buffer object of an address,
    /// `is_shared` whether another core has a job.
    pub(crate) fn strikes(
        self,
        so_far: &mut JobSoFar,
        task: &FaultyTask<'_>,
        object: impl Fn(u32) -> u64,
        is_shared: impl Fn() -> bool,
    ) -> Option<FaultEffect> {
        let hangs = match self {
            Self::ManyTasks => task.index >= TASKS,
            Self::Idle => task.index == 0 && task.idle >= IDLE,
            _ => false,
        };
        if hangs {
            return Some(FaultEffect::Hang);
        }
        let regs = &task.task.regs;
        if !task.task.enable.contains(EnableMask::CNA) {
            return None;
        }
        let banks = regs.get::<cna::CbufCon0>();
        let weights = regs.get::<cna::WeightSize0>().weight_bytes();
        let bank = ChipProfile::RK3588.cbuf_bank_bytes;
        let streams = weights > banks.weight_bank() * bank;
        let is_tall = regs.get::<cna::DataSize0>().datain_height() > ROWS && !streams;
        let precision = regs.get::<cna::ConvCon1>().in_precision();
        let before = so_far.precision.replace(precision);
        let place = (precision, object(regs.get::<cna::DcompAddr0>().bits()));
        if !so_far.weights.contains(&place) {
            so_far.weights.push(place);
        }
        let same_precision = so_far.weights.iter().filter(|(one, _)| *one == precision);
        let (strikes, effect) = match self {
            Self::TallTiles => (is_tall, FaultEffect::Wrong),
            Self::TallDeepTiles => (
                is_tall && banks.data_bank() > DATA_BANKS,
                FaultEffect::Wrong,
            ),
            Self::WeightBanks => (
                !streams && weights > WEIGHT_BANKS * bank,
                FaultEffect::Wrong,
            ),
            Self::StreamsOnCore2 => (streams && task.core == 2, FaultEffect::Hang),
            Self::StreamsAtOnce => (streams && is_shared(), FaultEffect::Hang),
            Self::SeveralWeights => (same_precision.count() > WEIGHTS, FaultEffect::Hang),
            Self::MixedTypes => (
                before.is_some_and(|one| one != precision),
                FaultEffect::Hang,
            ),
            Self::CoresForLong => (
                task.index == 0 && task.job >= JOBS && is_shared(),
                FaultEffect::Wrong,
            ),
            Self::ManyTasks | Self::Idle => return None,
        };
        strikes.then_some(effect)
    }
}

/// The address of a task's results.
pub(crate) fn result(task: &TaskRegisters) -> u32 {
    task.regs.get::<dpu::DstBaseAddr>().bits()
}
