// SPDX-License-Identifier: MIT OR Apache-2.0
//! Bugs of the real driver that a client can trigger.
//!
//! Each trigger causes an [`Event::KernelBug`](crate::base::event::Event::KernelBug) (an interrupt with a
//! DMA error already causes another event). The bug has its effect only if it is enabled: only
//! tests of clients that must avoid the bug need a model that goes down.

use std::fmt;

/// A bug of the kernel. docs/model.md has the triggers, the effects in the model and the
/// evidence, docs/driver.md the kernels with the bug and what it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Bug {
    /// A buffer object is freed after the file that created it was closed.
    ///
    /// To avoid it: munmap, GEM_CLOSE, close dma-bufs, wait ([`free_delay`]), close.
    ///
    /// [`free_delay`]: crate::driver::DriverProfile::free_delay
    UseAfterClose,
    /// CREATE_BO of 2 GiB and more fails, but leaves its range mapped. Access of the NPU to the
    /// freed pages is not modelled: it faults.
    HugeBo,
    /// A failed CREATE_BO leaves a handle to freed memory, in kernels without
    /// [`create_unwinds`](crate::driver::DriverProfile::create_unwinds).
    DanglingHandle,
    /// A job of a SUBMIT that fails before it is queued, because of an unknown handle or
    /// its tasks: the kernel releases an address space that it has not taken, in kernels
    /// without [`submit_unwinds`](crate::driver::DriverProfile::submit_unwinds).
    NullDomain,
    /// A job of a SUBMIT with an unreadable task or a task without words: the kernel frees
    /// the task array twice, in the same kernels.
    TaskDoubleFree,
    /// `DRM_IOCTL_GET_UNIQUE` on any accel node follows a null pointer.
    GetUnique,
    /// SUBMIT with a count whose array exceeds `INT_MAX` bytes: `kvmalloc` prints a warning with a
    /// stack trace.
    CountWarning,
    /// An interrupt with a DMA error bit: the driver prints a warning with a stack trace each time.
    DmaWarning,
}

impl Bug {
    /// Every bug that the model can have.
    pub const ALL: [Self; 8] = [
        Self::UseAfterClose,
        Self::HugeBo,
        Self::DanglingHandle,
        Self::NullDomain,
        Self::TaskDoubleFree,
        Self::GetUnique,
        Self::CountWarning,
        Self::DmaWarning,
    ];

    /// Short name, as in the option `bugs`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::UseAfterClose => "use-after-close",
            Self::HugeBo => "huge-bo",
            Self::DanglingHandle => "dangling-handle",
            Self::NullDomain => "null-domain",
            Self::TaskDoubleFree => "task-double-free",
            Self::GetUnique => "get-unique",
            Self::CountWarning => "count-warning",
            Self::DmaWarning => "dma-warning",
        }
    }

    /// The bug of that name.
    #[must_use]
    pub fn by_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|bug| bug.name() == name)
    }

    /// Whether triggering it takes the kernel down at once. Warnings do too, as with
    /// `panic_on_warn`, since a client would not notice them otherwise.
    pub(crate) const fn is_fatal(self) -> bool {
        !matches!(self, Self::HugeBo)
    }
}

impl fmt::Display for Bug {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_find_their_bugs() {
        for bug in Bug::ALL {
            assert_eq!(Bug::by_name(bug.name()), Some(bug));
        }
    }
}
