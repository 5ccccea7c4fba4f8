// SPDX-License-Identifier: MIT OR Apache-2.0
//! Measures how fast the CPU packs and unpacks matmuls: bytes read plus written
//! per second, beside memcpy's in the same run.
//!
//! `cargo bench -p npu-kernels` prints a table. An argument selects kernels by a
//! part of their names. memcpy runs before each run of a kernel, and the best runs
//! are compared, so that other load affects both alike.

#![allow(missing_docs, clippy::unwrap_used)]

mod all;
mod host;

use std::time::{Duration, Instant};

use all::{BUFFER, Kernel};
use rayon::prelude::*;
use rayon::{ThreadPool, ThreadPoolBuilder};

/// How long each kernel runs.
const TIME: Duration = Duration::from_secs(3);

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

impl Row {
    /// Measures a kernel in this pool.
    fn measure(mut kernel: Kernel, pool: &ThreadPool, memcpy: &mut Memcpy) -> Self {
        let mut row = Self {
            name: kernel.name,
            threads: pool.current_num_threads(),
            bytes: kernel.bytes,
            best: Duration::MAX,
            memcpy: Duration::MAX,
        };
        let begin = Instant::now();
        while begin.elapsed() < TIME {
            row.memcpy = row.memcpy.min(memcpy.run(pool));
            let start = Instant::now();
            pool.install(|| (kernel.run)());
            row.best = row.best.min(start.elapsed());
        }
        row
    }
}

fn main() {
    // cargo passes --bench.
    let part = std::env::args().skip(1).find(|word| !word.starts_with('-'));
    let part = part.unwrap_or_default();
    let mut memcpy = Memcpy {
        from: vec![1; BUFFER],
        to: vec![2; BUFFER],
    };
    let mut rows = Vec::new();
    for threads in THREADS {
        let pool = ThreadPoolBuilder::new().num_threads(threads).build();
        let pool = pool.unwrap();
        let chosen = all::all().filter(|kernel| kernel.name.contains(&part));
        rows.extend(chosen.map(|kernel| Row::measure(kernel, &pool, &mut memcpy)));
    }
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
