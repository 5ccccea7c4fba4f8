// SPDX-License-Identifier: MIT OR Apache-2.0
//! Threads for calls, one for each. A thread waits a while for another call.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

/// How long a thread waits for another call.
const LINGER: Duration = Duration::from_secs(5);

type Task = Box<dyn FnOnce() + Send>;

/// A pool that starts a thread for a task when none is idle, if the host can.
#[derive(Default)]
pub(crate) struct ThreadPool {
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    more: Condvar,
}

#[derive(Default)]
struct State {
    tasks: VecDeque<Task>,
    idle: usize,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The loop of a thread: runs tasks until there has been none for a while.
    fn work(&self) {
        let mut state = self.lock();
        loop {
            while let Some(task) = state.tasks.pop_front() {
                drop(state);
                task();
                state = self.lock();
            }
            state.idle += 1;
            let (back, waited) = self
                .more
                .wait_timeout(state, LINGER)
                .unwrap_or_else(PoisonError::into_inner);
            state = back;
            state.idle -= 1;
            if waited.timed_out() && state.tasks.is_empty() {
                return;
            }
        }
    }
}

impl ThreadPool {
    /// Runs `task` on another thread, or on this one if none can be started.
    pub(crate) fn run(&self, task: Task) {
        let mut state = self.shared.lock();
        state.tasks.push_back(task);
        if state.tasks.len() <= state.idle {
            drop(state);
            self.shared.more.notify_one();
            return;
        }
        drop(state);
        let shared = Arc::clone(&self.shared);
        let started = thread::Builder::new()
            .name("npu-call".to_owned())
            .spawn(move || shared.work());
        if let Err(error) = started {
            tracing::warn!(%error, "cannot start a thread for a call");
            let task = self.shared.lock().tasks.pop_front();
            if let Some(task) = task {
                task();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    #[test]
    fn a_task_that_waits_is_in_nobodys_way() {
        let pool = ThreadPool::default();
        let (done, results) = mpsc::channel();
        let mut gates = Vec::new();
        for number in 0..8 {
            let (open, gate) = mpsc::channel::<()>();
            let done = done.clone();
            gates.push(open);
            pool.run(Box::new(move || {
                gate.recv().unwrap();
                done.send(number).unwrap();
            }));
        }
        for number in (0..8).rev() {
            gates[number].send(()).unwrap();
            assert_eq!(results.recv().unwrap(), number);
        }
        // Idle threads are used again.
        for number in 100..200 {
            let done = done.clone();
            pool.run(Box::new(move || done.send(number).unwrap()));
            assert_eq!(results.recv().unwrap(), number);
        }
    }
}
