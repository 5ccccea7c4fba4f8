// SPDX-License-Identifier: MIT OR Apache-2.0
//! What waits for a job, and what outlives it; `tests/hw` has the answers of
//! PREP_BO and FINI_BO.

use std::time::Duration;

use rustix::io::Errno;

use crate::client::*;
use crate::script::Step;

const GATE: u32 = 1;

#[test]
fn closing_busy_objects_lets_the_job_finish() {
    let bench = Bench::new(1);
    let client = bench.client();
    let out = client.create(4096).unwrap();
    let map = client.map(out);
    let write = Step::Write {
        iova: out.iova,
        value: 3,
    };
    let program = client.program(&[Step::Wait { gate: GATE }, write]);
    let probe = client.create(4096).unwrap();
    client
        .submit(&[JobSpec::new(&program, &[program.bo], &[out, probe])])
        .unwrap();
    client.close(out.handle).unwrap();
    client.close(program.bo.handle).unwrap();
    assert_eq!(client.prep(out.handle, 0), Err(Errno::NOENT));
    let elsewhere = client.create(4096).unwrap();
    assert!(elsewhere.iova > probe.iova, "the address is not free yet");
    bench.stage.open_gate(GATE);
    client.prep(probe.handle, FOREVER).unwrap();
    let mut bytes = [0; 4];
    read(&map, 0, &mut bytes);
    assert_eq!(bytes, 3u32.to_le_bytes(), "the write landed");
    assert_eq!(
        client.create(32).unwrap().iova,
        program.bo.iova,
        "now it is"
    );
}

/// Signals end a wait, or resume it, as the ioctl of the real driver.
#[cfg(not(miri))]
mod signals {
    use std::sync::atomic::{AtomicU32, Ordering};

    use nix::sys::pthread::{pthread_kill, pthread_self};
    use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};

    use super::*;

    static HANDLED: AtomicU32 = AtomicU32::new(0);

    extern "C" fn handler(_: i32) {
        HANDLED.fetch_add(1, Ordering::SeqCst);
    }

    fn install(signal: Signal, flags: SaFlags) {
        let action = SigAction::new(SigHandler::Handler(handler), flags, SigSet::empty());
        // SAFETY: the handler only touches an atomic, which is allowed in a
        // signal handler.
        unsafe { sigaction(signal, &action) }.unwrap();
    }

    /// How many handlers have to run before a wait counts as resumed.
    const HITS: u32 = 20;
    /// Signals sent at most, a millisecond apart.
    const MAX_SHOTS: u32 = 5000;

    /// Waits with `timeout` in a thread that gets `signal` until the wait
    /// ends or enough handlers ran, then lets the job finish.
    fn wait_under_fire(signal: Signal, timeout: i64) -> Result<(), Errno> {
        let bench = Bench::new(1);
        let client = bench.client();
        let out = client.create(4096).unwrap();
        client.run(&[Step::Wait { gate: GATE }], &[], &[out]);
        let (sender, receiver) = std::sync::mpsc::channel();
        std::thread::scope(|scope| {
            let waiter = scope.spawn(move || {
                sender.send(pthread_self()).unwrap();
                let result = client.prep(out.handle, timeout);
                // Keep the thread alive until it is no longer shot at.
                drop(client);
                (result, sender)
            });
            let thread = receiver.recv().unwrap();
            let before = HANDLED.load(Ordering::SeqCst);
            for _shot in 0..MAX_SHOTS {
                if waiter.is_finished() || HANDLED.load(Ordering::SeqCst) >= before + HITS {
                    break;
                }
                if pthread_kill(thread, signal).is_err() {
                    break;
                }
                std::thread::sleep(Duration::from_millis(1));
            }
            bench.stage.open_gate(GATE);
            waiter.join().unwrap().0
        })
    }

    #[test]
    fn handlers_interrupt_or_restart() {
        install(Signal::SIGUSR1, SaFlags::empty());
        install(Signal::SIGUSR2, SaFlags::SA_RESTART);
        let far = after(Duration::from_secs(600));
        for timeout in [far, i64::MAX] {
            assert_eq!(wait_under_fire(Signal::SIGUSR2, timeout), Ok(()));
            assert_eq!(wait_under_fire(Signal::SIGUSR1, timeout), Err(Errno::INTR));
        }
    }
}
