// SPDX-License-Identifier: MIT OR Apache-2.0
//! Settings of one backend (ggml's word for a stream): the number of threads, and the callback that
//! decides whether to stop.

use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::{Arc, Mutex, MutexGuard};

use rayon::{ThreadPool, ThreadPoolBuilder};

use crate::ggml::abi::AbortCallback;
use crate::ggml::cpu_ops::CpuStream;
use crate::ggml::shared::lock;
use crate::ggml::split::KeptSplit;

/// `GGML_MAX_N_THREADS`.
const MOST_THREADS: usize = 512;

/// The settings of one backend. Nothing is set at first.
#[derive(Debug, Default)]
pub(crate) struct Stream {
    threads: Mutex<Threads>,
    abort: Mutex<Option<Abort>>,
    /// The CPU backend for operations of the CPU, from the first one on.
    cpu: Mutex<Option<CpuStream>>,
    split: Mutex<KeptSplit>,
}

#[derive(Debug, Default)]
struct Threads {
    /// `None` before ggml sets it.
    wanted: Option<usize>,
    /// A pool with the number of threads that was wanted when it was made.
    pool: Option<Arc<ThreadPool>>,
}

#[derive(Debug, Clone, Copy)]
struct Abort {
    callback: AbortCallback,
    data: *mut c_void,
}

// SAFETY: `data` is only passed to `callback`, and whoever set both lets the threads that compute
// with this backend call it.
unsafe impl Send for Abort {}

impl Stream {
    /// Uses `count` threads from the next matmul on.
    pub(crate) fn set_threads(&self, count: c_int) {
        let wanted = usize::try_from(count).ok().filter(|count| *count > 0);
        lock(&self.threads).wanted = wanted.map(|count| count.min(MOST_THREADS));
    }

    /// Calls `callback` from the next matmul on; `None` removes it.
    ///
    /// # Safety
    /// `callback` may be called with `data`, from any thread that computes with
    /// this backend, until another is set or the backend is freed.
    pub(crate) unsafe fn set_abort(&self, callback: Option<AbortCallback>, data: *mut c_void) {
        *lock(&self.abort) = callback.map(|callback| Abort { callback, data });
    }

    /// Whether the program asks to stop.
    pub(crate) fn is_aborted(&self) -> bool {
        // Not under the lock: the callback may set another.
        let abort = *lock(&self.abort);
        // SAFETY: by the promise of whoever set it.
        abort.is_some_and(|Abort { callback, data }| unsafe { callback(data) })
    }

    /// The split of the last whole graph.
    pub(crate) fn split(&self) -> MutexGuard<'_, KeptSplit> {
        lock(&self.split)
    }

    /// Runs `body` with a CPU backend of this stream, on the threads that ggml wants. `make`
    /// creates that backend the first time; `None` if it cannot.
    pub(crate) fn on_cpu<T>(
        &self,
        make: impl FnOnce() -> Option<CpuStream>,
        body: impl FnOnce(&mut CpuStream) -> T,
    ) -> Option<T> {
        let mut cpu = lock(&self.cpu);
        if cpu.is_none() {
            *cpu = make();
        }
        cpu.as_mut().map(|cpu| {
            self.apply_to(cpu);
            body(cpu)
        })
    }

    /// Gives a CPU backend the settings of this stream.
    pub(crate) fn apply_to(&self, cpu: &CpuStream) {
        let wanted = lock(&self.threads).wanted;
        if let Some(threads) = wanted.and_then(|count| c_int::try_from(count).ok()) {
            cpu.set_threads(threads);
        }
        let abort = *lock(&self.abort);
        let (callback, data) = abort.map_or((None, ptr::null_mut()), |abort| {
            (Some(abort.callback), abort.data)
        });
        // SAFETY: by the promise of whoever set it.
        unsafe { cpu.set_abort(callback, data) };
    }

    /// Runs `body`, whose parallel parts use the threads that ggml wants; those of the whole
    /// process if ggml has set no number, or if the threads cannot be started.
    pub(crate) fn run<T: Send>(&self, body: impl FnOnce() -> T + Send) -> T {
        match self.pool() {
            Some(pool) => pool.install(body),
            None => npu_matmul::run_parallel(body),
        }
    }

    fn pool(&self) -> Option<Arc<ThreadPool>> {
        let mut threads = lock(&self.threads);
        let wanted = threads.wanted?;
        if let Some(pool) = &threads.pool
            && pool.current_num_threads() == wanted
        {
            return Some(Arc::clone(pool));
        }
        let pool = ThreadPoolBuilder::new()
            .num_threads(wanted)
            // The name that `top -H` shows.
            .thread_name(|index| format!("rocket-{index}"))
            .build();
        threads.pool = pool.ok().map(Arc::new);
        threads.pool.clone()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    #[test]
    fn a_body_has_the_threads_that_were_set() {
        let stream = Stream::default();
        let process = rayon::current_num_threads();
        assert_eq!(stream.run(rayon::current_num_threads), process);
        for count in [3, 1, 3, 5] {
            stream.set_threads(count);
            let seen = stream.run(rayon::current_num_threads);
            assert_eq!(seen, usize::try_from(count).unwrap());
            // The same pool serves while the number stays.
            let [first, second] = [(); 2].map(|()| stream.pool().unwrap());
            assert!(Arc::ptr_eq(&first, &second));
        }
        for nonsense in [0, -1, c_int::MIN] {
            stream.set_threads(nonsense);
            assert_eq!(stream.run(rayon::current_num_threads), process);
        }
        stream.set_threads(c_int::MAX);
        assert_eq!(lock(&stream.threads).wanted, Some(MOST_THREADS));
    }

    #[test]
    fn the_callback_is_asked_with_its_data() {
        /// Returns true from the third call on.
        unsafe extern "C" fn third(data: *mut c_void) -> bool {
            // SAFETY: the test passes the address of an AtomicU32 that lives
            // as long as the stream.
            let asked = unsafe { &*data.cast::<AtomicU32>() };
            asked.fetch_add(1, Ordering::Relaxed) >= 2
        }
        let asked = AtomicU32::new(0);
        let stream = Stream::default();
        assert!(!stream.is_aborted());
        let data = (&raw const asked).cast_mut().cast();
        // SAFETY: `third` takes the address of an AtomicU32.
        unsafe { stream.set_abort(Some(third), data) };
        let answers: Vec<bool> = (0..4).map(|_| stream.is_aborted()).collect();
        assert_eq!(answers, [false, false, true, true]);
        assert_eq!(asked.load(Ordering::Relaxed), 4);
        // SAFETY: no callback is set.
        unsafe { stream.set_abort(None, std::ptr::null_mut()) };
        assert!(!stream.is_aborted());
    }
}
