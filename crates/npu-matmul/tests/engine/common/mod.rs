// SPDX-License-Identifier: MIT OR Apache-2.0
//! Devices and data for tests.

pub(crate) mod attention;
pub(crate) mod faults;
pub(crate) mod lying;
pub(crate) mod matmul;
pub(crate) mod problem;
pub(crate) mod slow;

use std::num::Wrapping;
use std::sync::Arc;

use half::f16;
use npu_matmul::{
    Activations, Counters, Dtype, Engine, Error, JobEvent, Observer, Outputs, PackedWeights, Plan,
    PlanOptions, Profile,
};
use npu_model::{Level, Model, ModelOptions};
use rknpu_regcmd::{Before, LintContext, ReuseRule, Severity, lint, tasks};
use rocket_uapi::{Device, DevicePool, Selector};

use crate::common::matmul::Matmul;

/// File descriptors of the usual pool: one for each core of an RK3588.
pub(crate) const DEVICES: usize = 3;

/// Sizes of a matmul.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    pub(crate) m: usize,
    pub(crate) n: usize,
    pub(crate) k: usize,
}

impl Shape {
    pub(crate) const fn new(m: usize, n: usize, k: usize) -> Self {
        Self { m, n, k }
    }
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

/// An engine on this number of files of a device.
pub(crate) fn engine_on(device: &Device, files: usize, options: PlanOptions) -> Engine {
    let pool = DevicePool::open(device, files).unwrap();
    Engine::with_options(pool, options).unwrap()
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
pub(crate) type Operands<'a> = (&'a PackedWeights, usize, Activations<'a>, Outputs<'a>);

/// Runs matmuls of any kind at once.
pub(crate) fn multiply_all(engine: &Engine, matmuls: Vec<Operands<'_>>) -> Result<(), Error> {
    let (mut gemms, mut operands) = (Vec::new(), Vec::new());
    for (weights, m, a, c) in matmuls {
        gemms.push(engine.prepare(weights, m)?);
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
    c: impl Into<Outputs<'a>>,
) -> Result<(), Error> {
    multiply_all(engine, vec![(weights, m, a.into(), c.into())])
}

/// Checks a matmul of random operands; for FP16, with both kinds of results.
pub(crate) fn check(engine: &Engine, dtype: Dtype, shape: Shape, seed: u64) {
    let format = Matmul::PLAIN
        .into_iter()
        .find(|format| format.dtype() == dtype);
    let matmul = Matmul::new(engine, format.unwrap(), shape, seed).unwrap();
    matmul.check(engine).unwrap();
}

/// Checks a matmul of each precision.
pub(crate) fn check_all(engine: &Engine, shape: Shape, seed: u64) {
    for dtype in Dtype::ALL {
        check(engine, dtype, shape, seed);
    }
}

/// Checks a matmul of large matrices, faster than with the reference: whether C r = A (B^T r)
/// modulo 2^64, for a random vector r. A wrong element of C passes in at most one case of 2^32.
pub(crate) fn check_product(engine: &Engine, weights: &PackedWeights, a: &[i8], b: &[i8]) {
    let (n, k) = (weights.n(), weights.k());
    let m = a.len() / k;
    let mut c = vec![0x5a5a_5a5a; m * n];
    multiply(engine, weights, m, a, &mut c).unwrap();
    let mut random = Random::new(3);
    let r: Vec<_> = (0..n).map(|_| Wrapping(random.next() as i64)).collect();
    let mut br = vec![Wrapping(0); k];
    for (row, r) in b.chunks(k).zip(&r) {
        for (sum, &b) in br.iter_mut().zip(row) {
            *sum += r * Wrapping(b.into());
        }
    }
    for (a, c) in a.chunks(k).zip(c.chunks(n)) {
        let a_terms = a.iter().zip(&br).map(|(&a, br)| br * Wrapping(a.into()));
        let c_terms = c.iter().zip(&r).map(|(&c, r)| r * Wrapping(c.into()));
        assert!(
            a_terms.sum::<Wrapping<i64>>() == c_terms.sum(),
            "{m} x {n} x {k}"
        );
    }
}

/// The engine's counters of `work`.
pub(crate) fn counted(engine: &Engine, work: impl FnOnce()) -> Counters {
    let before = engine.counters();
    work();
    let after = engine.counters();
    Counters {
        calls: after.calls - before.calls,
        submits: after.submits - before.submits,
        jobs: after.jobs - before.jobs,
        bytes_to_device: after.bytes_to_device - before.bytes_to_device,
        bytes_from_device: after.bytes_from_device - before.bytes_from_device,
        prep_bytes: after.prep_bytes - before.prep_bytes,
        fini_bytes: after.fini_bytes - before.fini_bytes,
        ..Counters::default()
    }
}

/// The plan of an integer matmul.
pub(crate) fn plan(engine: &Engine, weights: &PackedWeights, m: usize) -> Plan {
    let gemm = engine.prepare(weights, m).unwrap();
    gemm.plan().clone()
}

pub(crate) fn strict_model() -> Arc<Model> {
    Model::new(ModelOptions {
        level: Level::Strict,
        ..ModelOptions::default()
    })
}

/// An engine on a strict model, and that model.
pub(crate) fn strict_engine(options: PlanOptions, devices: usize) -> (Engine, Arc<Model>) {
    let model = strict_model();
    (engine_on(&model.open_device(), devices, options), model)
}

/// Runs `work` with an engine on the device that the environment selects. Fails if the lint warns
/// of a program. A software model is strict.
pub(crate) fn watched(options: PlanOptions, work: impl FnOnce(&Engine)) {
    let strict = |options: &mut ModelOptions| options.level = Level::Strict;
    let opened = npu_model::open_with(&Selector::from_env(), strict).unwrap();
    let engine = engine_on(&opened.device, DEVICES, any_tile(options));
    work(&engine.observed_by(Arc::new(Lint)));
    if let Some(model) = opened.model {
        assert_eq!(model.events(), []);
    }
}

/// Fails on programs that the lint warns of.
#[derive(Debug)]
pub(crate) struct Lint;

impl Observer for Lint {
    fn submitting(&self, submission: &JobEvent<'_>) {
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

/// Eight numbers from each random number, since some tests need many.
pub(crate) fn random_i8(seed: u64, len: usize) -> Vec<i8> {
    let mut random = Random::new(seed);
    let bytes = std::iter::repeat_with(|| random.next().to_le_bytes());
    bytes.flatten().take(len).map(u8::cast_signed).collect()
}

pub(crate) fn random_i4(seed: u64, len: usize) -> Vec<i8> {
    // An arithmetic shift keeps the sign.
    random_i8(seed, len).into_iter().map(|x| x >> 4).collect()
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

/// As [`random_f16`].
pub(crate) fn random_f32(seed: u64, len: usize) -> Vec<f32> {
    random_f16(seed, len).into_iter().map(f32::from).collect()
}
