// SPDX-License-Identifier: MIT OR Apache-2.0
//! Starts thread pools with as many threads as the system allows.
//!
//! rayon's own pools start all threads or none; if its global pool cannot start, the first parallel
//! loop panics. So this module starts the threads before it builds a rayon pool from them.

use std::io;
use std::sync::OnceLock;
use std::sync::mpsc::{self, Sender};
use std::thread;

use rayon::{ThreadBuilder, ThreadPool, ThreadPoolBuilder};

use super::cpus::available;

/// Environment variable that sets the size of rayon's global pool.
const RAYON_VARIABLE: &str = "RAYON_NUM_THREADS";

/// Started threads that wait for their pool.
type Waiting = Vec<Sender<ThreadBuilder>>;

/// Starts up to `count` threads.
///
/// # Errors
/// The system's error if not one could be started.
fn start(
    count: usize,
    mut spawn: impl FnMut(thread::Builder, Box<dyn FnOnce() + Send>) -> io::Result<()>,
) -> io::Result<Waiting> {
    let mut waiting = Vec::new();
    for index in 0..count {
        let (sender, receiver) = mpsc::channel::<ThreadBuilder>();
        let work = move || {
            // If the pool was not built, the thread ends.
            if let Ok(thread) = receiver.recv() {
                thread.run();
            }
        };
        // `top -H` shows these names.
        let builder = thread::Builder::new().name(format!("npu-cpu-{index}"));
        match spawn(builder, Box::new(work)) {
            Ok(()) => waiting.push(sender),
            Err(error) if waiting.is_empty() => return Err(error),
            Err(error) => {
                tracing::warn!(
                    wanted = count,
                    started = index,
                    %error,
                    "started fewer threads than requested"
                );
                break;
            }
        }
    }
    Ok(waiting)
}

fn spawn(builder: thread::Builder, work: Box<dyn FnOnce() + Send>) -> io::Result<()> {
    builder.spawn(work).map(drop)
}

/// Gives each waiting thread its part of a pool.
fn hand_over(waiting: &Waiting) -> impl FnMut(ThreadBuilder) -> io::Result<()> {
    |thread| {
        let gone = || io::Error::from(io::ErrorKind::BrokenPipe);
        let sender = waiting.get(thread.index()).ok_or_else(gone)?;
        sender.send(thread).map_err(|_| gone())
    }
}

/// Builds a pool of up to `count` threads.
///
/// # Errors
/// The system's error if not one could be started.
pub(super) fn own_pool(count: usize) -> io::Result<ThreadPool> {
    let waiting = start(count, spawn)?;
    let builder = ThreadPoolBuilder::new().num_threads(waiting.len());
    let pool = builder.spawn_handler(hand_over(&waiting)).build();
    pool.map_err(io::Error::other)
}

/// Starts rayon's global pool if it is not running. Returns false if no thread could be started;
/// then the global pool must not be used.
fn start_global() -> bool {
    let set = std::env::var(RAYON_VARIABLE).ok();
    let set = set.and_then(|text| text.parse().ok());
    let count = set.filter(|&count| count > 0).unwrap_or_else(available);
    let Ok(waiting) = start(count, spawn) else {
        tracing::warn!("cannot start a thread: each caller does its parallel work alone");
        return false;
    };
    // Fails if the program started the global pool in the meantime; then that one is used.
    let builder = ThreadPoolBuilder::new().num_threads(waiting.len());
    let _ = builder.spawn_handler(hand_over(&waiting)).build_global();
    true
}

/// Makes this thread a pool with itself as the only member.
fn work_alone() {
    // Lasts until the thread ends. The thread is in no other pool: the caller has checked.
    let _ = ThreadPoolBuilder::new()
        .num_threads(1)
        .use_current_thread()
        .build();
}

/// Runs `body` with parallel loops in the caller's pool, or else in rayon's global pool. If the
/// system cannot start threads, they run in the calling thread.
pub fn run_parallel<T>(body: impl FnOnce() -> T) -> T {
    static HAS_GLOBAL: OnceLock<bool> = OnceLock::new();
    if rayon::current_thread_index().is_none() && !*HAS_GLOBAL.get_or_init(start_global) {
        work_alone();
    }
    body()
}

#[cfg(test)]
mod tests {
    use rayon::prelude::*;

    use super::*;

    fn sum() -> usize {
        (0..1000_usize).into_par_iter().sum()
    }

    #[test]
    fn fewer_threads_than_wanted_are_a_pool() {
        for given in [0, 1, 3] {
            let mut left = given;
            let few = |builder, work| {
                if left == 0 {
                    return Err(io::ErrorKind::WouldBlock.into());
                }
                left -= 1;
                spawn(builder, work)
            };
            let Ok(waiting) = start(5, few) else {
                assert_eq!(given, 0);
                continue;
            };
            let builder = ThreadPoolBuilder::new().num_threads(waiting.len());
            let pool = builder.spawn_handler(hand_over(&waiting)).build().unwrap();
            assert_eq!(pool.current_num_threads(), given);
            assert_eq!(pool.install(sum), 499_500);
            assert_eq!(pool.broadcast(|_| ()).len(), given);
        }
    }

    #[test]
    fn a_thread_can_work_alone() {
        let alone = thread::spawn(|| {
            work_alone();
            let own = thread::current().id();
            let all_here = (0..100)
                .into_par_iter()
                .all(|_| thread::current().id() == own);
            (rayon::current_num_threads(), all_here, run_parallel(sum))
        });
        assert_eq!(alone.join().unwrap(), (1, true, 499_500));
    }
}
