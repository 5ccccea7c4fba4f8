// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs one kernel a number of times without output, for a program that counts
//! executed instructions: `kernel-runs NAME TIMES`. Without arguments it lists
//! the kernels: elements, bytes, name.
//!
//! It uses one thread and allocates operands before the first run, so two
//! counts differ only by whole runs.

use std::env;

use npu_bench::kernels::{Size, all};
use rayon::ThreadPoolBuilder;

/// Small, since each executed instruction takes a line: the smallest size with
/// whole tiles for each kernel.
const SIZE: Size = Size {
    bytes: 1 << 18,
    tile_rows: 16,
};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [name, times] = &arguments[..] else {
        for kernel in all(SIZE) {
            println!("{} {} {}", kernel.elements, kernel.bytes, kernel.name);
        }
        return Ok(());
    };
    // Only this thread.
    ThreadPoolBuilder::new()
        .num_threads(1)
        .use_current_thread()
        .build_global()?;
    let times: u32 = times.parse()?;
    let mut kernel = all(SIZE)
        .find(|kernel| kernel.name == name)
        .ok_or_else(|| format!("no kernel `{name}`"))?;
    for _ in 0..times {
        (kernel.run)();
    }
    Ok(())
}
