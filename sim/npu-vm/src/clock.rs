// SPDX-License-Identifier: MIT OR Apache-2.0
//! The guest's clock, which stops while a task is computed.
//!
//! The driver kills a job after 500 ms, and the model is some hundred times
//! slower than the device. So the guest is frozen while a core computes, and
//! the task's time on the device passes afterwards. All cores freeze together,
//! as they share the guest's clock.

use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The guest's clock, for the device side.
#[derive(Debug)]
pub(crate) struct GuestClock {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug)]
struct State {
    start: Instant,
    /// Time that the guest was frozen, without a freeze that still lasts.
    frozen: Duration,
    frozen_since: Option<Instant>,
    /// Number of tasks that are being computed.
    computing: usize,
}

/// A task that is being computed, during which the guest is frozen.
#[derive(Debug)]
pub(crate) struct ComputingTask {
    clock: Arc<GuestClock>,
    /// The guest's time when the task began.
    pub(crate) start: Duration,
}

impl GuestClock {
    /// A clock that starts now.
    pub(crate) fn new() -> Self {
        Self {
            state: Mutex::new(State {
                start: Instant::now(),
                frozen: Duration::ZERO,
                frozen_since: None,
                computing: 0,
            }),
            changed: Condvar::new(),
        }
    }

    /// The guest's time.
    pub(crate) fn now(&self) -> Duration {
        let state = self.lock();
        let until = state.frozen_since.unwrap_or_else(Instant::now);
        until.saturating_duration_since(state.start) - state.frozen
    }

    /// Starts a task.
    pub(crate) fn compute(self: &Arc<Self>) -> ComputingTask {
        let start = self.now();
        self.lock().computing += 1;
        self.changed.notify_all();
        let clock = Arc::clone(self);
        ComputingTask { clock, start }
    }

    /// Waits while the guest is frozen.
    pub(crate) fn wait_thawed(&self) {
        let state = self.lock();
        let frozen = |state: &mut State| state.frozen_since.is_some();
        drop(self.changed.wait_while(state, frozen));
    }

    /// Freezes the guest, with `freeze`, while tasks are computed. A task that
    /// ends before the freeze causes none.
    ///
    /// # Errors
    /// The first error of `freeze`.
    pub(crate) fn keep(&self, mut freeze: impl FnMut(bool) -> io::Result<()>) -> io::Result<()> {
        let mut state = self.lock();
        loop {
            let wanted = state.computing > 0;
            if wanted == state.frozen_since.is_some() {
                let waited = self.changed.wait(state);
                state = waited.unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            // QEMU answers when the guest has stopped or continues.
            drop(state);
            freeze(wanted)?;
            state = self.lock();
            match state.frozen_since.take() {
                Some(since) => state.frozen += since.elapsed(),
                None => state.frozen_since = Some(Instant::now()),
            }
            self.changed.notify_all();
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for ComputingTask {
    fn drop(&mut self) {
        self.clock.lock().computing -= 1;
        self.clock.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::thread;

    use super::*;

    /// A clock, and the calls that freeze (true) or thaw the guest.
    fn clock() -> (Arc<GuestClock>, mpsc::Receiver<bool>) {
        let (sender, freezes) = mpsc::channel();
        let clock = Arc::new(GuestClock::new());
        let kept = Arc::clone(&clock);
        thread::spawn(move || kept.keep(|frozen| sender.send(frozen).map_err(io::Error::other)));
        (clock, freezes)
    }

    #[test]
    fn the_guest_is_frozen_until_the_last_task_is_computed() {
        let (clock, freezes) = clock();
        let first = clock.compute();
        assert!(freezes.recv().unwrap());
        let second = clock.compute();
        drop(first);
        assert!(freezes.try_recv().is_err());
        drop(second);
        assert!(!freezes.recv().unwrap());
    }

    #[test]
    fn frozen_time_does_not_pass() {
        let (clock, freezes) = clock();
        let computing = clock.compute();
        assert!(freezes.recv().unwrap());
        let mut state = clock.lock();
        while state.frozen_since.is_none() {
            state = clock.changed.wait(state).unwrap();
        }
        drop(state);
        let before = clock.now();
        thread::sleep(Duration::from_millis(2));
        assert_eq!(clock.now(), before);
        drop(computing);
        assert!(!freezes.recv().unwrap());
        while clock.now() == before {
            thread::yield_now();
        }
    }
}
