// SPDX-License-Identifier: MIT OR Apache-2.0
//! Several products at once are the same as one after the other.
#![allow(
    clippy::unwrap_used,
    reason = "helpers of tests: a failed unwrap is a failed test"
)]

mod common;

use common::{
    DEVICES, Random, engine, engine_with, random_f16, random_i4, random_i8, strict_engine,
};
use half::f16;
use npu_matmul::plan::JobLimits;
use npu_matmul::{Counters, Engine, Error, PlanOptions, Weights};
use proptest::prelude::*;
use rknpu_regcmd::timing::Machine;

/// Activations and weights of one product.
enum Operands {
    Int8(Vec<i8>, Weights),
    Int4(Vec<i8>, Weights),
    W4A8(Vec<i8>, Weights),
    Fp16(Vec<f16>, Weights),
}

/// Results of one product.
#[derive(Debug, PartialEq)]
enum Result {
    Integers(Vec<i32>),
    Floats(Vec<f32>),
}

struct Case {
    m: usize,
    operands: Operands,
}

impl Case {
    fn random(engine: &Engine, seed: u64) -> Self {
        let mut random = Random::new(seed);
        let mut size = |most: u64| (random.next() % most + 1) as usize;
        let (m, n, k) = (size(40), size(90), size(200));
        let kind = size(4);
        let operands = match kind {
            1 => Operands::Int8(
                random_i8(seed, m * k),
                engine.load_i8(n, k, &random_i8(seed + 1, n * k)).unwrap(),
            ),
            2 => Operands::Int4(
                random_i4(seed, m * k),
                engine.load_i4(n, k, &random_i4(seed + 1, n * k)).unwrap(),
            ),
            3 => Operands::W4A8(
                random_i8(seed, m * k)
                    .iter()
                    .map(|x| (*x).min(119))
                    .collect(),
                engine.load_i4(n, k, &random_i4(seed + 1, n * k)).unwrap(),
            ),
            _ => Operands::Fp16(
                random_f16(seed, m * k),
                engine.load_f16(n, k, &random_f16(seed + 1, n * k)).unwrap(),
            ),
        };
        Self { m, operands }
    }

    fn room(&self) -> Result {
        let len = self.m * self.weights().n();
        match self.operands {
            Operands::Fp16(..) => Result::Floats(vec![f32::NAN; len]),
            _ => Result::Integers(vec![0x5a5a_5a5a; len]),
        }
    }

    fn weights(&self) -> &Weights {
        match &self.operands {
            Operands::Int8(_, b) | Operands::Int4(_, b) => b,
            Operands::W4A8(_, b) | Operands::Fp16(_, b) => b,
        }
    }

    fn alone(&self, engine: &Engine) -> Result {
        let mut out = self.room();
        let m = self.m;
        match (&self.operands, &mut out) {
            (Operands::Int8(a, b) | Operands::Int4(a, b), Result::Integers(c)) => {
                engine.multiply_i32(b, m, a, c).unwrap();
            }
            (Operands::W4A8(a, b), Result::Integers(c)) => {
                engine.multiply_w4a8_i32(b, m, a, c).unwrap();
            }
            (Operands::Fp16(a, b), Result::Floats(c)) => engine.multiply_f32(b, m, a, c).unwrap(),
            _ => unreachable!(),
        }
        out
    }
}

fn together(engine: &Engine, cases: &[Case]) -> Vec<Result> {
    let mut results: Vec<_> = cases.iter().map(Case::room).collect();
    let mut batch = engine.batch();
    for (case, out) in cases.iter().zip(&mut results) {
        let m = case.m;
        match (&case.operands, out) {
            (Operands::Int8(a, b) | Operands::Int4(a, b), Result::Integers(c)) => {
                batch.multiply_i32(b, m, a, c).unwrap();
            }
            (Operands::W4A8(a, b), Result::Integers(c)) => {
                batch.multiply_w4a8_i32(b, m, a, c).unwrap();
            }
            (Operands::Fp16(a, b), Result::Floats(c)) => batch.multiply_f32(b, m, a, c).unwrap(),
            _ => unreachable!(),
        }
    }
    assert_eq!(batch.len(), cases.len());
    batch.run().unwrap();
    results
}

proptest! {
    #![proptest_config(test_support::cases(16))]

    /// Also where a wave has no room for two products, or a product has many
    /// steps.
    #[test]
    fn a_batch_gives_what_its_products_give(seed in any::<u32>(), small in any::<bool>()) {
        let mut options = PlanOptions::default();
        if small {
            options.limits = JobLimits { buffer_bytes: 4096, tasks: 2, ..options.limits };
            options.row_tile = Some(4);
            options.k_tile = Some(32);
        }
        let (engine, model) = strict_engine(options, DEVICES);
        let count = u64::from(seed % 12);
        let cases: Vec<_> = (0..count)
            .map(|index| Case::random(&engine, u64::from(seed) + 7 * index))
            .collect();
        let expected: Vec<_> = cases.iter().map(|case| case.alone(&engine)).collect();
        prop_assert_eq!(together(&engine, &cases), expected);
        prop_assert_eq!(model.events(), []);
    }
}

/// What the engine did meanwhile.
fn counted(engine: &Engine, work: impl FnOnce()) -> Counters {
    let before = engine.counters();
    work();
    let after = engine.counters();
    Counters {
        products: after.products - before.products,
        submits: after.submits - before.submits,
        jobs: after.jobs - before.jobs,
        bytes_to_device: after.bytes_to_device - before.bytes_to_device,
        ..Counters::default()
    }
}

#[test]
fn shared_activations_are_packed_once_and_all_is_one_submit_a_device() {
    let engine = engine();
    let (m, n, k) = (32, 96, 256);
    let a = random_i8(1, m * k);
    let weights: Vec<_> = (0..3)
        .map(|seed| engine.load_i8(n, k, &random_i8(seed, n * k)).unwrap())
        .collect();
    let mut alone = vec![vec![0; m * n]; 3];
    let mut multiply_alone = || {
        for (b, c) in weights.iter().zip(&mut alone) {
            engine.multiply_i32(b, m, &a, c).unwrap();
        }
    };
    let mut shared = vec![vec![0; m * n]; 3];
    let mut multiply_shared = || {
        let mut batch = engine.batch();
        for (b, c) in weights.iter().zip(&mut shared) {
            batch.multiply_i32(b, m, &a, c).unwrap();
        }
        batch.run().unwrap();
    };
    let [one_by_one, at_once] = [
        counted(&engine, &mut multiply_alone),
        counted(&engine, &mut multiply_shared),
    ];
    assert_eq!(one_by_one.jobs, at_once.jobs);
    assert_eq!((one_by_one.products, at_once.products), (3, 3));
    assert_eq!(one_by_one.submits, one_by_one.jobs);
    assert_eq!(3 * at_once.submits, at_once.jobs);
    // Programs, which are made once for the addresses of each, come on top.
    let packed = engine
        .plan(&weights[0], m)
        .unwrap()
        .predict(&Machine::RK3588)
        .packed_bytes;
    let programs = one_by_one.bytes_to_device - 3 * packed;
    assert!(at_once.bytes_to_device <= packed + programs, "{at_once:?}");
    assert_eq!(shared, alone);
    // Equal contents elsewhere are other activations, and no less right.
    let copy = a.clone();
    let mut c = [vec![0; m * n], vec![0; m * n]];
    let mut batch = engine.batch();
    for (a, c) in [&a, &copy].into_iter().zip(&mut c) {
        batch.multiply_i32(&weights[0], m, a, c).unwrap();
    }
    batch.run().unwrap();
    assert!(c.iter().all(|c| *c == shared[0]));
}

#[test]
fn the_caller_goes_on_while_the_npu_computes() {
    let engine = engine_with(PlanOptions::default(), 2);
    let mut cases = (0..).map(|seed| Case::random(&engine, seed));
    let case = cases.find(|case| matches!(case.operands, Operands::Int4(..)));
    let case = case.unwrap();
    let (Operands::Int4(a, b), Result::Integers(mut c)) = (&case.operands, case.room()) else {
        unreachable!();
    };
    let expected = case.alone(&engine);
    let mut batch = engine.batch();
    batch.multiply_i32(b, case.m, a, &mut c).unwrap();
    let submitted = batch.submit().unwrap();
    // On the same devices.
    assert_eq!(case.alone(&engine), expected);
    submitted.wait().unwrap();
    assert_eq!(Result::Integers(c), expected);

    // Whoever loses interest loses nothing else.
    let mut lost = case.room();
    if let Result::Integers(c) = &mut lost {
        let mut batch = engine.batch();
        batch.multiply_i32(b, case.m, a, c).unwrap();
        drop(batch.submit().unwrap());
    }
    assert_eq!(case.alone(&engine), expected);
    assert!(engine.batch().is_empty());
    engine.batch().run().unwrap();
}

#[test]
fn what_does_not_fit_is_refused_and_the_rest_goes_on() {
    let engine = engine();
    let b = engine.load_i8(4, 8, &random_i8(1, 32)).unwrap();
    let a = random_i8(2, 16);
    let (mut c, mut short) = (vec![0; 8], vec![0; 7]);
    let mut batch = engine.batch();
    batch.multiply_i32(&b, 2, &a, &mut c).unwrap();
    let refused = batch.multiply_i32(&b, 2, &a, &mut short);
    assert!(matches!(
        refused,
        Err(Error::OperandLength { operand: "C", .. })
    ));
    assert_eq!(batch.len(), 1);
    batch.run().unwrap();
    let mut alone = vec![0; 8];
    engine.multiply_i32(&b, 2, &a, &mut alone).unwrap();
    assert_eq!(c, alone);
}
