// SPDX-License-Identifier: MIT OR Apache-2.0
//! Signals that interrupt a system call of one thread.

use std::sync::Mutex;
use std::thread;
use std::time::Duration;

use nix::sys::pthread::{Pthread, pthread_kill, pthread_self};
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};

use crate::check::{Must, NotPassed};

/// A signal that has no other use here.
const SIGNAL: Signal = Signal::SIGUSR1;

/// Time between two signals, so that many of them fall into the wait.
const PERIOD: Duration = Duration::from_millis(5);

/// A lock, as the disposition of a signal is one for the whole process.
static IN_USE: Mutex<()> = Mutex::new(());

extern "C" fn ignore(_: i32) {}

/// Runs `call` in a separate thread that gets a signal every few milliseconds until
/// it returns. The signal's handler does nothing. `after` gets the number of signals
/// so far.
pub(crate) fn under_signals<T: Send>(
    restart: bool,
    call: impl FnOnce() -> T + Send,
    mut after: impl FnMut(usize) -> Result<(), NotPassed>,
) -> Result<T, NotPassed> {
    let _guard = IN_USE.lock().must("another row with signals failed")?;
    let flags = if restart {
        SaFlags::SA_RESTART
    } else {
        SaFlags::empty()
    };
    let handler = SigAction::new(SigHandler::Handler(ignore), flags, SigSet::empty());
    // SAFETY: the handler does nothing, which is allowed at any point.
    let before = unsafe { sigaction(SIGNAL, &handler) }.must("sigaction")?;
    let result = thread::scope(|scope| {
        let (tell, told) = std::sync::mpsc::channel();
        let caller = scope.spawn(move || {
            // A send fails only if the receiver has given up. The id is sent as a
            // number, as musl's is a pointer.
            let _ = tell.send(pthread_self() as usize);
            call()
        });
        let thread = told.recv().must("the thread did not start")?;
        let mut count = 0;
        while !caller.is_finished() {
            thread::sleep(PERIOD);
            // A thread that has ended is still there until it is joined.
            pthread_kill(thread as Pthread, SIGNAL).must("pthread_kill")?;
            count += 1;
            after(count)?;
        }
        caller
            .join()
            .map_err(|_| NotPassed::Fail("the thread panicked".to_owned()))
    });
    // SAFETY: restores the earlier disposition.
    unsafe { sigaction(SIGNAL, &before) }.must("sigaction")?;
    result
}
