// SPDX-License-Identifier: MIT OR Apache-2.0
//! Measures the speed of the software NPU, beside that of the fastest matrix
//! product on crates.io (or of memcpy) on the same host.
//!
//! `cargo bench -p npu-bench`; the ratios at the end compare the best runs. An
//! argument selects groups by name.

#![allow(missing_docs, unreachable_pub, clippy::unwrap_used, clippy::panic)]

mod chip;
mod device;
mod yardstick;

use std::cell::RefCell;
use std::time::{Duration, Instant};

use criterion::Criterion;

use chip::ChipPrograms;
use families::matmul::{FP16_FP32, INT8_INT32};
use npu_bench::host;

/// Rows, inner dimension and columns of the large matmul.
const MATMUL: (usize, usize, usize) = (512, 4096, 4096);
/// Copies of inputs and outputs that exceed the caches together.
const BEYOND_CACHES: u32 = 64;
/// Threads of a device: one per NPU core.
const CORES: usize = 3;

/// Best time of every bench, in the order of the runs.
#[derive(Default)]
struct Best(RefCell<Vec<(String, String, Duration)>>);

impl Best {
    /// Measures `run` as `name` of `group`.
    fn bench(&self, c: &mut Criterion, group: &str, name: &str, mut run: impl FnMut()) {
        let mut best = Duration::MAX;
        c.benchmark_group(group).bench_function(name, |b| {
            b.iter_custom(|times| {
                let mut total = Duration::ZERO;
                for _ in 0..times {
                    let start = Instant::now();
                    run();
                    let elapsed = start.elapsed();
                    best = best.min(elapsed);
                    total += elapsed;
                }
                total
            });
        });
        // Without a run (filtered out) there is nothing to compare.
        if best < Duration::MAX {
            let row = (group.to_owned(), name.to_owned(), best);
            self.0.borrow_mut().push(row);
        }
    }

    /// Prints each group relative to its fastest yardstick.
    fn print(&self) {
        println!("{}", host::conditions());
        let rows = self.0.borrow();
        for (group, name, model) in rows.iter().filter(|row| row.1.starts_with("model")) {
            let others = rows.iter().filter(|row| row.0 == *group);
            let fastest = others
                .filter(|row| !row.1.starts_with("model"))
                .min_by_key(|row| row.2);
            if let Some((_, yardstick, time)) = fastest {
                println!(
                    "{group}: {name} {model:.2?}, {yardstick} {time:.2?}, ratio {:.2}",
                    model.as_secs_f64() / time.as_secs_f64()
                );
            }
        }
    }
}

fn main() {
    let mut criterion = Criterion::default()
        .sample_size(10)
        .warm_up_time(Duration::from_millis(200))
        .measurement_time(Duration::from_secs(3))
        .configure_from_args();
    let c = &mut criterion;
    let best = Best::default();

    for (ty, name) in [(INT8_INT32, "int8"), (FP16_FP32, "fp16")] {
        for threads in [1, CORES] {
            let group = &format!("{name} 512x4096x4096, {threads} threads");
            if ty == INT8_INT32 {
                yardstick::int8(c, &best, group, MATMUL, threads);
            } else {
                yardstick::fp16(c, &best, group, MATMUL, threads);
            }
            if threads == 1 {
                let mut task = None;
                best.bench(c, group, "model, 1 core", || {
                    task.get_or_insert_with(|| chip::matmul(ty, MATMUL)).run();
                });
            } else {
                let mut device = None;
                best.bench(c, group, "model, device", || {
                    let device =
                        device.get_or_insert_with(|| device::SplitMatmul::new(ty, MATMUL, threads));
                    device.run();
                });
            }
        }
    }

    let group = "int8 conv 3x3, 56x56x64 to 64";
    yardstick::convolution(c, &best, group);
    let mut task = ChipPrograms::convolution();
    best.bench(c, group, "model, 1 core", || task.run());

    // Once with the same memory in each run, once with other memory.
    for (group, copies) in [
        ("int8 depthwise 3x3, 112x112x64, cached", 1),
        ("int8 depthwise 3x3, 112x112x64, from memory", BEYOND_CACHES),
    ] {
        let mut task = ChipPrograms::depthwise(copies);
        yardstick::memcpy(c, &best, group, task.input, copies as usize);
        best.bench(c, group, "model, 1 core", || task.run_next());
    }

    let group = "fp16 max pooling 3x3 by 2, 112x112x64";
    let mut task = ChipPrograms::pooling();
    yardstick::memcpy(c, &best, group, task.input, 1);
    best.bench(c, group, "model, 1 core", || task.run());

    criterion.final_summary();
    best.print();
}
