// SPDX-License-Identifier: MIT OR Apache-2.0
//! Measures the CPU cost of a matmul beside the NPU's own work: time that the calling thread and
//! the engine's one worker ran, as the kernel's scheduler counts it. The threads of the software
//! model are not counted.
//!
//! `cargo bench -p npu-matmul`. Figures are of this host, for comparing versions of
//! the engine and ways to call it; a board's are unknown.

#![allow(missing_docs, clippy::unwrap_used)]

use std::sync::LazyLock;
use std::{fs, thread};

use npu_matmul::{Engine, PackedWeights, Weights};
use npu_model::{Model, ModelOptions};
use rocket_uapi::DevicePool;

/// Rows, depth and output channels: Gemma3-1B's query for a few sequences and for a prompt, and its
/// gate for a prompt.
const SHAPES: [[usize; 3]; 3] = [[8, 1152, 1024], [128, 1152, 1024], [128, 1152, 6912]];

/// Layers, experts per layer, and depth and output channels of an expert's gate: OLMoE's.
const LAYERS: usize = 16;
const EXPERTS: usize = 64;
const EXPERT: [usize; 2] = [2048, 1024];

/// Most rows of an expert in a micro-batch of 512 tokens: twice the mean.
const EXPERT_ROWS: u64 = 128;

const BATCHES: usize = 4;

/// Matmuls of each way; the ways alternate.
const ROUNDS: usize = 20;

/// The name of the main thread.
static MAIN: LazyLock<String> = LazyLock::new(|| fs::read_to_string("/proc/self/comm").unwrap());

/// Nanoseconds that this thread and the engine's worker have run.
fn thread_time() -> u64 {
    let names = [MAIN.trim(), "npu-cpu-0"];
    // The scheduler counts this thread's time at a tick, or when it yields.
    thread::yield_now();
    let threads = fs::read_dir("/proc/self/task").unwrap();
    let thread_ticks = |thread: fs::DirEntry| -> Option<u64> {
        let name = fs::read_to_string(thread.path().join("comm")).ok()?;
        if !names.contains(&name.trim()) {
            return None;
        }
        let times = fs::read_to_string(thread.path().join("schedstat")).ok()?;
        times.split_whitespace().next()?.parse().ok()
    };
    threads
        .filter_map(|thread| thread_ticks(thread.unwrap()))
        .sum()
}

/// A way to compute a matmul.
type Way<'a> = (&'a str, Box<dyn FnMut() + 'a>);

/// Runs the ways in turns; returns the median of each, microseconds.
fn medians(ways: &mut [Way<'_>]) -> Vec<f64> {
    let mut times = vec![Vec::new(); ways.len()];
    for round in 0..=ROUNDS {
        for (way, times) in ways.iter_mut().zip(&mut times) {
            let before = thread_time();
            way.1();
            // The first run allocates buffers and makes programs.
            if round > 0 {
                times.push(thread_time() - before);
            }
        }
    }
    let median = |mut times: Vec<u64>| {
        times.sort_unstable();
        times[times.len() / 2] as f64 / 1e3
    };
    times.into_iter().map(median).collect()
}

/// Measures the experts of all layers, whose rows differ by layer: their CPU time, and the share of
/// preparing plans and tile addresses. All layers use the same weights, which saves memory and
/// changes neither.
fn experts(engine: &Engine) {
    let [k, n] = EXPERT;
    let b = vec![5_i8; n * k];
    let weights: Vec<_> = (0..EXPERTS)
        .map(|_| engine.load(Weights::i8(n, k, &b)).unwrap())
        .collect();
    println!(
        "\n{LAYERS} layers of {EXPERTS} experts of {k}x{n}, int8: CPU time of a micro-batch, \
         milliseconds"
    );
    println!("| batch | all | preparing | share | plans searched so far |");
    println!("|---|---|---|---|---|");
    let before = engine.counters().plans;
    let mut random = 1_u64;
    let a = vec![3_i8; EXPERT_ROWS as usize * k];
    for batch in 1..=BATCHES {
        let (mut all, mut preparing) = (0, 0);
        for _ in 0..LAYERS {
            let rows = weights.iter().map(|_| {
                // Knuth's generator; its high bits are good.
                random = (random.wrapping_mul(6_364_136_223_846_793_005)).wrapping_add(1);
                1 + ((random >> 33) % EXPERT_ROWS) as usize
            });
            let rows: Vec<_> = rows.collect();
            let mut out: Vec<_> = rows.iter().map(|m| vec![0_i32; m * n]).collect();
            let start = thread_time();
            let gemms: Vec<_> = (weights.iter().zip(&rows))
                .map(|(weights, &m)| engine.prepare(weights, m).unwrap())
                .collect();
            preparing += thread_time() - start;
            let calls = gemms.iter().zip(&rows).zip(&mut out);
            let calls = calls.map(|((gemm, &m), c)| gemm.call(&a[..m * k], c));
            engine.run(calls).unwrap();
            all += thread_time() - start;
        }
        let [all, preparing] = [all, preparing].map(|nanoseconds| nanoseconds as f64 / 1e6);
        let share = preparing / all * 100.0;
        let plans = engine.counters().plans - before;
        println!("| {batch} | {all:.1} | {preparing:.2} | {share:.1} % | {plans} |");
    }
}

fn main() {
    let device = Model::new(ModelOptions::default()).open_device();
    let pool = DevicePool::open(&device, 3).unwrap();
    let engine = Engine::open(pool).unwrap();
    let engine = engine.with_threads("1".parse().unwrap()).unwrap();
    println!("CPU time of a product, median of {ROUNDS}, microseconds");
    println!("| product | int8, prepared | int8, prepared anew | w8a8 | w8a8 rotated |");
    println!("|---|---|---|---|---|");
    for [m, k, n] in SHAPES {
        let (a, b) = (vec![3_i8; m * k], vec![5_i8; n * k]);
        let (x, w) = (vec![0.5_f32; m * k], vec![0.25_f32; n * k]);
        let load = |weights| -> PackedWeights { engine.load(weights).unwrap() };
        let [bytes, plain, rotated] = [
            load(Weights::i8(n, k, &b)),
            load(Weights::w8a8(n, k, &w)),
            load(Weights::w8a8(n, k, &w).rotated()),
        ];
        let prepare = |weights| engine.prepare(weights, m).unwrap();
        let [int8, floats, turned] = [prepare(&bytes), prepare(&plain), prepare(&rotated)];
        let mut sums = [vec![0_i32; m * n], vec![0_i32; m * n]];
        let mut results = [vec![0.0_f32; m * n], vec![0.0_f32; m * n]];
        let [once, anew] = &mut sums;
        let [plain_c, rotated_c] = &mut results;
        let mut ways: [Way<'_>; 4] = [
            ("prepared", Box::new(|| int8.run(&a, &mut *once).unwrap())),
            (
                "anew",
                Box::new(|| prepare(&bytes).run(&a, &mut *anew).unwrap()),
            ),
            ("w8a8", Box::new(|| floats.run(&x, &mut *plain_c).unwrap())),
            (
                "rotated",
                Box::new(|| turned.run(&x, &mut *rotated_c).unwrap()),
            ),
        ];
        let [once, anew, plain, rotated] = medians(&mut ways)[..] else {
            return;
        };
        println!("| {m}x{k}x{n} | {once:.0} | {anew:.0} | {plain:.0} | {rotated:.0} |");
    }
    experts(&engine);
}
