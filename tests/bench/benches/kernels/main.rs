// SPDX-License-Identifier: MIT OR Apache-2.0
//! Measures how fast the CPU packs and unpacks matmuls: bytes read plus written
//! per second, beside memcpy's in the same run.
//!
//! `cargo bench -p npu-bench --bench kernels` prints a table at the end. An
//! argument selects kernels by name. memcpy runs before each run of a kernel,
//! and the best runs are compared, so that other load affects both alike.

#![allow(missing_docs, unreachable_pub, clippy::unwrap_used, clippy::panic)]

use std::time::{Duration, Instant};

use criterion::Criterion;
use npu_bench::host;
use npu_bench::kernels::{self, Size};
use rayon::prelude::*;
use rayon::{ThreadPool, ThreadPoolBuilder};

/// Bytes of the larger side of each kernel, and of each side of memcpy.
const BUFFER: usize = 64 << 20;

const SIZE: Size = Size {
    bytes: BUFFER,
    tile_rows: 512,
};

/// Numbers of threads that are compared.
const THREADS: [usize; 2] = [1, 2];

struct Row {
    name: &'static str,
    threads: usize,
    bytes: usize,
    best: Duration,
    memcpy: Duration,
}

impl Row {
    /// The kernel's bytes per second, relative to memcpy's.
    fn ratio(&self) -> f64 {
        self.rate() / (2 * BUFFER) as f64 * self.memcpy.as_secs_f64()
    }

    fn rate(&self) -> f64 {
        self.bytes as f64 / self.best.as_secs_f64()
    }
}

/// The yardstick; its buffers are not the kernel's.
struct Memcpy {
    from: Vec<u8>,
    to: Vec<u8>,
}

impl Memcpy {
    fn run(&mut self, pool: &ThreadPool) -> Duration {
        let part = BUFFER / pool.current_num_threads();
        let start = Instant::now();
        pool.install(|| {
            let parts = self.to.par_chunks_mut(part).zip(self.from.par_chunks(part));
            parts.for_each(|(to, from)| to.copy_from_slice(from));
        });
        start.elapsed()
    }
}

fn main() {
    let mut criterion = Criterion::default()
        .sample_size(20)
        .warm_up_time(Duration::from_millis(300))
        .measurement_time(Duration::from_secs(3))
        .configure_from_args();
    let mut memcpy = Memcpy {
        from: vec![1; BUFFER],
        to: vec![2; BUFFER],
    };
    let mut rows = Vec::new();
    for threads in THREADS {
        let pool = ThreadPoolBuilder::new()
            .num_threads(threads)
            .build()
            .unwrap();
        let mut group = criterion.benchmark_group(format!("{threads} threads"));
        for mut kernel in kernels::all(SIZE) {
            let (mut best, mut yardstick) = (Duration::MAX, Duration::MAX);
            group.bench_function(kernel.name, |b| {
                b.iter_custom(|times| {
                    let mut total = Duration::ZERO;
                    for _ in 0..times {
                        yardstick = yardstick.min(memcpy.run(&pool));
                        let start = Instant::now();
                        pool.install(|| (kernel.run)());
                        let elapsed = start.elapsed();
                        best = best.min(elapsed);
                        total += elapsed;
                    }
                    total
                });
            });
            if best < Duration::MAX {
                rows.push(Row {
                    name: kernel.name,
                    threads,
                    bytes: kernel.bytes,
                    best,
                    memcpy: yardstick,
                });
            }
        }
    }
    criterion.final_summary();
    print(&rows);
}

/// Prints the table: each kernel relative to memcpy with as many threads, and
/// its gain from a second thread relative to memcpy's.
fn print(rows: &[Row]) {
    println!("{}; buffers of 64 MiB", host::conditions());
    println!("| kernel | GB/s | memcpy GB/s | ratio | ratio, 2 threads | scaling / memcpy's |");
    println!("|---|---|---|---|---|---|");
    for one in rows.iter().filter(|row| row.threads == 1) {
        let two = rows
            .iter()
            .find(|row| row.threads == 2 && row.name == one.name);
        // Both scalings: (two / one) / (memcpy two / memcpy one).
        let (ratio, scaling) = two.map_or_else(Default::default, |two| {
            let ratio = two.ratio();
            (format!("{ratio:.2}"), format!("{:.2}", ratio / one.ratio()))
        });
        println!(
            "| {} | {:.1} | {:.1} | {:.2} | {ratio} | {scaling} |",
            one.name,
            one.rate() / 1e9,
            (2 * BUFFER) as f64 / one.memcpy.as_secs_f64() / 1e9,
            one.ratio(),
        );
    }
}
