// SPDX-License-Identifier: MIT OR Apache-2.0
//! Measures the CPU's share of a matmul: its kernels, memory and caches.

use std::time::{Duration, Instant};

use anyhow::Context;
use npu_kernels::multiply::{KernelGroups, multiply};
use npu_matmul::dtype::Dtype;
use npu_matmul::matrix::MatrixView;
use npu_matmul::pack::{Int8, pack_activation};
use npu_matmul::profile::{HostCores, KernelCost, UnpackTo};
use npu_matmul::unpack::{Destination, Mode, TileRows, unpack};
use rayon::prelude::*;
use rocket_uapi::{ByteLen, Deadline, Device};

use crate::base::exit::no_thread;

/// Number of runs; the shortest counts.
const REPEAT: usize = 9;

/// Rows and columns of a tile that fits a core's own caches, packed and unpacked.
const ROWS: usize = 64;
const COLUMNS: usize = 512;

/// Rows, channels and depth that a thread multiplies at a time in a job of INT8: a few rows with
/// weights that its second-level cache holds, half of the depth after half.
const JOB: [usize; 3] = [16, 256, 2048];

/// Bytes of a buffer that exceeds all caches.
pub(super) const LARGE: usize = 32 << 20;

/// The rate of caches that need no maintenance, bytes per second: a profile's maximum.
pub(super) const MAX_SYNC_RATE: f64 = 1e12;

/// Measures the CPU, and the caches with a buffer of this device.
pub(super) fn measure(device: &Device) -> anyhow::Result<HostCores> {
    let usual = HostCores::RK3588;
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let cores = usual.cores.min(u32::try_from(cpus).unwrap_or(1));
    // Threads run on slow and fast cores; the highest rate is that of a fast core. They are not
    // rayon's: RAYON_NUM_THREADS may leave slow cores only.
    let rates = std::thread::scope(|scope| {
        let start = |_| {
            let builder = std::thread::Builder::new();
            let started = builder.spawn_scoped(scope, kernel_instructions_per_second);
            started.ok()
        };
        let each: Vec<_> = (0..cpus).map_while(start).collect();
        let rates = each.into_iter().filter_map(|thread| thread.join().ok());
        rates.collect::<anyhow::Result<Vec<_>>>()
    })?;
    let executed = match rates.into_iter().reduce(f64::max) {
        Some(rate) => rate,
        None => kernel_instructions_per_second()?,
    };
    let copied = copied_bytes_per_second(cores as usize).context("cannot measure memory")?;
    let synced = synced_bytes_per_second(device).context("cannot measure cache maintenance")?;
    Ok(HostCores {
        cores,
        clock_hz: (executed / f64::from(usual.instructions_per_clock)) as u64,
        instructions_per_clock: usual.instructions_per_clock,
        bytes_per_second: copied as u64,
        sync_bytes_per_second: synced as u64,
    })
}

/// Seconds of the shortest of several runs.
pub(super) fn shortest(mut run: impl FnMut() -> anyhow::Result<()>) -> anyhow::Result<f64> {
    shortest_of(|| {
        let start = Instant::now();
        run()?;
        Ok(start.elapsed())
    })
}

/// The same, of the part of each run whose time `run` returns.
pub(super) fn shortest_of(
    mut run: impl FnMut() -> anyhow::Result<Duration>,
) -> anyhow::Result<f64> {
    let mut shortest = Duration::MAX;
    for _ in 0..REPEAT {
        shortest = shortest.min(run()?);
    }
    Ok(shortest.as_secs_f64().max(f64::MIN_POSITIVE))
}

/// Instructions per second of one core while it packs and reads, the unit of all kernels.
fn kernel_instructions_per_second() -> anyhow::Result<f64> {
    const TIMES: usize = 32;
    let (a, mut tile) = (vec![1_i8; ROWS * COLUMNS], vec![0_u8; ROWS * COLUMNS]);
    let view = MatrixView::new(&a, ROWS, COLUMNS);
    let packing = shortest(|| {
        for _ in 0..TIMES {
            if let Some(view) = view {
                pack_activation::<Int8>(view, ROWS, &mut tile);
            }
        }
        Ok(())
    })?;
    let (sums, mut c) = (vec![0_u8; ROWS * COLUMNS * 4], vec![0_i32; ROWS * COLUMNS]);
    let reading = shortest(|| {
        for _ in 0..TIMES {
            let from = TileRows {
                bytes: &sums,
                rows: ROWS,
                first: 0,
            };
            let to = Destination {
                rows: &mut c,
                stride: COLUMNS,
                columns: 0..COLUMNS,
            };
            unpack::<i32>(from, Mode::Add, to);
        }
        Ok(())
    })?;
    let [pack, read] = [
        KernelCost::pack(Dtype::Int8),
        KernelCost::unpack(Dtype::Int8, UnpackTo::CachedSum),
    ];
    let each = f64::from(pack.centi_instructions + read.centi_instructions) / 100.0;
    Ok(each * (ROWS * COLUMNS * TIMES) as f64 / (packing + reading))
}

/// Multiply-adds per second of this number of threads together, with the kernel of jobs that the
/// CPU computes. They divide the work as an engine's threads do.
pub(super) fn int8_macs_per_second(threads: u32) -> anyhow::Result<u64> {
    const TIMES: usize = 32;
    let [rows, channels, depth] = JOB;
    let threads = threads as usize;
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build();
    let pool = pool.map_err(std::io::Error::other).map_err(no_thread)?;
    let (a, weights) = (vec![1_i8; rows * depth], vec![1_i8; channels * depth]);
    let view = MatrixView::new(&a, rows, depth).context("no rows")?;
    let b = KernelGroups {
        weights: &weights,
        depth,
    };
    let count = threads * TIMES;
    let time = shortest(|| {
        let new_tile = || vec![0_i32; rows * channels];
        pool.install(|| {
            let all = (0..count).into_par_iter();
            all.for_each_init(new_tile, |tile, _| {
                multiply(view, b, Mode::Add, tile);
            });
        });
        Ok(())
    })?;
    Ok(((count * rows * channels * depth) as f64 / time) as u64)
}

/// Bytes per second that this number of threads read and write together.
fn copied_bytes_per_second(threads: usize) -> anyhow::Result<f64> {
    let (from, mut to) = (vec![1_u8; LARGE], vec![2_u8; LARGE]);
    let part = LARGE.div_ceil(threads.max(1));
    let time = shortest(|| {
        std::thread::scope(|scope| {
            for (to, from) in to.chunks_mut(part).zip(from.chunks(part)) {
                let copy = || to.copy_from_slice(from);
                let started = std::thread::Builder::new().spawn_scoped(scope, copy);
                // A rate of fewer threads would be misleading.
                started.map_err(no_thread)?;
            }
            Ok(())
        })
    })?;
    Ok(2.0 * LARGE as f64 / time)
}

/// Bytes per second that PREP_BO, or FINI_BO, passes.
fn synced_bytes_per_second(device: &Device) -> anyhow::Result<f64> {
    let mut bo = device.alloc(ByteLen::new(LARGE)?)?;
    bo.write(Deadline::FOREVER)?.fill(1);
    let time = shortest(|| Ok(bo.write(Deadline::FOREVER)?.finish()?))?;
    Ok((2.0 * LARGE as f64 / time).min(MAX_SYNC_RATE))
}

#[cfg(test)]
mod tests {
    use npu_model::{Model, ModelOptions};

    use super::*;

    #[test]
    fn every_rate_is_one_of_a_profile() {
        let device = Model::new(ModelOptions::default()).open_device();
        let mut profile = npu_matmul::Profile::clone(&npu_matmul::Profile::built_in());
        profile.host = measure(&device).unwrap();
        let int8 = int8_macs_per_second(profile.host.cores).unwrap();
        profile.int8_macs_per_second = Some(int8);
        let json = profile.to_json().unwrap();
        let read = npu_matmul::Profile::from_json(json.as_bytes());
        assert_eq!(read.unwrap(), profile);
    }
}
