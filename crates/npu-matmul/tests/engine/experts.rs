// SPDX-License-Identifier: MIT OR Apache-2.0
//! Mixtures of experts with as many matrices as published models. The mappings, descriptors and
//! device memory of a process stay constant after the second micro-batch, and so does the number of
//! plans.
//!
//! Matrices are small, so that 50 micro-batches take seconds, not hours: the counts depend only on
//! the number of matrices and of their rows. Each test counts all mappings of its process, so it
//! runs in a separate one, with the 1,024 descriptors of an ordinary login.

use std::collections::BTreeSet;
use std::fs;
use std::process::Command;

use npu_matmul::{Engine, PackedWeights, PlanOptions, Weights, reference};
use npu_model::{Model, ModelOptions};

use crate::common::{Random, engine_on, multiply_all, random_i8};

/// Set in the process with few descriptors.
const IN_LOGIN: &str = "NPU_MATMUL_TEST_IN_LOGIN";

/// Tokens of a micro-batch.
const TOKENS: usize = 96;
/// Experts of a token.
const USED: usize = 8;
/// Width of the model and of its experts.
const WIDTH: usize = 64;

/// The matrices of a model.
#[derive(Clone, Copy)]
struct Mixture {
    layers: usize,
    experts: usize,
}

/// OLMoE-1B-7B.
const OLMOE: Mixture = Mixture {
    layers: 16,
    experts: 64,
};

/// Qwen3-30B-A3B.
const QWEN3: Mixture = Mixture {
    layers: 48,
    experts: 128,
};

/// Most mappings of a process without buffer objects.
const HOST_MAPPINGS: u64 = 100;

/// Allowed change of each count since the second micro-batch if rows differ between batches: one
/// part in this number. Buffers are kept for the next job of exactly their size: as many of each
/// size as any batch so far used at once. A batch with more jobs of many rows at once adds some.
/// The memory plan counts them as kept buffers.
const FEWEST_OF_ONE_MORE: u64 = 25;

/// File descriptors of the driver.
const DEVICES: usize = 2;

/// Matrices of an expert.
const OF_AN_EXPERT: usize = 3;

/// Resources of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Held {
    mappings: u64,
    descriptors: u64,
    device_bytes: u64,
    plans: u64,
}

impl Held {
    fn now(engine: &Engine, model: &Model) -> Self {
        let mappings = fs::read_to_string("/proc/self/maps").unwrap();
        Self {
            mappings: mappings.lines().count() as u64,
            descriptors: fs::read_dir("/proc/self/fd").unwrap().count() as u64,
            device_bytes: model.allocated_bytes().iter().sum(),
            plans: engine.counters().plans,
        }
    }
}

/// One kind of matrix, for all experts of a layer.
struct Matrices {
    seed: u64,
    experts: Vec<PackedWeights>,
}

impl Matrices {
    fn b(seed: u64, expert: usize) -> Vec<i8> {
        random_i8(seed + expert as u64, WIDTH * WIDTH)
    }

    fn load(engine: &Engine, seed: u64, experts: usize) -> Self {
        let load = |expert| engine.load(Weights::i8(WIDTH, WIDTH, &Self::b(seed, expert)));
        let experts = (0..experts).map(|expert| load(expert).unwrap()).collect();
        Self { seed, experts }
    }

    /// Multiplies the rows of each expert, and checks one of them.
    fn multiply(&self, engine: &Engine, rows: &[usize], checked: usize) {
        let a = random_i8(1, rows.iter().max().unwrap() * WIDTH);
        let a = |rows: usize| &a[..rows * WIDTH];
        let mut out: Vec<_> = rows.iter().map(|rows| vec![0; rows * WIDTH]).collect();
        let used = self.experts.iter().zip(rows).zip(&mut out);
        let used = used.filter(|((_, rows), _)| **rows > 0);
        let matmuls = used.map(|((weights, &rows), c)| (weights, rows, a(rows).into(), c.into()));
        multiply_all(engine, matmuls.collect()).unwrap();
        let (m, b) = (rows[checked], Self::b(self.seed, checked));
        let expected = reference::multiply_i32(m, WIDTH, WIDTH, a(m), &b);
        assert!(out[checked] == expected, "expert {checked}");
    }
}

/// The number of tokens of each expert: some experts get far more than others.
fn route(random: &mut Random, experts: usize) -> Vec<usize> {
    let mut rows = vec![0; experts];
    for _ in 0..TOKENS {
        let mut used = Vec::new();
        while used.len() < USED {
            let [one, other] = [(); 2].map(|()| random.next() as usize % experts);
            let expert = one.min(other);
            if !used.contains(&expert) {
                used.push(expert);
                rows[expert] += 1;
            }
        }
    }
    rows
}

/// The experts of the tokens in a micro-batch.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Routes {
    /// Different in each batch.
    Random,
    /// The same in each batch.
    Same,
}

fn run(Mixture { layers, experts }: Mixture, batches: usize, routes: Routes) {
    let model = Model::new(ModelOptions::default());
    // Jobs have several tasks, as with wider matrices.
    let options = PlanOptions {
        k_tile: Some(WIDTH / 2),
        ..PlanOptions::default()
    };
    let engine = engine_on(&model.open_device(), DEVICES, options);
    let mut memory = engine.memory_plan();
    let load = |index| Matrices::load(&engine, (index * experts) as u64, experts);
    let weights: Vec<_> = (0..layers * OF_AN_EXPERT).map(load).collect();
    for loaded in weights.iter().flat_map(|matrices| &matrices.experts) {
        memory.add(loaded.plan()).unwrap();
    }
    let mut random = Random::new(7);
    let mut rows_seen = BTreeSet::new();
    let mut after = Vec::new();
    for _ in 0..batches {
        if routes == Routes::Same {
            random = Random::new(7);
        }
        for layer in weights.chunks(OF_AN_EXPERT) {
            let rows = route(&mut random, experts);
            rows_seen.extend(rows.iter().filter(|rows| **rows > 0).copied());
            for matrices in layer {
                matrices.multiply(&engine, &rows, random.next() as usize % experts);
            }
        }
        let held = Held::now(&engine, &model);
        // One plan for each number of rows, however many matrices there are.
        assert_eq!(held.plans, rows_seen.len() as u64);
        after.push(held);
    }
    let (second, last) = (after[1], after.last());
    eprintln!("{layers} x {experts} x {OF_AN_EXPERT}: {second:?} {last:?}");
    let planned = memory.mappings_at_most();
    let ram: u64 = (0..DEVICES)
        .map(|device| memory.device_at_most(device))
        .sum();
    for (batch, held) in after.iter().enumerate() {
        let mappings = held.mappings.saturating_sub(HOST_MAPPINGS);
        assert!(mappings <= planned, "after {batch}: {held:?} of {planned}");
        assert!(held.device_bytes <= ram, "after {batch}");
    }
    for (batch, held) in after.iter().enumerate().skip(2) {
        for (now, before) in [
            (held.mappings, second.mappings),
            (held.descriptors, second.descriptors),
            (held.device_bytes, second.device_bytes),
        ] {
            let same = now.abs_diff(before) <= before / FEWEST_OF_ONE_MORE;
            assert!(same, "after {batch}: {held:?}, before {second:?}");
        }
        if routes == Routes::Same {
            // Not the mappings: the host's allocator has some, too.
            assert_eq!(held.device_bytes, second.device_bytes, "after {batch}");
            assert_eq!(held.descriptors, second.descriptors, "after {batch}");
        }
    }
}

/// Runs `test` in a process with as many descriptors as a login.
fn in_login(test: &str, run: impl FnOnce()) {
    if test_support::emulated() {
        println!("SKIP {test}: hours of an emulator, whose programs start no others");
        return;
    }
    if std::env::var_os(IN_LOGIN).is_some() {
        return run();
    }
    let this = std::env::current_exe().unwrap();
    let login = Command::new("sh")
        .args(["-c", "ulimit -n 1024 && exec \"$0\" \"$@\""])
        .arg(this)
        .args(["--nocapture", "--include-ignored", "--exact"])
        .arg(format!("experts::{test}"))
        .env(IN_LOGIN, "1")
        .status();
    let status = login.unwrap();
    assert!(status.success(), "{status}");
}

#[test]
fn olmoe_holds_the_same_after_each_of_50_micro_batches() {
    let test = "olmoe_holds_the_same_after_each_of_50_micro_batches";
    in_login(test, || run(OLMOE, 50, Routes::Random));
}

#[test]
fn olmoe_holds_the_same_with_the_same_routes() {
    let test = "olmoe_holds_the_same_with_the_same_routes";
    in_login(test, || run(OLMOE, 8, Routes::Same));
}

#[test]
fn qwen3_holds_the_same_after_each_micro_batch() {
    in_login("qwen3_holds_the_same_after_each_micro_batch", || {
        run(QWEN3, 3, Routes::Random)
    });
}

#[test]
#[ignore = "takes ten minutes on two cores: `cargo xtask ci --long` has it"]
fn qwen3_holds_the_same_after_each_of_50_micro_batches() {
    let test = "qwen3_holds_the_same_after_each_of_50_micro_batches";
    in_login(test, || run(QWEN3, 50, Routes::Random));
}
