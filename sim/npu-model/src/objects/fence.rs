// SPDX-License-Identifier: MIT OR Apache-2.0
//! Job fences. A fence is signalled once, with or without an error. A wait for
//! it behaves like the kernel's `dma_resv_wait_timeout`.
//!
//! A wait ends on completion, at an absolute deadline, or when a signal handler
//! runs. For the last case the thread must sleep in a system call that the
//! kernel treats like the real ioctl: it returns `EINTR` after a handler
//! without `SA_RESTART`, and resumes after one with it. `poll` and timed futex
//! waits never resume; a read of a timerfd does. So each wait has a timerfd
//! that expires at its deadline, and signalling the fence makes the timer
//! expire at once.
//!
//! As in the kernel, a fence also has a context, which is a timeline, and a
//! number on it. A fence is not signalled before the earlier ones of its
//! timeline.

use std::fmt;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError, Weak};

use rocket_uapi::{Deadline, FenceStatus, Wake, monotonic_ns};
use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use rustix::time::{Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec};

use crate::base::lock::lock;

/// The next fence context. All drivers of a kernel share the numbers
/// (`dma_fence_context_alloc`); 0 is for fences that are signalled from the
/// start.
static NEXT_CONTEXT: AtomicU64 = AtomicU64::new(1);

/// Allocates `count` consecutive contexts and returns the first.
pub(crate) fn new_contexts(count: u64) -> u64 {
    NEXT_CONTEXT.fetch_add(count, Ordering::Relaxed)
}

/// The creator of a fence, which decides its names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Maker {
    /// The kernel itself: there is nothing to wait for.
    #[default]
    Stub,
    /// A core, for a job.
    Core(usize),
    /// A client, with a sw_sync timeline.
    Client,
}

/// Address of the first core's registers in the RK3588, and the distance to the
/// next core's. The kernel names a core's scheduler after its device.
const FIRST_CORE: usize = 0xfdab_0000;
const CORE_STEP: usize = 0x1_0000;

/// Receives a call when a fence that it watches is signalled.
pub(crate) trait Watcher: fmt::Debug + Send + Sync {
    /// A watched fence was signalled. The caller holds no lock of the fence.
    fn signalled(&self);
}

/// Completion of one job.
#[derive(Debug, Default)]
pub(crate) struct Fence {
    context: u64,
    seqno: u64,
    maker: Maker,
    inner: Mutex<Inner>,
    /// For waits without a timerfd.
    signalled: Condvar,
}

#[derive(Debug, Default)]
struct Inner {
    result: Option<Result<(), Errno>>,
    /// When it was signalled: CLOCK_MONOTONIC, nanoseconds.
    ended_ns: i64,
    watchers: Vec<Weak<dyn Watcher>>,
    /// Timers of the threads that sleep on this fence.
    sleepers: Vec<Arc<OwnedFd>>,
    /// Whether a client knows of it; see [`Fence::mark_seen`].
    seen: bool,
}

impl Fence {
    /// Fence number `seqno` of the timeline `context`.
    pub(crate) fn new(maker: Maker, context: u64, seqno: u64) -> Self {
        Self {
            context,
            seqno,
            maker,
            ..Self::default()
        }
    }

    /// A fence that is signalled from the start, with the time `ended_ns`.
    pub(crate) fn stub(ended_ns: i64) -> Self {
        Self {
            inner: Mutex::new(Inner {
                result: Some(Ok(())),
                ended_ns,
                ..Inner::default()
            }),
            ..Self::default()
        }
    }

    /// Context and number, which identify the fence in the record of modelled
    /// time.
    pub(crate) fn name(&self) -> crate::base::timeline::FenceName {
        (self.context, self.seqno)
    }

    pub(crate) fn context(&self) -> u64 {
        self.context
    }

    pub(crate) fn seqno(&self) -> u64 {
        self.seqno
    }

    /// When it was signalled, CLOCK_MONOTONIC nanoseconds; `None` if it is
    /// not.
    pub(crate) fn ended_ns(&self) -> Option<i64> {
        let inner = lock(&self.inner);
        inner.result.is_some().then_some(inner.ended_ns)
    }

    /// Names of driver and timeline, as in the kernel. A signalled fence has
    /// dropped its driver and has the names of a detached one (since Linux
    /// 6.17).
    pub(crate) fn names(&self) -> (&'static str, String) {
        match self.maker {
            Maker::Core(core) if self.is_active() => (
                "drm_sched",
                format!("{:x}.npu", FIRST_CORE + core * CORE_STEP),
            ),
            // The kernel uses the name of the program that opened the file.
            Maker::Client if self.is_active() => ("sw_sync", "sw_sync".to_owned()),
            _ => ("detached-driver", "signaled-timeline".to_owned()),
        }
    }

    /// Notifies `watcher` when this is signalled; does nothing if it already
    /// is.
    pub(crate) fn watch(&self, watcher: Weak<dyn Watcher>) {
        let mut inner = lock(&self.inner);
        if inner.result.is_none() {
            inner.watchers.push(watcher);
        }
    }

    pub(crate) fn state(&self) -> FenceStatus {
        match lock(&self.inner).result {
            None => FenceStatus::Active,
            Some(Ok(())) => FenceStatus::Signaled,
            Some(Err(errno)) => FenceStatus::Failed(errno),
        }
    }

    pub(crate) fn is_active(&self) -> bool {
        self.state() == FenceStatus::Active
    }

    /// Records that a client has seen this fence. Returns whether this is the
    /// first time.
    pub(crate) fn mark_seen(&self) -> bool {
        !std::mem::replace(&mut lock(&self.inner).seen, true)
    }

    /// Signals the fence with this result. Only the first call counts.
    pub(crate) fn signal(&self, result: Result<(), Errno>) {
        let mut inner = lock(&self.inner);
        if inner.result.is_some() {
            return;
        }
        inner.result = Some(result);
        inner.ended_ns = monotonic_ns();
        for timer in inner.sleepers.drain(..) {
            wake(&timer);
        }
        let watchers = std::mem::take(&mut inner.watchers);
        drop(inner);
        self.signalled.notify_all();
        for watcher in watchers.iter().filter_map(Weak::upgrade) {
            watcher.signalled();
        }
    }

    /// Sleeps until the fence is signalled.
    ///
    /// # Errors
    /// `ETIMEDOUT` after the deadline, `EINTR` if a signal handler ran.
    pub(crate) fn wait(&self, until: Deadline, wake: Wake<'_>) -> Result<(), Errno> {
        if !self.is_active() {
            return Ok(());
        }
        if until.has_passed() {
            return Err(Errno::TIMEDOUT);
        }
        match timer(until) {
            Some(timer) => self.wait_interruptibly(until, &Arc::new(timer), wake),
            None => self.wait_on_condvar(until),
        }
    }

    fn wait_interruptibly(
        &self,
        until: Deadline,
        timer: &Arc<OwnedFd>,
        wake: Wake<'_>,
    ) -> Result<(), Errno> {
        {
            let mut inner = lock(&self.inner);
            if inner.result.is_some() {
                return Ok(());
            }
            inner.sleepers.push(Arc::clone(timer));
        }
        let slept = match wake {
            Wake::Signal => rustix::io::read(timer, &mut [0; size_of::<u64>()]).map(drop),
            Wake::Readable(other) => expiry_or_readable(timer, other),
            Wake::Now => Err(Errno::INTR),
        };
        let mut inner = lock(&self.inner);
        inner.sleepers.retain(|other| !Arc::ptr_eq(other, timer));
        if inner.result.is_some() {
            return Ok(());
        }
        drop(inner);
        match slept {
            Err(Errno::INTR) => Err(Errno::INTR),
            Ok(()) => Err(Errno::TIMEDOUT),
            // A timerfd read has no other errors. If it gets one, the wait must
            // still end correctly.
            Err(_) => self.wait_on_condvar(until),
        }
    }

    /// The wait on hosts without timerfd (Miri) or without a free file
    /// descriptor. No signal handler ends it.
    fn wait_on_condvar(&self, until: Deadline) -> Result<(), Errno> {
        let is_active = |inner: &mut Inner| inner.result.is_none();
        let inner = lock(&self.inner);
        let waited = self
            .signalled
            .wait_timeout_while(inner, until.remaining(), is_active);
        match waited.unwrap_or_else(PoisonError::into_inner).0.result {
            Some(_) => Ok(()),
            None => Err(Errno::TIMEDOUT),
        }
    }
}

/// Sleeps until the timer has expired; `EINTR` if `other` becomes readable or
/// hangs up first.
fn expiry_or_readable(timer: &OwnedFd, other: BorrowedFd<'_>) -> Result<(), Errno> {
    loop {
        let mut fds = [
            PollFd::new(timer, PollFlags::IN),
            PollFd::from_borrowed_fd(other, PollFlags::IN),
        ];
        match rustix::event::poll(&mut fds, None) {
            Ok(_) if !fds[0].revents().is_empty() => return Ok(()),
            Ok(_) if !fds[1].revents().is_empty() => return Err(Errno::INTR),
            // A signal of this process is not one of the caller's.
            Ok(_) | Err(Errno::INTR) => (),
            Err(errno) => return Err(errno),
        }
    }
}

/// A timer that expires at `until`; `None` if the host has none.
fn timer(until: Deadline) -> Option<OwnedFd> {
    if cfg!(miri) {
        return None;
    }
    let timer =
        rustix::time::timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC).ok()?;
    if until != Deadline::FOREVER {
        const SECOND: i64 = 1_000_000_000;
        let at = Timespec {
            tv_sec: until.as_nanos() / SECOND,
            tv_nsec: until.as_nanos() % SECOND,
        };
        arm(&timer, at).ok()?;
    }
    Some(timer)
}

fn arm(timer: &OwnedFd, at: Timespec) -> Result<(), Errno> {
    let new = Itimerspec {
        it_interval: Timespec::default(),
        it_value: at,
    };
    rustix::time::timerfd_settime(timer, TimerfdTimerFlags::ABSTIME, &new).map(drop)
}

/// Makes a sleeping timer expire now: its deadline becomes the first
/// nanosecond of the clock (0 would disarm it).
fn wake(timer: &OwnedFd) {
    let past = Timespec {
        tv_sec: 0,
        tv_nsec: 1,
    };
    if let Err(errno) = arm(timer, past) {
        tracing::error!(%errno, "cannot wake a thread that waits for a fence");
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_first_signal_counts() {
        let fence = Fence::default();
        assert_eq!(fence.state(), FenceStatus::Active);
        fence.signal(Err(Errno::CANCELED));
        fence.signal(Ok(()));
        assert_eq!(fence.state(), FenceStatus::Failed(Errno::CANCELED));
        assert_eq!(
            fence.wait(Deadline::NOW, Wake::Signal),
            Ok(()),
            "whatever the deadline"
        );
    }

    #[test]
    fn a_wait_ends_at_its_deadline() {
        let fence = Fence::default();
        for past in [i64::MIN, -1, 0, 1] {
            assert_eq!(
                fence.wait(Deadline::from_nanos(past), Wake::Signal),
                Err(Errno::TIMEDOUT)
            );
        }
        let soon = Deadline::after(Duration::from_millis(5));
        assert_eq!(fence.wait(soon, Wake::Signal), Err(Errno::TIMEDOUT));
        assert!(soon.remaining().is_zero());
        assert!(lock(&fence.inner).sleepers.is_empty());
    }

    #[test]
    fn a_signal_wakes_all_who_wait() {
        let fence = Arc::new(Fence::default());
        let far = Deadline::after(Duration::from_secs(3600));
        let sleepers: Vec<_> = [far, Deadline::FOREVER, far]
            .into_iter()
            .map(|until| {
                let fence = Arc::clone(&fence);
                std::thread::spawn(move || fence.wait(until, Wake::Signal))
            })
            .collect();
        if !cfg!(miri) {
            while lock(&fence.inner).sleepers.len() < 3 {
                std::thread::yield_now();
            }
        }
        fence.signal(Ok(()));
        for sleeper in sleepers {
            assert_eq!(sleeper.join().unwrap(), Ok(()));
        }
    }
}
