// SPDX-License-Identifier: MIT OR Apache-2.0
//! State of the modelled kernel, and what happens when a client triggers a bug.
//!
//! The calls of the driver report triggers here. This module decides what the effect
//! is and how it is reported.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};

use rocket_uapi::sys;
use rustix::io::Errno;

use crate::base::bugs::Bug;
use crate::base::event::{Event, EventLog, TaskPlace};
use crate::objects::iommu::AddressSpace;

#[derive(Debug)]
pub(crate) struct Health {
    bugs: BTreeSet<Bug>,
    oopsed: AtomicBool,
    pub(crate) events: EventLog,
}

impl Health {
    pub(crate) fn new(bugs: BTreeSet<Bug>) -> Self {
        Self {
            bugs,
            oopsed: AtomicBool::new(false),
            events: EventLog::default(),
        }
    }

    /// A client triggered `bug` by doing `how`.
    pub(crate) fn run_into(&self, bug: Bug, how: impl Into<String>) {
        let oops = self.has(bug) && bug.is_fatal();
        self.events.push(Event::KernelBug {
            bug,
            how: how.into(),
            oops,
        });
        if oops {
            self.oopsed.store(true, Ordering::Release);
        }
    }

    fn has(&self, bug: Bug) -> bool {
        self.bugs.contains(&bug)
    }

    /// Whether the kernel is down. From then on every call on every file fails with
    /// `ENODEV`, as for an unplugged device. Accepted jobs still end, so that no
    /// client waits for ever. A real kernel may do anything; tests need a defined
    /// behaviour.
    pub(crate) fn is_oopsed(&self) -> bool {
        self.oopsed.load(Ordering::Acquire)
    }
}

/// Triggers whose bugs have effects on the call, or that several calls report.
impl Health {
    /// A count of SUBMIT exceeds the kernel's limit.
    pub(crate) fn absurd_count(&self) {
        self.run_into(
            Bug::CountWarning,
            "SUBMIT with a count above the kernel's limit",
        );
    }

    /// CREATE_BO of `size` bytes, 2 GiB or more, in `space`. Returns its errno.
    pub(crate) fn huge_bo(&self, size: u32, space: &AddressSpace) -> Errno {
        let how = format!("CREATE_BO of {size} bytes; stay below 2 GiB");
        self.run_into(Bug::HugeBo, how);
        let left = self.has(Bug::HugeBo).then(|| space.leave_mapped(size));
        left.and_then(Result::err).unwrap_or(Errno::NOMEM)
    }

    /// CREATE_BO failed with `errno`, in a kernel that does not clean up then:
    /// `leave_handle` leaves a handle without an object. Returns the errno for the
    /// client.
    pub(crate) fn create_failed(
        &self,
        arg: &mut sys::CreateBo,
        errno: Errno,
        leave_handle: impl FnOnce() -> Result<u32, Errno>,
    ) -> Errno {
        if self.has(Bug::DanglingHandle) {
            // The kernel copies the argument out after errors too.
            arg.handle = leave_handle().unwrap_or_default();
        }
        if errno == Errno::NOSPC {
            // Without an address the kernel puts the object at 0, where another one
            // is already. Then it removes the node, which was never allocated.
            let how = "CREATE_BO in a full address space";
            self.run_into(Bug::DanglingHandle, how);
            return Errno::NOMEM;
        }
        errno
    }

    /// A client used a handle that [`Self::create_failed`] left.
    pub(crate) fn dangling_handle_used(&self, handle: u32) {
        let how = format!("used handle {handle}, which a failed CREATE_BO left");
        self.run_into(Bug::DanglingHandle, how);
    }

    /// A job of a SUBMIT cannot be queued for this `reason`, in a kernel that does not clean up
    /// then. It frees the tasks a second time if `frees_tasks`.
    pub(crate) fn not_queued(&self, reason: &str, frees_tasks: bool) {
        let how = format!("SUBMIT of a job that cannot run: {reason}");
        self.run_into(Bug::NullDomain, how.clone());
        if frees_tasks {
            self.run_into(Bug::TaskDoubleFree, how);
        }
    }

    /// An interrupt had a DMA error bit. It has already caused another event.
    pub(crate) fn dma_error(&self, place: TaskPlace) {
        if self.has(Bug::DmaWarning) {
            let how = format!("{place}: an interrupt with a DMA error");
            self.run_into(Bug::DmaWarning, how);
        }
    }
}
