// SPDX-License-Identifier: MIT OR Apache-2.0
//! Random calls on the driver, from several files and threads. Errors must be
//! documented ones, the memory of other files must stay, and the NPU must compute
//! afterwards.
//!
//! The calls come in rounds. Each begins with new files and a new seed. The seed
//! alone repeats the calls; their results also depend on the timing of the threads.
//!
//! `tests/fuzz` makes such calls from a fuzzer's bytes.

mod choices;
mod jobs;
mod share;
mod world;

use std::thread;

use rocket_uapi::{Device, PAGE_BYTES, sys};

use crate::bench::settle;
use crate::busy::{patience, quick};
use crate::check::{Must, NotPassed, RowOutcome, ensure};
use crate::program::MatmulProgram;
use crate::raw::{File, Map};
pub use choices::CallChoices;
pub use world::{Limits, World};

/// Length and kind of a run.
#[derive(Clone, Copy, Debug, clap::Args)]
pub struct Options {
    /// Calls to make, at least
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    pub steps: u64,
    /// Make calls that trigger known bugs of the driver, too
    #[arg(long)]
    pub known_bugs: bool,
}

/// Threads of a round, and calls of each.
const THREADS: u64 = 2;
const STEPS: u64 = 100;
/// Number of tasks of a thread in a round that may hang.
const HANGS: u32 = 3;

/// Makes random calls on `device`, and returns their number. The first round has this seed;
/// each next round adds 1.
///
/// # Errors
/// The check that failed, with the seed of its round.
pub fn run(device: &Device, mut seed: u64, options: Options) -> Result<u64, NotPassed> {
    let mut steps = 0;
    while steps < options.steps {
        round(device, seed, options.known_bugs).map_err(|reason| match reason {
            NotPassed::Fail(why) => {
                NotPassed::Fail(format!("{why} (--seed {seed} --steps {})", THREADS * STEPS))
            }
            skip @ NotPassed::Skip(_) => skip,
        })?;
        steps += THREADS * STEPS;
        seed = seed.wrapping_add(1);
    }
    Ok(steps)
}

fn round(device: &Device, seed: u64, known_bugs: bool) -> RowOutcome {
    let canary = Canary::new(device)?;
    // Each thread has two files, and one that it shares with the others.
    let shared = device.reopen()?;
    let worlds = (0..THREADS).map(|thread| {
        let files = [shared.clone(), device.reopen()?, device.reopen()?];
        let first = fastrand::Rng::with_seed(seed);
        let rng = (0..thread).fold(first, |mut before, _| before.fork());
        let limits = Limits {
            hangs: HANGS,
            known_bugs,
            forks: true,
        };
        World::new(&files, rng, limits)
    });
    let mut worlds = worlds.collect::<Result<Vec<_>, NotPassed>>()?;
    let outcomes: Vec<RowOutcome> = thread::scope(|scope| {
        let threads: Vec<_> = worlds
            .iter_mut()
            .map(|world| scope.spawn(|| steps(world)))
            .collect();
        let panicked = || NotPassed::Fail("a thread panicked".to_owned());
        let joined = threads.into_iter().map(|thread| thread.join());
        joined
            .map(|end| end.unwrap_or_else(|_| Err(panicked())))
            .collect()
    });
    let settled: Vec<RowOutcome> = if known_bugs {
        Vec::new()
    } else {
        worlds.iter_mut().map(World::settle).collect()
    };
    canary.check()?;
    if !known_bugs {
        // Keeps today's kernels alive: nothing is freed after its file.
        settle();
        settle();
    }
    drop(worlds);
    outcomes
        .into_iter()
        .chain(settled)
        .collect::<RowOutcome>()?;
    quick(device, |job| job)?.wait(patience())?;
    Ok(())
}

fn steps(world: &mut World<fastrand::Rng>) -> RowOutcome {
    for step in 0..STEPS {
        world.step().map_err(|reason| match reason {
            NotPassed::Fail(why) => NotPassed::Fail(format!("call {step}: {why}")),
            skip @ NotPassed::Skip(_) => skip,
        })?;
    }
    Ok(())
}

/// Memory of a file that no random call names.
#[derive(Debug)]
pub struct Canary {
    file: File,
    bo: sys::CreateBo,
    map: Map,
}

/// Bytes of it: four pages, at the addresses of the first objects of all files.
const CANARY: usize = 4 * PAGE_BYTES;

fn canary(at: usize) -> u8 {
    (at ^ at >> 8) as u8 | 1
}

impl Canary {
    /// A separate file, with memory in it.
    ///
    /// # Errors
    /// If the file or its memory cannot be made.
    pub fn new(device: &Device) -> Result<Self, NotPassed> {
        let file = File::new(&device.reopen()?);
        let bo = file.create(CANARY as u32).must("CREATE_BO")?;
        let map = file.map_shared(bo.offset, CANARY).must("mmap")?;
        (0..CANARY).for_each(|at| map.set(at, canary(at)));
        Ok(Self { file, bo, map })
    }

    /// Fails unless the memory is as it was, and new memory is zeros.
    ///
    /// # Errors
    /// The check that failed.
    pub fn check(self) -> RowOutcome {
        let same = (0..CANARY).all(|at| self.map.get(at) == canary(at));
        ensure("the memory of another file is unchanged", same)?;
        // This object may get pages of other files.
        let fresh = self.file.create(CANARY as u32).must("CREATE_BO")?;
        let map = self.file.map_shared(fresh.offset, CANARY).must("mmap")?;
        ensure("a new object is zeros", map.is_zero())?;
        drop((self.map, map));
        self.file.close(fresh.handle).must("GEM_CLOSE")?;
        self.file.close(self.bo.handle).must("GEM_CLOSE")
    }
}

/// Fails unless a matmul is right on a file, which is closed at once. Not for today's
/// kernels, which may be damaged by that.
///
/// # Errors
/// The check that failed.
pub fn multiplies(device: &Device) -> RowOutcome {
    let file = File::new(&device.reopen()?);
    let matmul = MatmulProgram::new(&file, 3, None)?;
    matmul.run(&file)?;
    matmul.check_own()
}
