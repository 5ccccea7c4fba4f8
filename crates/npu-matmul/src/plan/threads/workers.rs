// SPDX-License-Identifier: MIT OR Apache-2.0
//! Separate threads of an engine.

use std::num::NonZeroUsize;

use rayon::ThreadPool;
use rustix::thread::{CpuSet, sched_setaffinity};

use super::cpus::{Cpus, available};
use super::setting::{Pinning, Threads, ThreadsError};
use super::start::{own_pool, run_parallel};

impl Threads {
    /// Starts the threads; fewer if the system does not allow as many.
    pub(crate) fn start(self) -> Result<Workers, ThreadsError> {
        let pinned_to = match self.pinning {
            Pinning::IfCpusDiffer => Some(Cpus::allowed()?).filter(|cpus| !cpus.uniform),
            Pinning::Pin => Some(Cpus::allowed()?),
            Pinning::Free => None,
        };
        let count = self.count.map_or_else(available, NonZeroUsize::get);
        let pool = own_pool(count).map_err(|error| ThreadsError::Start { error })?;
        if let Some(cpus) = pinned_to {
            let pinned =
                pool.broadcast(|thread| cpus.for_thread(thread.index()).map_or(Ok(()), pin));
            pinned.into_iter().collect::<Result<(), _>>()?;
        }
        Ok(Workers(Some(pool)))
    }
}

/// Pins the calling thread to one CPU.
fn pin(cpu: usize) -> Result<(), ThreadsError> {
    let mut only = CpuSet::new();
    only.set(cpu);
    sched_setaffinity(None, &only).map_err(|errno| ThreadsError::Pin { cpu, errno })
}

/// The threads of an engine: a separate pool, or the caller's.
#[derive(Debug, Default)]
pub(crate) struct Workers(Option<ThreadPool>);

impl Workers {
    /// Runs `body`; its parallel loops use these threads.
    pub(crate) fn run<T: Send>(&self, body: impl FnOnce() -> T + Send) -> T {
        match &self.0 {
            Some(pool) => pool.install(body),
            None => run_parallel(body),
        }
    }
}

#[cfg(test)]
mod tests {
    use rustix::thread::sched_getaffinity;

    use super::*;
    use crate::plan::threads::setting::MOST_THREADS;

    #[test]
    fn there_are_as_many_as_were_wanted() {
        for text in ["1", "3", "3,free"] {
            let workers = text.parse::<Threads>().unwrap().start().unwrap();
            let count = workers.run(rayon::current_num_threads);
            assert_eq!(count.to_string(), text.split(',').next().unwrap());
        }
        let all = Threads::default().start().unwrap();
        assert_eq!(all.run(rayon::current_num_threads), available());
        let callers = Workers::default();
        assert_eq!(
            callers.run(rayon::current_num_threads),
            rayon::current_num_threads()
        );
    }

    /// Each pinned thread gets one of the CPUs that this thread may use; this thread's own mask
    /// stays.
    #[test]
    fn pinned_threads_have_one_cpu_each() {
        let before = sched_getaffinity(None).unwrap();
        let workers = "3,pin".parse::<Threads>().unwrap().start().unwrap();
        let masks = workers.0.as_ref().unwrap();
        let masks = masks.broadcast(|_| sched_getaffinity(None).unwrap());
        for mask in &masks {
            let cpus: Vec<_> = (0..MOST_THREADS).filter(|&cpu| mask.is_set(cpu)).collect();
            assert_eq!(cpus.len(), 1);
            assert!(before.is_set(cpus[0]));
        }
        assert_eq!(sched_getaffinity(None).unwrap(), before);
        let free = "2,free".parse::<Threads>().unwrap().start().unwrap();
        let masks = free.0.as_ref().unwrap();
        for mask in masks.broadcast(|_| sched_getaffinity(None).unwrap()) {
            assert_eq!(mask, before);
        }
    }
}
