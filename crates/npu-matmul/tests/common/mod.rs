// SPDX-License-Identifier: MIT OR Apache-2.0
//! Devices and data for tests.
#![allow(dead_code, reason = "each test binary uses its part")]
#![allow(
    clippy::unwrap_used,
    reason = "helpers of tests: a failed unwrap is a failed test"
)]

use std::sync::Arc;

use half::f16;
use npu_matmul::{
    Activations, Engine, Error, Observer, Output, OutputRows, PackedWeights, Plan, PlanOptions,
    Profile, SubmittedJob,
};
use npu_model::{Level, Model, ModelOptions};
use rknpu_regcmd::{Before, LintContext, ReuseRule, Severity, lint, tasks};
use rocket_uapi::{DevicePool, Selector};

/// File descriptors of the usual pool: one for each core of an RK3588.
pub(crate) const DEVICES: usize = 3;

/// Sizes of a matmul.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    pub(crate) m: usize,
    pub(crate) n: usize,
    pub(crate) k: usize,
}

/// A pool on the device that the environment selects.
pub(crate) fn pool(devices: usize) -> DevicePool {
    let opened = npu_model::open(&Selector::from_env()).unwrap();
    DevicePool::open(&opened.device, devices).unwrap()
}

pub(crate) fn engine() -> Engine {
    engine_with(PlanOptions::default(), DEVICES)
}

pub(crate) fn engine_with(options: PlanOptions, devices: usize) -> Engine {
    Engine::with_options(pool(devices), any_tile(options)).unwrap()
}

/// Allows all legal tiles, also on an NPU.
fn any_tile(mut options: PlanOptions) -> PlanOptions {
    options.unmeasured_tiles.get_or_insert(true);
    options
}

/// Options whose profile lets tasks reuse all data that CBUF still holds.
pub(crate) fn reusing(options: PlanOptions) -> PlanOptions {
    let mut profile = Profile::clone(&options.profile);
    profile.choices = profile.choices.with_reuse(ReuseRule::Always);
    PlanOptions {
        profile: Arc::new(profile),
        ..options
    }
}

/// Operands of a matmul: weights, number of rows, A and C.
pub(crate) type Operands<'a> = (&'a PackedWeights, usize, Activations<'a>, OutputRows<'a>);

/// Runs matmuls of any kind at once.
pub(crate) fn multiply_all(engine: &Engine, matmuls: Vec<Operands<'_>>) -> Result<(), Error> {
    let (mut gemms, mut operands) = (Vec::new(), Vec::new());
    for (weights, m, a, c) in matmuls {
        gemms.push(engine.prepare(weights, m, c.output())?);
        operands.push((a, c));
    }
    let calls = gemms.iter().zip(operands);
    Ok(engine.run(calls.map(|(gemm, (a, c))| gemm.call(a, c)))?)
}

/// Runs a matmul of any kind.
pub(crate) fn multiply<'a>(
    engine: &Engine,
    weights: &PackedWeights,
    m: usize,
    a: impl Into<Activations<'a>>,
    c: impl Into<OutputRows<'a>>,
) -> Result<(), Error> {
    multiply_all(engine, vec![(weights, m, a.into(), c.into())])
}

/// The plan of an integer matmul.
pub(crate) fn plan(engine: &Engine, weights: &PackedWeights, m: usize) -> Plan {
    let gemm = engine.prepare(weights, m, Output::I32).unwrap();
    gemm.plan().clone()
}

/// An engine on a strict model, and that model.
pub(crate) fn strict_engine(options: PlanOptions, devices: usize) -> (Engine, Arc<Model>) {
    let model = Model::new(ModelOptions {
        level: Level::Strict,
        ..ModelOptions::default()
    });
    let pool = DevicePool::open(&model.open_device(), devices).unwrap();
    (Engine::with_options(pool, options).unwrap(), model)
}

/// Runs `work` with an engine on the device that the environment selects. Fails if the lint warns
/// of a program. A software model is strict.
pub(crate) fn watched(options: PlanOptions, work: impl FnOnce(&Engine)) {
    let strict = |options: &mut ModelOptions| options.level = Level::Strict;
    let opened = npu_model::open_with(&Selector::from_env(), strict).unwrap();
    let pool = DevicePool::open(&opened.device, DEVICES).unwrap();
    let engine = Engine::with_options(pool, any_tile(options)).unwrap();
    work(&engine.observed_by(Arc::new(Lint)));
    if let Some(model) = opened.model {
        assert_eq!(model.events(), []);
    }
}

/// Fails on programs that the lint warns of.
#[derive(Debug)]
pub(crate) struct Lint;

impl Observer for Lint {
    fn submitting(&self, submission: &SubmittedJob<'_>) {
        let mut before = Before::Unknown;
        for (index, program) in submission.programs.iter().enumerate() {
            let context = LintContext {
                continues_job: index > 0,
                before,
                ..LintContext::default()
            };
            for finding in lint(program.words(), &context) {
                assert!(finding.severity < Severity::Warning, "{finding}");
            }
            let task = tasks(program.words()).next().unwrap();
            before = Before::Known(task.regs);
        }
    }
}

/// SplitMix64 (Steele, Lea, Flood 2014): the same numbers everywhere.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

pub(crate) fn random_i8(seed: u64, len: usize) -> Vec<i8> {
    let mut random = Random::new(seed);
    (0..len).map(|_| random.next() as i8).collect()
}

pub(crate) fn random_i4(seed: u64, len: usize) -> Vec<i8> {
    let mut random = Random::new(seed);
    (0..len).map(|_| (random.next() % 16) as i8 - 8).collect()
}

/// Numbers from -2 to 2, with many different exponents.
pub(crate) fn random_f16(seed: u64, len: usize) -> Vec<f16> {
    let mut random = Random::new(seed);
    let mut one = || {
        let x = random.next();
        let mantissa = (x >> 32) as f32 / u32::MAX as f32 - 0.5;
        f16::from_f32(mantissa * [0.01, 0.1, 1.0, 4.0][(x % 4) as usize])
    };
    (0..len).map(|_| one()).collect()
}
